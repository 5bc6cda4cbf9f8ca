"""Protobuf payloads: plans how each field of a message is read into its column, or checked and left out.

A field that no column wants is still known, so its values must be as the schema says. Google's own messages for times,
durations and values that may be absent become single values (well_known.py). Sources: the Protobuf encoding
and field presence guides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from kbit_spark.codecs import well_known
from kbit_spark.codecs.plan import Plan, plan_of_fields, plan_of_tensor
from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec

_KINDS: dict[int, str] = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}
_SCALAR_READERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), ("int", "long")),
    **dict.fromkeys(("uint32", "fixed32"), ("long",)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), ("long",)),
    **dict.fromkeys(("uint64", "fixed64"), ("long",)),
    "bool": ("boolean",),
    "float": ("float", "double"),
    "double": ("double",),
    "string": ("string",),
    "bytes": ("binary",),
    "enum": ("string", "int"),
}
_FLOATS = ("float", "double")
_NOT_NUMBERS = ("bool", "enum", "string", "bytes", "message", "group")
_ZERO = bytes(8).hex()  # zero, false, empty: whatever the wire type, its reader takes what it needs


@dataclass(frozen=True)
class Wanted:
    """A column to be read from a field: its name there, and a type or a tensor."""

    source: str
    type: Any
    required: bool
    spec: FieldSpec | None = None


def protobuf_plan(message: Descriptor, fields: Sequence[FieldSpec], source: str) -> Plan:
    """Return the plan for bare messages of one type.

    Args:
        message: the type of the payloads.
        fields: the row to be read.
        source: where the schema comes from, for errors.

    Raises:
        UsageError: a field that the message does not have, or that can never be read as it is declared.
    """
    known = {field.name for field in message.fields}
    columns = [Wanted(_source(field, known), field.tree, field.required, field) for field in fields]
    return {"format": "protobuf", "fields": plan_of_fields(fields), **message_plan(message, columns, source)}


def message_plan(message: Descriptor, columns: Sequence[Wanted], source: str) -> Plan:
    """Return the plan of every message that is reached from `message`, and which of them is the row.

    Raises:
        UsageError: see `protobuf_plan`.
    """
    planner = _Planner(source)
    return {"root": planner.row(message, columns, ""), "messages": planner.messages}


def _source(field: FieldSpec, known: set[str]) -> str:
    return next((name for name in field.wire_names if name in known), field.wire_names[0])


class _Planner:
    """Collects the plans of all messages that are reached; messages may contain themselves."""

    def __init__(self, source: str) -> None:
        self.messages: dict[str, Plan] = {}
        self._source = source

    def row(self, message: Descriptor, columns: Sequence[Wanted], place: str) -> str:
        """Plan a message that becomes a row and return its key."""
        slots = {field.name: slot for slot, field in enumerate(message.fields)}
        self._require(message, columns, slots, place)
        wanted = {column.source: column for column in columns}
        key = f"{message.full_name}@{place}"
        plan = self.messages[key] = _message(message)
        plan["fields"] = [self._field(field, wanted.get(field.name), place) for field in message.fields]
        plan["columns"] = [{"slot": slots.get(c.source, -1), "required": c.required} for c in columns]
        return key

    def _require(self, message: Descriptor, columns: Sequence[Wanted], known: dict[str, int], place: str) -> None:
        missing = [place + column.source for column in columns if column.required and column.source not in known]
        if missing:
            msg = f"{self._source}: {message.full_name} has no field {', '.join(missing)}; it has {', '.join(known)}"
            raise UsageError(msg, "correct `fields`, or mark them required: false")

    def _checked(self, message: Descriptor) -> str:
        """Plan a message that no column wants and return its key."""
        key = message.full_name
        if key not in self.messages:
            plan = self.messages[key] = _message(message)
            plan["fields"] = [self._field(field, None, "") for field in message.fields]
        return key

    def _field(self, field: FieldDescriptor, wanted: Wanted | None, place: str) -> Plan:
        plan = _unwanted(field)
        here = f"{place}{field.name}"
        plan["wanted"] = wanted is not None
        if _is_map(field):
            plan |= {"kind": "map", "message": self._entry(field, wanted, here)}
        elif wanted is None:
            if field.message_type is not None:
                plan["message"] = self._checked(field.message_type)
        elif wanted.spec is not None and wanted.spec.tensor is not None:
            plan |= self._tensor(field, wanted.spec)
        elif field.is_repeated:
            items = wanted.type["items"] if _is(wanted.type, "array") else None
            plan |= self._read(field, items, wanted, here)
        else:
            plan |= self._read(field, wanted.type, wanted, here)
        return plan

    def _read(self, field: FieldDescriptor, tree: Any, wanted: Wanted, here: str) -> Plan:
        kind = _KINDS[field.type]
        if field.message_type is not None and (single := well_known.reading(field.message_type, tree)):
            parts = (("value", tree),) if single == "wrapped" else (("seconds", "long"), ("nanos", "int"))
            columns = [Wanted(name, part, required=True) for name, part in parts]
            return {"message": self.row(field.message_type, columns, f"{here}."), "read": single}
        if field.message_type is not None and _is(tree, "struct"):
            return {"message": self.row(field.message_type, _columns(tree), f"{here}.")}
        if isinstance(tree, str) and tree in _SCALAR_READERS.get(kind, ()):
            return {"read": tree}
        if kind in ("uint64", "fixed64") and _is_whole(tree):
            return {"read": "decimal"}
        raise self._mismatch(here, field, wanted.type)

    def _entry(self, field: FieldDescriptor, wanted: Wanted | None, here: str) -> str:
        entry = field.message_type
        assert entry is not None
        if wanted is None:
            return self._checked(entry)
        if not _is(wanted.type, "map"):
            raise self._mismatch(here, field, wanted.type)
        pair = [Wanted(name, wanted.type[f"{name}s"], True) for name in ("key", "value")]
        return self.row(entry, pair, f"{here}.")

    def _tensor(self, field: FieldDescriptor, spec: FieldSpec) -> Plan:
        tensor, kind = plan_of_tensor(spec), _KINDS[field.type]
        floating = tensor["dtype"].startswith("float")
        numbers = field.is_repeated and kind not in _NOT_NUMBERS and (floating or kind not in _FLOATS)
        if numbers or (kind == "bytes" and not field.is_repeated):
            return {"read": "tensor", "tensor": tensor, "default": None}
        raise self._mismatch(spec.name, field, f"tensor of {tensor['dtype']}")

    def _mismatch(self, place: str, field: FieldDescriptor, wanted: Any) -> UsageError:
        written = f"{'repeated ' if field.is_repeated else ''}{_KINDS[field.type]}"
        msg = f"{self._source}: field {place!r} can never be read: {written} cannot be read as {wanted}"
        return UsageError(msg, well_known.advice(field.message_type))


def _message(message: Descriptor) -> Plan:
    return {"name": message.full_name, "fields": [], "columns": []}


def _unwanted(field: FieldDescriptor) -> Plan:
    """Return what is true of a field whether or not a column wants it."""
    plan: Plan = {
        "name": field.name,
        "number": field.number,
        "kind": _KINDS[field.type],
        "repeated": field.is_repeated,
        "must_occur": field.is_required,
        "default": _default(field),
    }
    if field.containing_oneof is not None:
        slots = {member.number: slot for slot, member in enumerate(_owner(field).fields)}
        rivals = [slots[member.number] for member in field.containing_oneof.fields if member.number != field.number]
        plan["rivals"] = rivals
    if field.enum_type is not None:
        plan |= {"symbols": _symbols(field.enum_type), "closed": field.enum_type.is_closed}
    if field.message_type is not None and _in_entry(field):
        plan["always"] = True
    return plan


def _default(field: FieldDescriptor) -> str | None:
    """Return the bytes behind the tag that stand for an absent field, in hex; None where it is null or a list."""
    if field.is_repeated or field.message_type is not None:
        return None
    if field.has_default_value or (_in_entry(field) and field.enum_type is not None):
        message = GetMessageClass(_owner(field))()
        setattr(message, field.name, field.default_value)
        data = message.SerializePartialToString()
        # behind the tag's last byte; an implicit zero is not written at all
        return data[next(i for i, byte in enumerate(data) if byte < 0x80) + 1 :].hex() if data else _ZERO
    return None if field.has_presence and not _in_entry(field) else _ZERO


def _symbols(enum: EnumDescriptor) -> dict[str, str]:
    return {str(value.number): value.name for value in reversed(enum.values)}  # of aliases the first one counts


def _columns(tree: Any) -> list[Wanted]:
    return [Wanted(field.get("source", field["name"]), field["type"], field["required"]) for field in tree["fields"]]


def _is(tree: Any, kind: str) -> bool:
    return isinstance(tree, dict) and tree.get("type") == kind


def _is_whole(tree: Any) -> bool:
    return _is(tree, "decimal") and tree["scale"] == 0 and tree["precision"] >= 20


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _in_entry(field: FieldDescriptor) -> bool:
    return bool(_owner(field).GetOptions().map_entry)


def _owner(field: FieldDescriptor) -> Descriptor:
    assert field.containing_type is not None  # only extensions have none, and they are not among a message's fields
    return field.containing_type
