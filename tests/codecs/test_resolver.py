"""`PayloadDecoder` in Spark: framings, and schema ids that turn up while a stream runs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from kbit_spark.codecs.framing import UNRESOLVED
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.kafka import KafkaConfig
from kbit_spark.config.load import validate
from kbit_spark.errors import RunError, UsageError
from kbit_spark.local.registry import RegistryServer, serve
from kbit_spark.schemas.fields import FieldSpec, Tensor

FIELDS = (FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(4,))), FieldSpec(name="label", type="int"))
AVRO = {"name": "t", "format": "avro", "framing": "confluent"}
IMAGE = bytes([1, 2, 3, 255])
PROTO = """\
syntax = "proto3";
package kbit;
message Other { string name = 1; }
message Digits { message Digit { repeated int32 image = 1; int32 label = 2; } }
"""


def _schema(*extra: str) -> dict[str, Any]:
    fields = [{"name": "image", "type": "bytes"}, {"name": "label", "type": "int"}]
    return {"type": "record", "name": "Digit", "fields": [*fields, *({"name": n, "type": "string"} for n in extra)]}


def _avro(schema: dict[str, Any], **row: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), {"image": IMAGE, **row})
    return buffer.getvalue()


def _confluent(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body


def _kafka(url: str, *topics: dict[str, Any]) -> KafkaConfig:
    registry = {"url": url, "retry_for_s": 0.3} if url else None
    return validate(KafkaConfig, {"bootstrap_servers": "none", "topics": topics, "registry": registry}, "test")


def _frame(spark: SparkSession, *rows: tuple[str, bytes | None]) -> DataFrame:
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), "topic string, value binary")


def _decode(decoder: PayloadDecoder, frame: DataFrame) -> list[Row]:
    return frame.select(decoder.column(sf.col("topic"), sf.col("value")).alias("d")).collect()


def _codes(rows: Sequence[Row]) -> list[str | None]:
    return [row.d.error and row.d.error.code for row in rows]


def _labels(rows: Sequence[Row]) -> list[int | None]:
    assert all(bytes(row.d.value.image) == IMAGE for row in rows if row.d.value)
    return [row.d.value and row.d.value.label for row in rows]


def test_new_ids_are_asked_for_and_the_pass_is_repeated(spark: SparkSession, registry: RegistryServer) -> None:
    old, new = _schema(), _schema("camera")
    first = registry.registry.register("digits", {"schema": json.dumps(old)})
    second = registry.registry.register("digits", {"schema": json.dumps(new)})
    alien = registry.registry.register("alien", {"schema": '"int"'})
    wrong = registry.registry.register("wrong", {"schema": PROTO, "schemaType": "PROTOBUF"})
    decoder = PayloadDecoder(
        spark, _kafka(registry.url, {"name": "t", "format": "avro", "framing": "confluent"}), FIELDS
    )
    frame = _frame(
        spark,
        ("t", _confluent(first, _avro(old, label=1))),
        ("t", _confluent(second, _avro(new, label=2, camera="x"))),
        ("t", _confluent(99, b"\0")),
        ("t", _confluent(2**32 - 1, b"\0")),
        ("t", _confluent(alien, b"\0")),
        ("t", _confluent(wrong, b"\0")),
        ("t", b"\1\0\0\0\1"),
        ("t", None),
    )
    assert registry.requests == []
    met = [UNRESOLVED] * 3 + ["unknown_schema"] + [UNRESOLVED] * 2 + ["bad_framing", None]
    assert [row.d and row.d.error.code for row in _decode(decoder, frame)] == met
    assert decoder.resolve_new()
    rows = _decode(decoder, frame)[:-1]
    assert _codes(rows) == [
        None,
        None,
        "unknown_schema",
        "unknown_schema",
        "type_mismatch",
        "type_mismatch",
        "bad_framing",
    ]
    assert _labels(rows)[:2] == [1, 2]
    assert "PROTOBUF" in rows[5].d.error.reason and rows[5].d.error.position == 5
    assert not decoder.resolve_new()
    assert sorted(registry.requests) == sorted(f"GET /schemas/ids/{i}" for i in (first, second, alien, wrong, 99))
    numbers = frame.select(decoder.schema_id(sf.col("topic"), sf.col("value")).alias("n")).collect()
    assert [row.n for row in numbers] == [first, second, 99, None, alien, wrong, None, None]


def test_an_outage_leaves_the_ids_for_the_next_try(spark: SparkSession) -> None:
    down = [503]
    with serve(before=lambda path: down[0] or None) as server:
        number = server.registry.register("digits", {"schema": json.dumps(_schema())})
        decoder = PayloadDecoder(spark, _kafka(server.url, AVRO), FIELDS)
        frame = _frame(spark, ("t", _confluent(number, _avro(_schema(), label=5))))
        assert _codes(_decode(decoder, frame)) == [UNRESOLVED]
        with pytest.raises(RunError, match="nothing is lost"):
            decoder.resolve_new()
        down[0] = 0
        assert decoder.resolve_new()
        assert _labels(_decode(decoder, frame)) == [5]


def test_topics_of_every_format_and_framing_become_one_column(
    spark: SparkSession, registry: RegistryServer, tmp_path: Path
) -> None:
    proto = registry.registry.register("p", {"schema": PROTO, "schemaType": "PROTOBUF"})
    text = registry.registry.register("j", {"schema": "{}", "schemaType": "JSON"})
    (tmp_path / "digits.proto").write_text(PROTO)
    (tmp_path / "digit.avsc").write_text(json.dumps(_schema()))
    body = b"\x0a\x05\x01\x02\x03\xff\x01\x10\x07"
    header = bytes.fromhex("c301") + bytes.fromhex(
        fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(_schema()), "CRC-64-AVRO")
    )
    decoder = PayloadDecoder(
        spark,
        _kafka(
            registry.url,
            {"name": "pc", "format": "protobuf", "framing": "confluent"},
            {"name": "pm", "format": "protobuf", "framing": "confluent", "message": "kbit.Other"},
            {
                "name": "pr",
                "format": "protobuf",
                "schema_file": str(tmp_path / "digits.proto"),
                "message": "kbit.Digits.Digit",
            },
            {"name": "jc", "format": "json", "framing": "confluent"},
            {"name": "as", "format": "avro", "framing": "soe", "schema_files": [str(tmp_path / "digit.avsc")]},
        ),
        FIELDS,
    )
    frame = _frame(
        spark,
        ("pc", _confluent(proto, b"\x04\x02\x00" + body)),
        ("pc", _confluent(proto, b"\x00")),
        ("pc", _confluent(proto, b"\x02\x06")),
        ("pm", _confluent(proto, b"\x04\x02\x00" + body)),
        ("pr", body),
        ("jc", _confluent(text, b'{"image":[1,2,3,255],"label":7}')),
        ("as", header + _avro(_schema(), label=7)),
        ("as", header[:2] + bytes(8)),
    )
    _decode(decoder, frame)
    assert decoder.resolve_new()
    rows = _decode(decoder, frame)
    assert _codes(rows) == [None, "type_mismatch", "bad_framing", "type_mismatch", None, None, None, "unknown_schema"]
    assert _labels(rows) == [7, None, None, None, 7, 7, 7, None]
    assert "declared to hold kbit.Other" in rows[3].d.error.reason


def test_auto_takes_the_framing_that_decodes(
    spark: SparkSession, registry: RegistryServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kbit")
    schema = _schema()
    number = registry.registry.register("digits", {"schema": json.dumps(schema)})
    (tmp_path / "digit.avsc").write_text(json.dumps(schema))
    file = str(tmp_path / "digit.avsc")
    topics = [
        {"name": name, "format": "avro", "framing": "auto", "schema_file": file, "schema_files": [file]}
        for name in ("framed", "bare", "noise", "quiet")
    ]
    decoder = PayloadDecoder(spark, _kafka(registry.url, *topics), FIELDS)
    frame = _frame(
        spark,
        ("framed", b"broken"),
        ("framed", _confluent(number, _avro(schema, label=3))),
        ("bare", _avro(schema, label=4)),
        ("noise", _confluent(number, b"")),
        ("quiet", None),
    )
    decoder.settle(frame)
    assert decoder.framings() == {"framed": "confluent", "bare": "raw", "noise": "confluent", "quiet": "confluent"}
    assert "topic framed: framing confluent (1 of its first 2 records decode)" in caplog.text
    assert "topic noise: framing confluent (0 of its first 1 records decode); asked again" in caplog.text
    rows = _decode(decoder, frame)[:4]
    assert _codes(rows) == ["bad_framing", None, None, "truncated"]
    decoder.settle(_frame(spark, ("framed", _avro(schema, label=4)), ("noise", _avro(schema, label=4))))
    assert decoder.framings()["framed"] == "confluent"
    assert decoder.framings()["noise"] == "raw"


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        ({"format": "avro", "framing": "confluent"}, r"needs kafka\.registry"),
        ({"format": "json", "framing": "soe", "schema_files": ["x"]}, "is for format avro"),
        ({"format": "avro", "framing": "soe"}, "needs schema_files"),
        ({"format": "protobuf", "schema_file": "x.desc"}, "needs schema_file and message"),
        ({"format": "avro", "framing": "auto"}, "to choose from"),
    ],
)
def test_topics_that_cannot_be_right(topic: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        _kafka("", {"name": "t", **topic})
