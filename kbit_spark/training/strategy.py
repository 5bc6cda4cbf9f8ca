"""How ranks keep their weights together: in every step, every few steps (averaging), or not at all (one process).

A rank scales its summed loss by ``world size / rows of the global batches``, whatever the strategy, so the mean of the
ranks' gradients is the gradient of the global batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.training.collectives import copy_from_first
from kbit_spark.training.gradients import FlatGradients
from kbit_spark.training.world import World

_DDP_MS, _DDP_MS_A_TENSOR = 0.15, 0.004
"""What a captured step takes less without DDP (two H200, docs/decisions/0021): of 161 tensors 1 ms, of 8 about 0.1. The
all-reduce that is held against it is timed from its launch on, some 0.05 ms before it begins."""

_LEFT_ALONE = "_ddp_params_and_buffers_to_ignore"
"""What DDP heeds of a model, set by `DistributedDataParallel._set_params_and_buffers_to_ignore_for_model`."""

log = logging.getLogger(__name__)


class Strategy(Protocol):
    """Keeps the model of this rank together with those of the others; all ranks make the same calls."""

    @property
    def network(self) -> nn.Module:
        """What a training step runs: the bare model, or a wrapper whose backward pass exchanges gradients."""

    @property
    def agreed(self) -> bool:
        """Whether all ranks have the same weights, as a checkpoint needs them."""

    @property
    def same_optimizer(self) -> bool:
        """Whether the optimizers of all ranks are in the same state whenever the weights are."""

    def gathering(self) -> AbstractContextManager[Any]:
        """Return a context whose backward passes only add up gradients: more batches follow before the update."""

    def exchange(self) -> None:
        """Give all ranks the mean of their gradients, where the backward pass has not done so and it is wanted."""

    def after_update(self, updates: int) -> None:
        """Note that the optimizer has taken its step number `updates` (from 1)."""

    def agree(self) -> None:
        """Give all ranks the same weights and buffers (running means of a batch norm)."""


def make_strategy(model: nn.Module, config: TrainConfig, world: World, *, captured: bool = False) -> Strategy:
    """Return the configured strategy for `model`, which is on the rank's device already.

    Args:
        model: the bare model.
        config: the configuration.
        world: this rank.
        captured: its steps are to be CUDA graphs, so it may be better not to exchange gradients beside the pass.
    """
    may_wait = _may_wait(model, config, world, captured=captured)
    if config.strategy == "averaging":
        return Averaging(model, config.averaging.every_steps)
    if world.size == 1:  # DDP would copy each gradient for nobody: a quarter of an MLP's step on a CPU
        return Single(model)
    if may_wait and config.all_reduce != "overlapped":
        at_once = AtOnce(model)
        if config.all_reduce == "at_once" or at_once.worth_it():
            return at_once
    return Ddp(model, world.device)


def _may_wait(model: nn.Module, config: TrainConfig, world: World, *, captured: bool) -> bool:
    """Return whether `AtOnce` fits the run; the log tells why one that asks for it does without."""
    reasons = {
        f"strategy={config.strategy} exchanges no gradients": config.strategy != "ddp",
        "there is one rank": world.size == 1,
        "steps are not CUDA graphs": not captured,
        "training may read buffers of the model": trains_on_buffers(model),
        "the model has DDP leave some of its parameters alone": bool(getattr(model, _LEFT_ALONE, ())),
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found and config.all_reduce == "at_once":
        log.info("all_reduce=at_once is not heeded: %s", "; ".join(found))
    return not found


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


class Averaging:
    """Lets every rank train for itself and replaces the weights by their mean after every `every_steps` updates.

    Which updates those are follows from their number alone, so a resumed run averages where it would have. Running
    means are averaged with the weights.
    """

    same_optimizer = False

    def __init__(self, model: nn.Module, every_steps: int) -> None:
        self.network, self._every_steps = model, every_steps
        copy_from_first([*model.parameters(), *model.buffers()])  # ranks may have made their models differently
        self.agreed = True

    def gathering(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        return nullcontext()

    def exchange(self) -> None:
        """See `Strategy`."""

    def after_update(self, updates: int) -> None:
        """See `Strategy`."""
        self.agreed = False
        if updates % self._every_steps == 0:
            self.agree()

    def agree(self) -> None:
        """See `Strategy`."""
        if self.agreed:  # the mean of equal weights may differ from them in the last bit
            return
        buffers = list(self.network.buffers())
        trained = (parameter for parameter in self.network.parameters() if parameter.requires_grad)
        averaged = [*trained, *(buffer for buffer in buffers if buffer.is_floating_point())]
        group = dist.group.WORLD
        if group is None:
            msg = "the averaging strategy needs a process group"
            raise RuntimeError(msg)
        # It gives what it averages new memory; a step that was captured goes on with the memory of the parameters.
        means = [tensor.detach() for tensor in averaged]
        average_parameters(cast("Iterator[nn.Parameter]", iter(means)), group)
        for tensor, mean in zip(averaged, means, strict=True):
            tensor.detach().copy_(mean)
        copy_from_first(buffer for buffer in buffers if not buffer.is_floating_point())
        self.agreed = True


class Single:
    """One process, with or without a process group."""

    agreed = True
    same_optimizer = True

    def __init__(self, model: nn.Module) -> None:
        self.network = model

    def gathering(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        return nullcontext()

    def exchange(self) -> None:
        """See `Strategy`."""

    def after_update(self, updates: int) -> None:
        """See `Strategy`."""

    def agree(self) -> None:
        """See `Strategy`."""
