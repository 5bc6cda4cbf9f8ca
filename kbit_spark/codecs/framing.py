"""Framings: which plan decodes the body behind a header, and what is known of the ids in headers.

Confluent: zero, 4-byte schema id, for Protobuf the list of message indexes. Single-object: C3 01, 8-byte fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.avro_schema import parse_record
from kbit_spark.codecs.bodies import SCHEMALESS, Body, body_of, unreadable
from kbit_spark.codecs.descriptors import read_schema
from kbit_spark.codecs.plan import Plan, plan_of_fields
from kbit_spark.codecs.protobuf import protobuf_plan
from kbit_spark.codecs.registry import SchemaRegistry
from kbit_spark.config.kafka import TopicConfig
from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec

UNRESOLVED = "unresolved_schema"
"""Error code of a record whose schema id was not asked for yet; never a dead letter."""


def raw_plan(topic: TopicConfig, fields: Sequence[FieldSpec]) -> Plan:
    """Return the plan for payloads without a header.

    Raises:
        UsageError: a schema that cannot be read, or can never give the fields.
    """
    if plan := SCHEMALESS.get(topic.format):
        return plan(fields)
    assert topic.schema_file is not None
    if topic.format == "avro":
        text = _read(topic, topic.schema_file)
        return avro_plan(text, fields, topic.schema_file, read_reader_schema(topic))
    assert topic.message is not None
    return protobuf_plan(read_schema(Path(topic.schema_file)).message(topic.message), fields, topic.schema_file)


def soe_plan(schemas: Mapping[str, str], fields: Sequence[FieldSpec], reader_schema: str | None = None) -> Plan:
    """Return the plan for Avro single-object payloads.

    Args:
        schemas: text of each writer's schema by where it comes from.
        fields: the row that all of them become.
        reader_schema: see `avro_plan`.

    Raises:
        UsageError: a schema that cannot be read, or none that can give the fields.
    """
    plans: Plan = {}
    faults: list[UsageError] = []
    for source, text in schemas.items():
        key = _fingerprint(text, source)
        try:
            plans[key] = {"plan": avro_plan(text, fields, source, reader_schema)}
        except UsageError as error:
            plans[key] = unreadable(error)
            faults.append(error)
    if len(faults) == len(plans):
        raise faults[0]
    return _framed("soe", plans, fields)


class ConfluentSchemas:
    """What is known of the schema ids of one topic; it grows with `learn`. `fields`, the row, may be set anew."""

    def __init__(self, topic: TopicConfig, fields: Sequence[FieldSpec], registry: SchemaRegistry) -> None:
        """Read the reader's schema, if the topic names one.

        Raises:
            UsageError: it cannot be read, or is no record schema.
        """
        self._topic = topic
        self.fields = fields
        self._registry = registry
        self._reader_schema = read_reader_schema(topic)
        self._bodies: dict[int, Body] = {}
        self._fresh: list[Body] = []
        self._unknown: set[int] = set()

    def learn(self, schema_id: int) -> None:
        """Ask the registry for a schema, or keep its word that there is none.

        Raises:
            RunError: the registry does not answer.
        """
        schema = self._registry.schema(schema_id)
        if schema is None:
            self._unknown.add(schema_id)
            return
        body = body_of(schema, self._topic, self._reader_schema, f"schema {schema_id}")
        self._bodies[schema_id] = body
        self._fresh.append(body)

    def further_fields(self) -> list[FieldSpec]:
        """Return the fields of schemas learned since the last call that the row lacks, as nullable ones."""
        found = [field for body in self._fresh for field in body.further(self.fields)]
        self._fresh = []
        return found

    def plan(self) -> Plan:
        """Return the plan of the topic as far as its schemas are known."""
        plans = {str(schema_id): body.plan(self.fields) for schema_id, body in self._bodies.items()}
        indexed = self._topic.format == "protobuf"
        return _framed("confluent", plans, self.fields, self._unknown, resolvable=True, indexed=indexed)


def read_schemas(topic: TopicConfig) -> dict[str, str]:
    """Return the texts of `schema_files` by file.

    Raises:
        UsageError: one cannot be read.
    """
    return {file: _read(topic, file) for file in topic.schema_files}


def read_reader_schema(topic: TopicConfig) -> str | None:
    """Return the text of `reader_schema_file`; None where there is none.

    Raises:
        UsageError: it cannot be read, or is no record schema.
    """
    if topic.reader_schema_file is None:
        return None
    text = _read(topic, topic.reader_schema_file)
    parse_record(text, topic.reader_schema_file)  # a fault of the configuration, not of each writer's schema
    return text


def _read(topic: TopicConfig, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"topic {topic.name!r}: cannot read the schema {file}: {error}"
        raise UsageError(msg) from error


def _fingerprint(text: str, source: str) -> str:
    """Return the CRC-64-AVRO fingerprint as the number that its bytes are in the header (little-endian)."""
    try:
        canonical = to_parsing_canonical_form(parse_schema(json.loads(text)))
    except Exception as error:
        msg = f"{source} is no valid Avro schema: {type(error).__name__}: {error}"
        raise UsageError(msg) from error
    return str(int.from_bytes(bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO")), "little"))


def _framed(
    framing: str,
    schemas: Mapping[str, Any],
    fields: Sequence[FieldSpec],
    unknown: Iterable[int] = (),
    *,
    resolvable: bool = False,
    indexed: bool = False,
) -> Plan:
    return {
        "format": "framed",
        "framing": framing,
        "fields": plan_of_fields(fields),
        "schemas": dict(schemas),
        "unknown": sorted(unknown),
        "resolvable": resolvable,
        "indexed": indexed,
    }
