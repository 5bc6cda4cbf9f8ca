"""The row that shows a whole Protobuf message: every field in the type that holds it without loss."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kbit_spark.codecs.descriptors import ProtoSchema, compile_schema
from kbit_spark.codecs.plan import Plan
from kbit_spark.codecs.protobuf import Wanted, message_plan
from kbit_spark.schemas import FieldSpec

TYPES = {
    **dict.fromkeys((FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32), "int"),
    **dict.fromkeys((FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64), "long"),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), "long"),
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_ENUM: "string",
    FieldDescriptor.TYPE_BYTES: "binary",
}
UNSIGNED = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
DECIMAL = {"type": "decimal", "precision": 20, "scale": 0}


class Recursive(Exception):  # noqa: N818 - it is a property, not a fault
    """A message that contains itself, which no row can."""


@cache
def compiled(text: str) -> ProtoSchema:
    """Return a `.proto` text compiled, each text once.

    Raises:
        UsageError: it does not compile.
    """
    return compile_schema({"vector.proto": text}, "vector.proto", "vector.proto")


def whole_plan(message: Descriptor) -> Plan:
    """Return a plan that reads every field."""
    fields = _fields(message, ())
    wanted = [Wanted(field["name"], field["type"], field["required"]) for field in fields]
    return {"format": "protobuf", "fields": fields, **message_plan(message, wanted, message.full_name)}


def fields_of(message: Descriptor) -> list[FieldSpec]:
    """Return the columns that show every field of a message."""
    return [FieldSpec.model_validate(field) for field in _fields(message, ())]


def _fields(message: Descriptor, inside: tuple[str, ...]) -> list[Plan]:
    if message.full_name in inside:
        raise Recursive(message.full_name)
    inner = (*inside, message.full_name)
    return [
        {"name": field.name, "type": _type(field, inner), "required": not field.has_presence}
        for field in message.fields
    ]


def _type(field: FieldDescriptor, inside: tuple[str, ...]) -> Any:
    message = field.message_type
    if message is None:
        tree: Any = TYPES.get(field.type, DECIMAL)
    elif message.GetOptions().map_entry:
        pair = message.fields_by_name
        return {"type": "map", "keys": _type(pair["key"], inside), "values": _type(pair["value"], inside)}
    else:
        tree = {"type": "struct", "fields": _fields(message, inside)}
    return {"type": "array", "items": tree, "nullable": False} if field.is_repeated else tree


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
