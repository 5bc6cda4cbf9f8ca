"""Sharding proven by property: nothing twice, equal steps, and batches that do not depend on the world size."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbit_spark.datasets.sharding import EpochPlan, RowStream, plan_epoch, rank_slice, steps_of_epoch
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


def all_rows(rows: list[int]) -> np.ndarray:
    return np.concatenate([group * 1_000 + np.arange(count) for group, count in enumerate(rows)])


@settings(max_examples=60, deadline=None)
@given(groups, st.integers(1, 40), st.integers(0, 3), st.integers(0, 3), st.integers(1, 100), st.data())
def test_every_world_sees_the_same_global_batches(
    rows: list[int], batch: int, seed: int, epoch: int, window: int, data: st.DataObject
) -> None:
    batch = min(batch, sum(rows))
    plan = plan_epoch(rows, seed=seed, epoch=epoch, global_batch=batch, window_rows=window)
    alone = global_batches(plan, 1)
    assert alone.shape == (steps_of_epoch(sum(rows), batch, epoch), batch)
    assert np.isin(alone, all_rows(rows)).all()
    world_size = data.draw(st.integers(1, batch))
    assert (global_batches(plan, world_size) == alone).all()


@settings(max_examples=60, deadline=None)
@given(groups, st.integers(1, 6), st.integers(0, 5), st.integers(1, 100), st.data())
def test_epochs_train_on_every_row_equally_often(
    rows: list[int], epochs: int, seed: int, window: int, data: st.DataObject
) -> None:
    batch = data.draw(st.integers(1, sum(rows)))
    plans = [plan_epoch(rows, seed=seed, epoch=e, global_batch=batch, window_rows=window) for e in range(epochs)]
    last = plans[-1]
    left = [s.group * 1_000 + s.first + i for s in last.stream.segments(last.steps * batch, last.stream.rows)
            for i in range(s.rows)]  # fmt: skip
    assert len(left) < batch
    trained = np.concatenate([global_batches(plan, 1).ravel() for plan in plans])
    assert (np.sort(np.concatenate([trained, left])) == np.sort(np.tile(all_rows(rows), epochs))).all()


@given(st.lists(st.just(1), min_size=1, max_size=30), st.integers(1, 9), st.integers(0, 3), st.data())
def test_ranks_take_equal_steps_from_row_groups_of_one_row(
    rows: list[int], world_size: int, epoch: int, data: st.DataObject
) -> None:
    batch = data.draw(st.integers(1, len(rows)))
    plan = plan_epoch(rows, seed=0, epoch=epoch, global_batch=batch, window_rows=4)
    parts = [rank_rows(plan, rank, world_size) for rank in range(world_size)]
    assert {len(part) for part in parts} == {plan.steps}
    assert sum(part.shape[1] for part in parts) == batch


def test_another_seed_or_epoch_is_another_order() -> None:
    orders = {
        global_batches(plan_epoch([50, 50], seed=s, epoch=e, global_batch=10, window_rows=40), 1).tobytes()
        for s in range(3)
        for e in range(3)
    }
    assert len(orders) == 9


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
