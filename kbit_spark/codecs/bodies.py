"""The schemas of a registry: how the bodies written with one are read, and which of its fields no column reads yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from pydantic import ValidationError

from kbit_spark.codecs import avro_fields, protobuf_fields
from kbit_spark.codecs.avro import avro_plan, unread_fields
from kbit_spark.codecs.avro_references import inline
from kbit_spark.codecs.descriptors import ProtoSchema, compile_schema
from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.mongo import mongo_plan
from kbit_spark.codecs.plan import Plan, UnreadableSchemaError
from kbit_spark.codecs.protobuf import protobuf_plan
from kbit_spark.codecs.registry import RegisteredSchema
from kbit_spark.column_types import nullable_inside, parse_type, type_text
from kbit_spark.config.kafka import TopicConfig
from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec

log = logging.getLogger("kbit")

SCHEMALESS = {"json": json_plan, "mongo": mongo_plan}
"""Formats whose payloads say themselves what they hold."""


class Body(Protocol):
    """What is behind a schema id."""

    def plan(self, fields: Sequence[FieldSpec]) -> Plan:
        """Plan the bodies. A schema that cannot give the row is a fault of its records, not of the run."""

    def further(self, fields: Sequence[FieldSpec]) -> list[FieldSpec]:
        """Return what could be added to the row: fields of the schema that `fields` do not read, as nullable ones."""


def body_of(schema: RegisteredSchema, topic: TopicConfig, reader_schema: str | None, source: str) -> Body:
    """Return the body of a schema; `source` names it in errors."""
    declared = topic.format
    if schema.kind.lower() != ("json" if declared in SCHEMALESS else declared):
        return RefusedBody(refused(f"{source} is {schema.kind}, the topic is declared to hold {declared}"))
    try:
        if schema.kind == "AVRO":
            return AvroBody(inline(schema.text, schema.references, source), source, reader_schema)
        if schema.kind == "PROTOBUF":
            main = f"{source.replace(' ', '-')}.proto"
            compiled = compile_schema({**schema.references, main: schema.text}, main, source)
            return ProtobufBody(compiled, source, (topic.message or "").lstrip("."))
    except UsageError as error:
        return RefusedBody(unreadable(error))
    return SchemalessBody(declared)


class RefusedBody:
    """A schema whose records are all bad."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def plan(self, fields: Sequence[FieldSpec]) -> Plan:
        """See `Body`."""
        return self._plan

    def further(self, fields: Sequence[FieldSpec]) -> list[FieldSpec]:
        """See `Body`."""
        return []


class SchemalessBody:
    """JSON: the fields are the plan, whatever the registry's JSON Schema says of them."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def plan(self, fields: Sequence[FieldSpec]) -> Plan:
        """See `Body`."""
        return {"plan": SCHEMALESS[self._kind](fields)}

    def further(self, fields: Sequence[FieldSpec]) -> list[FieldSpec]:
        """See `Body`."""
        return []


class AvroBody:
    """An Avro record."""

    def __init__(self, text: str, source: str, reader_schema: str | None) -> None:
        self._text, self._source, self._reader_schema = text, source, reader_schema

    def plan(self, fields: Sequence[FieldSpec]) -> Plan:
        """See `Body`."""
        try:
            return {"plan": avro_plan(self._text, fields, self._source, self._reader_schema)}
        except UsageError as error:
            return unreadable(error)

    def further(self, fields: Sequence[FieldSpec]) -> list[FieldSpec]:
        """See `Body`."""
        if "refused" in self.plan(fields):
            return []
        unread = unread_fields(self._text, fields, self._source, self._reader_schema)
        made = ((field.name, partial(avro_fields.field_of, field)) for field in unread)
        return list(_columns(made, self._source))


class ProtobufBody:
    """The messages of a Protobuf schema."""

    def __init__(self, schema: ProtoSchema, source: str, wanted: str) -> None:
        """Take the messages; `wanted` is the full name of the only one that records may hold, empty for any."""
        self._schema, self._source, self._wanted = schema, source, wanted

    def plan(self, fields: Sequence[FieldSpec]) -> Plan:
        """See `Body`."""
        return {"messages": {path: self._message(name, fields) for path, name in self._names()}}

    def further(self, fields: Sequence[FieldSpec]) -> list[FieldSpec]:
        """See `Body`."""
        read = {name for field in fields for name in field.wire_names}
        unread = [
            field
            for _, name in self._names()
            if "plan" in self._message(name, fields)
            for field in self._schema.message(name).fields
            if field.name not in read
        ]
        made = ((field.name, partial(protobuf_fields.field_of, field)) for field in unread)
        return list(_columns(made, self._source))

    def _names(self) -> Iterator[tuple[str, str]]:
        """Yield the message that each index path means."""
        for path, names in self._schema.paths().items():
            yield path, self._wanted if self._wanted in names else names[0]

    def _message(self, name: str, fields: Sequence[FieldSpec]) -> Plan:
        if self._wanted not in ("", name):
            return refused(f"a message {name}, the topic is declared to hold {self._wanted}")
        try:
            return {"plan": protobuf_plan(self._schema.message(name), fields, self._source)}
        except UsageError as error:
            return unreadable(error)


def _columns(fields: Iterable[tuple[str, Callable[[], FieldSpec]]], source: str) -> Iterator[FieldSpec]:
    """Yield the fields that can be columns, all nullable at every level; log those that cannot."""
    for name, make in fields:
        try:
            found = make()
            assert found.type is not None
            kind = type_text(nullable_inside(parse_type(found.type)))
            yield found.model_copy(update={"type": kind, "required": False})
        except ValidationError as error:
            log.warning("%s: field %s becomes no column: %s", source, name, error.errors()[0]["msg"])
        except (UsageError, RecursionError) as error:
            log.warning("%s: field %s becomes no column: %s", source, name, error)


def refused(reason: str, code: str = "type_mismatch") -> Plan:
    """Return the plan of bodies that are all bad."""
    return {"refused": {"code": code, "reason": reason}}


def unreadable(error: UsageError) -> Plan:
    """Return the plan of bodies whose schema can never give the row."""
    return refused(error.message, error.code) if isinstance(error, UnreadableSchemaError) else refused(error.message)
