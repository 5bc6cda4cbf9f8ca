"""What a window of new rows is mixed with: replayed older rows, so that nothing is forgotten and every batch is full.

Pure functions over row counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kbit_spark.datasets.sharding import RowStream, Segment

RUNS = 32
"""Older rows are replayed in so many runs of neighbouring rows, spread evenly over the past: few, so that they are read
cheaply."""


@dataclass(frozen=True)
class Mix:
    """Rows of a window: each new one once, `replayed` older ones, and `repeated` new ones a second time."""

    new: int
    replayed: int
    repeated: int

    @property
    def rows(self) -> int:
        """Number of rows in all, a multiple of the batch."""
        return self.new + self.replayed + self.repeated


def compose(new: int, older: int, batch: int, fraction: float) -> Mix | None:
    """Return how to fill whole batches with all `new` rows; None where there are not enough rows for one batch.

    About `fraction` of the rows are replayed, as far as there are so many `older` ones, and as many more as fill the
    last batch. Only where the older rows cannot fill it are new ones repeated, as in the first window.
    """
    if new == 0 or new + older < batch:
        return None
    gap = -new % batch
    if older < gap:
        return Mix(new, 0, gap)  # here new > batch - gap, that is new >= batch > gap
    wanted = round(new * fraction / (1 - fraction))
    batches = -(-(new + wanted) // batch)
    most = (new + older) // batch
    return Mix(new, min(batches, most) * batch - new, 0)


def draw(rows_per_file: Sequence[int], rows: int, seed: Sequence[int]) -> list[Segment]:
    """Return `rows` different rows of the files, as runs of neighbouring rows of one file, `group` its index.

    The files in their order are cut into `RUNS` equal pieces, and of each piece a run in proportion to its rows is
    drawn from a random place. `rows` is at most the sum of `rows_per_file`.
    """
    if rows == 0:
        return []
    stream = RowStream.of(rows_per_file)
    random = np.random.default_rng(seed)
    bounds = [piece * stream.rows // RUNS for piece in range(RUNS + 1)]
    segments: list[Segment] = []
    for begin, end in pairwise(bounds):
        if count := end * rows // stream.rows - begin * rows // stream.rows:
            first = begin + int(random.integers(end - begin - count + 1))
            segments += stream.segments(first, first + count)
    return segments
