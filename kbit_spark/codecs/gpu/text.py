"""Lines of generated code."""

from __future__ import annotations

from collections.abc import Sequence


def block(lines: Sequence[str]) -> list[str]:
    """Return lines in braces, with names of their own."""
    return ["{", *indent(lines), "}"]


def indent(lines: Sequence[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f"  {line}" for line in lines]
