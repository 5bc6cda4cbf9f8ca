"""Kernels compiled for the CPU under ASan and UBSan, against the CPU decoder: vectors, mutants, noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbit_spark.cli.decode import vectors
from tests.fixtures.decode import Decode
from tests.gpu.compare import BothEngines

FOLDER = Path(__file__).parents[1] / "vectors"


@pytest.fixture(scope="session")
def both(decode: Decode, tmp_path_factory: pytest.TempPathFactory) -> BothEngines:
    return BothEngines(decode, tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_vectors_agree(name: str, both: BothEngines) -> None:
    outcome = vectors.run(vectors.read(FOLDER / f"{name}.jsonl"), both)
    print(outcome.summary(), both.counts, both.reasons)
    assert not outcome.mismatches, "\n".join(outcome.mismatches)
