"""Batches on the device of the model, copied beside the computation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from kbit_spark.datasets.batches import Batch


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
