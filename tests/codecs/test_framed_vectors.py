"""The vectors with headers, through a real registry or the schemas of files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kbit_spark.codecs.framing import UNRESOLVED, ConfluentSchemas, soe_plan
from kbit_spark.codecs.plan import Plan
from kbit_spark.codecs.registry import SchemaRegistry
from kbit_spark.config.ingest import TopicConfig
from kbit_spark.config.registry import RegistryConfig
from kbit_spark.local.registry import Registry, serve
from kbit_spark.schemas import FieldSpec
from tests.codecs.avro_rows import avro_fields
from tests.codecs.protobuf_rows import compiled, fields_of
from tests.fixtures.decode import Decode

FOLDER = Path(__file__).parents[1] / "vectors"
CASES = [json.loads(line) for name in ("avro", "protobuf") for line in (FOLDER / f"{name}.jsonl").open()]
FRAMED = [case for case in CASES if case["framing"] != "raw"]


@pytest.mark.parametrize("case", FRAMED, ids=lambda case: case["id"])
def test_vectors_agree(case: dict[str, Any], decode: Decode) -> None:
    payload = bytes.fromhex(case["payload"])
    result = _soe(case, payload, decode) if case["framing"] == "soe" else _confluent(case, payload, decode)
    expect = case["expect"]
    if "value" in expect:
        assert result == expect
    else:
        assert result.get("error") == expect["error"], result
        assert result["position"] == case.get("position", result["position"]), result


def _fields(case: dict[str, Any]) -> Sequence[FieldSpec]:
    if case["format"] == "avro":
        return avro_fields(case["reader_schema"])
    if "message" not in case:
        return [FieldSpec(name="a", type="int", required=False)]
    return fields_of(compiled(next(iter(case["registry"].values()))).message(case["message"]))


def _soe(case: dict[str, Any], payload: bytes, decode: Decode) -> dict[str, Any]:
    texts = {f"schema {i}": json.dumps(schema) for i, schema in enumerate(case["known_schemas"])}
    return decode(soe_plan(texts, _fields(case)), [payload])[0]


def _confluent(case: dict[str, Any], payload: bytes, decode: Decode) -> dict[str, Any]:
    avro = case["format"] == "avro"
    schemas: dict[int, Plan] = {
        int(number): {"schema": json.dumps(schema)} if avro else {"schema": schema, "schemaType": "PROTOBUF"}
        for number, schema in case["registry"].items()
    }
    topic = TopicConfig(name="t", format=case["format"], framing="confluent", message=case.get("message"))
    with serve(Registry(schemas)) as server:
        known = ConfluentSchemas(topic, _fields(case), SchemaRegistry(RegistryConfig(url=server.url)))
        result = decode(known.plan(), [payload])[0]
        if result.get("error") == UNRESOLVED:
            known.learn(int.from_bytes(payload[1:5], "big"))
            result = decode(known.plan(), [payload])[0]
    return result
