"""Kernels compiled for the CPU under ASan and UBSan, against the CPU decoder: the vectors of every format."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbit_spark.cli.decode import vectors
from tests.gpu.compare import BothEngines

FOLDER = Path(__file__).parents[1] / "vectors"


@pytest.mark.parametrize(("name", "ok", "unsure"), [("avro", 54, 8), ("protobuf", 46, 14)])
def test_vectors_agree(name: str, ok: int, unsure: int, both: BothEngines) -> None:
    before = both.counts.copy()
    outcome = vectors.run(vectors.read(FOLDER / f"{name}.jsonl"), both)
    counts = both.counts - before
    print(outcome.summary(), counts, both.reasons)
    assert not outcome.mismatches, "\n".join(outcome.mismatches)
    assert counts["ok"] >= ok and counts["unsure"] <= unsure, counts
