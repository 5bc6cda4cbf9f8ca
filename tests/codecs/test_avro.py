"""Avro schema resolution: what a reader's schema adds, unions as structs, and what is refused at the start."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.plan import UnreadableSchemaError
from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec, Tensor
from tests.fixtures.decode import Decode


def record(*fields: tuple[str, Any], name: str = "Row") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def with_field(**field: Any) -> str:
    return json.dumps({"type": "record", "name": "Row", "fields": [field]})


def read(decode: Decode, writer: Any, kind: str, value: Any, reader: Any = None, *, required: bool = True) -> Any:
    """Write `a` and read it as a column of a type."""
    schema = record(("a", writer))
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), {"a": value})
    text = None if reader is None else json.dumps(record(("a", reader)))
    plan = avro_plan(json.dumps(schema), [FieldSpec(name="a", type=kind, required=required)], "w.avsc", text)
    result = decode(plan, [buffer.getvalue()])[0]
    return result["value"]["a"] if "value" in result else (result["error"], result["position"])


P = record(("x", "int"), name="a.b.P")
Q = record(("x", "int"), ("y", "string"), name="c.Q")
SUM = "struct<P: struct<x: long>, string: string, `c.Q`: struct<x: int>, array: array<int>>"


@pytest.mark.parametrize(
    ("written", "value", "member"),
    [
        (["null", P, "string"], ("a.b.P", {"x": 1}), {"P": {"x": 1}}),
        (["string", Q, "null"], ("c.Q", {"x": 1, "y": "z"}), {"c.Q": {"x": 1}}),
        (["string", "bytes"], b"text", {"string": "text"}),
        (["boolean", {"type": "array", "items": "int"}, "string"], [1, 2], {"array": [1, 2]}),
        (P, {"x": 1}, {"P": {"x": 1}}),
        ("string", "s", None),
        (["boolean", "string"], True, ("type_mismatch", 0)),
        (["null", "string"], None, None),
    ],
)
def test_a_union_is_a_struct_of_its_branches(written: Any, value: Any, member: Any, decode: Decode) -> None:
    if isinstance(member, dict):
        member = dict.fromkeys(("P", "string", "c.Q", "array")) | member
    elif written == "string":
        member = dict.fromkeys(("P", "string", "c.Q", "array")) | {"string": "s"}
    assert read(decode, written, SUM, value, required=False) == member


def test_the_reader_says_that_a_column_is_a_union(decode: Decode) -> None:
    kind = "struct<long: long, New: struct<x: int, z: int>>"
    inner = [{"name": "x", "type": "int"}, {"name": "z", "type": "int", "default": 9}]
    reader = ["null", "long", {"type": "record", "name": "New", "aliases": ["old.P"], "fields": inner}]
    assert read(decode, "int", kind, 5, reader) == {"long": 5, "New": None}
    assert read(decode, ["int", P], kind, ("a.b.P", {"x": 1}), reader) == {"long": None, "New": {"x": 1, "z": 9}}
    assert read(decode, P, kind, {"x": 1}, reader) == {"long": None, "New": {"x": 1, "z": 9}}


def test_a_nested_record_takes_aliases_and_defaults_of_its_own(decode: Decode) -> None:
    kind = "array<struct<new: long not null, more: map<string, decimal(4,2)>, kind: string>>"
    money = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    suits = {"type": "enum", "name": "Suit", "symbols": ["CLUB", "OTHER"], "default": "OTHER"}
    fields = [
        {"name": "new", "aliases": ["old"], "type": "long"},
        {"name": "more", "type": {"type": "map", "values": money}, "default": {"k": "\u0004\u00d2"}},
        {"name": "kind", "type": suits},
    ]
    reader = {"type": "array", "items": {"type": "record", "name": "Item", "fields": fields}}
    written = record(("kind", {**suits, "symbols": ["HEART", "CLUB", "OTHER"]}), ("old", "int"), name="Item")
    rows = [{"kind": "HEART", "old": 1}, {"kind": "CLUB", "old": 2}]
    assert read(decode, {"type": "array", "items": written}, kind, rows, reader) == [
        {"new": 1, "more": {"k": "12.34"}, "kind": "OTHER"},
        {"new": 2, "more": {"k": "12.34"}, "kind": "CLUB"},
    ]


def test_a_symbol_that_the_reader_lacks_is_told_where_it_stands(decode: Decode) -> None:
    writer = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    assert read(decode, writer, "string", "B", {**writer, "symbols": ["A"]}) == ("bad_enum", 0)
    assert read(decode, writer, "string", "B", "string") == "B"


def test_columns_find_their_field_by_each_of_their_names(decode: Decode) -> None:
    reader = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "aliases": ["m"], "type": "int"}]})
    for names in (["n"], ["m"], ["other", "n"]):
        field = FieldSpec.model_validate({"name": "a", "type": "long", "sources": names})
        for written in ("n", "m"):
            assert decode(avro_plan(with_field(name=written, type="int"), [field], "w", reader), [b"\2"]) == [
                {"value": {"a": 1}}
            ]
    twice = [FieldSpec(name="a", type="int"), FieldSpec(name="b", type="int", sources=("a",))]
    with pytest.raises(UsageError, match="'b' can never be read: 'a' is read from a too"):
        avro_plan(with_field(name="a", type="int"), twice, "w.avsc")


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("double", 1, 1.0),
        (["null", "int"], 7, 7),
        (["int", "null"], None, None),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0001", {"$hex": "ff01"}),
        (P, {"x": 3}, {"x": 3}),
    ],
)
def test_defaults(kind: Any, default: Any, value: Any, decode: Decode) -> None:
    column = {"double": "double", str(["null", "int"]): "int", str(["int", "null"]): "int", str(P): "struct<x: int>"}
    field = FieldSpec(name="d", type=column.get(str(kind), "binary"), required=False)
    plan = avro_plan(json.dumps(record()), [field], "w.avsc", with_field(name="d", type=kind, default=default))
    assert decode(plan, [b""]) == [{"value": {"d": value}}]


def test_a_default_that_its_column_cannot_hold_is_a_fault_of_each_record(decode: Decode) -> None:
    image = FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(2,)))
    reader = [with_field(name="image", type="bytes", default=text) for text in ("\u0001\u0002", "\u0001")]
    plans = [avro_plan(with_field(name="id", type="int"), [image], "w.avsc", text) for text in reader]
    assert decode(plans[0], [b"\2"]) == [{"value": {"image": {"$hex": "0102"}}}]
    result = decode(plans[1], [b"\2"])[0]
    assert (result["error"], result["position"]) == ("bad_length", 1)
    assert "default" in result["reason"]


@pytest.mark.parametrize(
    ("writer", "kind", "told", "code"),
    [
        (
            {"type": "array", "items": "string"},
            "array<int>",
            "'a' can never be read: string cannot be",
            "type_mismatch",
        ),
        ({"type": "array", "items": P}, "array<struct<x: string>>", "'a.x' can never be read", "type_mismatch"),
        (P, "struct<z: int not null>", "'a' can never be read: record a.b.P has no field z; it has x", "missing_field"),
        ({"type": "map", "values": "int"}, "map<int, int>", "map cannot be read as map<int,int>", "type_mismatch"),
        (["int", "string"], "struct<int: int not null, string: string>", "none may be NOT NULL", "type_mismatch"),
        (["null", "string"], "int", "string cannot be read as int", "type_mismatch"),
        ({"type": "int", "logicalType": "date"}, "timestamp", "date cannot be read as timestamp", "type_mismatch"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "decimal(4,1)",
            "decimal cannot be read as decimal(4,1)",
            "type_mismatch",
        ),
    ],
)
def test_what_can_never_be_read_is_refused_at_the_start(writer: Any, kind: str, told: str, code: str) -> None:
    with pytest.raises(UnreadableSchemaError) as caught:
        avro_plan(json.dumps(record(("a", writer))), [FieldSpec(name="a", type=kind, required=False)], "w.avsc")
    assert told in str(caught.value)
    assert caught.value.code == code


def test_a_reader_field_without_default_must_be_written() -> None:
    fields = [FieldSpec(name="a", type="int"), FieldSpec(name="z", type="string", required=False)]
    reader = json.dumps(record(("a", "int"), ("z", ["null", "string"])))
    with pytest.raises(UnreadableSchemaError, match="no field z") as caught:
        avro_plan(with_field(name="a", type="int"), fields, "w.avsc", reader)
    assert caught.value.code == "missing_field"
    with pytest.raises(UsageError, match=r"the reader's schema for w\.avsc is no valid Avro schema"):
        avro_plan(with_field(name="a", type="int"), fields, "w.avsc", "{")


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 4}


@pytest.mark.parametrize(
    ("writer", "kind", "value", "found"),
    [
        ({"type": "long", "logicalType": "timestamp-nanos"}, "long", -1, -1),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp", -1, "1969-12-31T23:59:59.999999Z"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp", 2**60, ("int_overflow", 0)),
        (MONEY, "decimal(38,0)", b"\7", "7"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4},
            "decimal(38,0)",
            b"\x27\x10",
            ("int_overflow", 0),
        ),
        ({**MONEY, "precision": 10**9}, "binary", b"\7", {"$hex": "07"}),
        ({"type": "string", "logicalType": "uuid"}, "string", "A" * 8 + ("-" + "b" * 4) * 3 + "-" + "C" * 12, "uuid"),
        ({"type": "string", "logicalType": "uuid"}, "string", "x" * 36, ("type_mismatch", 0)),
        ({"type": "string", "logicalType": "uuid"}, "binary", "ab", {"$hex": "6162"}),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "uuid"}, "binary", b"abcd", {"$hex": "61626364"}),
    ],
)
def test_logical_types(writer: Any, kind: str, value: Any, found: Any, decode: Decode) -> None:
    found = "aaaaaaaa-bbbb-bbbb-bbbb-cccccccccccc" if found == "uuid" else found
    assert read(decode, writer, kind, value) == found


def test_items_of_no_bytes_have_a_limit(decode: Decode) -> None:
    for items, kind in (("null", "array<int>"), (record(name="Empty"), "array<struct<x: int>>")):
        writer = with_field(name="a", type={"type": "array", "items": items})
        plan = avro_plan(writer, [FieldSpec(name="a", type=kind)], "w.avsc")
        few, limit, many = (decode(plan, [payload])[0] for payload in (b"\6\0", b"\x80\x80\x08\0", b"\x82\x80\x08\0"))
        assert len(few["value"]["a"]) == 3
        assert len(limit["value"]["a"]) == 65536
        assert (many["error"], many["position"]) == ("bad_length", 0)
