"""The row that shows a whole Protobuf message: every field in the type that holds it without loss."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kbit_spark.codecs.descriptors import ProtoSchema, compile_schema
from kbit_spark.codecs.plan import Plan
from kbit_spark.codecs.protobuf import Wanted, message_plan
from kbit_spark.codecs.protobuf_fields import column_type

UNSIGNED = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


@cache
def compiled(text: str) -> ProtoSchema:
    """Return a `.proto` text compiled, each text once.

    Raises:
        UsageError: it does not compile.
    """
    return compile_schema({"vector.proto": text}, "vector.proto", "vector.proto")


def whole_plan(message: Descriptor) -> Plan:
    """Return a plan that reads every field."""
    fields: list[Plan] = [
        {"name": field.name, "type": column_type(field), "required": not field.has_presence} for field in message.fields
    ]
    wanted = [Wanted(field["name"], field["type"], field["required"]) for field in fields]
    return {"format": "protobuf", "fields": fields, **message_plan(message, wanted, message.full_name)}


def shown_as_row(message: Descriptor, value: dict[str, Any]) -> dict[str, Any]:
    """Return a value of the vectors as the columns hold it: numbers of enums and unsigned 64-bit ones are text."""
    return {name: _in_column(message.fields_by_name[name], member) for name, member in value.items()}


def _in_column(field: FieldDescriptor, member: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        values = field.message_type.fields_by_name["value"]
        return {key: _in_column(values, item) for key, item in member.items()}
    if isinstance(member, list):
        return [_one(field, item) for item in member]
    return _one(field, member)


def _one(field: FieldDescriptor, item: Any) -> Any:
    if item is None:
        return None
    if field.message_type is not None:
        return shown_as_row(field.message_type, item)
    return str(item) if field.enum_type is not None or field.type in UNSIGNED else item
