"""Exceptions that a person reads: what is wrong, where, and the way out.

Every error that may reach the terminal is a `KbitError`. `entry.run` prints it as one line, writes the stack trace to
the log file and ends the process with the class's exit code. Anything else that escapes is a bug and exits 1.
"""

from __future__ import annotations


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank, without the blanks around it; "" where there is none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


class KbitError(Exception):
    """A fault with a place and a way out.

    Args:
        message: what is wrong and where, e.g. ``digits-json[0]@91: truncated at byte 12``.
        hint: what to do about it, e.g. a command; empty if the message says it all.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class RunError(KbitError):
    """A run failed: the input, the table or a rank was not as it must be (exit code 1)."""


class UsageError(KbitError):
    """The command line or the configuration is wrong (exit code 2)."""

    exit_code = 2


class MissingRequirement(KbitError):  # noqa: N818 - it names what is missing, as MissingRequirement("Java 17")
    """Something that must be installed is not: Java, a jar, a package (exit code 3)."""

    exit_code = 3


class TrainingError(RunError):
    """A training attempt ended early; `rank` and `step` name the place where that is known."""

    def __init__(self, message: str, hint: str = "", *, rank: int | None = None, step: int | None = None) -> None:
        super().__init__(message, hint)
        self.rank = rank
        self.step = step
