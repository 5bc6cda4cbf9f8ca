"""Random Avro schemas, rows of them, and the form in which the decoder shows such a row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from kbit_spark.cli.decode.avro_rows import member
from kbit_spark.codecs.avro_schema import AvroType

Json = Any
DAY_US = 86_400_000_000
EPOCH = datetime(1970, 1, 1)
PER_MICROSECOND = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}


def _logical(base: Json, name: str, **more: Any) -> Json:
    return {"type": base, "logicalType": name, **more}


NUMBERS = ["int", "long", _logical("int", "date"), _logical("int", "time-millis"), _logical("long", "time-micros")] + [
    _logical("long", f"{kind}-{unit}")
    for kind in ("timestamp", "local-timestamp")
    for unit in ("millis", "micros", "nanos")
]
BYTES = ["bytes", _logical("bytes", "decimal", precision=5, scale=2), _logical("bytes", "decimal", precision=38)]
KINDS: dict[str, st.SearchStrategy[Json]] = {
    "boolean": st.just("boolean"),
    "integer": st.sampled_from(NUMBERS),
    "floating": st.sampled_from(["float", "double"]),
    "text": st.sampled_from(["string", _logical("string", "uuid")]),
    "bytes": st.sampled_from(BYTES),
    "enum": st.just({"type": "enum", "symbols": ["A", "B", "C"]}),
    "fixed": st.sampled_from(
        [
            {"type": "fixed", "size": 3},
            {"type": "fixed", "size": 12, "logicalType": "duration"},
            {"type": "fixed", "size": 16, "logicalType": "uuid"},
            {"type": "fixed", "size": 5, "logicalType": "decimal", "precision": 11, "scale": 4},
        ]
    ),
}


def schemas() -> st.SearchStrategy[Json]:
    """Records of up to four fields, three levels deep."""
    kinds = st.one_of(list(KINDS.values()))
    for _ in range(3):
        kinds = kinds | _containers(kinds)
    return _records(kinds).map(_named)


def _containers(kinds: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    arrays = st.builds(lambda items: {"type": "array", "items": items}, _or_null(kinds))
    maps = st.builds(lambda values: {"type": "map", "values": values}, _or_null(kinds))
    branches = KINDS | {"array": arrays, "map": maps, "record": _records(_or_null(kinds)), "null": st.just("null")}
    unions = st.sets(st.sampled_from(sorted(branches)), min_size=2, max_size=4).flatmap(
        lambda names: st.tuples(*(branches[name] for name in sorted(names))).map(list)
    )
    return arrays | maps | unions | _records(_or_null(kinds))


def _or_null(kinds: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return kinds | kinds.filter(lambda kind: not isinstance(kind, list)).map(lambda kind: ["null", kind])


def _records(kinds: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    fields = st.lists(kinds, min_size=1, max_size=4)
    return fields.map(
        lambda types: {"type": "record", "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)]}
    )


def _named(schema: Json) -> Json:
    """Give each record, enum and fixed a name of its own."""
    return _name(schema, itertools.count())


def _name(schema: Json, numbers: Iterator[int]) -> Json:
    if isinstance(schema, list):
        return [_name(inner, numbers) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    named = {"name": f"N{next(numbers)}"} if schema["type"] in ("record", "enum", "fixed") else {}
    inner = {key: _name(schema[key], numbers) for key in ("items", "values") if key in schema}
    if "fields" in schema:
        inner["fields"] = [{**field, "type": _name(field["type"], numbers)} for field in schema["fields"]]
    return {**schema, **named, **inner}


def without_logical(schema: Json) -> Json:
    """Return the schema of what is on the wire."""
    if isinstance(schema, list):
        return [without_logical(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: without_logical(inner) for key, inner in schema.items() if key != "logicalType"}


def values(kind: AvroType, first: bool = False) -> st.SearchStrategy[Any]:
    """Return values of a type as they are on the wire; of a union with the branch's name, or only of its `first`."""
    match kind.kind:
        case "union":
            return st.one_of(
                [st.tuples(st.just(b.name), values(b, first)) for b in kind.branches[: 1 if first else None]]
            )
        case "record":
            return st.fixed_dictionaries({field.name: values(field.type, first) for field in kind.fields})
        case "array":
            return st.lists(values(kind.items, first), max_size=3)
        case "map":
            return st.dictionaries(st.text(max_size=3), values(kind.values, first), max_size=3)
        case "enum":
            return st.sampled_from(kind.symbols)
        case "fixed" | "bytes":
            return _bytes(kind)
        case "int" | "long":
            return _integers(kind)
        case "float" | "double":
            return st.floats(width=32 if kind.kind == "float" else 64, allow_nan=False)
        case "string":
            return st.uuids().map(str) if kind.logical == "uuid" else st.text(max_size=5)
        case "boolean":
            return st.booleans()
    return st.none()


