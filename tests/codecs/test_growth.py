"""A row that grows by the fields of a registry's schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.local.registry import RegistryServer
from kbit_spark.schemas.fields import FieldSpec
from tests.codecs.test_resolver import AVRO, FIELDS, _avro, _confluent, _decode, _frame, _kafka, _schema

PART = {"type": "record", "name": "Part", "fields": [{"name": "x", "type": "int"}]}
TREE = {"type": "record", "name": "Tree", "fields": [{"name": "below", "type": {"type": "array", "items": "Tree"}}]}


def _register(registry: RegistryServer, *fields: dict[str, Any]) -> int:
    schema = _schema()
    return registry.registry.register(
        "digits", {"schema": json.dumps({**schema, "fields": [*schema["fields"], *fields]})}
    )


def _grown(spark: SparkSession, decoder: PayloadDecoder, *ids: int) -> dict[str, str | None]:
    """Let records name schemas, and return the fields that the row has then beside its own."""
    _decode(decoder, _frame(spark, *(("t", _confluent(number, b"\0")) for number in ids)))
    assert decoder.resolve_new()
    assert decoder.fields[: len(FIELDS)] == FIELDS
    assert not any(field.required for field in decoder.fields[len(FIELDS) :])
    return {field.name: field.type for field in decoder.fields[len(FIELDS) :]}


def test_fields_of_avro_schemas(
    spark: SparkSession, registry: RegistryServer, caplog: pytest.LogCaptureFixture
) -> None:
    decoder = PayloadDecoder(spark, _kafka(registry.url, AVRO), FIELDS, [])
    first = _register(
        registry,
        {"name": "parts", "type": {"type": "array", "items": PART}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "Label", "type": "int"},
        {"name": "_offset", "type": "long"},
        {"name": "tree", "type": TREE},
    )
    assert _grown(spark, decoder, first) == {"parts": "array<struct<`x`: int>>", "at": "timestamp"}
    for told in ("Label becomes no column: there is label", "_offset becomes no column", "tree becomes no column"):
        assert told in caplog.text
    # of two schemas in one batch the older one decides; the other's records are bad
    older, newer = (_register(registry, {"name": "speed", "type": kind}) for kind in ("int", "string"))
    assert _grown(spark, decoder, newer, older)["speed"] == "int"
    schema = _schema("speed")
    row = _decode(decoder, _frame(spark, ("t", _confluent(newer, _avro(schema, label=1, speed="fast")))))[0]
    assert (row.d.error.code, "string cannot be read as int" in row.d.error.reason) == ("type_mismatch", True)


def test_fields_of_protobuf_messages(spark: SparkSession, registry: RegistryServer) -> None:
    text = 'syntax = "proto3"; package k; import "google/protobuf/timestamp.proto"; message Other { string name = 1; } '
    text += (
        "message Digit { bytes image = 1; int32 label = 2; google.protobuf.Timestamp at = 3; optional bool odd = 4; }"
    )
    number = registry.registry.register("p", {"schema": text, "schemaType": "PROTOBUF"})
    topic = {"name": "t", "format": "protobuf", "framing": "confluent"}
    decoder = PayloadDecoder(spark, _kafka(registry.url, topic), FIELDS, [])
    assert _grown(spark, decoder, number) == {"at": "timestamp", "odd": "boolean"}
    body = b"\x0a\x04\x01\x02\x03\xff\x10\x05\x1a\x02\x08\x01\x20\x01"
    row = _decode(decoder, _frame(spark, ("t", _confluent(number, b"\x02\x02" + body))))[0]
    assert (row.d.value.label, row.d.value.odd, row.d.value.at.timestamp()) == (5, True, 1.0)


def test_a_row_that_may_not_grow(spark: SparkSession, registry: RegistryServer) -> None:
    decoder = PayloadDecoder(spark, _kafka(registry.url, AVRO), FIELDS)
    assert _grown(spark, decoder, _register(registry, {"name": "speed", "type": "int"})) == {}


def test_all_topics_share_the_row_and_files_have_the_last_word(
    spark: SparkSession, registry: RegistryServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file.avsc").write_text(json.dumps(_schema("camera", "speed")))
    raw = {"name": "raw", "format": "avro", "schema_file": str(tmp_path / "file.avsc")}
    further = [
        FieldSpec(name="camera", type="string", required=False),
        FieldSpec(name="speed", type="int", required=False),
    ]
    decoder = PayloadDecoder(spark, _kafka(registry.url, AVRO, raw, {"name": "j", "format": "json"}), FIELDS, further)
    assert [field.name for field in decoder.fields[2:]] == ["camera"]
    assert "speed becomes no column" in caplog.text and "string cannot be read as int" in caplog.text
    number = _register(registry, {"name": "odd", "type": "boolean"})
    assert _grown(spark, decoder, number) == {"camera": "string", "odd": "boolean"}
    frame = _frame(
        spark,
        ("raw", _avro(_schema("camera", "speed"), label=1, camera="left", speed="fast")),
        ("j", b'{"image": [1, 2, 3, 255], "label": 2, "odd": true}'),
        ("j", b'{"image": [1, 2, 3, 255], "label": 3}'),
    )
    values = frame.select(decoder.column(sf.col("topic"), sf.col("value"))["value"].alias("v")).select("v.*").collect()
    found = [(row.label, row.camera, row.odd) for row in values]
    assert found == [(1, "left", None), (2, None, True), (3, None, None)]
