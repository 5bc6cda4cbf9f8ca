"""Protobuf plans: where the schema comes from, what is refused at the start, tensors, and mutated payloads."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st

from kbit_spark.cli.decode.protobuf_rows import UNSIGNED, compiled, whole_plan
from kbit_spark.codecs.descriptors import compile_schema, read_schema
from kbit_spark.codecs.plan import Plan
from kbit_spark.codecs.protobuf import protobuf_plan
from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec, Tensor
from tests.codecs.mutants import mutants
from tests.fixtures.decode import Decode

TENSORS = """\
syntax = "proto3";
package t;
message T {
  bytes raw = 1;
  repeated int32 ints = 2;
  repeated float floats = 3;
  repeated sfixed32 fixed = 4;
  repeated uint64 wide = 5;
  repeated double doubles = 300;
  repeated string texts = 6;
  oneof pick { bytes one = 7; int32 two = 8; }
  Inner inner = 9;
  message Inner { repeated Inner inner = 1; }
}
"""


def _plan(source: str, dtype: str, *shape: int, required: bool = True) -> Plan:
    tensor = Tensor.model_validate({"dtype": dtype, "shape": shape})
    field = FieldSpec(name=source, tensor=tensor, required=required)
    return protobuf_plan(compiled(TENSORS).message("t.T"), [field], "t.proto")


@pytest.mark.parametrize(
    ("source", "dtype", "payload", "found"),
    [
        ("raw", "uint8", "0a0201ff", "01ff"),
        ("raw", "uint8", "0a0101", ("bad_length", 1)),
        ("raw", "uint8", "0a00", ("bad_length", 1)),
        ("raw", "uint8", "", ("missing_field", 0)),
        ("raw", "uint8", "0a01010a0201ff", ("bad_length", 1)),
        ("ints", "uint8", "120301ff01", "01ff"),
        ("ints", "uint8", "1001120107", "0107"),
        ("ints", "uint8", "10011007", "0107"),
        ("ints", "uint8", "1204018180800012", ("truncated", 8)),
        ("ints", "uint8", "12050181808000", "0101"),
        ("ints", "uint8", "1203018002", ("int_overflow", 3)),
        ("ints", "uint8", "120b01ffffffffffffffffff01", ("int_overflow", 3)),
        ("ints", "uint8", "1203010203", ("bad_length", 4)),
        ("ints", "uint8", "120101", ("bad_length", 1)),
        ("ints", "uint8", "", ("missing_field", 0)),
        ("ints", "int16", "120b01ffffffffffffffffff01", "0100ffff"),
        ("ints", "float32", "12020102", struct.pack("<2f", 1, 2).hex()),
        ("ints", "uint8", "12020180", ("truncated", 4)),
        ("floats", "float32", "1a080000803f00000040", struct.pack("<2f", 1, 2).hex()),
        ("floats", "float64", "1a080000803f00000040", struct.pack("<2d", 1, 2).hex()),
        ("floats", "float32", "1d0000803f1d00000040", struct.pack("<2f", 1, 2).hex()),
        ("floats", "float32", "1a050000803f00", ("bad_length", 1)),
        ("floats", "float32", "1a0c0000803f0000004000000040", ("bad_length", 1)),
        ("fixed", "int32", "2208ffffffff01000000", "ffffffff01000000"),
        ("fixed", "uint8", "2208ffffffff01000000", ("int_overflow", 2)),
        ("wide", "int64", "2a0b01ffffffffffffffffff01", ("int_overflow", 3)),
        ("doubles", "float32", "e2121000000000000000400000000000000040", struct.pack("<2f", 2, 2).hex()),
        ("doubles", "float32", "e2121000000000000000400000000000", ("truncated", 16)),
        ("one", "uint8", "3a0201ff", "01ff"),
        ("one", "uint8", "3a0201ff4000", ("missing_field", 6)),
    ],
)
def test_tensors(source: str, dtype: str, payload: str, found: Any, decode: Decode) -> None:
    result = decode(_plan(source, dtype, 2), [bytes.fromhex(payload)])[0]
    if isinstance(found, str):
        assert result == {"value": {source: {"$hex": found}}}
    else:
        assert (result.get("error"), result.get("position")) == (found[0], found[1] or result.get("position")), result


@pytest.mark.parametrize("source", ["raw", "ints", "floats"])
def test_a_tensor_that_is_not_required_may_be_absent(source: str, decode: Decode) -> None:
    plan = _plan(source, "uint8" if source != "floats" else "float32", 2, required=False)
    assert decode(plan, [b""])[0] == {"value": {source: None}}


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.integers(0, 255), min_size=20, max_size=20), cuts=st.sets(st.integers(0, 20)))
def test_runs_in_pieces_are_one_tensor(values: list[int], cuts: set[int], decode: Decode) -> None:
    kind = GetMessageClass(compiled(TENSORS).message("t.T"))
    edges = [0, *sorted(cuts), 20]
    payload = b"".join(kind(ints=values[a:b]).SerializeToString() for a, b in pairwise(edges))
    assert decode(_plan("ints", "uint8", 4, 5), [payload])[0] == {"value": {"ints": {"$hex": bytes(values).hex()}}}


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.floats(width=32), min_size=3, max_size=3))
def test_floats_keep_their_bits(values: list[float], decode: Decode) -> None:
    payload = GetMessageClass(compiled(TENSORS).message("t.T"))(floats=values).SerializeToString()
    found = bytes.fromhex(decode(_plan("floats", "float32", 3), [payload])[0]["value"]["floats"]["$hex"])
    assert np.array_equal(np.frombuffer(found, "<f4"), np.array(values, "<f4"), equal_nan=True)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ({"name": "absent", "type": "int"}, "t.T has no field absent; it has raw, ints"),
        ({"name": "raw", "type": "string"}, "'raw' can never be read: bytes cannot be read as string"),
        ({"name": "raw", "type": "array<int>"}, "cannot be read"),
        ({"name": "ints", "type": "int"}, "repeated int32 cannot be read as int"),
        ({"name": "ints", "type": "array<string>"}, "repeated int32 cannot be read as"),
        ({"name": "two", "type": "float"}, "int32 cannot be read as float"),
        ({"name": "floats", "tensor": {"dtype": "int32", "shape": [2]}}, "tensor of int32"),
        ({"name": "texts", "tensor": {"dtype": "int32", "shape": [2]}}, "repeated string"),
        ({"name": "inner", "type": "string"}, "message cannot be read as string"),
    ],
)
def test_fields_that_can_never_be_read_are_refused(field: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        protobuf_plan(compiled(TENSORS).message("t.T"), [FieldSpec.model_validate(field)], "t.proto")
    assert told in caught.value.message and caught.value.message.startswith("t.proto")


def test_fields_in_other_types_than_their_own(decode: Decode) -> None:
    text = 'syntax="proto2"; enum E { A = 5; B = 6; } message M { optional int32 i = 1; optional E e = 2; '
    text += "optional float f = 3; optional E d = 4 [default = B]; optional uint64 u = 5; optional string s = 6 "
    text += '[default = "\\303\\244"]; optional double inf = 7 [default = inf]; }'
    types = {"i": "long", "e": "int", "f": "double", "d": "int", "u": "long", "s": "string", "inf": "double"}
    fields = [FieldSpec.model_validate({"name": name, "type": kind, "required": False}) for name, kind in types.items()]
    plan = protobuf_plan(compiled(text).message("M"), fields, "m.proto")
    value = {"i": None, "e": None, "f": None, "d": 6, "u": None, "s": "ä", "inf": "Infinity"}
    filled = value | {"i": -1, "e": 5, "f": 0.5, "u": 2**63 - 1}
    body = GetMessageClass(compiled(text).message("M"))(i=-1, e=5, f=0.5, u=2**63 - 1).SerializeToString()
    results = decode(plan, [b"", body, b"\x28" + b"\xff" * 9 + b"\x01", b"\x10\x07"])
    assert results[:2] == [{"value": value}, {"value": filled}]
    assert [(result["error"], result["position"]) for result in results[2:]] == [("int_overflow", 1), ("bad_enum", 1)]


def test_schemas_from_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/part.proto").write_text('syntax = "proto3"; package p; message Part { int32 x = 1; }')
    stamp = 'import "google/protobuf/timestamp.proto"; import "sub/part.proto"; '
    body = "message M { google.protobuf.Timestamp at = 1; Part part = 2; map<string, Part> parts = 3; message N {} }"
    (tmp_path / "m.proto").write_text(f'syntax = "proto3"; package p; {stamp}{body}')
    schema = read_schema(tmp_path / "m.proto")
    assert [field.name for field in schema.message("p.M").fields] == ["at", "part", "parts"]
    assert schema.message("p.Part").full_name == "p.Part"
    # the first client counts the hidden message of the map, the second does not
    assert schema.paths() == {"0": ("p.M",), "0,0": ("p.M.N",), "0,1": ("p.M.N",)}

    files = FileDescriptorSet(file=[schema.main])
    (tmp_path / "cut.desc").write_bytes(files.SerializeToString())
    with pytest.raises(UsageError, match=r"not whole.*include_imports"):
        read_schema(tmp_path / "cut.desc")
    part = FileDescriptorProto()
    schema.pool.FindFileByName("sub/part.proto").CopyToProto(part)
    whole = FileDescriptorSet(file=[part, schema.main])  # the well-known types may be absent
    (tmp_path / "whole.desc").write_bytes(whole.SerializeToString())
    assert read_schema(tmp_path / "whole.desc").paths() == schema.paths()


def test_schemas_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bad.desc").write_bytes(b"\xff\xff")
    (tmp_path / "empty.desc").write_bytes(b"")
    (tmp_path / "bad.proto").write_text('syntax = "proto3"; message M { int3 x = 1; }')
    faults = {"bad.desc": "descriptor set", "empty.desc": "empty", "absent.desc": "absent", "absent.proto": "absent"}
    for name, told in (
        faults | {"bad.proto": r"bad\.proto is no valid Protobuf schema: bad\.proto:1:\d+:.*int3"}
    ).items():
        with pytest.raises(UsageError, match=told):
            read_schema(tmp_path / name)
    with pytest.raises(UsageError, match="no import path"):
        compile_schema({"../x.proto": ""}, "../x.proto", "schema 1")
    with pytest.raises(UsageError, match=r"no message 'Nope'; it has t\.T, t\.T\.Inner"):
        compiled(TENSORS).message("Nope")


def test_huge_lengths_and_deep_nesting_end_at_once(decode: Decode) -> None:
    plan = protobuf_plan(compiled(TENSORS).message("t.T"), [FieldSpec(name="two", type="int", required=False)], "t")
    groups = b"\xa3\x06" * 100_000
    nested = b""
    for _ in range(150):
        nested = b"\x0a" + _varint(len(nested)) + nested
    results = decode(plan, [groups, b"\x4a" + _varint(len(nested)) + nested, b"\x12" + b"\xff" * 4 + b"\x07"])
    assert [result["error"] for result in results] == ["depth_exceeded", "depth_exceeded", "truncated"]


def _varint(number: int) -> bytes:
    low = number & 0x7F
    return bytes([low]) if number < 0x80 else bytes([low | 0x80]) + _varint(number >> 7)


RICH = """\
syntax = "proto2";
package rich;
enum Closed { A = 0; B = 1; }
message Part { required int32 x = 1; repeated sint64 zs = 2 [packed = true]; optional string s = 3; }
message Row {
  optional int32 i = 1;
  optional sint64 z = 2;
  optional bool flag = 3;
  optional string text = 4;
  optional bytes raw = 5;
  optional double d = 6;
  optional Closed e = 7;
  repeated Closed es = 8;
  optional Part part = 9;
  repeated Part parts = 10;
  map<string, Part> by_name = 11;
  map<int32, bool> flags = 12;
  oneof pick { int64 num = 13; string word = 14; Part piece = 15; }
  optional group Box = 16 { optional fixed32 w = 1; }
  repeated fixed64 wide = 17;
}
"""
PARTS = st.fixed_dictionaries(
    {"x": st.integers(-(2**31), 2**31 - 1)},
    optional={"zs": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3), "s": st.text(max_size=3)},
)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers(-(2**31), 2**31 - 1),
        "z": st.integers(-(2**63), 2**63 - 1),
        "flag": st.booleans(),
        "text": st.text(max_size=5),
        "raw": st.binary(max_size=5),
        "d": st.floats(allow_nan=False, allow_infinity=False),
        "e": st.sampled_from([0, 1]),
        "es": st.lists(st.sampled_from([0, 1]), max_size=3),
        "part": PARTS,
        "parts": st.lists(PARTS, max_size=2),
        "by_name": st.dictionaries(st.text(max_size=2), PARTS, max_size=2),
        "flags": st.dictionaries(st.integers(-3, 3), st.booleans(), max_size=2),
        "box": st.fixed_dictionaries({}, optional={"w": st.integers(0, 2**32 - 1)}),
        "wide": st.lists(st.integers(0, 2**64 - 1), max_size=2),
    },
) | st.fixed_dictionaries({"num": st.integers(-(2**63), 2**63 - 1)})


@settings(max_examples=60, deadline=None)
@given(row=ROWS, seed=st.integers(0, 2**32))
def test_mutants_are_read_as_the_library_reads_them_or_refused(row: dict[str, Any], seed: int, decode: Decode) -> None:
    message = compiled(RICH).message("rich.Row")
    kind = GetMessageClass(message)
    payload = kind(**row).SerializeToString()
    changed = mutants(payload, seed)
    whole, *results = decode(whole_plan(message), [payload, *changed])
    assert whole == {"value": _shown(kind.FromString(payload), message)}
    for mutant, result in zip(changed, results, strict=True):
        assert ("value" in result) != ("error" in result), mutant
        if "error" in result:
            assert 0 <= result["position"] <= len(mutant), (mutant, result)
        elif not _maps_left_out(read := kind.FromString(mutant)):
            assert result == {"value": _shown(read, message)}, mutant


@settings(max_examples=40, deadline=None)
@given(payload=st.binary(max_size=64))
def test_noise_that_the_library_refuses_is_refused(payload: bytes, decode: Decode) -> None:
    message = compiled(RICH).message("rich.Row")
    result = decode(whole_plan(message), [payload])[0]
    try:
        read = GetMessageClass(message).FromString(payload)
    except DecodeError:
        assert "error" in result
    else:
        assert "error" in result or _maps_left_out(read) or result["value"] == _shown(read, message)


def _maps_left_out(read: Any) -> bool:
    """Tell whether the library took a map's entry for unknown because it has an unknown field; the vectors keep it."""
    unknown = UnknownFieldSet(read)
    return any(unknown[index].field_number in (11, 12) for index in range(len(unknown)))


def _shown(read: Any, message: Descriptor) -> dict[str, Any]:
    """Return a message of the protobuf library in the form of the decoder's JSON."""
    return {field.name: _member(read, field) for field in message.fields}


def _member(read: Any, field: Any) -> Any:
    value = getattr(read, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {_key(key): _item(value[key], inner) for key in value}
    if field.is_repeated:
        return [_item(item, field) for item in value]
    return _item(value, field) if read.HasField(field.name) else None


def _key(key: Any) -> str:
    return json.dumps(key) if isinstance(key, bool) else str(key)


def _item(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _shown(value, field.message_type)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, bytes):
        return {"$hex": value.hex()}
    if field.type in UNSIGNED:
        return str(value)
    if isinstance(value, float) and not np.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value
