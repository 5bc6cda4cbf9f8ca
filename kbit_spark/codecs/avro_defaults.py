"""Defaults of a reader's schema as the bytes that a writer would have written."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kbit_spark.codecs.avro_schema import AvroType

_RANGES = {"int": 2**31, "long": 2**63}


def encode_default(value: Any, kind: AvroType) -> bytes:
    """Return the Avro encoding of a default.

    Args:
        value: as it stands in the schema: bytes are text of the code points 0 to 255, a union's value has no branch.
        kind: its type.

    Raises:
        ValueError: the value is none of the type.
    """
    if kind.kind == "union":
        return _branch(value, kind)
    # bool is an int of Python's, and only there
    if not isinstance(value, _PYTHON[kind.kind]) or (isinstance(value, bool) and kind.kind != "boolean"):
        msg = f"{value!r} is no {kind.name}"
        raise ValueError(msg)
    return _ENCODERS[kind.kind](value, kind)


def _branch(value: Any, union: AvroType) -> bytes:
    """Encode as the first branch that fits."""
    for index, branch in enumerate(union.branches):
        try:
            return _varint(index) + encode_default(value, branch)
        except ValueError:
            continue
    msg = f"{value!r} fits no branch of its union"
    raise ValueError(msg)


def _varint(number: int) -> bytes:
    """Return the zigzag varint of a 64-bit integer."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(0x80 | (rest & 0x7F))
        rest >>= 7
    return bytes([*encoded, rest])


def _integer(value: int, kind: AvroType) -> bytes:
    if not -_RANGES[kind.kind] <= value < _RANGES[kind.kind]:
        msg = f"{value} is out of the range of {kind.kind}"
        raise ValueError(msg)
    return _varint(value)


def _float(value: float, kind: AvroType) -> bytes:
    try:
        return struct.pack("<f" if kind.kind == "float" else "<d", value)
    except OverflowError as error:
        msg = f"{value} is out of the range of {kind.kind}"
        raise ValueError(msg) from error


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _fixed(value: str, kind: AvroType) -> bytes:
    data = value.encode("latin-1")
    if len(data) != kind.size:
        msg = f"{value!r} has not the {kind.size} bytes of {kind.name}"
        raise ValueError(msg)
    return data


def _items(parts: list[bytes]) -> bytes:
    """Return the block of an array or map, and its end."""
    return _varint(len(parts)) + b"".join(parts) + (b"\0" if parts else b"")


def _record(value: dict[str, Any], kind: AvroType) -> bytes:
    parts = []
    for field in kind.fields:
        if field.name not in value and not field.has_default:
            msg = f"the default of {kind.name} lacks {field.name}"
            raise ValueError(msg)
        parts.append(encode_default(value.get(field.name, field.default), field.type))
    return b"".join(parts)


_PYTHON: dict[str, type | tuple[type, ...]] = {
    "null": type(None),
    "boolean": bool,
    **dict.fromkeys(("int", "long"), int),
    **dict.fromkeys(("float", "double"), (int, float)),
    **dict.fromkeys(("bytes", "string", "fixed", "enum"), str),
    "array": list,
    **dict.fromkeys(("map", "record"), dict),
}
_ENCODERS: dict[str, Callable[[Any, AvroType], bytes]] = {
    "null": lambda value, kind: b"",
    "boolean": lambda value, kind: bytes([value]),
    **dict.fromkeys(("int", "long"), _integer),
    **dict.fromkeys(("float", "double"), _float),
    "bytes": lambda value, kind: _sized(value.encode("latin-1")),
    "string": lambda value, kind: _sized(value.encode()),
    "fixed": _fixed,
    "enum": lambda value, kind: _varint(kind.symbols.index(value)),
    "array": lambda value, kind: _items([encode_default(item, kind.items) for item in value]),
    "map": lambda value, kind: _items([_sized(k.encode()) + encode_default(v, kind.values) for k, v in value.items()]),
    "record": _record,
}
