"""The columns that hold Protobuf values without loss: what a field becomes where nothing else says so."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kbit_spark.codecs.well_known import natural_type
from kbit_spark.column_types import TypeTree, type_text
from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec

_TYPES = {
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
_UNSIGNED: TypeTree = {"type": "decimal", "precision": 20, "scale": 0}


class Recursive(UsageError):  # noqa: N818 - it is a property of the message
    """A message that contains itself, which no column can."""


def fields_of(message: Descriptor) -> list[FieldSpec]:
    """Return the columns that show every field of a message.

    Raises:
        Recursive: it contains itself.
    """
    return [field_of(field) for field in message.fields]


def field_of(field: FieldDescriptor) -> FieldSpec:
    """Return a message's field as a field of the row; it is required unless it may be absent.

    Raises:
        Recursive: its type contains itself.
        ValueError: a name that a column cannot have.
    """
    return FieldSpec(name=field.name, type=type_text(column_type(field)), required=not field.has_presence)


def column_type(field: FieldDescriptor) -> TypeTree:
    """Return the type of a field's column.

    Raises:
        Recursive: see `field_of`.
    """
    return _type(field, (field.containing_type.full_name,) if field.containing_type else ())


def _type(field: FieldDescriptor, inside: tuple[str, ...]) -> TypeTree:
    message = field.message_type
    if message is None:
        tree: TypeTree = _TYPES.get(field.type, _UNSIGNED)
    elif message.GetOptions().map_entry:
        pair = message.fields_by_name
        return {"type": "map", "keys": _type(pair["key"], inside), "values": _type(pair["value"], inside)}
    else:
        tree = natural_type(message) or _struct(message, inside)
    return {"type": "array", "items": tree} if field.is_repeated else tree


def _struct(message: Descriptor, inside: tuple[str, ...]) -> TypeTree:
    if message.full_name in inside:
        msg = f"{message.full_name} contains itself"
        raise Recursive(msg, "name the fields that are wanted")
    inner = (*inside, message.full_name)
    fields = [{"name": f.name, "type": _type(f, inner), "required": not f.has_presence} for f in message.fields]
    return {"type": "struct", "fields": fields}
