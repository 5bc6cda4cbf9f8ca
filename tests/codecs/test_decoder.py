"""`PayloadDecoder` in Spark, and what a plan refuses at the start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.kafka import KafkaConfig, TopicConfig
from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec, Tensor

FIELDS = (FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(2, 2))), FieldSpec(name="label", type="int"))


def _schema(*types: object) -> str:
    fields = [{"name": name, "type": kind} for name, kind in zip(("image", "label", "x"), types, strict=False)]
    return json.dumps({"type": "record", "name": "Row", "fields": fields})


def decoder(spark: SparkSession, topics: list[TopicConfig]) -> PayloadDecoder:
    return PayloadDecoder(spark, KafkaConfig(bootstrap_servers="none:0", topics=tuple(topics)), FIELDS)


def test_topics_with_different_plans_become_one_column(spark: SparkSession, tmp_path: Path) -> None:
    for name, image in (("bytes", "bytes"), ("ints", {"type": "array", "items": "int"})):
        (tmp_path / f"{name}.avsc").write_text(_schema(image, "int"))
    topics = [
        TopicConfig(name="j", format="json"),
        TopicConfig(name="b", format="avro", schema_file=str(tmp_path / "bytes.avsc")),
        TopicConfig(name="i", format="avro", schema_file=str(tmp_path / "ints.avsc")),
    ]
    rows = [
        ("j", b'{"image":[[1,2],[3,255]],"label":7}'),
        ("b", bytes([8, 1, 2, 3, 255, 14])),
        ("i", bytes([8, 2, 4, 6, 0xFE, 0x03, 0, 14])),
        ("j", b'{"image":[1,2,3],"label":7}'),
        ("b", bytes([8, 1])),
        ("i", None),
    ]
    frame = spark.createDataFrame(rows, "topic string, value binary").coalesce(1)
    out = frame.select(decoder(spark, topics).column(sf.col("topic"), sf.col("value")).alias("d")).collect()
    good = [(bytes(row.d.value.image), row.d.value.label) for row in out[:3]]
    assert good == [(bytes([1, 2, 3, 255]), 7)] * 3
    assert [row.d.error and row.d.error.code for row in out[:5]] == [None] * 3 + ["bad_length", "truncated"]
    assert [row.d.value for row in out[3:5]] == [None, None]
    assert out[5].d is None


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("{", "no valid Avro schema"),
        ('"int"', "must be a record"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"nope"}]}', "no valid Avro schema"),
        ('{"a":' * 5000, "no valid Avro schema"),
        (_schema("bytes"), "no field label"),
        (_schema("bytes", "long"), "'label' can never be read: long cannot be read as int"),
        (_schema("string", "int"), "'image' can never be read"),
        (_schema({"type": "array", "items": "double"}, "int"), "array of double"),
        (_schema(["null"], "int"), "'image' can never be read"),
    ],
)
def test_a_schema_that_cannot_give_the_fields_is_refused(schema: str, told: str) -> None:
    with pytest.raises(UsageError, match=r"digits\.avsc") as caught:
        avro_plan(schema, FIELDS, "digits.avsc")
    assert told in str(caught.value)


def test_an_unreadable_schema_file_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    topic = TopicConfig(name="b", format="avro", schema_file=str(tmp_path / "absent.avsc"))
    with pytest.raises(UsageError, match=r"absent\.avsc"):
        decoder(spark, [topic])
