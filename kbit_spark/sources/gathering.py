"""Few tasks for few records: what a task costs beside its records is more than a small range of a partition is worth.

A task starts, opens consumers and writes a file for each split; on a GPU, each column of each file has its price. So
the ranges of a small batch are read one behind the other, by as many tasks as have enough to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from pyspark.sql import DataFrame

from kbit_spark.schemas.ledger import OffsetRange

TASK_ROWS = 5_000
"""Records that make a task worth its while."""
TASK_RANGES = 4
"""Ranges that a task reads at most: each of them costs some round trips to its broker."""


def gathered(batch: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return a batch of these offset ranges in as many partitions as its size is worth."""
    full = sum(r.span > 0 for r in ranges)
    tasks = tasks_for(sum(r.span for r in ranges), full)
    return batch.coalesce(tasks) if tasks < full else batch


def tasks_for(rows: int, ranges: int) -> int:
    """Return how many tasks shall read so many rows in so many ranges; none where there is nothing to read."""
    return min(ranges, max(ceil(rows / TASK_ROWS), ceil(ranges / TASK_RANGES)))
