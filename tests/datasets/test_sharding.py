"""Sharding proven by property: nothing twice, equal steps, and batches that do not depend on the world size."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbit_spark.datasets.sharding import EpochPlan, RowStream, plan_epoch, rank_slice
from kbit_spark.errors import RunError

groups = st.lists(st.integers(1, 60), min_size=1, max_size=12)


def rank_rows(plan: EpochPlan, rank: int, world_size: int) -> np.ndarray:
    """Return the (row group * 1000 + row) ids of the rank's batches, shape (steps, local batch)."""
    start, stop = rank_slice(rank, world_size, plan.global_batch)
    parts = []
    for window in range(plan.windows):
        local = np.full((plan.steps_of(window), stop - start), -1, dtype=np.int64)
        for piece in plan.slices(rank, world_size):
            ids = np.concatenate(
                [s.group * 1_000 + np.arange(s.first, s.first + s.rows) for s in plan.segments(window, piece.lane)]
            )
            chosen = plan.shuffle(window, piece.lane)[:, piece.first : piece.stop]
            local[:, piece.target : piece.target + piece.stop - piece.first] = ids[chosen]
        parts.append(local)
    return np.concatenate(parts)


def global_batches(plan: EpochPlan, world_size: int) -> np.ndarray:
    return np.concatenate([rank_rows(plan, rank, world_size) for rank in range(world_size)], axis=1)


@settings(max_examples=60, deadline=None)
@given(groups, st.integers(1, 40), st.integers(0, 3), st.integers(0, 3), st.integers(1, 100), st.data())
def test_every_world_sees_the_same_global_batches(
    rows: list[int], batch: int, seed: int, epoch: int, window: int, data: st.DataObject
) -> None:
    batch = min(batch, sum(rows))
    plan = plan_epoch(rows, seed=seed, epoch=epoch, global_batch=batch, window_rows=window)
    alone = global_batches(plan, 1)
    assert alone.shape == (sum(rows) // batch, batch)
    assert len(np.unique(alone)) == alone.size
    real = np.concatenate([group * 1_000 + np.arange(count) for group, count in enumerate(rows)])
    assert np.isin(alone, real).all()
    world_size = data.draw(st.integers(1, batch))
    assert (global_batches(plan, world_size) == alone).all()


@given(groups, st.integers(0, 5), st.data())
def test_a_row_left_out_in_one_epoch_comes_in_others(rows: list[int], seed: int, data: st.DataObject) -> None:
    batch = data.draw(st.integers(1, sum(rows)))
    plans = [plan_epoch(rows, seed=seed, epoch=e, global_batch=batch, window_rows=8) for e in range(2)]
    assert plans[0].steps == plans[1].steps
    again = plan_epoch(rows, seed=seed, epoch=1, global_batch=batch, window_rows=8)
    assert (global_batches(plans[1], 1) == global_batches(again, 1)).all()


@given(groups, st.integers(0, 2_000), st.data())
def test_segments_walk_the_ring(rows: list[int], shift: int, data: st.DataObject) -> None:
    stream = RowStream.of(rows, shift=shift % sum(rows))
    start = data.draw(st.integers(0, stream.rows))
    stop = data.draw(st.integers(start, stream.rows))
    walked = [s.group * 1_000 + s.first + i for s in stream.segments(start, stop) for i in range(s.rows)]
    ring = [group * 1_000 + i for group, count in enumerate(rows) for i in range(count)]
    assert walked == [ring[(p + stream.shift) % len(ring)] for p in range(start, stop)]


@given(st.integers(0, 10_000), st.integers(1, 17))
def test_rank_slices_cover_all_rows_evenly(rows: int, world_size: int) -> None:
    slices = [rank_slice(rank, world_size, rows) for rank in range(world_size)]
    assert slices[0][0] == 0
    assert slices[-1][1] == rows
    assert all(left[1] == right[0] for left, right in pairwise(slices))
    sizes = [stop - start for start, stop in slices]
    assert max(sizes) - min(sizes) <= 1


def test_fewer_rows_than_a_batch_are_refused() -> None:
    with pytest.raises(RunError, match="7 training rows are fewer than one global batch of 8"):
        plan_epoch([3, 4], seed=0, epoch=0, global_batch=8, window_rows=8)
