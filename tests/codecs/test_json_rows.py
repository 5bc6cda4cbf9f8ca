"""Rows of every column type from an independent encoder, whole and mutated: the same row or an error, never a crash."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.mongo import mongo_plan
from kbit_spark.codecs.plan import Plan
from tests.codecs.json_rows import FIELDS, Form, rows, shown, write
from tests.codecs.mutants import check_results, mutants
from tests.fixtures.decode import Decode

FORMS: tuple[Form, ...] = get_args(Form)


def _plan(form: Form) -> Plan:
    return json_plan(FIELDS) if form == "json" else mongo_plan(FIELDS)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), space=st.sampled_from(["", " ", "\r\n\t"]))
def test_a_row_decodes_to_itself(form: Form, data: st.DataObject, space: str, decode: Decode) -> None:
    row = data.draw(rows(form))
    assert decode(_plan(form), [write(row, form, space)])[0] == {"value": shown(row)}


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_mutant_gives_a_whole_row_or_an_error(form: Form, data: st.DataObject, seed: int, decode: Decode) -> None:
    payload = write(data.draw(rows(form)), form)
    changed = mutants(payload, seed)
    results = decode(_plan(form), changed)
    check_results(payload, changed, results)
    assert all(set(result["value"]) == {field.name for field in FIELDS} for result in results if "value" in result)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_what_plain_json_says_extended_json_says_too(data: st.DataObject, decode: Decode) -> None:
    payload = write(data.draw(rows("json")), "json")
    changed = mutants(payload, data.draw(st.integers(0, 2**32)))
    plain: list[dict[str, Any]] = decode(json_plan(FIELDS), [payload, *changed])
    extended: list[dict[str, Any]] = decode(mongo_plan(FIELDS), [payload, *changed])
    # of an object where plain JSON has none, the reader of wrappers sees more before it refuses: errors may differ
    assert [result.get("value") for result in extended] == [result.get("value") for result in plain]
