"""Tensor fields: every way to write one, and every way to get it wrong."""

from __future__ import annotations

import json
import struct
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.json import json_plan
from kbit_spark.schemas.fields import FieldSpec, Tensor
from tests.fixtures.decode import Decode

ODD = ["0"] * 6 + ["256", "999", "1000", "007", "00", "-1", "1.5", "1e1", "", " 7", "7 "]


def _plan(dtype: str, *shape: int) -> dict[str, Any]:
    return json_plan([FieldSpec(name="t", tensor=Tensor.model_validate({"dtype": dtype, "shape": shape}))])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[1,2,3,4]", "01020304"),
        ("[[1,2],[3,4]]", "01020304"),
        ('"AQIDBA=="', "01020304"),
        ('"AQID\\u0042A=="', "01020304"),
        ("[ 0 , 25,255 ,\n-0]", "0019ff00"),
        ("[1,2,3]", ("bad_length", 11)),
        ("[1,2,3,4,5]", ("bad_length", 14)),
        ("[1,2,3,4,]", ("bad_json", 14)),
        ("[[1,2],[3,4],]", ("bad_json", 18)),
        ("[[1,2],[3,4],[5,6]]", ("bad_length", 18)),
        ("[[1,2],3,4]", ("type_mismatch", 12)),
        ("[1,[2],3,4]", ("type_mismatch", 8)),
        ("[1,256,3,4]", ("int_overflow", 8)),
        ("[1,-1,3,4]", ("int_overflow", 8)),
        ("[1,2.0,3,4]", ("type_mismatch", 8)),
        ("[1,null,3,4]", ("type_mismatch", 8)),
        ("[1,02,3,4]", ("bad_json", None)),
        ('"AQID"', ("bad_length", 5)),
        ('"AQIDBB=="', ("type_mismatch", 5)),
        ('"AQIDBA"', ("type_mismatch", 5)),
        ("null", ("type_mismatch", 5)),
        ("7", ("type_mismatch", 5)),
    ],
)
def test_json(text: str, found: str | tuple[str, int | None], decode: Decode) -> None:
    result = decode(_plan("uint8", 2, 2), [b'{"t":' + text.encode() + b"}"])[0]
    if isinstance(found, str):
        assert result == {"value": {"t": {"$hex": found}}}
    else:
        assert result.get("error") == found[0], result
        assert found[1] is None or result["position"] == found[1], result


@settings(max_examples=400, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 255) | st.just(0), min_size=60, max_size=60),
    odd=st.dictionaries(st.integers(0, 59), st.sampled_from(ODD), max_size=2),
    comma=st.sampled_from([",", ",", ", ", ", ", " ,", ",  "]),
    other=st.sampled_from([None, None, ",", ", ", "  ,", ",\n"]),
    where=st.integers(1, 59),
)
def test_json_bytes_by_any_path_are_what_python_reads(
    numbers: list[int], odd: dict[int, str], comma: str, other: str | None, where: int, decode: Decode
) -> None:
    """Lists of several blocks of 64 characters, with odd items and an odd separator at any place."""
    items = [odd.get(index, str(number)) for index, number in enumerate(numbers)]
    text = f"[{comma.join(items[:where])}{comma if other is None else other}{comma.join(items[where:])}]"
    result = decode(_plan("uint8", 60), [f'{{"t":{text}}}'.encode()])[0]
    try:
        read = json.loads(text)
    except ValueError:
        assert result["error"] in {"bad_json", "int_overflow", "type_mismatch"}, result  # the first fault counts
        return
    if all(isinstance(value, int) and 0 <= value <= 255 for value in read):
        assert result == {"value": {"t": {"$hex": bytes(read).hex()}}}
    else:
        assert result["error"] in {"int_overflow", "type_mismatch"}, result


def test_json_bytes_of_up_to_four_characters_are_what_they_say(decode: Decode) -> None:
    """Every text of up to three of these characters and every number of up to four digits, at both places of a pair."""
    characters = "01259/:-+. e"
    texts = {"".join(some) for length in range(4) for some in product(characters, repeat=length)}
    texts |= {f"{number:0{width}}" for width in (3, 4) for number in range(1_300)}
    good = {str(number) for number in range(256)} | {"-0"}
    for place in (3, 4):
        items = [["17", "0", "255", *["8"] * 9] for _ in texts]
        for row, text in zip(items, texts, strict=True):
            row[place] = text
        results = decode(_plan("uint8", 12), [f'{{"t":[{",".join(row)}]}}'.encode() for row in items])
        for text, row, result in zip(texts, items, results, strict=True):
            if text.strip(" ") in good:
                assert result == {"value": {"t": {"$hex": bytes(map(int, row)).hex()}}}, text
            else:
                assert result["error"] in {"bad_json", "int_overflow", "type_mismatch"}, (text, result)


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.floats(width=64, allow_nan=False, allow_infinity=False), min_size=20, max_size=20))
def test_json_floats_are_the_nearest(values: list[float], decode: Decode) -> None:
    payload = json.dumps({"t": values}).encode()
    wide, narrow = (decode(_plan(dtype, 20), [payload])[0] for dtype in ("float64", "float32"))
    assert wide == {"value": {"t": {"$hex": np.array(values, "<f8").tobytes().hex()}}}
    with np.errstate(over="ignore"):
        nearest = np.array(values, "<f4")
    if np.isinf(nearest).any():
        assert narrow["error"] == "int_overflow"
    else:
        assert narrow == {"value": {"t": {"$hex": nearest.tobytes().hex()}}}


