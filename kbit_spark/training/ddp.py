"""Gradients averaged beside every backward pass, in buckets: torch's DDP, without the copies that it does not need."""

from __future__ import annotations

from contextlib import AbstractContextManager
from inspect import signature
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from kbit_spark.training.collectives import copy_from_first

LEFT_ALONE = "_ddp_params_and_buffers_to_ignore"
"""What DDP heeds of a model, set by `DistributedDataParallel._set_params_and_buffers_to_ignore_for_model`."""

_SYNC_BUFFERS = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in signature(DistributedDataParallel).parameters
    else "broadcast_buffers"  # its name before torch 2.15
)


def data_parallel(model: nn.Module, device: torch.device, *, agreed: bool = False) -> DistributedDataParallel:
    """Return `model` under DDP, without the copies that it does not need: none to begin with where ranks have `agreed`.

    Training does not read the running statistics of batch norms, so they are not made the first rank's in every step,
    which would cost a deep network hundreds of small copies; other buffers are.
    """
    buffers: dict[str, Any] = {_SYNC_BUFFERS: trains_on_buffers(model)}
    devices = [device] if device.type == "cuda" else None
    # A gradient that is a view of its bucket saves copying it there and back.
    return DistributedDataParallel(
        model, device_ids=devices, gradient_as_bucket_view=True, init_sync=not agreed, **buffers
    )


def trains_on_buffers(model: nn.Module) -> bool:
    """Return whether a training pass may read buffers; one of batch norms only writes their running statistics."""
    norms = (module for module in model.modules() if isinstance(module, _BatchNorm))
    statistics = {id(buffer) for norm in norms for buffer in norm.buffers(recurse=False)}
    return any(id(buffer) not in statistics for buffer in model.buffers())


class Ddp:
    """Averages gradients in every backward pass, so weights never differ; buffers are the first rank's.

    Only `agree` makes the running statistics of batch norms so, see `data_parallel`. Ranks that have `agreed` on their
    weights already are left as they are, with their own running statistics.
    """

    agreed = True
    same_optimizer = True

    def __init__(self, model: nn.Module, device: torch.device, *, agreed: bool = False) -> None:
        self._model = model
        self.network = data_parallel(model, device, agreed=agreed)
        if not agreed:
            self.agree()

    def gathering(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        return cast("AbstractContextManager[Any]", self.network.no_sync())

    def exchange(self) -> None:
        """See `Strategy`."""

    def after_update(self, updates: int) -> None:
        """See `Strategy`."""

    def agree(self) -> None:
        """See `Strategy`."""
        copy_from_first(self._model.buffers())
