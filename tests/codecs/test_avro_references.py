"""Avro schemas made of several registered ones."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.avro_references import inline
from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec
from tests.fixtures.decode import Decode

KIND = {"type": "enum", "name": "Kind", "namespace": "a.b", "symbols": ["X", "Y"]}
PART = {
    "type": "record",
    "name": "a.b.Part",
    "fields": [{"name": "kind", "type": "Kind"}, {"name": "next", "type": ["null", "Part"]}],
}
TOP = {
    "type": "record",
    "name": "Top",
    "namespace": "a.b",
    "fields": [
        {"name": "parts", "type": {"type": "array", "items": "Part"}},
        {"name": "by_name", "type": {"type": "map", "values": "a.b.Part"}},
        {"name": "kind", "type": ["null", "Kind"]},
        {"name": "id", "type": "int"},
    ],
}


def test_each_type_is_defined_once_where_it_is_first_used(decode: Decode) -> None:
    others = {"a.b.Kind": json.dumps(KIND), "a.b.Part": json.dumps(PART)}
    whole = json.loads(inline(json.dumps(TOP), others, "schema 1"))
    parsed = fastavro.parse_schema(whole)
    part = {"kind": "Y", "next": {"kind": "X", "next": None}}
    buffer = io.BytesIO()
    row = {"parts": [part], "by_name": {"n": part}, "kind": "Y", "id": 7}
    fastavro.schemaless_writer(buffer, parsed, row)
    named = {"a.b.Kind": KIND}
    fastavro.parse_schema(PART, named_schemas=named)
    fastavro.parse_schema(TOP, named_schemas=named)
    fields = [FieldSpec(name="kind", type="string", required=False), FieldSpec(name="id", type="int")]
    plan = avro_plan(json.dumps(whole), fields, "schema 1")
    assert decode(plan, [buffer.getvalue()])[0] == {"value": {"kind": "Y", "id": 7}}


def test_a_schema_without_references_stays_as_it_is() -> None:
    assert inline("not even JSON", {}, "schema 1") == "not even JSON"
    with pytest.raises(UsageError, match="schema 1 is no valid Avro schema"):
        inline('"int"', {"x": "{"}, "schema 1")
