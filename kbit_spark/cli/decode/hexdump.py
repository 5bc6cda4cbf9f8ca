"""Bytes for the eye: hex, text, and a caret under the byte that an error names."""

from __future__ import annotations

WIDTH = 16
"""Bytes in a line."""


def around(payload: bytes, position: int, lines: int = 1) -> str:
    """Return the line of a dump that holds `position`, `lines` before and behind it, and a caret under the byte.

    A position at the payload's end, where it was cut, is the place of the byte that is not there.
    """
    at = position // WIDTH
    first, last = max(0, at - lines), min(max(len(payload) - 1, position) // WIDTH, at + lines)
    dump = []
    for number in range(first, last + 1):
        dump.append(_line(payload, number * WIDTH))
        if number == at:
            dump.append(" " * _column(position % WIDTH) + "^^")
    return "\n".join(dump)


def _line(payload: bytes, offset: int) -> str:
    part = payload[offset : offset + WIDTH]
    text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
    return f"{offset:08x}  {part.hex(' '):<{WIDTH * 3 - 1}}  |{text}|"


def _column(index: int) -> int:
    return 8 + 2 + 3 * index
