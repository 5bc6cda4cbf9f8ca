"""Avro schemas, parsed: types with their names looked up, and the logical types that are valid.

Source: Avro 1.12 specification. A logical type that is unknown or breaks its rules is as if it were not there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from kbit_spark.errors import UsageError

_BROKEN_SCHEMA = (ValueError, LookupError, TypeError, AttributeError, RecursionError, SchemaParseException, UnknownType)
_LOGICAL_BASES: dict[str, tuple[str, ...]] = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    **dict.fromkeys(("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"), ("long",)),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"), ("long",)),
}
_UUID_BYTES = 16


@dataclass(frozen=True)
class AvroField:
    """A field of a record; `has_default` because null is a default too."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    has_default: bool
    default: Any


@dataclass(frozen=True)
class AvroType:
    """A type with its definition: `kind` is ``record``, ``array``, ``int``, ``union``, ..."""

    kind: str
    definition: Any
    names: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The full name of a record, enum or fixed; of other types the kind."""
        return str(self.definition["name"]) if self.is_named else self.kind

    @property
    def is_named(self) -> bool:
        """True for a record, enum or fixed."""
        return self.kind in ("record", "enum", "fixed")

    @property
    def own_names(self) -> tuple[str, ...]:
        """The full name, and the name without its namespace."""
        return self.name, _simple(self.name)

    @property
    def known_as(self) -> tuple[str, ...]:
        """The own names, and the aliases without their namespace."""
        aliases = self.definition.get("aliases", ()) if self.is_named else ()
        return (*self.own_names, *(_simple(alias) for alias in aliases))

    @property
    def items(self) -> AvroType:
        """The type of an array's items."""
        return type_of(self.definition["items"], self.names)

    @property
    def values(self) -> AvroType:
        """The type of a map's values."""
        return type_of(self.definition["values"], self.names)

    @property
    def branches(self) -> list[AvroType]:
        """The types of a union; any other type is its own only branch."""
        return [type_of(branch, self.names) for branch in self.definition] if self.kind == "union" else [self]

    @property
    def alternatives(self) -> list[AvroType]:
        """The branches other than null."""
        return [branch for branch in self.branches if branch.kind != "null"]

    @property
    def fields(self) -> list[AvroField]:
        """The fields of a record."""
        return [
            AvroField(
                field["name"],
                tuple(field.get("aliases", ())),
                type_of(field["type"], self.names),
                "default" in field,
                field.get("default"),
            )
            for field in self.definition["fields"]
        ]

    @property
    def size(self) -> int:
        """The bytes of a fixed."""
        return int(self.definition["size"])

    @property
    def symbols(self) -> list[str]:
        """The symbols of an enum."""
        return list(self.definition["symbols"])

    @property
    def logical(self) -> str | None:
        """The logical type, if it is one that this kind may have."""
        name = self.definition.get("logicalType") if isinstance(self.definition, Mapping) else None
        if not isinstance(name, str) or self.kind not in _LOGICAL_BASES.get(name, ()):
            return None
        return None if name == "uuid" and self.kind == "fixed" and self.size != _UUID_BYTES else name


def parse_record(text: str, source: str) -> AvroType:
    """Return the record that a schema text (.avsc) defines.

    Raises:
        UsageError: no valid schema, or none of a record; the message begins with `source`.
    """
    names: dict[str, Any] = {}
    try:
        schema = parse_schema(_without_broken_decimals(json.loads(text)), named_schemas=names)
        root = type_of(schema, names)
    except _BROKEN_SCHEMA as error:
        msg = f"{source} is no valid Avro schema: {type(error).__name__}: {error}"
        raise UsageError(msg) from error
    if root.kind != "record":
        msg = f"{source}: the schema must be a record"
        raise UsageError(msg)
    return root


def type_of(schema: Any, names: Mapping[str, Any]) -> AvroType:
    """Return a type of a parsed schema, looking through names and wrappers."""
    if isinstance(schema, list):
        return AvroType("union", schema, names)
    if isinstance(schema, str):
        return type_of(names[schema], names) if schema in names else AvroType(schema, {"type": schema}, names)
    kind = schema["type"]
    if isinstance(kind, (list, Mapping)) or kind in names:
        return type_of(kind, names)
    return AvroType("record" if kind == "error" else kind, schema, names)


def _without_broken_decimals(schema: Any) -> Any:
    """Return the schema without decimals that break the rules, which fastavro refuses and the specification ignores."""
    if isinstance(schema, list):
        return [_without_broken_decimals(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    broken = schema.get("logicalType") == "decimal" and not _is_decimal(schema)
    return {
        key: inner if key == "default" else _without_broken_decimals(inner)
        for key, inner in schema.items()
        if not (broken and key == "logicalType")
    }


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        return False
    size = schema.get("size")
    # a fixed holds the digits that every number of its bits may have
    return schema.get("type") != "fixed" or (type(size) is int and precision <= math.log10(2) * (8 * size - 1))


def _simple(name: str) -> str:
    return name.rpartition(".")[2]
