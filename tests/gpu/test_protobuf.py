"""Protobuf kernels beyond the vectors: mutants, columns that want a part, tensors in pieces, mixed frames."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbit_spark.cli.decode.protobuf_rows import compiled, whole_plan
from kbit_spark.codecs.framing import ConfluentSchemas
from kbit_spark.codecs.gpu.layout import NotOnGpu
from kbit_spark.codecs.gpu.program import program_for
from kbit_spark.codecs.plan import Plan
from kbit_spark.codecs.protobuf import protobuf_plan
from kbit_spark.codecs.registry import SchemaRegistry
from kbit_spark.config.kafka import TopicConfig
from kbit_spark.config.registry import RegistryConfig
from kbit_spark.local.registry import Registry, serve
from kbit_spark.schemas.fields import FieldSpec, Tensor
from tests.codecs.mutants import mutants
from tests.codecs.test_protobuf import RICH, ROWS
from tests.gpu.compare import BothEngines
from tests.gpu.wire_noise import noise, varint

LIMITS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
OLD = """\
syntax = "proto2";
enum Grade { LOW = 2; HIGH = -3; }
enum Tone { SOFT = 0; LOUD = 5; }
message Need {
  required int32 a = 1;
  optional Need deeper = 2;
  repeated Need more = 3;
  oneof one { int32 b = 4; string c = 5; }
}
message Row {
  required int32 id = 1;
  optional string text = 2 [default = "\\303\\244"];
  optional bytes raw = 3 [default = "ab"];
  optional double ratio = 4 [default = -inf];
  optional Grade grade = 5 [default = HIGH];
  optional Grade number = 6 [default = LOW];
  optional uint64 wide = 7 [default = 18446744073709551615];
  required Need need = 8;
  map<uint64, Tone> tones = 9;
  map<string, bytes> bytes = 10;
  optional Need unwanted = 11;
  required fixed64 stamp = 12;
  oneof pick { string word = 13; Need message = 14; int64 other = 15; }
  repeated Grade all = 16 [packed = true];
  repeated bool flags = 17;
  repeated float floats = 18;
  repeated Need needs = 300;
}
"""
OLD_TYPES = {
    "id": "long",
    "text": "string",
    "raw": "binary",
    "ratio": "double",
    "grade": "string",
    "number": "int",
    "wide": "decimal(20,0)",
    "need": "struct<a: int, deeper: struct<a: long, b: int>, more: array<struct<c: string, a: int>>>",
    "tones": "map<decimal(20,0), string>",
    "bytes": "map<string, binary>",
    "word": "string",
    "message": "struct<a: int>",
    "all": "array<int>",
    "flags": "array<boolean>",
    "floats": "array<double>",
}
TENSORS = """\
syntax = "proto3";
message T {
  repeated int32 pixels = 1;
  repeated float floats = 2;
  repeated double narrow = 3;
  repeated sfixed32 verbatim = 4;
  repeated fixed64 wide = 5;
  repeated sint64 zigzag = 6;
  bytes raw = 7;
}
message U {
  repeated int32 pixels = 1 [packed = false];
  repeated float floats = 2 [packed = false];
  repeated double narrow = 3 [packed = false];
  repeated sfixed32 verbatim = 4 [packed = false];
  repeated fixed64 wide = 5 [packed = false];
  repeated sint64 zigzag = 6 [packed = false];
}
"""
DTYPES = {
    "pixels": "uint8",
    "floats": "float32",
    "narrow": "float32",
    "verbatim": "int32",
    "wide": "int64",
    "zigzag": "int16",
    "raw": "int8",
}
KINDS = {
    "pixels": st.integers(0, 255),
    "floats": st.floats(width=32, allow_nan=False),
    "narrow": st.floats(width=32, allow_nan=False),
    "verbatim": st.integers(-(2**31), 2**31 - 1),
    "wide": st.integers(0, 2**63 - 1),
    "zigzag": st.integers(-(2**15), 2**15 - 1),
}


def _plan(message: Descriptor, fields: Sequence[Mapping[str, object]]) -> Plan:
    return protobuf_plan(message, [FieldSpec.model_validate(field) for field in fields], "test.proto")


def _decode(both: BothEngines, plan: Plan, payload: bytes, seed: int) -> Counter[str]:
    """Decode a payload and mutants of it; return what the kernel said of the payload itself."""
    before = both.counts.copy()
    both(plan, [payload])
    said = both.counts - before
    changed = mutants(payload, seed)
    both(plan, random.Random(seed).sample(changed, min(len(changed), 150)))
    return said


def _rich_plan() -> Plan:
    return whole_plan(compiled(RICH).message("rich.Row"))


def _rich(row: dict[str, Any]) -> bytes:
    return bytes(GetMessageClass(compiled(RICH).message("rich.Row"))(**row).SerializeToString())


def _old_plan() -> Plan:
    required = ("id", "need", "tones", "bytes", "all", "flags", "floats")
    fields = [{"name": name, "type": kind, "required": name in required} for name, kind in OLD_TYPES.items()]
    return _plan(compiled(OLD).message("Row"), fields)


@LIMITS
@given(row=ROWS, seed=st.integers(0, 2**32))
def test_every_field(row: dict[str, Any], seed: int, both: BothEngines) -> None:
    said = _decode(both, _rich_plan(), _rich(row), seed)
    assert said["unsure" if "box" in row else "ok"] == 1  # a group that a column wants is the CPU's


@LIMITS
@given(row=ROWS, seed=st.integers(0, 2**32))
def test_fields_that_no_column_wants(row: dict[str, Any], seed: int, both: BothEngines) -> None:
    fields = [{"name": "i", "type": "long", "required": False}, {"name": "es", "type": "array<int>", "required": True}]
    plan = _plan(compiled(RICH).message("rich.Row"), fields)
    assert _decode(both, plan, _rich(row), seed)["ok"] == 1


NEED = st.recursive(
    st.fixed_dictionaries({"a": st.integers(-5, 5)}, optional={"b": st.integers(-5, 5)}),
    lambda need: st.fixed_dictionaries(
        {"a": st.integers(-5, 5)},
        optional={"deeper": need, "more": st.lists(need, max_size=2), "c": st.text(max_size=3)},
    ),
    max_leaves=4,
)
GRADES = st.sampled_from([2, -3])
OLD_ROWS = st.fixed_dictionaries(
    {"id": st.integers(-9, 9), "need": NEED, "stamp": st.integers(0, 2**64 - 1)},
    optional={
        "text": st.text(max_size=3),
        "raw": st.binary(max_size=3),
        "grade": GRADES,
        "number": GRADES,
        "wide": st.integers(0, 2**64 - 1),
        "tones": st.dictionaries(st.integers(0, 2**64 - 1), st.sampled_from([0, 5]), max_size=3),
        "bytes": st.dictionaries(st.text(max_size=2), st.binary(max_size=2), max_size=3),
        "unwanted": NEED,
        "message": NEED,
        "all": st.lists(GRADES, max_size=3),
        "flags": st.lists(st.booleans(), max_size=50),
        "floats": st.lists(st.floats(width=32, allow_nan=False), max_size=50),
        "needs": st.lists(NEED, max_size=2),
    },
)


@LIMITS
@given(row=OLD_ROWS, seed=st.integers(0, 2**32))
def test_defaults_and_required_fields(row: dict[str, Any], seed: int, both: BothEngines) -> None:
    payload = GetMessageClass(compiled(OLD).message("Row"))(**row).SerializeToString()
    assert _decode(both, _old_plan(), payload, seed)["ok"] == 1


@LIMITS
@given(data=st.data(), count=st.sampled_from([3, 80]), seed=st.integers(0, 2**32))
def test_tensors_in_pieces(data: st.DataObject, count: int, seed: int, both: BothEngines) -> None:
    """80 items are read by a warp, and must be there; 3 by a thread, and may be absent."""
    rng = random.Random(seed)
    message = compiled(TENSORS).message("T")
    tensors = {name: Tensor.model_validate({"dtype": dtype, "shape": (count,)}) for name, dtype in DTYPES.items()}
    plan = protobuf_plan(message, [FieldSpec(name=n, tensor=t, required=count > 3) for n, t in tensors.items()], "t")
    pieces = [b"\x3a" + bytes([count]) + rng.randbytes(count)]
    for name, items in KINDS.items():
        values = data.draw(st.lists(items, min_size=count, max_size=count) | items.map(lambda item: [item] * count))
        pieces += _pieces([message, compiled(TENSORS).message("U")], name, values, rng)
    rng.shuffle(pieces)
    said = _decode(both, plan, b"".join(pieces), seed)
    assert said.total() == 1 and not said["unsure"]


def _pieces(messages: Sequence[Descriptor], name: str, values: Sequence[Any], rng: random.Random) -> list[bytes]:
    """Return all values, in some runs or one by one."""
    cuts = sorted(rng.sample(range(len(values)), rng.choice([0, 0, 1, 2])))
    runs = [values[a:b] for a, b in pairwise([0, *cuts, len(values)])]
    return [GetMessageClass(rng.choice(messages))(**{name: run}).SerializeToString() for run in runs]


@LIMITS
@given(seed=st.integers(0, 2**32), odd=st.sampled_from([0.0, 0.02, 0.2]))
def test_noise(seed: int, odd: float, both: BothEngines) -> None:
    rng = random.Random(seed)
    for message, plan in (
        (compiled(RICH).message("rich.Row"), _rich_plan()),
        (compiled(OLD).message("Row"), _old_plan()),
    ):
        both(plan, [rng.randbytes(20), *(noise(message, rng, odd) for _ in range(40))])


def test_what_is_nested_deep(both: BothEngines) -> None:
    """Messages and groups, known and unknown, that no column wants; both engines read 10 levels, the CPU 40 as well."""
    plan = _plan(compiled(RICH).message("rich.Row"), [{"name": "i", "type": "int", "required": False}])
    old = protobuf_plan(compiled(OLD).message("Need"), [FieldSpec(name="b", type="int", required=False)], "need.proto")
    before = both.counts.copy()
    for depth, said in ((10, "ok"), (40, "unsure"), (200, "unsure")):
        need, groups = b"\x08\x01", b"\xa3\x06" * depth + b"\xa4\x06" * depth
        for _ in range(depth):
            need = b"\x08\x01\x12" + varint(len(need)) + need
        both(old, [need])
        both(plan, [groups])
        both(plan, [b"\x83\x01\x0d\1\2\3\4" + groups + b"\x84\x01"])
        assert both.counts - before == {said: 3}, depth
        before = both.counts.copy()


def test_frames_mix_schemas(both: BothEngines) -> None:
    texts = {
        1: "message A { int32 x = 1; } message B { message C { int64 y = 2; string s = 3; } int32 x = 3; }",
        2: "message A { sint64 y = 5; int64 x = 9; repeated string s = 3; }",
        300: "message A { string x = 1; }",
    }
    schemas = {key: {"schema": f'syntax = "proto3"; {text}', "schemaType": "PROTOBUF"} for key, text in texts.items()}
    fields = [FieldSpec(name="x", type="long", required=False), FieldSpec(name="y", type="long", required=False)]
    topic = TopicConfig(name="t", format="protobuf", framing="confluent")
    with serve(Registry(schemas)) as server:
        known = ConfluentSchemas(topic, fields, SchemaRegistry(RegistryConfig(url=server.url)))
        for key in texts:
            known.learn(key)
    good = ["00 0801", "0200 0801", "0202 1805", "040200 1007", "040200 1a01ff", "0204 00", "12" + "00" * 9]
    bad = ["0401 00", "03 00", "120000", "80", ""]
    frames = [b"\0" + key.to_bytes(4, "big") + bytes.fromhex(body) for key in (*texts, 9) for body in good + bad]
    before = both.counts.copy()
    found = both(known.plan(), frames)
    said = both.counts - before
    values = [(result["value"]["x"], result["value"]["y"]) for result in found if "value" in result]
    assert values == [(1, None), (1, None), (5, None), (None, 7), (0, 0), (0, 0)]
    assert said["ok"] == 2 * len(values)
    assert said["unsure"] == 2 * (len(good) + 3)  # what has the id 9, which nobody has asked for, and paths of 9


@pytest.mark.parametrize(
    ("names", "required", "reason"),
    [(("i", "i"), 1, "two columns are read from one field of M"), (("i",), 40, "M.Many has more than 32 required")],
)
def test_plans_without_a_kernel(names: Sequence[str], required: int, reason: str) -> None:
    many = " ".join(f"required int32 f{number} = {number};" for number in range(1, required + 1))
    text = f'syntax = "proto2"; message M {{ optional int32 i = 1; optional Many m = 2; message Many {{ {many} }} }}'
    fields = [{"name": f"c{n}", "sources": [name], "type": "int", "required": False} for n, name in enumerate(names)]
    with pytest.raises(NotOnGpu, match=reason):
        program_for(_plan(compiled(text).message("M"), fields))
