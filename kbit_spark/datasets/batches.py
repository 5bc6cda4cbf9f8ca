"""Batches of one rank as tensors, read ahead of the model.

A rank's memory holds at most three shuffle windows and one slice of a row group for each lane that it reads, whatever
the size of the table.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from kbit_spark.datasets.prefetch import Prefetch
from kbit_spark.datasets.row_groups import Columns, RowGroup, RowGroupReader, Rows
from kbit_spark.datasets.sharding import EpochPlan, Indices, LaneSlice, RowStream, rank_slice
from kbit_spark.schemas import Tensor


@dataclass(frozen=True)
class Batch:
    """`inputs` of shape (rows, *tensor shape) in the table's dtype, `targets` int64 of shape (rows,)."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def pinned(self) -> Batch:
        """Return a copy in page-locked memory, from which the GPU copies without waiting."""
        return Batch(self.inputs.pin_memory(), self.targets.pin_memory())

    def to(self, device: torch.device) -> Batch:
        """Return the batch on `device`; from pinned memory the copy is asynchronous."""
        return Batch(self.inputs.to(device, non_blocking=True), self.targets.to(device, non_blocking=True))


@dataclass(frozen=True)
class Source:
    """The rows of one split for one rank."""

    groups: Sequence[RowGroup]
    columns: Columns
    rank: int
    world_size: int
    prefetch_batches: int = 4
    pin: bool = False


def training_batches(source: Source, plan: EpochPlan, first_step: int = 0) -> Generator[Batch, None, None]:
    """Yield the rank's part of the global batches `first_step`, `first_step + 1`, ... of the epoch.

    Raises:
        RunError: an unreadable file, a wrong tensor length, a label out of range.
    """
    ahead = -(-source.prefetch_batches // plan.window_steps)
    with closing(Prefetch(_windows(source, plan, first_step // plan.window_steps), ahead)) as windows:
        batches = _batches_of(windows, source.columns, first_step % plan.window_steps)
        if not source.pin:
            yield from batches
            return
        with closing(Prefetch((batch.pinned() for batch in batches), source.prefetch_batches)) as pinned:
            yield from pinned


def evaluation_batches(source: Source, batch_rows: int) -> Generator[Batch, None, None]:
    """Yield every row of the split exactly once over all ranks; ranks may get unequal numbers of batches."""
    with closing(Prefetch(_evaluation(source, batch_rows), source.prefetch_batches)) as batches:
        yield from batches


def _windows(source: Source, plan: EpochPlan, first: int) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    slices = plan.slices(source.rank, source.world_size)
    local = sum(piece.stop - piece.first for piece in slices)
    readers = [RowGroupReader(source.groups, source.columns) for _ in slices]
    for window in range(first, plan.windows):
        steps = plan.steps_of(window)
        inputs = np.empty((steps, local, source.columns.tensor.nbytes), dtype=np.uint8)
        targets = np.empty((steps, local), dtype=np.int64)
        for piece, reader in zip(slices, readers, strict=True):
            places = _places(plan.shuffle(window, piece.lane), piece, local)
            _scatter(reader.parts(plan.segments(window, piece.lane)), places, inputs, targets)
        yield inputs, targets


def _places(shuffle: Indices, piece: LaneSlice, local: int) -> Indices:
    """Return for each row of a lane's window its place in the rank's window of `local` rows a step, -1 for none."""
    chosen = shuffle[:, piece.first : piece.stop]
    columns = np.arange(piece.target, piece.target + chosen.shape[1])
    places = np.full(shuffle.size, -1, dtype=np.int64)
    places[chosen] = np.arange(len(chosen))[:, np.newaxis] * local + columns
    return places


def _scatter(parts: Iterator[Rows], places: Indices, inputs: NDArray[np.uint8], targets: NDArray[np.int64]) -> None:
    """Copy rows straight from Arrow's memory to their places: the one copy of each row."""
    whole_rows = np.dtype((np.void, inputs.shape[-1]))  # numpy moves one such item several times as fast as a row
    into, labels = inputs.reshape(-1).view(whole_rows), targets.reshape(-1)
    begin = 0
    for part in parts:
        where = places[begin : begin + len(part.targets)]
        begin += len(where)
        rows, classes = part.inputs.reshape(-1).view(whole_rows), part.targets
        if len(wanted := np.flatnonzero(where >= 0)) < len(where):
            where, rows, classes = where[wanted], rows[wanted], classes[wanted]
        into[where] = rows
        labels[where] = classes


def _batches_of(
    windows: Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]], columns: Columns, skip: int
) -> Iterator[Batch]:
    for inputs, targets in windows:
        steps = zip(
            as_inputs(torch.from_numpy(inputs), columns.tensor).unbind(),
            torch.from_numpy(targets).unbind(),
            strict=True,
        )
        yield from (Batch(*step) for step in islice(steps, skip, None))
        skip = 0


def _evaluation(source: Source, batch_rows: int) -> Iterator[Batch]:
    stream = RowStream.of([group.rows for group in source.groups])
    start, stop = rank_slice(source.rank, source.world_size, stream.rows)
    reader = RowGroupReader(source.groups, source.columns)
    for begin in range(start, stop, batch_rows):
        rows = reader.read(stream.segments(begin, min(begin + batch_rows, stop)))
        inputs = torch.from_numpy(rows.inputs.copy())  # copied: Arrow's memory is read-only
        batch = Batch(as_inputs(inputs, source.columns.tensor), torch.from_numpy(rows.targets))
        yield batch.pinned() if source.pin else batch


def as_inputs(rows: torch.Tensor, tensor: Tensor) -> torch.Tensor:
    """View uint8 of shape (..., bytes of a tensor) as tensors of shape (..., *tensor shape)."""
    dtype: torch.dtype = getattr(torch, tensor.dtype)
    return rows.view(dtype).reshape(*rows.shape[:-1], *tensor.shape)
