"""What Parquet's pages are made of: headers in Thrift's compact protocol, and runs of small numbers.

Everything is checked before it is used, so damaged bytes end in `UnusualPageError` and never in wrong memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DATA_PAGE, DICTIONARY_PAGE = 0, 2
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8

MAX_BIT_WIDTH = 25
"""Numbers of so many bits lie within four bytes, wherever they begin."""

_MAX_DEPTH = 3
_TRUE, _FALSE, _BINARY, _STRUCT = 1, 2, 8, 12
_INTEGERS = (4, 5, 6)
_SIZES = {3: 1, 7: 8}


class UnusualPageError(Exception):
    """Bytes that are damaged, or of a kind that is not read here."""


@dataclass(frozen=True)
class PageHeader:
    """What a page's header tells.

    Args:
        kind: `DATA_PAGE` or `DICTIONARY_PAGE`.
        values: number of its values, nulls among them.
        encoding: how they are written.
        compressed: bytes of the page in the file, behind the header.
        uncompressed: bytes of the page when decompressed.
        size: bytes of the header itself.
    """

    kind: int
    values: int
    encoding: int
    compressed: int
    uncompressed: int
    size: int

    @classmethod
    def parse(cls, data: bytes) -> PageHeader:
        """Read the header that `data` begins with.

        Raises:
            UnusualPageError: there is none, or it is of another kind of page.
        """
        thrift = _Thrift(data)
        try:
            fields = thrift.struct()
        except IndexError:
            msg = "the header does not end"
            raise UnusualPageError(msg) from None
        kind = _number(fields, 1)
        page = fields.get({DATA_PAGE: 5, DICTIONARY_PAGE: 7}.get(kind, -1))
        if not isinstance(page, dict) or (kind == DATA_PAGE and page.get(3) != RLE):
            msg = f"page type {kind}"
            raise UnusualPageError(msg)
        return cls(
            kind=kind,
            values=_number(page, 1),
            encoding=_number(page, 2),
            compressed=_number(fields, 3),
            uncompressed=_number(fields, 2),
            size=thrift.position,
        )


def _number(fields: dict[int, Any], number: int) -> int:
    value = fields.get(number)
    if type(value) is not int or not 0 <= value < 2**31:
        msg = f"field {number} is {value}"
        raise UnusualPageError(msg)
    return value


class _Thrift:
    """Reads Thrift's compact protocol; reading behind the end is an IndexError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return a struct's fields by number: integers, booleans and structs; others are None."""
        if depth > _MAX_DEPTH:
            msg = "structs inside structs"
            raise UnusualPageError(msg)
        fields: dict[int, Any] = {}
        number = 0
        while head := self._data[self.position]:
            self.position += 1
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            fields[number] = self._integer() if kind in _INTEGERS else self._other(kind, depth)
        self.position += 1
        return fields

    def _other(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _BINARY:
            size, self.position = varint(self._data, self.position)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            msg = f"a field of type {kind}"
            raise UnusualPageError(msg)
        self.position += size
        return None

    def _integer(self) -> int:
        zigzag, self.position = varint(self._data, self.position)
        return (zigzag >> 1) ^ -(zigzag & 1)


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position`, seven bits a byte, lowest first, and where it ends.

    Raises:
        IndexError: it does not end within `data`.
    """
    value = shift = 0
    while (byte := data[position]) > 127:
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
    return value | byte << shift, position + 1


def all_ones(data: bytes, count: int) -> bool:
    """Tell whether `count` numbers of one bit are all 1.

    Raises:
        UnusualPageError: there are fewer.
    """
    if data[-1:] == b"\1" and varint(data, 0) == (count << 1, len(data) - 1):  # one run, as nearly always
        return True
    return bool((decode_runs(data, 1, count) == 1).all())


def decode_runs(data: bytes, width: int, count: int) -> NDArray[np.int64]:
    """Decode `count` numbers of `width` bits: runs of one number, and runs packed bit by bit.

    Raises:
        UnusualPageError: there are fewer, or they have no bit or more than `MAX_BIT_WIDTH`.
    """
    if not 0 < width <= MAX_BIT_WIDTH:
        msg = f"numbers of {width} bits"
        raise UnusualPageError(msg)
    runs, found, position = [], 0, 0
    while found < count:
        try:
            head, position = varint(data, position)
        except IndexError:
            msg = "the runs end too early"
            raise UnusualPageError(msg) from None
        packed = bool(head & 1)
        length = (head >> 1) * (8 if packed else 1)
        size = (head >> 1) * width if packed else -(-width // 8)
        run = data[position : position + size]
        if length == 0 or len(run) < size:
            msg = f"a run of {length} numbers in {len(run)} bytes"
            raise UnusualPageError(msg)
        runs.append((packed, min(length, count - found), run))
        position, found = position + size, found + length
    return _joined(runs, width)


def _joined(runs: list[tuple[bool, int, bytes]], width: int) -> NDArray[np.int64]:
    """Return the numbers of all runs: whether each is packed, how many of its numbers are wanted, its bytes."""
    unpacked = _unpacked(b"".join(run for packed, _, run in runs if packed), width)
    if all(packed for packed, _, _ in runs):  # then only the last one has more than is wanted
        return unpacked[: sum(wanted for _, wanted, _ in runs)]
    found, begin = [], 0
    for packed, wanted, run in runs:
        found.append(unpacked[begin : begin + wanted] if packed else np.full(wanted, int.from_bytes(run, "little")))
        begin += len(run) * 8 // width if packed else 0
    return np.concatenate(found)


def _unpacked(packed: bytes, width: int) -> NDArray[np.int64]:
    """Return all numbers of `width` bits, lowest first; eight of them fill `width` bytes."""
    groups = len(packed) // width
    if groups == 0:
        return np.empty(0, dtype=np.int64)
    padded, mask = packed + bytes(4), (1 << width) - 1
    numbers = np.empty((groups, 8), dtype=np.int64)
    for item in range(8):
        first, shift = divmod(item * width, 8)
        words = np.ndarray(groups, "<u4", padded, first, (width,))
        numbers[:, item] = (words >> shift) & mask
    return numbers.reshape(-1)