def _bytes(kind: AvroType) -> st.SearchStrategy[bytes]:
    if kind.logical == "decimal":
        limit = 10 ** kind.definition["precision"] - 1
        length = kind.size if kind.kind == "fixed" else 17
        return st.integers(-limit, limit).map(lambda number: number.to_bytes(length, "big", signed=True))
    size = kind.size if kind.kind == "fixed" else None
    return st.binary(min_size=size or 0, max_size=size or 5)


def _integers(kind: AvroType) -> st.SearchStrategy[int]:
    match kind.logical:
        case "date":
            return st.dates().map(lambda day: (day - EPOCH.date()).days)
        case "time-millis":
            return st.integers(0, DAY_US // 1000 - 1)
        case "time-micros":
            return st.integers(0, DAY_US - 1)
        case None:
            bits = 31 if kind.kind == "int" else 63
            return st.integers(-(2**bits), 2**bits - 1)
        case name:
            times, over = PER_MICROSECOND[name.rpartition("-")[2]]
            near = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1))
            return near.map(lambda at: (at - EPOCH) // timedelta(microseconds=1) * over // times)


def shown(value: Any, kind: AvroType) -> Any:
    """Return a value from the wire in the form of the decoder's JSON; the branch of a union is told by its type.

    Raises:
        OverflowError: a date that Python does not have.
    """
    if kind.kind == "union":
        return _shown_union(value, kind)
    match value:
        case dict() if kind.kind == "record":
            return {field.name: shown(value[field.name], field.type) for field in kind.fields}
        case dict():
            return {key: shown(item, kind.values) for key, item in value.items()}
        case list():
            return [shown(item, kind.items) for item in value]
        case bytes():
            return _shown_bytes(value, kind)
        case float() if not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case int() if kind.logical is not None:
            return _shown_time(value, kind.logical)
        case str() if kind.logical == "uuid":
            return value.lower()
    return value


def _shown_union(value: Any, kind: AvroType) -> Any:
    name, value = value if isinstance(value, tuple) else (None, value)
    if value is None:
        return None
    wire = {bool: ("boolean",), int: ("int", "long"), float: ("float", "double"), str: ("string",)}
    wire |= {bytes: ("bytes",), list: ("array",), dict: ("map",)}
    taken = next(b for b in kind.alternatives if b.name == name or (name is None and b.kind in wire[type(value)]))
    if len(kind.alternatives) == 1:
        return shown(value, taken)
    return {member(b): shown(value, taken) if b.name == taken.name else None for b in kind.alternatives}


def _shown_bytes(value: bytes, kind: AvroType) -> Any:
    if kind.logical == "decimal":
        number = Decimal(int.from_bytes(value, "big", signed=True))
        sign, digits, _ = number.as_tuple()
        return f"{Decimal((sign, digits, -kind.definition.get('scale', 0))):f}"
    return str(UUID(bytes=value)) if kind.logical == "uuid" else {"$hex": value.hex()}


def _shown_time(value: int, logical: str) -> Any:
    if logical == "date":
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    times, over = PER_MICROSECOND[logical.rpartition("-")[2]]
    microseconds = value * times // over
    if logical.startswith("time-"):
        return microseconds
    text = (EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="microseconds")
    return text if logical.startswith("local") else f"{text}Z"
