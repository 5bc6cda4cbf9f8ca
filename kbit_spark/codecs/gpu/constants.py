"""Bytes and numbers that a kernel needs and no payload has: symbols, defaults, names."""

from __future__ import annotations

from collections.abc import Sequence


class Constants:
    """Arrays in the device's memory, each kept once."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._names: dict[tuple[str, tuple[int, ...]], str] = {}

    def of(self, data: bytes) -> str:
        """Return the name of an array of bytes; it is followed by one more byte, so that none is empty."""
        return self._name("u8", (*data, 0))

    def numbers(self, values: Sequence[int]) -> str:
        """Return the name of an array of 32-bit numbers."""
        return self._name("i32", tuple(values))

    def declarations(self) -> str:
        """Return the arrays' definitions."""
        return "\n".join(
            f"DEVICE const {kind} {name}[] = {{{', '.join(map(str, values))}}};"
            for (kind, values), name in self._names.items()
        )

    def _name(self, kind: str, values: tuple[int, ...]) -> str:
        return self._names.setdefault((kind, values), f"{self._prefix}_{len(self._names)}")
