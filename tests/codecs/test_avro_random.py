"""Random rows of random Avro schemas from an independent encoder, whole and mutated."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import fastavro
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbit_spark.cli.decode.avro_rows import avro_fields
from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.avro_schema import AvroType, parse_record
from tests.codecs.avro_schemas import schemas, shown, values, without_logical
from tests.codecs.mutants import check_results, mutants
from tests.fixtures.decode import Decode

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _written(schema: Any, row: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(without_logical(schema)), row)
    return buffer.getvalue()


def _read(schema: Any, payload: bytes) -> Any:
    wire = fastavro.parse_schema(without_logical(schema))
    return fastavro.schemaless_reader(io.BytesIO(payload), wire, None, return_named_type=True)


@SETTINGS
@given(data=st.data(), schema=schemas(), seed=st.integers(0, 2**32))
def test_rows_come_out_as_they_were_written_and_mutants_as_fastavro_reads_them(
    data: st.DataObject, schema: Any, seed: int, decode: Decode
) -> None:
    text = json.dumps(schema)
    root = parse_record(text, "random")
    row = data.draw(values(root))
    payload = _written(schema, row)
    changed = mutants(payload, seed)
    whole, *results = decode(avro_plan(text, avro_fields(schema), "random"), [payload, *changed])
    assert whole == {"value": shown(row, root)}
    check_results(payload, changed, results)
    for mutant, result in zip(changed, results, strict=True):
        if "value" in result:
            with contextlib.suppress(OverflowError):
                assert result == {"value": shown(_read(schema, mutant), root)}, mutant


@SETTINGS
@given(data=st.data(), schema=schemas())
def test_what_is_left_out_is_read_over_exactly(data: st.DataObject, schema: Any, decode: Decode) -> None:
    writer = {**schema, "fields": [*schema["fields"], {"name": "last", "type": "int"}]}
    root = parse_record(json.dumps(writer), "random")
    row = data.draw(values(root))
    payload = _written(writer, row)
    plan = avro_plan(json.dumps(writer), avro_fields(_only_last(writer)), "random")
    assert decode(plan, [payload]) == [{"value": {"last": row["last"]}}]


@SETTINGS
@given(data=st.data(), schema=schemas())
def test_a_default_is_what_would_have_been_written(data: st.DataObject, schema: Any, decode: Decode) -> None:
    root = parse_record(json.dumps(schema), "random")
    row = data.draw(values(root, first=True))  # a default that fits several branches is of the first
    reader = {**schema, "fields": [f | {"default": _json(row[f["name"]], k.type)} for f, k in _pairs(schema, root)]}
    writer = {"type": "record", "name": "Old", "fields": [{"name": "gone", "type": "int"}]}
    plan = avro_plan(json.dumps(writer), avro_fields(schema), "random", json.dumps(reader))
    assert decode(plan, [b"\0"]) == [{"value": shown(row, root)}]


def _only_last(writer: Any) -> Any:
    return {"type": "record", "name": "Last", "fields": writer["fields"][-1:]}


def _pairs(schema: Any, root: AvroType) -> Any:
    return zip(schema["fields"], root.fields, strict=True)


def _json(value: Any, kind: AvroType) -> Any:
    """Return a value as a schema holds it for a default."""
    if kind.kind == "union":
        name, value = value
        return _json(value, next(branch for branch in kind.branches if branch.name == name))
    match value:
        case bytes():
            return value.decode("latin-1")
        case list():
            return [_json(item, kind.items) for item in value]
        case dict() if kind.kind == "record":
            return {field.name: _json(value[field.name], field.type) for field in kind.fields}
        case dict():
            return {key: _json(item, kind.values) for key, item in value.items()}
    return value
