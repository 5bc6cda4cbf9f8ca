"""How ranks keep their weights together: in every step, every few steps (averaging), or not at all (one process).

A rank scales its summed loss by ``world size / rows of the global batches``, whatever the strategy, so the mean of the
ranks' gradients is the gradient of the global batch.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from torch import nn

from kbit_spark.config.train import TrainConfig
from kbit_spark.training.at_once import AtOnce
from kbit_spark.training.averaging import Averaging
from kbit_spark.training.ddp import LEFT_ALONE, Ddp, trains_on_buffers
from kbit_spark.training.world import World

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
        "the model has DDP leave some of its parameters alone": bool(getattr(model, LEFT_ALONE, ())),
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found and config.all_reduce == "at_once":
        log.info("all_reduce=at_once is not heeded: %s", "; ".join(found))
    return not found


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
