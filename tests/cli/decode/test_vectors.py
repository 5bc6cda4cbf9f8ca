from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbit_spark.cli.decode import hexdump, vectors
from kbit_spark.codecs.plan import Plan
from kbit_spark.errors import UsageError

CASE = {"id": "c", "format": "json", "framing": "raw", "ddl": "a INT", "payload": "7b7d", "expect": {"value": {"a": 1}}}


def run(found: dict[str, Any], **changes: Any) -> vectors.Outcome:
    """Run one case against a decoder that always gives `found`."""

    def decode(plan: Plan, payloads: Any) -> list[dict[str, Any]]:
        return [found]

    return vectors.run([{**CASE, **changes}], decode)


def test_a_case_passes_only_with_value_code_and_position() -> None:
    bad = {"error": "bad_json", "position": 1, "reason": "x"}
    assert run({"value": {"a": 1}}).summary() == "vectors: passed=1 failed=0 skipped=0"
    assert run({"value": {"a": True}}).mismatches == ['c: expected {"value": {"a": 1}}, got {"value": {"a": true}}']
    assert run(bad).passed == 0
    assert run(bad, expect={"error": "bad_json"}).passed == 1
    assert run(bad, expect={"error": "bad_json"}, position=2).passed == 0
    assert run(bad, expect={"error": "truncated"}).passed == 0


def test_only_tagged_cases_may_be_skipped() -> None:
    recursive = {"format": "protobuf", "proto": 'syntax = "proto3"; message R { R r = 1; }', "message": "R"}
    assert run({}, **recursive, tags=["recursive-schema"]).skipped == ["c"]
    assert run({}, **recursive).mismatches == ["c: its row would contain itself"]
    assert run({}, ddl="a NONSENSE", tags=["unsigned"]).mismatches[0].startswith("c: ")


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({**CASE, "payload": "0"}), '{"payload": ""}'])
def test_a_file_of_something_else(text: str, tmp_path: Path) -> None:
    (tmp_path / "v.jsonl").write_text(text)
    with pytest.raises(UsageError, match=r"v\.jsonl:1: "):
        vectors.read(tmp_path / "v.jsonl")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON, JSON)
def test_same_is_equality_of_json_text(one: Any, other: Any) -> None:
    equal = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert vectors.same(one, other) == equal
    assert vectors.same(one, json.loads(json.dumps(one)))


@given(st.binary(max_size=100), st.integers(0, 100))
def test_the_caret_is_under_the_byte(payload: bytes, position: int) -> None:
    position = min(position, len(payload))
    dump = hexdump.around(payload, position).splitlines()
    caret = next(number for number, line in enumerate(dump) if line.strip() == "^^")
    at = dump[caret].index("^^")
    assert dump[caret - 1][:8] == f"{position // 16 * 16:08x}"
    wanted = payload[position : position + 1].hex() or "  "
    assert dump[caret - 1][at : at + 2] == wanted
