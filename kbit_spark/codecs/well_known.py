"""Google's messages that stand for one value, and the columns that they may become instead of a struct.

| message | column |
|-|-|
| google.protobuf.Timestamp | timestamp; of its nanoseconds the microsecond that they are in |
| google.protobuf.Duration | long: microseconds, likewise |
| google.protobuf.Int32Value, StringValue, ... | what its value may become; null where the message is absent |

Source: the comments in Google's own `timestamp.proto`, `duration.proto` and `wrappers.proto`, which give the ranges.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor

from kbit_spark.column_types import TypeTree

_PACKAGE = "google.protobuf."
_MOMENTS = {"Timestamp": "timestamp", "Duration": "long"}
_WRAPPED: dict[str, TypeTree] = {
    "DoubleValue": "double",
    "FloatValue": "float",
    "Int64Value": "long",
    "UInt64Value": {"type": "decimal", "precision": 20, "scale": 0},
    "Int32Value": "int",
    "UInt32Value": "long",
    "BoolValue": "boolean",
    "StringValue": "string",
    "BytesValue": "binary",
}
_SHAPELESS = ("Struct", "Value", "ListValue", "Any")


def natural_type(message: Descriptor) -> TypeTree | None:
    """Return the type that holds a well-known message's value; None for any other message."""
    name = _known(message)
    return _MOMENTS.get(name) or _WRAPPED.get(name)


def reading(message: Descriptor, tree: TypeTree) -> str | None:
    """Return how a message is read as a single value of a type; None where it is not.

    ``timestamp`` and ``duration`` are made of the message's seconds and nanos, ``wrapped`` is its value.
    """
    name = _known(message)
    if name in _WRAPPED:
        return None if _is_struct(tree) else "wrapped"
    return name.lower() if tree == _MOMENTS.get(name) else None


def advice(message: Descriptor | None) -> str:
    """Return the way out where a message cannot be read as it is declared."""
    name = _known(message) if message is not None else ""
    if name in _SHAPELESS:
        return f"{_PACKAGE}{name} holds whatever it likes, which no column does: leave it out of `fields`"
    natural = _MOMENTS.get(name)
    return (
        f"declare it as {natural}, or as a struct of seconds and nanos" if natural else "correct the type in `fields`"
    )


def _known(message: Descriptor) -> str:
    return message.full_name.removeprefix(_PACKAGE) if message.full_name.startswith(_PACKAGE) else ""


def _is_struct(tree: TypeTree) -> bool:
    return isinstance(tree, dict) and tree["type"] == "struct"
