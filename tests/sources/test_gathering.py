"""How many tasks read a batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbit_spark.sources.gathering import TASK_RANGES, TASK_ROWS, tasks_for


@given(rows=st.integers(0, 10_000_000), ranges=st.integers(0, 2_000))
def test_no_task_has_too_many_ranges_and_none_is_idle(rows: int, ranges: int) -> None:
    tasks = tasks_for(rows, ranges)
    assert tasks <= ranges <= tasks * TASK_RANGES
    assert tasks == ranges or tasks * TASK_ROWS >= rows


def test_large_batches_keep_a_task_for_each_range() -> None:
    assert [tasks_for(rows, 8) for rows in (8, 5_000, 15_000, 40_000, 400_000)] == [2, 2, 3, 8, 8]
