"""The language-neutral vectors: value, code and position must agree."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.codecs.vectors import Case, load
from tests.fixtures.decode import Decode

# Every case that is not run, by reason
LEFT_OUT = {
    "json": {},
    "mongo": {},
    "avro": {"framing confluent": 8, "framing soe": 5},  # test_framed_vectors.py
}
NUMBER_TEXT = {"NaN", "Infinity", "-Infinity"}


@pytest.mark.parametrize("name", ["json", "mongo", "avro"])
def test_vectors_agree(name: str, decode: Decode) -> None:
    cases, left_out = load(name)
    wrong = [fault for case in cases if (fault := _compare(case, decode(case.plan, [case.payload])[0]))]
    assert not wrong, "\n".join(wrong)
    assert Counter(left_out.values()) == LEFT_OUT[name], left_out


def _compare(case: Case, found: dict[str, object]) -> str | None:
    if "value" in case.expect:
        return None if found.get("value") == case.expect["value"] else f"{case.id}: {case.expect} != {found}"
    if found.get("error") != case.expect["error"]:
        return f"{case.id}: {case.expect} != {found}"
    if case.position is not None and found["position"] != case.position:
        return f"{case.id}: position {case.position} != {found}"
    return None
