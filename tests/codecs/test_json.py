"""JSON columns by example: what a text becomes, and which one is refused where."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf

from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.kafka import KafkaConfig, TopicConfig
from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec, Tensor
from tests.fixtures.decode import Decode

MISMATCH, OVERFLOW, REPEATED = "type_mismatch", "int_overflow", "bad_json"


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("tinyint", "-128", -128),
        ("tinyint", "128", (OVERFLOW, 5)),
        ("smallint", "32767", 32767),
        ("smallint", "-32769", (OVERFLOW, 5)),
        ("decimal(4,2)", "99.99", "99.99"),
        ("decimal(4,2)", "-0.0", "0.00"),
        ("decimal(4,2)", "1.5000000000000000000000000000000000000000000000", "1.50"),
        ("decimal(4,2)", "0.0125E+2", "1.25"),
        ("decimal(4,2)", "1200e-2", "12.00"),
        ("decimal(4,2)", "0e999999999999999999999", "0.00"),
        ("decimal(4,2)", "1e999999999999999999999", (OVERFLOW, 5)),
        ("decimal(4,2)", "1e-999999999999999999999", (MISMATCH, 5)),
        ("decimal(4,2)", "100.001", (OVERFLOW, 5)),
        ("decimal(4,2)", "0.001", (MISMATCH, 5)),
        ("decimal(4,2)", '"1.25"', (MISMATCH, 5)),
        ("decimal(4,2)", "1.", (REPEATED, 7)),
        ("date", '"2024-02-29"', "2024-02-29"),
        ("date", '"2024-2-29"', (MISMATCH, 5)),
        ("date", '"+12024-02-29"', (MISMATCH, 5)),
        ("date", '"2024-02-29T00:00:00Z"', (MISMATCH, 5)),
        ("timestamp", '"2024-02-29T23:59:59Z"', "2024-02-29T23:59:59.000000Z"),
        ("timestamp", '"2024-02-29T23:59:59.1234560+02:30"', "2024-02-29T21:29:59.123456Z"),
        ("timestamp", '"2024-02-29T23:59:59"', (MISMATCH, 5)),
        ("timestamp", '"2024-02-29T23:59:59.1234567Z"', (MISMATCH, 5)),
        ("timestamp", '"2024-02-29T24:00:00Z"', (MISMATCH, 5)),
        ("timestamp", '"2024-02-29T23:59:59+19:00"', (MISMATCH, 5)),
        ("timestamp", '"2024-02-29 23:59:59Z"', (MISMATCH, 5)),
        ("timestamp", "1700000000", (MISMATCH, 5)),
        ("timestamp_ntz", '"2024-02-29T23:59:59.5"', "2024-02-29T23:59:59.500000"),
        ("timestamp_ntz", '"2024-02-29T23:59:59Z"', (MISMATCH, 5)),
        ("map<string, int>", '{"a":1,"":null}', {"a": 1, "": None}),
        ("map<string, int>", '{"a":1,"\\u0061":1}', (REPEATED, 12)),
        ("map<string, int>", '{"a":1,}', (REPEATED, 12)),
        ("map<string, int>", "[]", (MISMATCH, 5)),
        (
            "struct<x: int not null, y: array<date>>",
            '{"y":["2024-01-01",null],"x":1}',
            {"x": 1, "y": ["2024-01-01", None]},
        ),
        ("struct<x: int not null>", '{"z":{"x":1}}', ("missing_field", 17)),
        ("struct<x: int not null>", '{"x":null}', (MISMATCH, 10)),
        ("struct<x: int>", '{"x":1,"x":2}', (REPEATED, 12)),
        ("struct<x: int>", '{"X":1}', {"x": None}),
        ("struct<x: int>", "[]", (MISMATCH, 5)),
    ],
)
def test_values(kind: str, text: str, found: object, decode: Decode) -> None:
    result = decode(json_plan([FieldSpec(name="c", type=kind)]), [f'{{"c":{text}}}'.encode()])[0]
    if isinstance(found, tuple):
        assert (result.get("error"), result.get("position")) == found, result
    else:
        assert result == {"value": {"c": found}}


def test_a_decimal_of_a_million_digits_ends_at_once(decode: Decode) -> None:
    plan = json_plan([FieldSpec(name="c", type="decimal(38,10)")])
    texts = ["1" * 1_000_000, "0." + "1" * 1_000_000, "0" + "." + "0" * 1_000_000, "1e" + "9" * 1_000_000]
    results = decode(plan, [f'{{"c":{text}}}'.encode() for text in texts])
    assert [result.get("error") for result in results] == [OVERFLOW, MISMATCH, None, OVERFLOW]


def test_levels_of_columns_count(decode: Decode) -> None:
    plan = json_plan([FieldSpec(name="c", type="array<struct<x: int>>")])
    deep = [b'{"c":[{"z":' + b"[" * levels + b"]" * levels + b"}]}" for levels in (61, 125, 126)]
    assert [result.get("error") for result in decode(plan, deep)] == [None, None, "depth_exceeded"]


def test_one_field_has_several_names(decode: Decode) -> None:
    image = FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(2,)), sources=("image", "images"))
    plan = json_plan([image, FieldSpec(name="label", type="int")])
    names = ["image", "images", "images", "image"]
    payloads = [f'{{"{name}":[1,2],"label":7,"metadata":{{}}}}'.encode() for name in names]
    assert decode(plan, payloads) == [{"value": {"image": {"$hex": "0102"}, "label": 7}}] * 4
    both, none = decode(plan, [b'{"images":[1,2],"label":7,"image":[1,2]}', b'{"picture":[1,2],"label":7}'])
    assert (both["error"], both["position"]) == ("bad_json", 26)
    assert none["error"] == "missing_field"


def test_a_field_may_take_the_name_of_another(decode: Decode) -> None:
    swapped = [FieldSpec(name="a", type="int", sources=("b",)), FieldSpec(name="b", type="int", sources=("a",))]
    assert decode(json_plan(swapped), [b'{"a":1,"b":2}'] * 2) == [{"value": {"a": 2, "b": 1}}] * 2


@pytest.mark.parametrize("kind", ["map<int, int>", "array<struct<m: map<string, map<date, int>>>>"])
def test_keys_that_are_no_text_are_refused_at_the_start(kind: str) -> None:
    with pytest.raises(UsageError, match="'m' can never be read: the names of a JSON object are text"):
        json_plan([FieldSpec(name="m", type=kind)])


def test_every_type_reaches_spark(spark: SparkSession) -> None:
    types: Sequence[str] = (
        *("tinyint", "smallint", "decimal(5,2)", "date", "timestamp", "timestamp_ntz", "map<string, decimal(3,1)>"),
        "array<struct<n: string not null, t: array<binary>>>",
    )
    fields = [FieldSpec(name=f"c{i}", type=kind, required=False) for i, kind in enumerate(types)]
    payload = (
        b'{"c0":1,"c1":2,"c2":3.5,"c3":"2024-02-29","c4":"2024-02-29T12:00:00+01:00","c5":"2024-02-29T12:00:00.25",'
        b'"c6":{"x":1,"y":null},"c7":[{"n":"z","t":["AQ=="]},null]}'
    )
    kafka = KafkaConfig(bootstrap_servers="none:0", topics=(TopicConfig(name="t", format="json"),))
    frame = spark.createDataFrame([("t", payload)], "topic string, value binary")
    decoded = frame.select(PayloadDecoder(spark, kafka, fields).column(sf.col("topic"), sf.col("value")).alias("d"))
    row = decoded.select("d.value.*", sf.unix_micros("d.value.c4").alias("micros")).collect()[0]
    noon = datetime(2024, 2, 29, 11, tzinfo=timezone.utc)
    assert row.micros == noon.timestamp() * 1_000_000
    assert (row.c0, row.c1, row.c2, row.c3) == (1, 2, Decimal("3.50"), date(2024, 2, 29))
    assert row.c5 == datetime(2024, 2, 29, 12, 0, 0, 250_000)
    assert row.c6 == {"x": Decimal("1.0"), "y": None}
    assert row.c7 == [Row(n="z", t=[bytearray(b"\1")]), None]
