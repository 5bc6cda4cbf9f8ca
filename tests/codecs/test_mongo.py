"""Extended JSON v2 by example: what a wrapper becomes in which column, and which one is refused where."""

from __future__ import annotations

import base64
import json

import pytest

from kbit_spark.codecs.framing import ConfluentSchemas, raw_plan
from kbit_spark.codecs.mongo import mongo_plan
from kbit_spark.codecs.registry import SchemaRegistry
from kbit_spark.config.kafka import KafkaConfig, TopicConfig
from kbit_spark.config.registry import RegistryConfig
from kbit_spark.local.registry import Registry, serve
from kbit_spark.schemas.fields import FieldSpec, Tensor
from tests.fixtures.decode import Decode

MISMATCH, OVERFLOW, SYNTAX = "type_mismatch", "int_overflow", "bad_json"
UUID = "00112233-4455-6677-8899-AABBCCDDEEFF"
UUID_BASE64 = base64.b64encode(bytes.fromhex(UUID.replace("-", ""))).decode()
BYTES = '{"base64":"AP8=","subType":"00"}'


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("tinyint", '{"$numberInt":"-128"}', -128),
        ("tinyint", '{"$numberInt":"128"}', (OVERFLOW, 19)),
        ("int", '{ "$numberInt" : "7" }', 7),
        ("int", '{"$numberInt":"\\u0037"}', 7),
        ("int", '{"$numberInt":"2147483648"}', (OVERFLOW, 19)),
        ("bigint", '{"$numberInt":"2147483648"}', (OVERFLOW, 19)),
        ("bigint", '{"$numberLong":"9223372036854775808"}', (OVERFLOW, 20)),
        ("int", '{"$numberInt":"07"}', (MISMATCH, 19)),
        ("int", '{"$numberInt":"+7"}', (MISMATCH, 19)),
        ("int", '{"$numberInt":" 7"}', (MISMATCH, 19)),
        ("int", '{"$numberInt":"7.0"}', (MISMATCH, 19)),
        ("int", '{"$numberInt":""}', (MISMATCH, 19)),
        ("int", '{"$numberInt":7}', (MISMATCH, 19)),
        ("int", '{"$numberInt":"7"', ("truncated", 22)),
        ("int", '{"$numberInt":"7","$numberInt":"7"}', (SYNTAX, 23)),
        ("int", '{"$numberInt":"7","x":1}', (MISMATCH, 23)),
        ("int", '{"$numberDecimal":"7"}', (MISMATCH, 5)),
        ("int", "{}", (MISMATCH, 5)),
        ("int", "{7:1}", (SYNTAX, 6)),
        ("double", '{"$numberInt":"7"}', 7.0),
        ("double", '{"$numberLong":"9007199254740993"}', 9007199254740992.0),
        ("double", '{"$numberDouble":"1.0E+100"}', 1e100),
        ("double", '{"$numberDouble":"1e999"}', (OVERFLOW, 22)),
        ("double", '{"$numberDouble":"nan"}', (MISMATCH, 22)),
        ("double", '{"$numberDouble":"0x1p3"}', (MISMATCH, 22)),
        ("double", '{"$numberDouble":"1d"}', (MISMATCH, 22)),
        ("double", '{"$numberDecimal":"1"}', (MISMATCH, 5)),
        ("float", '{"$numberDouble":"0.1"}', 0.10000000149011612),
        ("float", '{"$numberDouble":"-Infinity"}', "-Infinity"),
        ("float", '{"$numberDouble":"1e39"}', (OVERFLOW, 22)),
        ("decimal(4,2)", '{"$numberDecimal":"-0E-6176"}', "0.00"),
        ("decimal(4,2)", '{"$numberDecimal":"1.005"}', (MISMATCH, 23)),
        ("decimal(4,2)", '{"$numberDecimal":"1E+6144"}', (OVERFLOW, 23)),
        ("decimal(4,2)", '{"$numberDecimal":"NaN"}', (MISMATCH, 23)),
        ("decimal(4,2)", '{"$numberLong":"7"}', "7.00"),
        ("decimal(4,2)", '{"$numberDouble":"1.5"}', "1.50"),
        ("decimal(4,2)", "1.5", "1.50"),
        ("string", '{"$oid":"0123456789ABCDEF01234567"}', "0123456789abcdef01234567"),
        ("string", '{"$oid":"0123456789abcdef0123456"}', (MISMATCH, 13)),
        ("string", f'{{"$uuid":"{UUID}"}}', UUID.lower()),
        ("string", '{"$uuid":"00112233445566778899AABBCCDDEEFF"}', (MISMATCH, 14)),
        ("string", '{"$symbol":"x"}', "x"),
        ("string", f'{{"$binary":{{"base64":"{UUID_BASE64}","subType":"04"}}}}', UUID.lower()),
        ("string", f'{{"$binary":"{UUID_BASE64}","$type":"4"}}', UUID.lower()),
        ("string", f'{{"$binary":{{"base64":"{UUID_BASE64}","subType":"03"}}}}', (MISMATCH, 5)),
        ("string", '{"$binary":{"base64":"AP8=","subType":"04"}}', (MISMATCH, 5)),
        ("string", '{"$code":"x"}', (MISMATCH, 5)),
        ("string", '{"$numberInt":"7"}', (MISMATCH, 5)),
        ("binary", f'{{"$binary":{BYTES}}}', {"$hex": "00ff"}),
        ("binary", '{"$binary":{"subType":"4","base64":"AP8="}}', {"$hex": "00ff"}),
        ("binary", '{"$type":"0","$binary":"AP8="}', {"$hex": "00ff"}),
        ("binary", f'{{"$uuid":"{UUID}"}}', {"$hex": UUID.lower().replace("-", "")}),
        ("binary", f'{{"$binary":{BYTES},"$type":"00"}}', (MISMATCH, 49)),
        ("binary", '{"$binary":{}}', (MISMATCH, 17)),
        ("binary", '{"$binary":{"base64":"AP8=","base64":"AP8="}}', (SYNTAX, 33)),
        ("binary", '{"$binary":{"base64":"AP8","subType":"00"}}', (MISMATCH, 26)),
        ("binary", '{"$binary":{"base64":"AP8=","subType":"xyz"}}', (MISMATCH, 43)),
        ("binary", '{"$binary":"AP8="}', (MISMATCH, 22)),
        ("timestamp", '{"$date":"2024-02-29T12:00:00.5+01:00"}', "2024-02-29T11:00:00.500000Z"),
        ("timestamp", '{"$date":-1}', "1969-12-31T23:59:59.999000Z"),
        ("timestamp", '{"$date":"2024-02-29T12:00:00"}', (MISMATCH, 14)),
        ("timestamp", '{"$date":{"$numberLong":"9223372036854775807"}}', (OVERFLOW, 29)),
        ("timestamp", '{"$date":{"$numberLong":"-9223372036854775808"}}', (OVERFLOW, 29)),
        ("timestamp", '{"$date":9223372036854775807}', (OVERFLOW, 14)),
        ("timestamp", '{"$date":{"$numberInt":"1"}}', (MISMATCH, 14)),
        ("timestamp", '{"$timestamp":{"t":1,"i":2}}', (MISMATCH, 5)),
        ("timestamp", '"2024-02-29T12:00:00Z"', "2024-02-29T12:00:00.000000Z"),
        ("timestamp_ntz", '{"$date":"2024-02-29T12:00:00Z"}', (MISMATCH, 5)),
        ("date", '{"$date":{"$numberLong":"-86400000"}}', "1969-12-31"),
        ("date", '{"$date":"2024-02-29T00:00:00.001Z"}', (MISMATCH, 5)),
        ("struct<x: int>", '{"$minKey":1}', (MISMATCH, 5)),
        ("struct<x: int>", '{"$ref":"c","$id":{"$oid":"0123456789abcdef01234567"},"x":1}', {"x": 1}),
        ("map<string, int>", '{"$numberInt":"7"}', (MISMATCH, 5)),
        ("map<string, int>", '{"a":{"$numberInt":"7"},"b":null}', {"a": 7, "b": None}),
    ],
)
def test_values(kind: str, text: str, found: object, decode: Decode) -> None:
    end = "" if isinstance(found, tuple) and found[0] == "truncated" else "}"
    result = decode(mongo_plan([FieldSpec(name="c", type=kind)]), [f'{{"c":{text}{end}'.encode()])[0]
    if isinstance(found, tuple):
        assert (result.get("error"), result.get("position")) == found, result
    else:
        assert result == {"value": {"c": found}}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"$timestamp":{"t":1,"i":2}}', None),
        ('{"$regularExpression":{"pattern":"a","options":""}}', None),
        ('[{"$minKey":1},{"$maxKey":1},{"$undefined":true}]', None),
        ('{"$code":"f()","$scope":{"x":{"$numberInt":"1"}}}', None),
        ('{"$type":"string"}', None),
        ('{"$binary":"AP8=","$type":"00"}', None),
        ('{"$numberDouble":"NaN"}', None),
        ('{"x":[{"$numberInt":"x"}]}', MISMATCH),
        ('{"$numberDecimal":"Inf"}', MISMATCH),
        ('{"$oid":"0123"}', MISMATCH),
        ('{"$symbol":1}', MISMATCH),
        ('{"$date":"yesterday"}', MISMATCH),
        ('{"$numberLong":"9223372036854775808"}', OVERFLOW),
        ('{"$timestamp":{"t":1,"t":2}}', SYNTAX),
    ],
)
def test_what_no_column_wants_obeys_the_same_rules(text: str, error: str | None, decode: Decode) -> None:
    result = decode(mongo_plan([FieldSpec(name="a", type="int")]), [f'{{"zz":{text},"a":1}}'.encode()])[0]
    assert result.get("error") == error, result
    assert error or result == {"value": {"a": 1}}


