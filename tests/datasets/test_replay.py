"""What new rows are mixed with, proven by property."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kbit_spark.datasets.replay import compose, draw

counts = st.lists(st.integers(0, 400), min_size=1, max_size=12)


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.integers(1, 512), st.floats(0, 0.95))
def test_a_mix_fills_whole_batches_with_all_new_rows(new: int, older: int, batch: int, fraction: float) -> None:
    mix = compose(new, older, batch, fraction)
    if mix is None:
        assert new == 0 or new + older < batch
        return
    assert mix.new == new
    assert mix.rows == new + mix.replayed + mix.repeated
    assert mix.rows % batch == 0
    assert mix.rows > 0
    assert 0 <= mix.replayed <= older
    assert 0 <= mix.repeated < batch
    assert mix.repeated <= new
    if mix.repeated:  # only where older rows cannot fill the last batch
        assert older < -new % batch


@given(st.integers(1, 5_000), st.integers(1, 512), st.floats(0, 0.9))
def test_with_plenty_of_older_rows_the_share_is_kept(new: int, batch: int, fraction: float) -> None:
    mix = compose(new, 1_000_000, batch, fraction)
    assert mix is not None
    wanted = new * fraction / (1 - fraction)
    assert wanted - 0.5 <= mix.replayed < wanted + batch + 0.5


@given(counts, st.data(), st.integers(0, 9))
def test_a_draw_has_exactly_so_many_different_rows(files: list[int], data: st.DataObject, seed: int) -> None:
    wanted = data.draw(st.integers(0, sum(files)))
    runs = draw(files, wanted, (seed, 3))
    rows = [(run.group, row) for run in runs for row in range(run.first, run.first + run.rows)]
    assert len(rows) == len(set(rows)) == wanted
    assert all(0 <= row < files[group] for group, row in rows)
    assert draw(files, wanted, (seed, 3)) == runs


def test_over_many_draws_every_row_has_its_turn_and_all_of_the_past_is_drawn_from() -> None:
    seen = np.zeros((4, 250))
    for seed in range(400):
        for run in draw([250] * 4, 100, (seed,)):
            seen[run.group, run.first : run.first + run.rows] += 1
    assert seen.min() > 0
    assert np.allclose(seen.sum(axis=1), 10_000, rtol=0.05)
