"""Avro payloads: resolves the writer's schema against the fields and plans how each of its values is read.

Source: Avro 1.12 specification, "Schema Resolution". A field stands for a reader type; what no field wants is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from kbit_spark.codecs.plan import Plan, plan_of_fields, plan_of_tensor
from kbit_spark.errors import UsageError
from kbit_spark.schemas import FieldSpec

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
_NUMBERS = ("int", "long", "float", "double")


def avro_plan(schema_text: str, fields: Sequence[FieldSpec], source: str) -> Plan:
    """Return the plan for bare records written with `schema_text`.

    Args:
        schema_text: the writer's schema (.avsc).
        fields: the row to be read.
        source: where the schema comes from, for errors.

    Raises:
        UsageError: no valid record schema, or a field that can never be read from it.
    """
    schema = _parse(schema_text, source)
    names: dict[str, Any] = {}
    _collect(schema, "", names)
    wanted = {field.name: index for index, field in enumerate(fields)}
    steps: list[Plan] = []
    for writer in schema["fields"]:
        index = wanted.pop(writer["name"], None)
        if index is None:
            steps.append({"skip": _skip(writer["type"], names, set())})
        else:
            steps.append({"target": index, "reader": _resolve_field(writer["type"], fields[index], names, source)})
    if missing := [name for name, index in wanted.items() if fields[index].required]:
        known = ", ".join(field["name"] for field in schema["fields"])
        msg = f"{source}: the schema has no field {', '.join(missing)}; it has {known}"
        raise UsageError(msg, "correct `fields`, or mark them required: false")
    plan = {"fields": steps, "self": _skip(schema, names, set())}
    return {"format": "avro", "fields": plan_of_fields(fields), "writer": plan}


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        schema = parse_schema(json.loads(text), expand=False)
    except (ValueError, KeyError, TypeError, AttributeError, SchemaParseException, UnknownType) as error:
        msg = f"{source} is no valid Avro schema: {type(error).__name__}: {error}"
        raise UsageError(msg) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        msg = f"{source}: the schema must be a record"
        raise UsageError(msg)
    return schema


def _collect(schema: Any, namespace: str, names: dict[str, Any]) -> None:
    """Find every named type; fastavro has already written the names in full."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, namespace, names)
    elif isinstance(schema, Mapping):
        if "name" in schema:
            names[schema["name"]] = schema
        for inner in (schema.get("items"), schema.get("values"), *(f["type"] for f in schema.get("fields", ()))):
            _collect(inner, namespace, names)
        if isinstance(schema.get("type"), (list, Mapping)):
            _collect(schema["type"], namespace, names)


def _kind(schema: Any, names: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the type's name (``record``, ``int``, ...) and its definition, looking through names and wrappers."""
    if isinstance(schema, list):
        return "union", schema
    if isinstance(schema, str):
        return _kind(names[schema], names) if schema in names else (schema, {"type": schema})
    kind = schema["type"]
    return _kind(kind, names) if isinstance(kind, (list, Mapping)) or kind in names else (kind, schema)


def _skip(schema: Any, names: Mapping[str, Any], open_records: set[str]) -> Plan:
    kind, definition = _kind(schema, names)
    if kind == "union":
        return {"op": "union", "branches": [_skip(branch, names, open_records) for branch in definition]}
    if kind == "array":
        return {"op": "array", "items": _skip(definition["items"], names, open_records)}
    if kind == "map":
        return {"op": "map", "values": _skip(definition["values"], names, open_records)}
    if kind == "fixed":
        return {"op": "fixed", "size": definition["size"]}
    if kind == "enum":
        return {"op": "enum", "symbols": len(definition["symbols"])}
    if kind in ("record", "error"):
        name = definition["name"]
        if name in open_records:
            return {"op": "ref", "name": name}
        inner = open_records | {name}
        fields = [_skip(field["type"], names, inner) for field in definition["fields"]]
        return {"op": "record", "name": name, "fields": fields}
    return {"op": kind}


def _resolve_field(schema: Any, field: FieldSpec, names: Mapping[str, Any], source: str) -> Plan:
    plan = _resolve(schema, field, names)
    readable = plan["branches"] if plan["read"] == "union" else [plan]
    if all(branch["read"] in ("mismatch", "null") for branch in readable):
        reason = next((branch["reason"] for branch in readable if "reason" in branch), "it is always null")
        msg = f"{source}: field {field.name!r} can never be read: {reason}"
        raise UsageError(msg, "correct the type in `fields`")
    return plan


def _resolve(schema: Any, field: FieldSpec, names: Mapping[str, Any]) -> Plan:
    kind, definition = _kind(schema, names)
    if kind == "union":
        return {"read": "union", "branches": [_resolve(branch, field, names) for branch in definition]}
    if kind == "null":
        reason = f"null for the required field {field.name}"
        return {"read": "mismatch", "reason": reason} if field.required else {"read": "null"}
    if field.tensor is not None:
        return _resolve_tensor(kind, definition, field, names)
    assert field.type is not None
    return _resolve_type(kind, definition, field.type, names)


def _resolve_tensor(kind: str, definition: Any, field: FieldSpec, names: Mapping[str, Any]) -> Plan:
    tensor = plan_of_tensor(field)
    if kind == "bytes":
        return {"read": "tensor_bytes", "tensor": tensor}
    if kind == "fixed":
        return {"read": "tensor_bytes", "tensor": tensor, "size": definition["size"]}
    if kind == "array":
        items, _ = _kind(definition["items"], names)
        floats = tensor["dtype"].startswith("float")
        if items in _NUMBERS and (floats or items in ("int", "long")):
            return {"read": "tensor_list", "tensor": tensor, "items": items}
        return _mismatch(f"array of {items}", f"tensor of {tensor['dtype']}")
    return _mismatch(kind, "tensor")


def _resolve_type(kind: str, definition: Any, wanted: str, names: Mapping[str, Any]) -> Plan:
    if wanted.startswith("array<"):
        if kind != "array":
            return _mismatch(kind, wanted)
        return {"read": "list", "items": _resolve_item(definition["items"], wanted[6:-1], names)}
    if kind == "fixed" and wanted == "binary":
        return {"read": "fixed", "size": definition["size"]}
    if kind == "enum" and wanted == "string":
        return {"read": "enum", "symbols": list(definition["symbols"])}
    reader = _SCALAR_READERS.get((kind, wanted))
    return {"read": reader} if reader else _mismatch(kind, wanted)


def _resolve_item(schema: Any, wanted: str, names: Mapping[str, Any]) -> Plan:
    kind, definition = _kind(schema, names)
    if kind == "union":
        return {"read": "union", "branches": [_resolve_item(branch, wanted, names) for branch in definition]}
    return {"read": "null"} if kind == "null" else _resolve_type(kind, definition, wanted, names)


def _mismatch(written: str, wanted: str) -> Plan:
    return {"read": "mismatch", "reason": f"{written} cannot be read as {wanted}"}
