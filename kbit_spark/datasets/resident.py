"""Rows that live on the device of the model, and the order in which a rank takes them, worked out ahead."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from typing import Literal

import numpy as np
import psutil
import torch

from kbit_spark.datasets.batches import Batch, Source, as_inputs
from kbit_spark.datasets.prefetch import Prefetch
from kbit_spark.datasets.row_reader import RowGroupReader
from kbit_spark.datasets.sharding import EpochPlan, Indices, LaneSlice, RowStream, rank_slice

SHARE = 0.5
"""Of the free memory, what resident rows may take; the rest is for the model and its activations."""

AUTO_BYTES = 2**30
"""Larger splits are only kept where it is asked for: all of their rows are read before the first step."""

LOAD_ROWS = 8_192
"""Rows that are decoded at once while resident rows are loaded."""

BLOCK_ROWS = 2**16
"""Rows of a rank whose order is worked out, and copied to the device, at once."""

BLOCKS_AHEAD = 4

GATHER_BYTES = {"cpu": 2**20, "cuda": 2**24}
"""Inputs of consecutive steps that are gathered at once: on a GPU a small model's step costs little more than its
launches, while a CPU takes longer for memory that is not in its cache, and ten times as long where malloc maps it."""

log = logging.getLogger(__name__)


class ResidentRows:
    """All rows of a split on one device.

    The shuffle is global, so over the epochs every rank reads every row: each keeps all of them, or none. `plans` makes
    the plan of an epoch, so that its order can be worked out ahead.
    """

    def __init__(self, source: Source, plans: Callable[[int], EpochPlan], device: torch.device) -> None:
        """Read all rows.

        Raises:
            RunError: an unreadable file, a wrong tensor length, a label out of range.
        """
        self._source, self._device, self._tensor = source, device, source.columns.tensor
        stream = RowStream.of([group.rows for group in source.groups])
        self._order = RowOrder(source, np.concatenate([[0], stream.ends]), plans, device)
        # A GPU gathers items: the wider they are, the fewer there are of them.
        word = next(kind for kind in _WORDS if self._tensor.nbytes % kind.itemsize == 0)
        shape = (stream.rows, self._tensor.nbytes // word.itemsize)
        self._words = torch.empty(shape, dtype=word, device=device)
        self._targets = torch.empty(stream.rows, dtype=torch.int64, device=device)
        bytes_of_rows = self._words.view(torch.uint8)
        reader = RowGroupReader(source.groups, source.columns)
        for begin in range(0, stream.rows, LOAD_ROWS):
            end = min(begin + LOAD_ROWS, stream.rows)
            rows = reader.read(stream.segments(begin, end))
            bytes_of_rows[begin:end] = torch.from_numpy(rows.inputs.copy())  # copied: Arrow's memory is read-only
            self._targets[begin:end] = torch.from_numpy(rows.targets)

    def batches(self, plan: EpochPlan, first_step: int = 0) -> Iterator[Batch]:
        """Yield what `training_batches` yields, without reading anything; batches share the memory of one gather."""
        for block in self._order.blocks(plan, first_step):
            at_once = max(1, GATHER_BYTES[self._device.type] // (block.shape[1] * self._tensor.nbytes))
            for rows in torch.split(block.to(self._device, non_blocking=True), at_once):
                yield from self._gathered(rows)

    def evaluation(self, batch_rows: int) -> Iterator[Batch]:
        """Yield what `evaluation_batches` yields; nothing is copied."""
        start, stop = rank_slice(self._source.rank, self._source.world_size, len(self._targets))
        for begin in range(start, stop, batch_rows):
            rows = slice(begin, min(begin + batch_rows, stop))
            yield Batch(self._as_inputs(self._words[rows]), self._targets[rows])

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take on the device."""
        return self._words.nbytes + self._targets.nbytes

    def close(self) -> None:
        """End what works ahead."""
        self._order.close()

    def _gathered(self, rows: torch.Tensor) -> Iterator[Batch]:
        """Yield a batch for each step of `rows`, of shape (steps, rows of a local batch)."""
        words = self._words.index_select(0, rows.flatten())
        inputs = self._as_inputs(words.view(*rows.shape, -1))
        targets = self._targets.index_select(0, rows.flatten()).view_as(rows)
        return map(Batch, inputs.unbind(), targets.unbind())

    def _as_inputs(self, words: torch.Tensor) -> torch.Tensor:
        return as_inputs(words.view(torch.uint8), self._tensor)


_WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


class RowOrder:
    """Which rows a rank takes in which step, worked out in a thread, on into the epochs that follow.

    So no epoch begins with waiting. `close` ends the thread.

    Args:
        source: the split, and this rank's place.
        begins: the number of each row group's first row.
        plans: makes the plan of an epoch.
        device: where the rows are; for a GPU the order is put into page-locked memory.
    """

    def __init__(
        self, source: Source, begins: Indices, plans: Callable[[int], EpochPlan], device: torch.device
    ) -> None:
        self._source, self._begins, self._plans, self._device = source, begins, plans, device
        self._ahead: Prefetch[torch.Tensor] | None = None
        self._next = (0, 0)

    def blocks(self, plan: EpochPlan, first_step: int = 0) -> Iterator[torch.Tensor]:
        """Yield row numbers, int64 of shape (steps, rows of a local batch), from `first_step` to the epoch's end."""
        if self._ahead is None or self._next != (plan.epoch, first_step):
            self.close()
            self._ahead = Prefetch(self._from(plan.epoch, first_step), BLOCKS_AHEAD)
        step = first_step
        while step < plan.steps:
            block = next(self._ahead)
            step += len(block)
            self._next = (plan.epoch, step) if step < plan.steps else (plan.epoch + 1, 0)
            yield block

    def close(self) -> None:
        """End the thread."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _from(self, first_epoch: int, first_step: int) -> Iterator[torch.Tensor]:
        cuda = self._device.type == "cuda"
        with torch.cuda.device(self._device) if cuda else nullcontext():
            for epoch in count(first_epoch):
                plan = self._plans(epoch)
                window, skip = divmod(first_step, plan.window_steps)
                local = sum(piece.stop - piece.first for piece in self._slices(plan))
                length = max(1, BLOCK_ROWS // (plan.window_steps * local))
                for begin in range(window, plan.windows, length):
                    block = torch.from_numpy(self._block(plan, range(begin, min(begin + length, plan.windows)))[skip:])
                    yield block.pin_memory() if cuda else block
                    skip = 0
                first_step = 0

    def _block(self, plan: EpochPlan, windows: range) -> Indices:
        """Return the numbers of this rank's rows in `windows`, shape (steps, rows of a local batch)."""
        parts = []
        for piece in self._slices(plan):
            segments = plan.segments(windows.start, piece.lane, len(windows))
            starts = [int(self._begins[s.group]) + s.first for s in segments]
            ids = np.concatenate([np.arange(start, start + s.rows) for start, s in zip(starts, segments, strict=True)])
            chosen, begin = [], 0
            for window in windows:
                shuffle = plan.shuffle(window, piece.lane)
                chosen.append(shuffle[:, piece.first : piece.stop] + begin)
                begin += shuffle.size
            parts.append(ids[np.concatenate(chosen)])
        return np.concatenate(parts, axis=1)

    def _slices(self, plan: EpochPlan) -> list[LaneSlice]:
        return plan.slices(self._source.rank, self._source.world_size)


def resident_rows(
    source: Source,
    plans: Callable[[int], EpochPlan],
    device: torch.device,
    wanted: Literal["auto"] | bool = True,
    *,
    epochs: int = 2,
    kept_bytes: int = 0,
) -> ResidentRows | None:
    """Return the rows of a split on `device`, None where they are to be streamed; the log tells why.

    They must fit into `SHARE` of its free memory, together with the `kept_bytes` that are there already. "auto" keeps
    them on a GPU, where fetching batches costs a small model more than training on them, if there are at most
    `AUTO_BYTES` to be read before the first step of several `epochs`.
    """
    rows = sum(group.rows for group in source.groups)
    needed = rows * (source.columns.tensor.nbytes + 8)
    if not wanted or rows == 0 or (wanted == "auto" and (device.type != "cuda" or epochs < 2)):
        return None
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    text = f"{rows} rows ({needed} bytes)"
    if needed + kept_bytes > SHARE * (free + kept_bytes):
        log.info("%s are streamed: they take more than %g of the %d bytes free on %s", text, SHARE, free, device)
        return None
    if wanted == "auto" and needed > AUTO_BYTES:
        log.info("%s are streamed: reading them first takes a while; data.resident=true keeps them on %s", text, device)
        return None
    log.info("%s are kept on %s", text, device)
    return ResidentRows(source, plans, device)
