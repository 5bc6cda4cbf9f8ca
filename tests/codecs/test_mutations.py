"""Payloads from independent encoders, whole and mutated: the same value or an error, never a crash."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st

from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.json import json_plan
from kbit_spark.schemas.fields import FieldSpec, Tensor
from tests.codecs.mutants import check_results, mutants
from tests.fixtures.decode import Decode

FIELDS = (
    FieldSpec(name="id", type="long"),
    FieldSpec(name="text", type="string", required=False),
    FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(4,))),
)
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "next", "type": ["null", "Inner"]}]}
WRITER: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "map", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {"name": "id", "type": "int"},
        {"name": "inner", "type": INNER},
        {"name": "text", "type": ["null", "string"]},
        {"name": "image", "type": {"type": "array", "items": "int"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "nulls", "type": {"type": "array", "items": "null"}},
        {"name": "ratio", "type": ["double", "boolean"]},
    ],
}
ROWS = st.fixed_dictionaries(
    {
        "map": st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=2), max_size=2),
        "id": st.integers(-(2**31), 2**31 - 1),
        "inner": st.recursive(st.just({"next": None}), lambda inner: inner.map(lambda x: {"next": x}), max_leaves=3),
        "text": st.none() | st.text(max_size=5),
        "image": st.lists(st.integers(0, 255), min_size=4, max_size=4),
        "kind": st.sampled_from("AB"),
        "nulls": st.lists(st.none(), max_size=3),
        "ratio": st.floats(allow_nan=False, allow_infinity=False) | st.booleans(),
    }
)


def _expected(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": {"id": row["id"], "text": row["text"], "image": {"$hex": bytes(row["image"]).hex()}}}


@settings(max_examples=40, deadline=None)
@given(row=ROWS, seed=st.integers(0, 2**32))
def test_avro(row: dict[str, Any], seed: int, decode: Decode) -> None:
    plan = avro_plan(json.dumps(WRITER), FIELDS, "row.avsc")
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(WRITER), row)
    payload = buffer.getvalue()
    changed = mutants(payload, seed)
    whole, *results = decode(plan, [payload, *changed])
    assert whole == _expected(row)
    check_results(payload, changed, results)
    for mutant, result in zip(changed, results, strict=True):
        if "value" in result:
            # the reader's own parser sees the same row, so a value is never made up
            read = fastavro.schemaless_reader(io.BytesIO(mutant), fastavro.parse_schema(WRITER), None)
            assert result == _expected(read), mutant  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(row=ROWS, seed=st.integers(0, 2**32), ascii_only=st.booleans(), indent=st.none() | st.just(1))
def test_json(row: dict[str, Any], seed: int, ascii_only: bool, indent: int | None, decode: Decode) -> None:
    payload = json.dumps(row, ensure_ascii=ascii_only, indent=indent).encode()
    changed = mutants(payload, seed)
    whole, *results = decode(json_plan(FIELDS), [payload, *changed])
    assert whole == _expected(row)
    check_results(payload, changed, results)
    for mutant, result in zip(changed, results, strict=True):
        if "value" in result:
            read = json.loads(mutant)
            assert result["value"]["id"] == read["id"], mutant
            assert result["value"]["text"] == read.get("text"), mutant


@settings(max_examples=30, deadline=None)
@given(payload=st.binary(max_size=64))
def test_noise_is_never_more_than_an_error(payload: bytes, decode: Decode) -> None:
    for plan in (json_plan(FIELDS), avro_plan(json.dumps(WRITER), FIELDS, "row.avsc")):
        result = decode(plan, [payload])[0]
        assert ("value" in result) != ("error" in result)


def test_huge_counts_and_deep_nesting_end_at_once(decode: Decode) -> None:
    zeros = {"type": "array", "items": "null"}
    writer = {"type": "record", "name": "R", "fields": [{"name": "z", "type": zeros}, {"name": "id", "type": "int"}]}
    plan = avro_plan(json.dumps(writer), FIELDS[:1], "r.avsc")
    largest = bytes([0xFE, 0xFF, 0xFF, 0xFF, 0x0F])
    assert decode(plan, [largest * 50 + b"\0\2"])[0] == {"value": {"id": 1}}
    deep = b'{"x":' + b"[" * 1_000_000
    assert decode(json_plan(FIELDS), [deep])[0]["error"] == "depth_exceeded"
    assert decode(avro_plan(json.dumps(WRITER), FIELDS, "row.avsc"), [b"\0\0" + b"\2" * 100_000])[0]["error"] == (
        "depth_exceeded"
    )


def test_a_record_without_any_byte_may_be_empty(decode: Decode) -> None:
    writer = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]}
    plan = avro_plan(json.dumps(writer), [FieldSpec(name="id", type="long", required=False)], "r.avsc")
    assert decode(plan, [b""])[0] == {"value": {"id": None}}
