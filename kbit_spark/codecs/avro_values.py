"""Which columns a single Avro value may become: scalars, their promotions, and logical types.

| written | column |
|-|-|
| decimal | decimal of the same scale and at least its precision |
| date | date |
| time-millis, time-micros | long: microseconds since midnight |
| timestamp-millis, -micros, -nanos | timestamp; of nanoseconds the microsecond that they are in |
| local-timestamp-millis, -micros, -nanos | timestamp_ntz, likewise |
| uuid | string, in lower case with hyphens |

A column of the type below, such as long for timestamp-nanos, gets the number as it is written. A duration is binary.
"""

from __future__ import annotations

from kbit_spark.codecs.avro_schema import AvroType
from kbit_spark.codecs.plan import Plan
from kbit_spark.column_types import MAX_PRECISION, TypeTree

_SCALAR_READERS: dict[tuple[str, str], str] = {
    ("boolean", "boolean"): "boolean",
    ("int", "int"): "int",
    ("int", "long"): "int_as_long",
    ("int", "float"): "int_as_float",
    ("int", "double"): "int_as_double",
    ("long", "long"): "long",
    ("long", "float"): "long_as_float",
    ("long", "double"): "long_as_double",
    ("float", "float"): "float",
    ("float", "double"): "float_as_double",
    ("double", "double"): "double",
    ("string", "string"): "string",
    ("string", "binary"): "string_as_bytes",
    ("bytes", "binary"): "bytes",
    ("bytes", "string"): "bytes_as_string",
}
_PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}


def value_plan(writer: AvroType, tree: TypeTree, reader: AvroType | None) -> Plan | None:
    """Return how a value is read as a column's type; None where it can never be.

    Args:
        writer: a type that holds no others.
        tree: the column's type.
        reader: the reader's type, for the symbols that an enum of it has.
    """
    logical = logical_plan(writer)
    if logical is not None and _holds(tree, logical[0]):
        return logical[1]
    if writer.kind == "fixed" and tree == "binary":
        return {"read": "fixed", "size": writer.size}
    if writer.kind == "enum" and tree == "string":
        return {"read": "enum", "symbols": _symbols(writer, reader)}
    name = _SCALAR_READERS.get((writer.kind, tree)) if isinstance(tree, str) else None
    return {"read": name} if name else None


def logical_plan(writer: AvroType) -> tuple[TypeTree, Plan] | None:
    """Return the column's type that a logical type is made for, and how it is read.

    None for a type without one; also for a decimal of more digits than a column has, which can only be bytes.
    """
    logical = writer.logical
    if logical is None or (logical == "decimal" and writer.definition["precision"] > MAX_PRECISION):
        return None
    if logical == "decimal":
        digits = {"precision": writer.definition["precision"], "scale": writer.definition.get("scale", 0)}
        return {"type": "decimal", **digits}, {"read": "decimal", **digits, "size": _size(writer)}
    if logical == "uuid":
        return "string", {"read": "uuid", "size": _size(writer)}
    if logical == "date":
        return "date", {"read": "date"}
    kind, _, unit = logical.rpartition("-")
    if kind == "time":
        return "long", {"read": f"time_{unit}"}
    column = "timestamp" if kind == "timestamp" else "timestamp_ntz"
    return column, {"read": column, "per_second": _PER_SECOND[unit]}


def _size(writer: AvroType) -> int:
    return writer.size if writer.kind == "fixed" else -1


def _holds(tree: TypeTree, natural: TypeTree) -> bool:
    if isinstance(tree, str) or isinstance(natural, str) or tree["type"] != "decimal":
        return tree == natural
    return bool(tree["scale"] == natural["scale"] and tree["precision"] >= natural["precision"])


def _symbols(writer: AvroType, reader: AvroType | None) -> list[str | None]:
    """Return what each of the writer's symbols becomes, None where the reader has neither it nor a default."""
    if reader is None or reader.kind != "enum":
        return list(writer.symbols)
    known, default = set(reader.symbols), reader.definition.get("default")
    return [symbol if symbol in known else default for symbol in writer.symbols]
