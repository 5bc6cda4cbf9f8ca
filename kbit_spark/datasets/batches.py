"""Batches of one rank as tensors, read ahead of the model.

A rank's memory holds at most four blocks, each one shuffle window or `BLOCK_BYTES` of smaller ones, and one slice of a
row group for each lane that it reads, whatever the size of the table. Small rows are copied twice more within a lane's
window, for as long as they are put in order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from kbit_spark.datasets.columns import whole_rows
from kbit_spark.datasets.memory import Recycled
from kbit_spark.datasets.prefetch import Prefetch
from kbit_spark.datasets.row_groups import Footers, RowGroup
from kbit_spark.datasets.row_reader import RowGroupReader
from kbit_spark.datasets.rows import Columns, Rows
from kbit_spark.datasets.sharding import EpochPlan, Indices, RowStream, rank_slice
from kbit_spark.schemas.fields import Tensor

BLOCK_BYTES = 2**24
"""Windows smaller than this are made several at once: each change of the lane costs the cache."""

SMALL_ROW_BYTES = 256
"""Rows up to this size are gathered, larger ones scattered; where they meet, both take the same time."""

Bytes = NDArray[np.uint8]


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
    with closing(Prefetch(_blocks(source, plan, first_step // plan.window_steps), ahead)) as blocks:
        batches = _batches_of(blocks, source.columns, first_step % plan.window_steps)
        if not source.pin:
            yield from batches
            return
        with closing(Prefetch((batch.pinned() for batch in batches), source.prefetch_batches)) as pinned:
            yield from pinned


def evaluation_batches(source: Source, batch_rows: int) -> Generator[Batch, None, None]:
    """Yield every row of the split exactly once over all ranks; ranks may get unequal numbers of batches."""
    with closing(Prefetch(_evaluation(source, batch_rows), source.prefetch_batches)) as batches:
        yield from batches


def _blocks(source: Source, plan: EpochPlan, first: int) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield inputs of shape (steps, local batch, bytes of a tensor) and their targets, from window `first` on."""
    slices = plan.slices(source.rank, source.world_size)
    local = sum(piece.stop - piece.first for piece in slices)
    footers = Footers()
    readers = [RowGroupReader(source.groups, source.columns, footers) for _ in slices]
    memory, labels = Recycled(np.uint8), Recycled(np.int64)
    copy = _gather if source.columns.tensor.nbytes <= SMALL_ROW_BYTES else _scatter
    for windows in _together(plan, first, local * source.columns.tensor.nbytes):
        steps = sum(plan.steps_of(window) for window in windows)
        inputs = memory.array(steps, local, source.columns.tensor.nbytes)
        targets = labels.array(steps, local)
        for piece, reader in zip(slices, readers, strict=True):
            share, places = slice(piece.first, piece.stop), slice(piece.target, piece.target + piece.stop - piece.first)
            stop = 0
            for window in windows:
                begin, stop = stop, stop + plan.steps_of(window)
                parts, shuffle = reader.parts(plan.segments(window, piece.lane)), plan.shuffle(window, piece.lane)
                copy(parts, shuffle, share, inputs[begin:stop, places], targets[begin:stop, places])
        yield inputs, targets
        del inputs, targets  # or their memory would serve one block later


def _together(plan: EpochPlan, first: int, step_bytes: int) -> list[range]:
    """Cut the windows from `first` on into runs of at most `BLOCK_BYTES`, or of one window."""
    length = max(1, BLOCK_BYTES // (plan.window_steps * step_bytes))
    return [range(begin, min(begin + length, plan.windows)) for begin in range(first, plan.windows, length)]


def _gather(parts: Iterator[Rows], shuffle: Indices, share: slice, inputs: Bytes, targets: Indices) -> None:
    """Copy the rows that `shuffle[:, share]` names to arrays of its shape, in the order of their places there.

    A window of small rows lies in the cache, from where rows are read in any order; written in any order, each would
    fetch the rest of its cache line from memory.
    """
    rows, chosen = Rows.joined(list(parts)), shuffle[:, share]
    whole_rows(inputs)[:] = whole_rows(rows.inputs).take(chosen)
    targets[:] = rows.targets.take(chosen)


def _scatter(parts: Iterator[Rows], shuffle: Indices, share: slice, inputs: Bytes, targets: Indices) -> None:
    """Do the same in the order in which the rows are decoded: the one copy of each row."""
    chosen = shuffle[:, share]
    steps, places = np.full((2, shuffle.size), -1)
    steps[chosen], places[chosen] = np.indices(chosen.shape)
    stop = 0
    for part in parts:
        begin, stop = stop, stop + len(part)
        at, rows, labels = (steps[begin:stop], places[begin:stop]), whole_rows(part.inputs), part.targets
        if chosen.size < shuffle.size:  # some of the rows are other ranks'
            wanted = np.flatnonzero(at[0] >= 0)
            at, rows, labels = (at[0][wanted], at[1][wanted]), rows[wanted], labels[wanted]
        whole_rows(inputs)[at] = rows
        targets[at] = labels


def _batches_of(
    blocks: Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]], columns: Columns, skip: int
) -> Iterator[Batch]:
    for inputs, targets in blocks:
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
