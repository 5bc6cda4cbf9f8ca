"""What a check finds: one line, with the way out where something is wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from kbit_spark.errors import KbitError

log = logging.getLogger("kbit.doctor")

Level = Literal["ok", "warn", "fail"]
Check = Callable[[], str]
"""Returns what is well, in words; raises `Doubt` or another `KbitError` for what is not."""


class Doubt(KbitError):  # noqa: N818 - what may be intended is no error
    """Something that may be intended, or that cannot be told: no reason to fail."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check; `hint` is the way out, empty where all is well."""

    check: str
    level: Level
    message: str
    hint: str = ""

    def line(self) -> str:
        """Return the finding as one line for a person."""
        level = "FAIL" if self.level == "fail" else self.level
        text = " ".join(self.message.split())
        return f"{level:<5} {self.check:<16} {text}" + (f" ({self.hint})" if self.hint else "")


def examine(checks: Iterable[tuple[str, Check]]) -> list[Finding]:
    """Run every check, whatever the others find."""
    return [_examine(name, check) for name, check in checks]


def _examine(name: str, check: Check) -> Finding:
    try:
        return Finding(name, "ok", check())
    except Doubt as doubt:
        return Finding(name, "warn", doubt.message, doubt.hint)
    except KbitError as error:
        return Finding(name, "fail", error.message, error.hint)
    except Exception as error:  # a doctor outlives the illness
        log.exception("check %s", name)
        return Finding(name, "fail", f"{type(error).__name__}: {error}", "the stack trace is in the log")
