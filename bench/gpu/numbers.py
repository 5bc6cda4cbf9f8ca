"""A record of 200 numbers in Avro, as the proof of GPU decoding had it: no strings."""

from __future__ import annotations

from bench.payloads import TEMPLATES, Case, Shape, avro_case
from kbit_spark.schemas.fields import FieldSpec

_KINDS = ("float", "double", "long")
_ROWS = range(TEMPLATES)


def numbers() -> Case:
    """Return the case."""
    kinds = {f"f{index}": _KINDS[index % 3] for index in range(200)}
    fields = tuple(FieldSpec(name=name, type=kind) for name, kind in kinds.items())
    rows = tuple({name: _value(index, row, kind) for index, (name, kind) in enumerate(kinds.items())} for row in _ROWS)
    return avro_case(Shape("200 numbers", fields, 80_000, rows))


def _value(index: int, row: int, kind: str) -> float:
    return index * 7919 + row if kind == "long" else index / 8 + row
