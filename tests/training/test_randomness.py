"""Random numbers go on where they were."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch

from kbit_spark.training.randomness import random_state, restore_random_state, seed_rank

CPU = torch.device("cpu")


def draw() -> list[float]:
    numbers = [random.random(), random.gauss(0, 1), float(np.random.rand()), float(np.random.randn())]
    return [*numbers, float(torch.rand(()))]


def test_all_generators_come_back_through_a_file_that_runs_no_code(tmp_path: Path) -> None:
    seed_rank(1, 2, 3)
    draw()  # gauss and randn keep the second number of a pair
    torch.save(random_state(CPU), tmp_path / "state.pt")
    expected = [draw() for _ in range(3)]
    seed_rank(9, 9, 9)
    restore_random_state(torch.load(tmp_path / "state.pt", weights_only=True), CPU)
    assert [draw() for _ in range(3)] == expected


def test_ranks_and_places_have_streams_of_their_own() -> None:
    drawn = set()
    for rank, step in ((0, 0), (1, 0), (0, 1)):
        seed_rank(5, rank, step)
        drawn.add(tuple(draw()))
    assert len(drawn) == 3
    seed_rank(5, 0, 0)
    assert tuple(draw()) in drawn
