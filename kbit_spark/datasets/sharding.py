"""Which rows stand in which global batch: pure functions over row counts.

The row groups of a split, permuted by (seed, epoch), form one ring of N rows that begins at a random row. An epoch's
stream is what the epoch before could not fill a batch with, then the epoch's own ring. Its first
``steps * global_batch`` rows are cut into a few contiguous runs, the lanes; each lane supplies a fixed share of every
global batch, shuffled inside windows of `window_steps` batches. Lanes and windows do not depend on the world size, so
neither does the sequence of global batches: a rank merely takes its slice of the positions in each batch, and reads
only the lanes that overlap the slice. The fewer than `global_batch` rows at the end are carried over, so E epochs train
on every row E times, but for the carry of the last one. All of it follows from the numbers alone: any epoch can be
planned without the ones before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbit_spark.errors import RunError

MAX_LANES = 8
"""More lanes mix better and let more ranks read disjoint rows; each costs a single rank one open row group."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Segment:
    """`rows` neighbouring rows of one row group, from its row `first` on."""

    group: int
    first: int
    rows: int


@dataclass(frozen=True)
class LaneSlice:
    """Positions `[first, stop)` of a lane's share of a batch; they go to `[target, ...)` of the rank's local batch."""

    lane: int
    first: int
    stop: int
    target: int


def rank_slice(rank: int, world_size: int, rows: int) -> tuple[int, int]:
    """Return the positions `[start, stop)` of `rows` that belong to `rank`; sizes differ by at most one."""
    return rank * rows // world_size, (rank + 1) * rows // world_size


@dataclass(frozen=True)
class RowStream:
    """Row groups in some order as one ring of rows that begins `shift` rows in."""

    order: Indices
    ends: Indices
    shift: int

    @classmethod
    def of(cls, rows_per_group: Sequence[int], order: Indices | None = None, shift: int = 0) -> RowStream:
        """Lay the row groups out in `order` (None: as they come)."""
        counts = np.asarray(rows_per_group, dtype=np.int64)
        order = np.arange(len(counts), dtype=np.int64) if order is None else order
        return cls(order, np.cumsum(counts[order]), shift)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def segments(self, start: int, stop: int) -> list[Segment]:
        """Return the rows `[start, stop)` of the stream, in order, as pieces of row groups."""
        pieces: list[Segment] = []
        position = start
        while position < stop:
            at = (position + self.shift) % self.rows
            place = int(np.searchsorted(self.ends, at, side="right"))
            begin = int(self.ends[place - 1]) if place else 0
            count = min(stop - position, int(self.ends[place]) - at)
            pieces.append(Segment(int(self.order[place]), at - begin, count))
            position += count
        return pieces


@dataclass(frozen=True)
class CarriedStream:
    """The last `carry` rows of one stream, then all rows of another."""

    before: RowStream
    carry: int
    own: RowStream

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.carry + self.own.rows

    def segments(self, start: int, stop: int) -> list[Segment]:
        """Return the rows `[start, stop)`, in order, as pieces of row groups."""
        split, first = min(max(start, self.carry), stop), self.before.rows - self.carry
        return self.before.segments(first + start, first + split) + self.own.segments(
            split - self.carry, stop - self.carry
        )


@dataclass(frozen=True)
class EpochPlan:
    """The global batches of one epoch."""

    stream: CarriedStream
    seed: int
    epoch: int
    global_batch: int
    steps: int
    window_steps: int
    shares: tuple[int, ...]

    @property
    def windows(self) -> int:
        """Number of windows; the last one may have fewer steps."""
        return -(-self.steps // self.window_steps)

    def steps_of(self, window: int) -> int:
        """Return the number of steps in a window."""
        return min(self.window_steps, self.steps - window * self.window_steps)

    def slices(self, rank: int, world_size: int) -> list[LaneSlice]:
        """Return what `rank` takes of each lane's share in every batch."""
        start, stop = rank_slice(rank, world_size, self.global_batch)
        found, begin = [], 0
        for lane, share in enumerate(self.shares):
            first, last = max(start, begin), min(stop, begin + share)
            if first < last:
                found.append(LaneSlice(lane, first - begin, last - begin, first - start))
            begin += share
        return found

    def segments(self, window: int, lane: int, windows: int = 1) -> list[Segment]:
        """Return the rows that a lane brings into `windows` windows from `window` on, in stream order."""
        share = self.shares[lane]
        lane_begin = self.steps * sum(self.shares[:lane])
        first, stop = (min(step * self.window_steps, self.steps) for step in (window, window + windows))
        return self.stream.segments(lane_begin + first * share, lane_begin + stop * share)

    def shuffle(self, window: int, lane: int) -> Indices:
        """Return, shape (steps of the window, share of the lane), which of the window's rows stands where."""
        shape = (self.steps_of(window), self.shares[lane])
        random = np.random.default_rng((self.seed, self.epoch, 1 + window, lane))
        return random.permutation(shape[0] * shape[1]).reshape(shape)


def plan_epoch(
    rows_per_group: Sequence[int], *, seed: int, epoch: int, global_batch: int, window_rows: int
) -> EpochPlan:
    """Plan one epoch over row groups of the given sizes.

    Raises:
        RunError: fewer rows than one global batch.
    """
    rows = int(sum(rows_per_group))
    if rows < global_batch:
        msg = f"{rows} training rows are fewer than one global batch of {global_batch}"
        raise RunError(msg, "set global_batch_size to at most the number of rows, or ingest more")
    before, own = (_ring(rows_per_group, seed, number) for number in (max(0, epoch - 1), epoch))
    lanes = min(MAX_LANES, global_batch)
    return EpochPlan(
        stream=CarriedStream(before, epoch * rows % global_batch, own),
        seed=seed,
        epoch=epoch,
        global_batch=global_batch,
        steps=steps_of_epoch(rows, global_batch, epoch),
        window_steps=max(1, window_rows // global_batch),
        shares=tuple(global_batch // lanes + (lane < global_batch % lanes) for lane in range(lanes)),
    )


def steps_of_epoch(rows: int, global_batch: int, epoch: int) -> int:
    """Return the number of global batches in an epoch over `rows` rows and what the epochs before left."""
    return (epoch + 1) * rows // global_batch - epoch * rows // global_batch


def _ring(rows_per_group: Sequence[int], seed: int, epoch: int) -> RowStream:
    random = np.random.default_rng((seed, epoch, 0))
    order = random.permutation(len(rows_per_group)).astype(np.int64)
    return RowStream.of(rows_per_group, order, int(random.integers(sum(rows_per_group))))
