"""The language-neutral vectors of Protobuf: value, code and position must agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.codecs.protobuf_rows import Recursive, compiled, shown_as_row, whole_plan
from tests.fixtures.decode import Decode

CASES = [json.loads(line) for line in (Path(__file__).parents[1] / "vectors/protobuf.jsonl").read_text().splitlines()]
RAW = [case for case in CASES if case["framing"] == "raw" and "recursive-schema" not in case.get("tags", ())]
RECURSIVE = {case["id"] for case in CASES if "recursive-schema" in case.get("tags", ())}


@pytest.mark.parametrize("case", RAW, ids=lambda case: case["id"])
def test_vectors_agree(case: dict[str, Any], decode: Decode) -> None:
    message = compiled(case["proto"]).message(case["message"])
    result = decode(whole_plan(message), [bytes.fromhex(case["payload"])])[0]
    expect = case["expect"]
    if "value" in expect:
        assert result == {"value": shown_as_row(message, expect["value"])}
    else:
        assert result.get("error") == expect["error"], result
        assert result["position"] == case.get("position", result["position"]), result


def test_only_messages_that_contain_themselves_are_left_out() -> None:
    for case in CASES:
        if case["id"] in RECURSIVE:
            with pytest.raises(Recursive):
                whole_plan(compiled(case["proto"]).message(case["message"]))
    assert len(RECURSIVE) == 2