@pytest.mark.parametrize("text", ["1.00000005960464477540", "1.00000005960464477539", "16777217.0000000001", "1e-45"])
def test_json_float32_is_rounded_once(text: str, decode: Decode) -> None:
    result = bytes.fromhex(decode(_plan("float32", 1), [f'{{"t":[{text}]}}'.encode()])[0]["value"]["t"]["$hex"])
    found = np.frombuffer(result, "<f4")[0]
    near = [np.nextafter(found, np.float32(side), dtype=np.float32) for side in (-np.inf, np.inf)]
    distance = abs(Fraction(text) - Fraction(float(found)))
    assert all(distance <= abs(Fraction(text) - Fraction(float(other))) for other in near)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_integer_ranges_hold_to_the_last_number(dtype: str, decode: Decode) -> None:
    info = np.iinfo(dtype)
    edges, beyond = [info.min, info.max], [info.min - 1, info.max + 1]
    assert decode(_plan(dtype, 2), [json.dumps({"t": edges}).encode()])[0] == {
        "value": {"t": {"$hex": np.array(edges, np.dtype(dtype).newbyteorder("<")).tobytes().hex()}}
    }
    for number in beyond:
        assert decode(_plan(dtype, 2), [json.dumps({"t": [0, number]}).encode()])[0]["error"] == "int_overflow"


def _avro(items: Any, dtype: str) -> dict[str, Any]:
    schema = {"type": "record", "name": "R", "fields": [{"name": "t", "type": items}]}
    return avro_plan(
        json.dumps(schema), [FieldSpec(name="t", tensor=Tensor.model_validate({"dtype": dtype, "shape": (2,)}))], "t"
    )


LONGS = {"type": "array", "items": "long"}


@pytest.mark.parametrize(
    ("written", "dtype", "payload", "found"),
    [
        (LONGS, "uint8", bytes([4, 2, 4, 0]), "0102"),
        (LONGS, "uint8", bytes([2, 2, 2, 4, 0]), "0102"),
        (LONGS, "uint8", bytes([3, 4, 2, 4, 0]), "0102"),
        (LONGS, "int16", bytes([4, 1, 4, 0]), "ffff0200"),
        (LONGS, "float32", bytes([4, 1, 4, 0]), struct.pack("<2f", -1, 2).hex()),
        (LONGS, "uint8", bytes([4, 2, 1, 0]), ("int_overflow", 2)),
        (LONGS, "uint8", bytes([6, 2, 4, 6, 0]), ("bad_length", 0)),
        (LONGS, "uint8", bytes([5, 6, 2, 4, 6, 0]), ("bad_length", 0)),
        (LONGS, "uint8", bytes([2, 2, 0]), ("bad_length", 2)),
        (LONGS, "uint8", bytes([3, 2, 2, 4, 0]), ("bad_length", 1)),
        ("bytes", "uint8", bytes([6, 1, 2, 3]), ("bad_length", 0)),
        (["null", "bytes"], "uint8", bytes([0]), ("type_mismatch", 0)),
        (["null", "bytes"], "uint8", bytes([2, 4, 1, 2]), "0102"),
        ({"type": "fixed", "name": "F", "size": 2}, "uint8", bytes([1, 2]), "0102"),
        (
            {"type": "array", "items": "double"},
            "float32",
            b"\4" + struct.pack("<2d", 1, 2) + b"\0",
            struct.pack("<2f", 1, 2).hex(),
        ),
        (
            {"type": "array", "items": "double"},
            "float32",
            b"\4" + struct.pack("<2d", 1, 1e39) + b"\0",
            ("int_overflow", 9),
        ),
    ],
)
def test_avro(written: Any, dtype: str, payload: bytes, found: str | tuple[str, int], decode: Decode) -> None:
    result = decode(_avro(written, dtype), [payload])[0]
    if isinstance(found, str):
        assert result == {"value": {"t": {"$hex": found}}}
    else:
        assert (result.get("error"), result.get("position")) == found, result
