"""Kernels compiled for the CPU under ASan and UBSan, against the CPU decoder: vectors, random rows, mutants."""

from __future__ import annotations

import io
import json
import random
import re
from pathlib import Path
from typing import Any, get_args

import fastavro
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from kbit_spark.cli.decode import vectors
from kbit_spark.cli.decode.avro_rows import avro_fields
from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.avro_schema import parse_record
from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.mongo import mongo_plan
from kbit_spark.codecs.plan import Plan
from kbit_spark.schemas.fields import FieldSpec, Tensor
from tests.codecs import json_rows
from tests.codecs.avro_schemas import schemas, values, without_logical
from tests.codecs.mutants import mutants
from tests.gpu.compare import BothEngines

FOLDER = Path(__file__).parents[1] / "vectors"
# each new schema is compiled, so a failing example is not made smaller
RANDOM = settings(
    deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate], suppress_health_check=list(HealthCheck)
)
FORMS: tuple[json_rows.Form, ...] = get_args(json_rows.Form)
ROW = [field for field in json_rows.FIELDS if field.type != "timestamp_ntz"]  # RAPIDS has no such type
IMAGE = FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(28, 28)))
LABEL = FieldSpec(name="label", type="int")


@pytest.mark.parametrize("name", ["avro", "json", "mongo", "protobuf"])
def test_vectors_agree(name: str, both: BothEngines) -> None:
    outcome = vectors.run(vectors.read(FOLDER / f"{name}.jsonl"), both)
    assert not outcome.mismatches, "\n".join(outcome.mismatches)


@settings(RANDOM, max_examples=12)
@given(data=st.data(), schema=schemas(), seed=st.integers(0, 2**32))
def test_random_avro(data: st.DataObject, schema: Any, seed: int, both: BothEngines) -> None:
    text = json.dumps(schema)
    assume("local-timestamp" not in text)
    buffer = io.BytesIO()
    row = data.draw(values(parse_record(text, "random")))
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(without_logical(schema)), row)
    payload = buffer.getvalue()
    both(avro_plan(text, avro_fields(schema), "random"), [payload, *mutants(payload, seed)])


@pytest.mark.parametrize("form", FORMS)
@settings(RANDOM, max_examples=12)
@given(data=st.data(), seed=st.integers(0, 2**32), space=st.sampled_from(["", " ", "\r\n\t"]))
def test_random_json(form: json_rows.Form, data: st.DataObject, seed: int, space: str, both: BothEngines) -> None:
    plan = json_plan(ROW) if form == "json" else mongo_plan(ROW)
    payload = json_rows.write(data.draw(json_rows.rows(form)), form, space)
    before = both.counts["ok"]
    both(plan, [payload])
    if form == "json" and not re.search(rb"\d[eE]|\\", payload):  # what has exponents or escapes may be the CPU's
        assert both.counts["ok"] > before, payload  # what the standard library writes is no work for the CPU
    both(plan, mutants(payload, seed))


@settings(RANDOM, max_examples=60)
@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_every_float_that_json_writes_is_the_nearest_one(values: list[float], both: BothEngines) -> None:
    plan = json_plan([FieldSpec(name="x", type="double"), FieldSpec(name="y", type="float", required=False)])
    unsure = both.counts["unsure"]
    texts = [f'{{"x":{value!r}}}'.encode() for value in values]
    both(plan, texts)
    normal = [value for value in values if value == 0 or 1e-280 < abs(value) < 1e300]
    assert both.counts["unsure"] - unsure <= 2 * (len(values) - len(normal))
    both(plan, [f'{{"x":0,"y":{value!r}}}'.encode() for value in values])
    both(plan, [f'{{"x":{str(value).replace("e", "E")}00,"y":{value:.9f}}}'.encode() for value in values])