@pytest.mark.parametrize(
    ("dtype", "text", "found"),
    [
        ("uint8", "[1,2,3,255]", "010203ff"),
        ("uint8", "[[1,2],[3,255]]", "010203ff"),
        ("uint8", '[1,{"$numberInt":"2"},{"$numberLong":"3"},255]', "010203ff"),
        ("uint8", '{"$binary":{"base64":"AQID/w==","subType":"00"}}', "010203ff"),
        ("uint8", '{"$binary":"AQID/w==","$type":"00"}', "010203ff"),
        ("int16", '[1,2,3,{"$numberInt":"-1"}]', "010002000300ffff"),
        ("float32", '[1,2,3,{"$numberDouble":"0.5"}]', "0000803f00000040000040400000003f"),
        ("float64", '[0,0,0,{"$numberDouble":"-Infinity"}]', "00" * 24 + "000000000000f0ff"),
        ("uint8", '[1,{"$numberInt":"256"},3,4]', (OVERFLOW, 22)),
        ("uint8", '[1,{"$numberDouble":"2.0"},3,4]', (MISMATCH, 8)),
        ("uint8", '[1,2,3,4,{"$numberInt":"5"}]', ("bad_length", 14)),
        ("uint8", '{"$binary":{"base64":"AQI=","subType":"00"}}', ("bad_length", 5)),
        ("uint8", '{"$oid":"0123456789abcdef01234567"}', (MISMATCH, 5)),
        ("uint8", "7", (MISMATCH, 5)),
    ],
)
def test_tensors(dtype: str, text: str, found: str | tuple[str, int], decode: Decode) -> None:
    tensor = Tensor.model_validate({"dtype": dtype, "shape": (2, 2)})
    result = decode(mongo_plan([FieldSpec(name="t", tensor=tensor)]), [f'{{"t":{text}}}'.encode()])[0]
    if isinstance(found, tuple):
        assert (result.get("error"), result.get("position")) == found, result
    else:
        assert result == {"value": {"t": {"$hex": found}}}


