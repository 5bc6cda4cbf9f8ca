"""The columns that hold Avro values without loss: what a field becomes where nothing else says so."""

from __future__ import annotations

from kbit_spark.codecs.avro_schema import AvroField, AvroType
from kbit_spark.codecs.avro_values import logical_plan
from kbit_spark.column_types import type_text
from kbit_spark.schemas.fields import FieldSpec

_SCALARS = {name: name for name in ("boolean", "int", "long", "float", "double", "string")}
_COLUMNS = _SCALARS | {"bytes": "binary", "fixed": "binary", "enum": "string", "null": "string"}


def field_of(field: AvroField) -> FieldSpec:
    """Return a record's field as a field of the row; it is required unless it may be null.

    Raises:
        ValueError: a name that a column cannot have.
        RecursionError: a type that contains itself, which no column can.
    """
    return FieldSpec(name=field.name, type=column_type(field.type), required=not _nullable(field.type))


def column_type(kind: AvroType) -> str:
    """Return the DDL text of a type's column; of a union of several types, a struct of its branches.

    Raises:
        RecursionError: see `field_of`.
    """
    if (logical := logical_plan(kind)) is not None:
        return type_text(logical[0])
    match kind.kind:
        case "union" if len(kind.alternatives) > 1:
            return f"struct<{', '.join(f'`{member(b)}`: {column_type(b)}' for b in kind.alternatives)}>"
        case "union":
            return column_type(next(iter(kind.alternatives), kind.branches[0]))
        case "array":
            return f"array<{column_type(kind.items)}>"
        case "map":
            return f"map<string, {column_type(kind.values)}>"
        case "record":
            inner = (f"`{f.name}`: {column_type(f.type)}{' not null' * (not _nullable(f.type))}" for f in kind.fields)
            return f"struct<{', '.join(inner)}>"
        case scalar:
            return _COLUMNS[scalar]


def member(branch: AvroType) -> str:
    """Return the name of a branch among the members of its union's column."""
    return branch.name.rpartition(".")[2]


def _nullable(kind: AvroType) -> bool:
    return any(branch.kind == "null" for branch in kind.branches)
