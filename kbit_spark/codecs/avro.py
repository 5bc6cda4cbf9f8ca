"""Avro payloads: resolves the writer's schema against the fields and plans how each of its values is read.

A column stands for a reader type; a reader's schema, where there is one, adds its aliases, defaults and symbols. What
no column wants is skipped, as strictly as it would be read. Names of records do not matter, for columns have none.

A union of several types is a struct of nullable members, named as the branches: ``int``, ``string``, ``array``, or the
record, enum or fixed (without namespace, or with it in backquotes). All but the member that was written are null.

Source: Avro 1.12 specification, "Schema Resolution".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from kbit_spark.codecs.avro_columns import (
    Column,
    Unresolved,
    Wanted,
    column_of_field,
    columns_of_struct,
    has_default,
    match_columns,
    require_defaults,
)
from kbit_spark.codecs.avro_defaults import encode_default
from kbit_spark.codecs.avro_schema import AvroField, AvroType, parse_record
from kbit_spark.codecs.avro_skip import Skipped
from kbit_spark.codecs.avro_values import value_plan
from kbit_spark.codecs.plan import Plan, UnreadableSchemaError, plan_of_fields
from kbit_spark.column_types import TypeTree, type_text
from kbit_spark.schemas.fields import FieldSpec

_NUMBERS = ("int", "long", "float", "double")
_NULL = "null for a required field"
_HINTS = {
    "type_mismatch": "correct the type in `fields`",
    "missing_field": "correct `fields`, mark them required: false, or give a default in the reader's schema",
}


def avro_plan(schema_text: str, fields: Sequence[FieldSpec], source: str, reader_schema: str | None = None) -> Plan:
    """Return the plan for bare records written with `schema_text`.

    Args:
        schema_text: the writer's schema (.avsc).
        fields: the row to be read.
        source: where the schema comes from, for errors.
        reader_schema: a schema (.avsc) whose aliases, defaults and symbols are used.

    Raises:
        UsageError: no valid record schema.
        UnreadableSchemaError: a field that can never be read from it.
    """
    writer = parse_record(schema_text, source)
    reader = None if reader_schema is None else parse_record(reader_schema, f"the reader's schema for {source}")
    planner = _Planner()
    try:
        row = planner.row(writer, [column_of_field(field, reader) for field in fields])
    except Unresolved as fault:
        msg = f"{source}: {fault}"
        raise UnreadableSchemaError(msg, _HINTS[fault.code], code=fault.code) from fault
    return {"format": "avro", "fields": plan_of_fields(fields), "row": row, "records": planner.skipped.records}


def unread_fields(
    schema_text: str, fields: Sequence[FieldSpec], source: str, reader_schema: str | None = None
) -> list[AvroField]:
    """Return the fields of a writer's schema that nothing in `fields` is read from; the arguments of `avro_plan`.

    Raises:
        UsageError: no valid record schema.
    """
    writer = parse_record(schema_text, source)
    reader = None if reader_schema is None else parse_record(reader_schema, source)
    try:
        taken = match_columns(writer, [column_of_field(field, reader) for field in fields])
    except Unresolved:
        return []
    return [field for field in writer.fields if field.name not in taken]


class _Planner:
    """Plans values; what is skipped is collected in `skipped`."""

    def __init__(self) -> None:
        self.skipped = Skipped()

    def row(self, writer: AvroType, columns: Sequence[Column]) -> Plan:
        """Plan a record that becomes a row or struct."""
        taken = match_columns(writer, columns)
        steps: list[Plan] = []
        for field in writer.fields:
            index = taken.get(field.name)
            if index is None:
                steps.append({"skip": self.skipped.plan(field.type)})
            else:
                steps.append({"target": index, "reader": self._field(field, columns[index])})
        absent = [index for index in range(len(columns)) if index not in taken.values()]
        require_defaults(writer, [columns[index] for index in absent])
        defaults = [self._default(index, columns[index]) for index in absent if has_default(columns[index])]
        return {"read": "struct", "width": len(columns), "steps": steps, "defaults": defaults}

    def _field(self, field: AvroField, column: Column) -> Plan:
        try:
            return self.read(field.type, column.wanted)
        except Unresolved as fault:
            raise fault.inside(column.name) from fault

    def _default(self, index: int, column: Column) -> Plan:
        assert column.reader is not None
        try:
            data = encode_default(column.reader.default, column.reader.type)
        except ValueError as error:
            msg = f"its default in the reader's schema: {error}"
            raise Unresolved(msg, path=(column.name,)) from error
        return {"target": index, "bytes": data.hex(), "reader": self._field(column.reader, column)}

    def read(self, writer: AvroType, wanted: Wanted) -> Plan:
        """Plan a value of any type."""
        if writer.kind != "union":
            return self._branch(writer, writer, wanted)
        plans: list[Plan] = []
        faults: list[Unresolved] = []
        for branch in writer.branches:
            try:
                plans.append(self._branch(branch, writer, wanted))
            except Unresolved as fault:
                plans.append({"read": "refused", "code": fault.code, "reason": str(fault)})
                faults.append(fault)
        if faults and all(plan["read"] in ("refused", "null") for plan in plans):
            raise next((fault for fault in faults if fault.reason != _NULL), faults[0])
        return {"read": "union", "branches": plans}

    def _branch(self, branch: AvroType, writer: AvroType, wanted: Wanted) -> Plan:
        if branch.kind == "null":
            if wanted.required:
                raise Unresolved(_NULL)
            return {"read": "null"}
        if wanted.tensor is not None:
            return _tensor(branch, wanted.tensor)
        if _is_sum(wanted.tree, wanted.reader or writer):
            return self._member(branch, wanted)
        return self._value(branch, wanted.tree, _reader_of(branch, wanted.reader))

    def _value(self, writer: AvroType, tree: TypeTree, reader: AvroType | None) -> Plan:
        reader = reader if reader is not None and reader.kind == writer.kind else None
        if _is(tree, "array") and writer.kind == "array":
            items = self.read(writer.items, Wanted(tree["items"], reader=reader.items if reader else None))
            return {"read": "list", "items": items}
        if _is(tree, "map") and writer.kind == "map" and tree["keys"] == "string":
            values = self.read(writer.values, Wanted(tree["values"], reader=reader.values if reader else None))
            return {"read": "map", "values": values}
        if _is(tree, "struct") and writer.kind == "record":
            return self.row(writer, columns_of_struct(tree, reader))
        plan = value_plan(writer, tree, reader)
        if plan is None:
            raise _mismatch(writer.logical or writer.name, type_text(tree))
        return plan

    def _member(self, branch: AvroType, wanted: Wanted) -> Plan:
        """Plan a branch that becomes one member of a struct: the one of its name, else the first that can hold it."""
        assert isinstance(wanted.tree, dict)
        members = [(member, _reader_named(member["name"], wanted.reader)) for member in wanted.tree["fields"]]
        if any(member["required"] for member, _ in members):
            msg = "the members of a union are null but for one, so none may be NOT NULL"
            raise Unresolved(msg)
        for index, (member, reader) in enumerate(members):
            known = {member["name"], *(reader.known_as if reader else ())}
            if not known.isdisjoint(branch.own_names):
                plan = self._value(branch, member["type"], reader)
                return {"read": "member", "member": index, "width": len(members), "reader": plan}
        for index, (member, _) in enumerate(members):
            promoted = None if branch.is_named else value_plan(branch, member["type"], None)
            if promoted is not None:
                return {"read": "member", "member": index, "width": len(members), "reader": promoted}
        raise _mismatch(branch.name, type_text(wanted.tree))


def _is_sum(tree: TypeTree, kind: AvroType) -> bool:
    """Tell whether a column stands for the branches of a union; `kind` is the reader's type, else the writer's."""
    if not _is(tree, "struct"):
        return False
    members = {member["name"] for member in tree["fields"]}
    alternatives = kind.alternatives
    named = any(not members.isdisjoint(branch.known_as) for branch in alternatives)
    if len(alternatives) == 1 and alternatives[0].kind == "record":
        # a record that is the only branch now: its column is a plain struct if it has the record's fields
        return named and members.isdisjoint(field.name for field in alternatives[0].fields)
    return named


def _reader_of(branch: AvroType, reader: AvroType | None) -> AvroType | None:
    """Return the branch of the reader's type that a value of the writer's branch is resolved with."""
    alternatives = [] if reader is None else reader.alternatives
    same = [other for other in alternatives if not set(other.known_as).isdisjoint(branch.own_names)]
    return next(iter([*same, *alternatives]), None)


def _reader_named(member: str, reader: AvroType | None) -> AvroType | None:
    return next((other for other in (reader.alternatives if reader else ()) if member in other.known_as), None)


def _tensor(writer: AvroType, tensor: Plan) -> Plan:
    if writer.kind == "bytes":
        return {"read": "tensor_bytes", "tensor": tensor}
    if writer.kind == "fixed":
        return {"read": "tensor_bytes", "tensor": tensor, "size": writer.size}
    if writer.kind == "array":
        items = writer.items.kind
        if items in _NUMBERS and (tensor["dtype"].startswith("float") or items in ("int", "long")):
            return {"read": "tensor_list", "tensor": tensor, "items": items}
        written = f"array of {items}"
        raise _mismatch(written, f"tensor of {tensor['dtype']}")
    raise _mismatch(writer.kind, "tensor")


def _is(tree: TypeTree, kind: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(tree, dict) and tree["type"] == kind


def _mismatch(written: str, wanted: str) -> Unresolved:
    return Unresolved(f"{written} cannot be read as {wanted}")
