"""The language-neutral vectors: value, code and position must agree, and only recursive rows are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbit_spark.cli.decode import vectors
from tests.fixtures.decode import Decode

FOLDER = Path(__file__).parents[1] / "vectors"
SKIPPED = {"protobuf": ["protobuf-deep-6", "protobuf-deep-200"]}  # messages that contain themselves, which no row can


@pytest.mark.parametrize("name", ["json", "mongo", "avro", "protobuf"])
def test_vectors_agree(name: str, decode: Decode) -> None:
    cases = vectors.read(FOLDER / f"{name}.jsonl")
    outcome = vectors.run(cases, decode)
    assert not outcome.mismatches, "\n".join(outcome.mismatches)
    assert outcome.skipped == SKIPPED.get(name, [])
    assert outcome.passed + len(outcome.skipped) == len(cases) > 30