FIELDS = [
    FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(2,)), sources=("image", "images")),
    FieldSpec(name="label", type="int"),
    FieldSpec(name="metadata", type="map<string, string>", required=False),
]
DOCUMENTS = [
    {"image": [1, 2], "label": 7},
    {"images": [1, 2], "label": {"$numberInt": "7"}, "metadata": None},
    {"_id": {"$oid": "0" * 24}, "metadata": None, "label": 7, "images": [{"$numberInt": "1"}, {"$numberInt": "2"}]},
]
ROW = {"value": {"image": {"$hex": "0102"}, "label": 7, "metadata": None}}


def test_both_documents_of_digits_end_in_one_row(decode: Decode) -> None:
    plan = raw_plan(TopicConfig(name="t", format="mongo"), FIELDS)
    assert decode(plan, [json.dumps(document).encode() for document in DOCUMENTS]) == [ROW] * 3


def test_framing_auto_can_be_no_header_at_all() -> None:
    topic = TopicConfig(name="t", format="mongo", framing="auto")
    kafka = KafkaConfig(bootstrap_servers="none:0", topics=(topic,), registry=RegistryConfig(url="http://none:1"))
    assert kafka.framings(topic) == ("confluent", "raw")


def test_documents_behind_the_header_of_a_json_schema(decode: Decode) -> None:
    topic = TopicConfig(name="t", format="mongo", framing="confluent")
    with serve(Registry({5: {"schema": "{}", "schemaType": "JSON"}, 6: {"schema": '"int"'}})) as server:
        schemas = ConfluentSchemas(topic, FIELDS, SchemaRegistry(RegistryConfig(url=server.url)))
        for schema_id in (5, 6):
            schemas.learn(schema_id)
    body = json.dumps(DOCUMENTS[1]).encode()
    good, avro = decode(schemas.plan(), [b"\0\0\0\0" + bytes([number]) + body for number in (5, 6)])
    assert good == ROW
    assert (avro["error"], avro["reason"]) == (MISMATCH, "schema 6 is AVRO, the topic is declared to hold mongo")