def _image_rows(seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [{"image": [rng.choice((0, 0, rng.randrange(256))) for _ in range(784)], "label": i} for i in range(6)]


def _avro(items: str, rows: list[dict[str, Any]]) -> tuple[str, list[bytes]]:
    kind: Any = items if items == "bytes" else {"type": "array", "items": items}
    fields = [{"name": "image", "type": kind}, {"name": "label", "type": "int"}]
    schema = {"type": "record", "name": "Digit", "fields": fields}
    parsed = fastavro.parse_schema(schema)
    payloads = []
    for row in rows:
        buffer = io.BytesIO()
        image = bytes(row["image"]) if items == "bytes" else row["image"]
        fastavro.schemaless_writer(buffer, parsed, {**row, "image": image})
        payloads.append(buffer.getvalue())
    return json.dumps(schema), payloads


def _changed(payload: bytes, seed: int) -> list[bytes]:
    """Return mutants of a long payload, and only some of its prefixes."""
    every = mutants(payload, seed)
    return every[: len(payload) : 97] + every[len(payload) :]


@pytest.mark.parametrize(
    ("items", "dtype"),
    [
        *((items, dtype) for items in ("int", "long") for dtype in ("uint8", "float32", "int64")),
        *(("bytes", "uint8"), ("float", "float32"), ("double", "float32")),
    ],
)
def test_images_in_avro(items: str, dtype: str, both: BothEngines) -> None:
    image = FieldSpec(name="image", tensor=Tensor(dtype=dtype, shape=(28, 28)))  # type: ignore[arg-type]
    schema, payloads = _avro(items, _image_rows(1))
    plan = avro_plan(schema, [image, LABEL], "digit.avsc")
    ok = both.counts["ok"]
    both(plan, payloads)
    assert both.counts["ok"] == ok + 2 * len(payloads)
    both(plan, _changed(payloads[0], 2))


def test_a_list_column_of_long_arrays(both: BothEngines) -> None:
    schema, payloads = _avro("int", _image_rows(3))
    plan = avro_plan(schema, [FieldSpec(name="image", type="array<int>"), LABEL], "digit.avsc")
    ok = both.counts["ok"]
    both(plan, payloads)
    assert both.counts["ok"] == ok + 2 * len(payloads)
    both(plan, _changed(payloads[0], 4))


def _flat(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()


def _spaced(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()


def _nested(row: dict[str, Any]) -> bytes:
    image = row["image"]
    return json.dumps({"label": row["label"], "image": [image[i : i + 28] for i in range(0, 784, 28)]}).encode()


def _mongo(row: dict[str, Any]) -> bytes:
    wrapped = [{"$numberInt": str(value)} for value in row["image"]]
    return json.dumps({"image": wrapped, "label": {"$numberLong": str(row["label"])}}).encode()


@pytest.mark.parametrize("write", [_flat, _spaced, _nested, _mongo])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_in_json(write: Any, dtype: str, both: BothEngines) -> None:
    image = FieldSpec(name="image", tensor=Tensor(dtype=dtype, shape=(28, 28)))  # type: ignore[arg-type]
    plan = (mongo_plan if write is _mongo else json_plan)([image, LABEL])
    payloads = [write(row) for row in _image_rows(5)]
    unsure = both.counts["unsure"]
    both(plan, payloads)
    if not (write is _mongo and dtype == "float32"):
        assert both.counts["unsure"] == unsure
    both(plan, _changed(payloads[0], 6))


def test_a_batch_may_mix_schema_ids(both: BothEngines) -> None:
    plans: Plan = {}
    payloads: list[bytes] = []
    for schema_id, items in ((7, "bytes"), (8, "int")):
        schema, bodies = _avro(items, _image_rows(schema_id))
        plans[str(schema_id)] = {"plan": avro_plan(schema, [IMAGE, LABEL], items)}
        payloads += [b"\0" + schema_id.to_bytes(4, "big") + body for body in bodies]
    plans["9"] = {"refused": {"code": "type_mismatch", "reason": "never"}}
    random.Random(1).shuffle(payloads)
    framed = {"format": "framed", "framing": "confluent", "schemas": plans, "unknown": [11], "resolvable": True}
    plan = {**framed, "indexed": False, "fields": plans["7"]["plan"]["fields"]}
    ok = both.counts["ok"]
    both(plan, payloads)
    assert both.counts["ok"] == ok + 2 * len(payloads)
    header = b"\0\0\0\0"
    both(plan, [b"", b"\0\0", b"\1\0\0\0\7", header + b"\7", header + b"\x09x", header + b"\x0bx", header + b"\x0cx"])


def test_tombstones_between_rows(both: BothEngines) -> None:
    plan = json_plan([LABEL, FieldSpec(name="text", type="string", required=False)])
    payloads = [b'{"label":1,"text":"a\\u00e9"}', None, b"{", b'{"label":2}', None]
    kernel = both.kernel(plan)
    expected = [
        {"value": {"label": 1, "text": "aé"}},
        None,
        {},
        {"value": {"label": 2, "text": None}},
        None,
    ]
    assert kernel.decode(payloads, 5) == expected
    assert kernel.decode(payloads, 1) == expected
