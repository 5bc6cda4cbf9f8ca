"""Batches on the device of the model: copied beside the computation, or taken from rows that live there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import numpy as np
import psutil
import torch

from kbit_spark.datasets.batches import Batch, Source, as_inputs
from kbit_spark.datasets.row_groups import RowGroupReader
from kbit_spark.datasets.sharding import EpochPlan, RowStream

SHARE = 0.5
"""Of the free memory, what resident rows may take; the rest is for the model and its activations."""

LOAD_ROWS = 8_192
"""Rows that are decoded at once while resident rows are loaded."""

log = logging.getLogger(__name__)


def on_device(
    batches: Iterator[Batch], device: torch.device, arrived: Callable[[], None] = lambda: None
) -> Iterator[Batch]:
    """Yield the batches on `device`; `arrived` is called for each when only its copy is still to be waited for.

    On a GPU a batch is copied on a stream of its own while the model works on the one before; the batches must be in
    page-locked memory, or each copy holds up this thread.
    """
    if device.type != "cuda":
        for batch in batches:
            arrived()
            yield batch.to(device)
        return
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    ahead: tuple[Batch, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(side):
            copied = (batch.to(device), side.record_event())
        if ahead is not None:
            arrived()
            yield _handed_over(*ahead)
        ahead = copied
    if ahead is not None:
        arrived()
        yield _handed_over(*ahead)


def _handed_over(batch: Batch, copied: torch.cuda.Event) -> Batch:
    """Let the model's stream wait for the copy, and keep the memory until that stream is done with it."""
    stream = torch.cuda.current_stream(batch.inputs.device)
    stream.wait_event(copied)
    batch.inputs.record_stream(stream)
    batch.targets.record_stream(stream)
    return batch


class ResidentRows:
    """All rows of a split on one device: `inputs` of shape (rows, *tensor shape), `targets` int64 of shape (rows,).

    The shuffle is global, so over the epochs every rank reads every row: each keeps all of them, or none.
    """

    def __init__(self, source: Source, device: torch.device) -> None:
        """Read all rows.

        Raises:
            RunError: an unreadable file, a wrong tensor length, a label out of range.
        """
        self._source, self._device = source, device
        stream = RowStream.of([group.rows for group in source.groups])
        self._begins = np.concatenate([[0], stream.ends])
        inputs = torch.empty((stream.rows, source.columns.tensor.nbytes), dtype=torch.uint8, device=device)
        self._targets = torch.empty(stream.rows, dtype=torch.int64, device=device)
        reader = RowGroupReader(source.groups, source.columns)
        for begin in range(0, stream.rows, LOAD_ROWS):
            end = min(begin + LOAD_ROWS, stream.rows)
            rows = reader.read(stream.segments(begin, end))
            inputs[begin:end] = torch.from_numpy(rows.inputs.copy())  # copied: Arrow's memory is read-only
            self._targets[begin:end] = torch.from_numpy(rows.targets)
        self._inputs = as_inputs(inputs, source.columns.tensor)

    def batches(self, plan: EpochPlan, first_step: int = 0) -> Iterator[Batch]:
        """Yield what `training_batches` yields, without reading anything."""
        first_window, skip = divmod(first_step, plan.window_steps)
        for window in range(first_window, plan.windows):
            for rows in self._rows_of(plan, window)[skip:]:
                yield Batch(self._inputs[rows], self._targets[rows])
            skip = 0

    def _rows_of(self, plan: EpochPlan, window: int) -> torch.Tensor:
        """Return the numbers of this rank's rows, shape (steps of the window, rows of a local batch)."""
        parts = []
        for piece in plan.slices(self._source.rank, self._source.world_size):
            segments = plan.segments(window, piece.lane)
            starts = [int(self._begins[s.group]) + s.first for s in segments]
            ids = np.concatenate([np.arange(start, start + s.rows) for start, s in zip(starts, segments, strict=True)])
            parts.append(ids[plan.shuffle(window, piece.lane)[:, piece.first : piece.stop]])
        return torch.from_numpy(np.concatenate(parts, axis=1)).to(self._device)


def resident_rows(source: Source, device: torch.device) -> ResidentRows | None:
    """Return the rows of a split on `device`, None where they do not fit into `SHARE` of its free memory."""
    rows = sum(group.rows for group in source.groups)
    needed = rows * (source.columns.tensor.nbytes + 8)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    if needed > SHARE * free:
        log.info("%d rows need %d bytes, too much for the %d free on %s: they are streamed", rows, needed, free, device)
        return None
    return ResidentRows(source, device)
