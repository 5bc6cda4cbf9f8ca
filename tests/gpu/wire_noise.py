"""Protobuf payloads that no encoder writes: any order, fields twice, odd tags, padding, groups, bad values."""

from __future__ import annotations

import random

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kbit_spark.codecs.gpu.protobuf_tables import FIXED_WIDTHS, LENGTH, WIRE_TYPES

_KINDS = {
    value: name.removeprefix("TYPE_").lower() for name, value in vars(FieldDescriptor).items() if name[:5] == "TYPE_"
}
_GROUP, _GROUP_END = 3, 4


def noise(message: Descriptor, rng: random.Random, odd: float, depth: int = 0) -> bytes:
    """Return a message of random fields; each part is wrong, or rare, with the probability `odd`."""
    fields = list(message.fields)
    rng.shuffle(fields)
    data, picked = b"", set()
    for field in fields:
        rare = _KINDS[field.type] == "group" or depth > 2 or field.containing_oneof in picked
        wanted = odd if (rare and field.message_type is not None) or field.containing_oneof in picked else 0.6
        if rng.random() < (1 - odd if field.is_required else wanted):
            picked.add(field.containing_oneof or field)
            data += _field(field, rng, odd, depth)
    return data + (_unknown(rng, odd) if rng.random() < 0.3 else b"")


def varint(number: int, padding: int = 0) -> bytes:
    """Return a varint of 64 bits, with some bytes more than it needs."""
    number &= 2**64 - 1
    data = bytearray()
    while number >= 0x80 or padding:
        data.append(number & 0x7F | 0x80)
        padding -= number < 0x80
        number >>= 7
    return bytes([*data, number])


def _field(field: FieldDescriptor, rng: random.Random, odd: float, depth: int) -> bytes:
    kind = _KINDS[field.type]
    wire = WIRE_TYPES[kind]
    several = field.is_repeated and not (field.message_type and field.message_type.GetOptions().map_entry)
    many = rng.randrange(4) if several else 2 if rng.random() < odd else 1
    if rng.random() < odd / 4:
        return varint(field.number << 3 | rng.randrange(8)) + rng.randbytes(3)
    if field.is_repeated and wire in (0, *FIXED_WIDTHS) and rng.random() < 0.6:
        many = rng.choice([many, 60])
        return _tag(field, LENGTH) + _sized(b"".join(_value(field, kind, rng, odd, depth) for _ in range(many)))
    end = _tag(field, _GROUP_END) if wire == _GROUP else b""
    return b"".join(_tag(field, wire) + _value(field, kind, rng, odd, depth) + end for _ in range(many))


def _value(field: FieldDescriptor, kind: str, rng: random.Random, odd: float, depth: int) -> bytes:
    if field.message_type is not None:
        data = noise(field.message_type, rng, odd, depth + 1)
        return data if kind == "group" else _sized(data)
    wire = WIRE_TYPES[kind]
    if wire == LENGTH:
        return _sized(rng.randbytes(2) if rng.random() < odd else rng.choice([b"", b"a", b"bc", "ä€".encode()]))
    if wire:
        return rng.randbytes(FIXED_WIDTHS[wire]) if rng.random() < 0.5 else bytes(FIXED_WIDTHS[wire])
    usual = rng.choice(field.enum_type.values).number if field.enum_type else rng.choice([0, 1])
    strange = rng.choice([5, -1, 300, 2**31, -(2**31) - 1, 2**63])
    return varint(strange if rng.random() < odd else usual, 2 if rng.random() < odd else 0)


def _unknown(rng: random.Random, odd: float) -> bytes:
    number = rng.randrange(900, 905)
    match rng.randrange(4):
        case 0:
            return varint(number << 3) + varint(rng.randrange(500))
        case 1:
            return varint(number << 3 | LENGTH) + _sized(rng.randbytes(3))
        case 2:
            return varint(number << 3 | 5) + rng.randbytes(4)
    inner = _unknown(rng, odd) if rng.random() < 0.5 else b""
    end = number + (rng.random() < odd / 4)
    return varint(number << 3 | _GROUP) + inner + varint(end << 3 | _GROUP_END)


def _tag(field: FieldDescriptor, wire: int) -> bytes:
    return varint(field.number << 3 | wire)


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data
