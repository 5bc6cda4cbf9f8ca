"""Gradients averaged after the backward pass, all at once, for fast links between GPUs."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.distributed as dist
from torch import nn

from kbit_spark.errors import RunError
from kbit_spark.training.collectives import copy_from_first
from kbit_spark.training.gradients import FlatGradients

_DDP_MS, _DDP_MS_A_TENSOR = 0.15, 0.004
"""What a captured step takes less without DDP (two H200, docs/decisions/0021): of 161 tensors 1 ms, of 8 about 0.1. The
all-reduce that is held against it is timed from its launch on, some 0.05 ms before it begins."""

log = logging.getLogger(__name__)


class AtOnce:
    """Averages gradients after the backward pass, all at once: what `Ddp` does, for fast links between GPUs.

    DDP copies each gradient into its bucket, and while its all-reduces run beside the kernels of the pass, these begin
    later and take longer. Where the links are fast that costs more than to wait for all gradients. Buffers are each
    rank's own until `agree`, so a training pass must not read any, see `trains_on_buffers`.

    Raises:
        RunError: the ranks have made other models, and would mix up what they exchange; all of them raise it.
    """

    agreed = True
    same_optimizer = True

    def __init__(self, model: nn.Module) -> None:
        self.network = model
        _check_same(model)
        copy_from_first([*model.parameters(), *model.buffers()])  # ranks may have made their models differently
        self._trained = [named for named in model.named_parameters() if named[1].requires_grad]
        self._gradients = FlatGradients(self._trained)

    def worth_it(self) -> bool:
        """Return whether an all-reduce, measured now, takes less than what DDP costs besides; the same on all ranks."""
        takes, limit = self._gradients.all_reduce_ms(), _DDP_MS + _DDP_MS_A_TENSOR * len(self._trained)
        how = "at once, after the backward pass" if takes <= limit else "in buckets, beside the backward pass"
        log.info("gradients are exchanged %s: an all-reduce of all takes %.2f ms (limit: %.2f)", how, takes, limit)
        return takes <= limit

    def gathering(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        return nullcontext()

    def exchange(self) -> None:
        """See `Strategy`."""
        self._gradients.average()

    def after_update(self, updates: int) -> None:
        """See `Strategy`."""

    def agree(self) -> None:
        """See `Strategy`."""
        copy_from_first(self.network.buffers())


def _check_same(model: nn.Module) -> None:
    """Check that all ranks have the same parameters and buffers but for their values."""
    own = [
        (name, tensor.shape, tensor.dtype, tensor.requires_grad)
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
    ]
    of_ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, own)
    if others := [str(rank) for rank, found in enumerate(of_ranks) if found != of_ranks[0]]:
        msg = f"the model of rank {', '.join(others)} has other parameters or buffers than that of rank 0"
        raise RunError(msg, "let the model's factory make them and set requires_grad alike on all ranks")
