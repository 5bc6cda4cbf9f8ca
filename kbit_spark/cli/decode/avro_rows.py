"""The row that shows a whole Avro record: every field in the column that holds it without loss."""

from __future__ import annotations

import json
from typing import Any

from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.avro_schema import AvroType, parse_record
from kbit_spark.codecs.avro_values import logical_plan
from kbit_spark.codecs.plan import Plan, UnreadableSchemaError
from kbit_spark.column_types import type_text
from kbit_spark.schemas import FieldSpec

SCALARS = {name: name for name in ("boolean", "int", "long", "float", "double", "string")}
COLUMNS = SCALARS | {"bytes": "binary", "fixed": "binary", "enum": "string", "null": "string"}


def avro_fields(schema: dict[str, Any]) -> tuple[FieldSpec, ...]:
    """Return the row of a reader's schema."""
    record = parse_record(json.dumps(schema), "reader")
    return tuple(
        FieldSpec(name=field.name, type=column_type(field.type), required=not _nullable(field.type))
        for field in record.fields
    )


def whole_plan(data: dict[str, Any]) -> Plan:
    """Return the plan of a case; of schemas that can never be resolved, one that tells so of each payload."""
    reader = data.get("reader_schema", data["writer_schema"])
    try:
        return avro_plan(json.dumps(data["writer_schema"]), avro_fields(reader), data["id"], json.dumps(reader))
    except UnreadableSchemaError as fault:
        refused = {"read": "refused", "code": fault.code, "reason": str(fault)}
        row = {"read": "struct", "width": 1, "steps": [{"target": 0, "reader": refused}], "defaults": []}
        return {"format": "avro", "fields": [], "row": row, "records": {}}


def column_type(kind: AvroType) -> str:
    """Return the DDL text of a type's column; of a union of several types, a struct of its branches."""
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
            return COLUMNS[scalar]


def member(branch: AvroType) -> str:
    """Return the name of a branch among the members of its union's column."""
    return branch.name.rpartition(".")[2]


def with_members(value: Any, kind: AvroType) -> Any:
    """Return a value of the vectors with each ``{"$branch", "value"}`` as the struct that a column has for it."""
    if value is None:
        return None
    match kind.kind:
        case "union" if len(kind.alternatives) > 1:
            taken = value["$branch"].rpartition(".")[2]
            inner = value["value"]
            return {member(b): with_members(inner, b) if member(b) == taken else None for b in kind.alternatives}
        case "union":
            return with_members(value, kind.alternatives[0])
        case "array":
            return [with_members(item, kind.items) for item in value]
        case "map":
            return {key: with_members(item, kind.values) for key, item in value.items()}
        case "record":
            return {field.name: with_members(value[field.name], field.type) for field in kind.fields}
        case _:
            return value


def expected(data: dict[str, Any]) -> dict[str, Any]:
    """Return what the decoder must give for a case."""
    if "value" not in data["expect"]:
        return dict(data["expect"])
    reader = parse_record(json.dumps(data.get("reader_schema") or data["writer_schema"]), data["id"])
    return {"value": with_members(data["expect"]["value"], reader)}


def _nullable(kind: AvroType) -> bool:
    return any(branch.kind == "null" for branch in kind.branches)
