"""Google's own messages as single values, held against the protobuf library's own conversions."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from kbit_spark.cli.decode.protobuf_rows import compiled, whole_plan
from kbit_spark.codecs.protobuf import protobuf_plan
from kbit_spark.codecs.protobuf_fields import Recursive, fields_of
from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec
from tests.codecs.mutants import mutants
from tests.fixtures.decode import Decode

WRAPPERS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "Double": ("double", st.floats(allow_nan=False, allow_infinity=False)),
    "Float": ("float", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "Int64": ("long", st.integers(-(2**63), 2**63 - 1)),
    "UInt64": ("decimal(20,0)", st.integers(0, 2**64 - 1)),
    "Int32": ("int", st.integers(-(2**31), 2**31 - 1)),
    "UInt32": ("long", st.integers(0, 2**32 - 1)),
    "Bool": ("boolean", st.booleans()),
    "String": ("string", st.text(max_size=4)),
    "Bytes": ("binary", st.binary(max_size=4)),
}
IMPORTS = "".join(
    f'import "google/protobuf/{name}.proto"; ' for name in ("timestamp", "duration", "wrappers", "struct")
)
MEMBERS = "".join(f"google.protobuf.{name}Value {name.lower()} = {i}; " for i, name in enumerate(WRAPPERS, 20))
TEXT = f"""\
syntax = "proto3"; {IMPORTS}
message M {{
  google.protobuf.Timestamp at = 1;
  google.protobuf.Duration took = 2;
  repeated google.protobuf.Timestamp stamps = 3;
  repeated google.protobuf.StringValue words = 4;
  map<string, google.protobuf.Timestamp> by_name = 5;
  oneof pick {{ google.protobuf.Duration a = 6; google.protobuf.Int32Value b = 7; }}
  {MEMBERS}
}}
message Free {{ google.protobuf.Struct any = 1; google.protobuf.Timestamp at = 2; }}
"""
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), timezones=st.just(timezone.utc))
NANOS = st.integers(0, 999)
MOST_MICROS = 315_576_000_000 * 10**6


def _message() -> Any:
    return GetMessageClass(compiled(TEXT).message("M"))


def _stamp(moment: datetime) -> str:
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds'):0>26}Z"


def _decode(decode: Decode, payload: bytes) -> Any:
    return decode(whole_plan(compiled(TEXT).message("M")), [payload])[0]


@settings(max_examples=60, deadline=None)
@given(moment=MOMENTS, extra=NANOS, more=st.lists(MOMENTS, max_size=3))
def test_timestamps(moment: datetime, extra: int, more: list[datetime], decode: Decode) -> None:
    message = _message()()
    message.at.FromDatetime(moment)
    message.at.nanos += extra  # of nanoseconds the microsecond that they are in
    for other in more:
        message.stamps.add().FromDatetime(other)
        message.by_name[str(other)].FromDatetime(other)
    value = _decode(decode, message.SerializeToString())["value"]
    assert value["at"] == _stamp(moment)
    assert value["stamps"] == [_stamp(other) for other in more]
    assert value["by_name"] == {str(other): _stamp(other) for other in more}


@settings(max_examples=60, deadline=None)
@given(micros=st.integers(-MOST_MICROS, MOST_MICROS), extra=NANOS)
def test_durations_are_microseconds(micros: int, extra: int, decode: Decode) -> None:
    message = _message()()
    message.took.FromMicroseconds(micros)
    message.a.FromTimedelta(timedelta(microseconds=micros % 1000))
    if 0 < abs(micros) < MOST_MICROS and message.took.nanos:
        message.took.nanos += extra if micros > 0 else -extra
    expected = message.took.seconds * 10**6 + message.took.nanos // 1000
    value = _decode(decode, message.SerializeToString())["value"]
    assert (value["took"], value["a"]) == (expected, micros % 1000)


@settings(max_examples=60, deadline=None)
@given(
    row=st.fixed_dictionaries({}, optional={name.lower(): values for name, (_, values) in WRAPPERS.items()}),
    words=st.lists(st.text(max_size=3), max_size=3),
)
def test_wrappers_are_values_or_null(row: dict[str, Any], words: list[str], decode: Decode) -> None:
    message = _message()()
    for name, value in row.items():
        getattr(message, name).value = value
        getattr(message, name).SetInParent()
    for word in words:
        message.words.add().value = word
    value = _decode(decode, message.SerializeToString())["value"]
    assert value["words"] == words
    for name in map(str.lower, WRAPPERS):
        wanted = row.get(name)
        if name == "uint64" and wanted is not None:
            wanted = str(wanted)
        assert value[name] == ({"$hex": wanted.hex()} if isinstance(wanted, bytes) else wanted), name


def test_what_is_absent_and_what_is_zero(decode: Decode) -> None:
    value = _decode(decode, b"")["value"]
    assert (value["at"], value["took"], value["int32"], value["stamps"], value["by_name"]) == (None, None, None, [], {})
    # a timestamp of no bytes; a map's entry with nothing but its key
    value = _decode(decode, bytes.fromhex("0a00 1200 a20100 2a030a0178"))["value"]
    assert (value["at"], value["took"], value["double"]) == (_stamp(EPOCH), 0, 0.0)
    assert value["by_name"] == {"x": _stamp(EPOCH)}


def test_occurrences_are_merged_and_of_a_oneof_the_last_counts(decode: Decode) -> None:
    kind = _message()
    first, second = kind(), kind()
    first.at.seconds = 5
    first.a.seconds = 1
    second.at.nanos = 7_000
    second.b.value = 3
    payload = first.SerializeToString() + second.SerializeToString()
    value = _decode(decode, payload)["value"]
    assert (value["at"], value["a"], value["b"]) == ("1970-01-01T00:00:05.000007Z", None, 3)
    read = kind.FromString(payload)
    assert (read.at.seconds, read.at.nanos, read.WhichOneof("pick")) == (5, 7_000, "b")


@pytest.mark.parametrize(
    ("field", "seconds", "nanos"),
    [
        ("at", 253_402_300_800, 0),
        ("at", -62_135_596_801, 0),
        ("at", 0, -1),
        ("at", 0, 10**9),
        ("took", 315_576_000_001, 0),
        ("took", -(2**63), 0),
        ("took", 1, -1),
        ("took", -1, 1),
        ("took", 0, -(10**9)),
        ("stamps", 2**63 - 1, 0),
    ],
)
def test_what_is_out_of_range_is_refused_at_its_place(field: str, seconds: int, nanos: int, decode: Decode) -> None:
    message = _message()()
    inner = message.stamps.add() if field == "stamps" else getattr(message, field)
    inner.seconds, inner.nanos = seconds, nanos
    result = _decode(decode, message.SerializeToString())
    assert (result["error"], result["position"]) == ("int_overflow", 1)


def test_the_row_of_a_whole_message() -> None:
    types = {field.name: field.type for field in fields_of(compiled(TEXT).message("M"))}
    assert types["at"] == "timestamp" and types["took"] == "long" and types["stamps"] == "array<timestamp>"
    assert types["by_name"] == "map<string,timestamp>"
    assert {name.lower(): kind for name, (kind, _) in WRAPPERS.items()}.items() <= types.items()
    assert not any(field.required for field in fields_of(compiled(TEXT).message("M")) if field.name == "int32")
    with pytest.raises(Recursive, match="contains itself"):
        fields_of(compiled(TEXT).message("Free"))


def test_other_columns(decode: Decode) -> None:
    free, whole = compiled(TEXT).message("Free"), compiled(TEXT).message("M")

    def refusal(message: Any, name: str, kind: str) -> str:
        with pytest.raises(UsageError) as caught:
            protobuf_plan(message, [FieldSpec(name=name, type=kind, required=False)], "m.proto")
        return f"{caught.value.message} ({caught.value.hint})"

    assert "holds whatever it likes, which no column does: leave it out" in refusal(free, "any", "string")
    assert "declare it as timestamp, or as a struct of seconds and nanos" in refusal(free, "at", "long")
    assert "'int32.value' can never be read: int32 cannot be read as string" in refusal(whole, "int32", "string")
    struct = FieldSpec(name="at", type="struct<seconds: long, nanos: int>", required=False)
    wide = FieldSpec(name="int32", type="long", required=False)
    message = _message()()
    message.at.seconds, message.int32.value = 2**60, 4  # a struct holds what no timestamp does
    found = decode(protobuf_plan(whole, [struct, wide], "m.proto"), [message.SerializeToString()])[0]
    assert found == {"value": {"at": {"seconds": 2**60, "nanos": 0}, "int32": 4}}


@settings(max_examples=40, deadline=None)
@given(moment=MOMENTS, number=st.integers(-(2**31), 2**31 - 1), seed=st.integers(0, 2**32))
def test_mutants(moment: datetime, number: int, seed: int, decode: Decode) -> None:
    kind = _message()
    message = kind()
    message.at.FromDatetime(moment)
    message.stamps.add().FromDatetime(moment)
    message.int32.value = number
    message.by_name["k"].FromDatetime(moment)
    changed = mutants(message.SerializeToString(), seed)
    for mutant, result in zip(changed, decode(whole_plan(compiled(TEXT).message("M")), changed), strict=True):
        assert ("value" in result) != ("error" in result), mutant
        if "value" in result:
            read = kind.FromString(mutant)
            at = _stamp(EPOCH + timedelta(microseconds=read.at.ToMicroseconds())) if read.HasField("at") else None
            wrapped = read.int32.value if read.HasField("int32") else None
            assert (result["value"]["at"], result["value"]["int32"]) == (at, wrapped), mutant
            assert len(result["value"]["stamps"]) == len(read.stamps), mutant
        else:
            assert 0 <= result["position"] <= len(mutant), (mutant, json.dumps(result))
