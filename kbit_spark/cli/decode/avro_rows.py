"""The row that shows a whole Avro record: every field in the column that holds it without loss."""

from __future__ import annotations

import json
from typing import Any

from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.avro_fields import field_of, member
from kbit_spark.codecs.avro_schema import AvroType, parse_record
from kbit_spark.codecs.plan import Plan, UnreadableSchemaError
from kbit_spark.schemas.fields import FieldSpec


def avro_fields(schema: dict[str, Any]) -> tuple[FieldSpec, ...]:
    """Return the row of a reader's schema."""
    return tuple(map(field_of, parse_record(json.dumps(schema), "reader").fields))


def whole_plan(data: dict[str, Any]) -> Plan:
    """Return the plan of a case; of schemas that can never be resolved, one that tells so of each payload."""
    reader = data.get("reader_schema", data["writer_schema"])
    try:
        return avro_plan(json.dumps(data["writer_schema"]), avro_fields(reader), data["id"], json.dumps(reader))
    except UnreadableSchemaError as fault:
        refused = {"read": "refused", "code": fault.code, "reason": str(fault)}
        row = {"read": "struct", "width": 1, "steps": [{"target": 0, "reader": refused}], "defaults": []}
        return {"format": "avro", "fields": [], "row": row, "records": {}}


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
