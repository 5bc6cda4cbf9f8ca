"""One optimizer step: forward, backward, agreement that all is finite, update."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kbit_spark.config.train import TrainConfig
from kbit_spark.datasets.batches import Batch
from kbit_spark.datasets.transforms import normalize
from kbit_spark.errors import RunError
from kbit_spark.training.at_once import AtOnce
from kbit_spark.training.ddp import Ddp
from kbit_spark.training.gradient_check import GradientCheck
from kbit_spark.training.metrics import Reading, Sums, classes, cross_entropy_sum
from kbit_spark.training.optimizer import load_optimizer, load_schedule, make_optimizer, make_schedule, rate_from
from kbit_spark.training.profiler import Profiler
from kbit_spark.training.step_graph import Result, StepGraph, captures, keeping_buffers
from kbit_spark.training.strategy import make_strategy
from kbit_spark.training.world import World

log = logging.getLogger(__name__)

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Stepper:
    """Model, optimizer, schedule and scaler of one rank.

    Gradients are averaged over the rows of the global batches of a step, whatever each rank holds of them: a rank
    scales its summed loss by ``world size / rows``, and the strategy takes the mean over the ranks. `close` it before
    the process group.

    Args:
        model: the bare model, already on the device.
        config: the configuration.
        world: this rank.
        total_steps: optimizer steps of the whole run, for the schedule.
        profiler: is told of each phase of a step.
    """

    def __init__(
        self, model: nn.Module, config: TrainConfig, world: World, total_steps: int, profiler: Profiler | None = None
    ) -> None:
        self.model = model
        self._config = config
        self._world = world
        captured = captures(config, world, total_steps)
        self._strategy = make_strategy(model, config, world, captured=captured)
        self._profiler = profiler or Profiler(config.profile, world, Path(config.checkpoint.dir))
        self.optimizer = make_optimizer(model, config.optimizer, world.device)
        self.schedule = make_schedule(self.optimizer, config.optimizer, total_steps)
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=config.precision == "fp16")
        self._check = GradientCheck(model.parameters(), config.optimizer.clip_norm, world.device)
        self._weights: dict[int, torch.Tensor] = {}
        self._parameters = list(model.parameters())
        if world.device.type == "cuda" and config.precision != "fp16":
            # The fused optimizers skip the step on the device, as they do for a GradScaler.
            self.optimizer.found_inf = self._check.infinite  # type: ignore[attr-defined]
            self.optimizer.grad_scale = None  # type: ignore[attr-defined]
        # On a GPU each step reads it there, be it captured or not, so that both compute the same.
        self._rate = torch.zeros((), device=world.device) if world.device.type == "cuda" else None
        self._rate_there = 0.0
        self._graph: StepGraph | None = None
        if captured:
            self._graph = StepGraph(self._whole_step, self._profiler, self._trial_step, self._overlap)

    def close(self) -> None:
        """Give back what the process group must not outlive."""
        if self._graph is not None:
            self._graph.close()

    @property
    def learning_rate(self) -> float:
        """The rate of the next step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def accumulate(self, batch: Batch, sums: Sums, *, group: int, last: bool) -> None:
        """Add the gradients of one batch of a group of `group`; update the weights after the `last`.

        Raises:
            RunError: the gradients are not finite; the weights stay as they were. With DDP all ranks raise it.
        """
        self._set_rate()
        if self._graph is not None:
            result = self._graph.take(batch)  # which updates the weights, too
        else:
            with nullcontext() if last else self._strategy.gathering():
                result = self._add_gradients(self._strategy.network, batch, group)
        sums.add_predicted(result.loss, result.predicted, batch.targets)
        self._profiler.mark("metrics")
        if last and self._graph is None:
            self._exchange()
            self._check_gradients()
            self._check_at_once(sums)
            self._step_weights()
        if last:
            self._after_update()

    @torch.no_grad()
    def evaluate(self, batch: Batch, sums: Sums) -> None:
        """Add one batch of an evaluation to `sums`; uses the bare model, so ranks need not keep step."""
        logits = self._forward(self.model, batch)
        sums.add(cross_entropy_sum(logits, batch.targets), logits, batch.targets)

    @property
    def agreed(self) -> bool:
        """Whether all ranks have the same weights, so that a checkpoint can be made."""
        return self._strategy.agreed

    def agree(self) -> None:
        """Give every rank the same weights and buffers, as a checkpoint holds them."""
        self._strategy.agree()

    def settle(self, shape: Sequence[int], rows: int) -> None:
        """Let DDP order its gradient buckets, which it does after the first backward pass; call `restore` after it.

        The buckets decide in which order three or more ranks add their gradients, so a run that goes on from a
        checkpoint must have them as the run had them that was never interrupted.
        """
        zeros = torch.zeros((rows, *shape), device=self._world.device)
        logits = self._forward(self._strategy.network, Batch(zeros, torch.zeros(rows, dtype=torch.int64)))
        torch.autograd.backward(logits.float().sum())
        self.optimizer.zero_grad(set_to_none=True)

    def check_finite(self, sums: Sums) -> None:
        """Raise what `accumulate` could not raise without waiting for a GPU; call it where one waits anyway.

        Raises:
            RunError: an update was skipped because the gradients were not finite; an `EchoError` where the own
                loss is.
        """
        self._refuse(self._check.infinite.item(), sums)

    def reading(self, sums: Sums) -> Reading:
        """Return what `window_loss` needs, on its way; nothing waits."""
        return sums.reading(self._check.infinite)

    def is_finite(self, reading: Reading) -> bool:
        """Tell whether no update up to the reading was skipped; waits for no more than the reading."""
        _, infinite = reading.wait()
        return not infinite

    def window_loss(self, reading: Reading, sums: Sums) -> float:
        """Return this rank's mean loss between the reading before and this one.

        Raises:
            RunError: as for `check_finite`.
        """
        loss, infinite = reading.wait()
        self._refuse(infinite, sums)
        return sums.window_loss(loss, reading.rows)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds of it."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def local_state(self) -> dict[str, Any]:
        """Return the part of `state` in which ranks differ even where their weights are equal."""
        if self._strategy.same_optimizer:
            return {}
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take `state` back, some of it replaced by this rank's `local_state`; settings stay the configuration's."""
        self.model.load_state_dict(state["model"])
        load_optimizer(self.optimizer, state["optimizer"])
        load_schedule(self.schedule, state["schedule"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])

    def _refuse(self, infinite: float, sums: Sums) -> None:
        if infinite:
            hint = "lower optimizer.learning_rate, set optimizer.clip_norm, or check the inputs' scale"
            raise sums.check_own(RunError("the loss is not finite", hint))

    def _weight(self, group: int) -> torch.Tensor:
        """Return the factor of a summed loss, shape (); given to the backward pass, it costs no kernel."""
        if group not in self._weights:
            weight = self._world.size / (self._config.global_batch_size * group)
            self._weights[group] = torch.tensor(weight, dtype=torch.float32, device=self._world.device)
        return self._weights[group]

    def _forward(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        data, kind = self._config.data, _AUTOCAST.get(self._config.precision)
        inputs = normalize(batch.inputs, data.scale, data.mean, data.std)
        with nullcontext() if kind is None else torch.autocast(self._world.device.type, dtype=kind):
            logits: torch.Tensor = model(inputs)
        _check_logits(logits, (len(inputs), data.classes), self._config.model)
        return logits

    def _whole_step(self, batch: Batch) -> Result:
        """Take a step on one batch without waiting for the device."""
        self._drop_gradients()  # a capture that failed may have left some
        result = self._add_gradients(self._strategy.network, batch, 1)
        self._exchange()
        self._check_gradients()
        self._step_weights()
        return result

    def _overlap(self) -> None:
        """Exchange gradients beside the backward pass from now on, as is best for steps that are not captured."""
        if isinstance(self._strategy, AtOnce):
            log.info("gradients are exchanged in buckets, beside the backward pass, from here on")
            self._strategy = Ddp(self.model, self._world.device, agreed=True)

    def _trial_step(self, batch: Batch) -> Result:
        """Do of a step what concerns no other rank, and leave nothing.

        DDP knows nothing of it: in `no_sync`, it would still send buffers, and not do so in the step that follows.
        """
        self._drop_gradients()
        with keeping_buffers(self.model):
            result = self._add_gradients(self.model, batch, 1)
        self._drop_gradients()
        return result

    def _add_gradients(self, network: nn.Module, batch: Batch, group: int) -> Result:
        """Add the gradients that `network` has for one batch of a group of `group`."""
        logits = self._forward(network, batch)
        loss = cross_entropy_sum(logits, batch.targets)
        self._profiler.mark("forward")
        self._profiler.mark_gradients(loss)
        torch.autograd.backward(self.scaler.scale(loss), self._weight(group))
        self._profiler.mark("all_reduce")
        result = Result(loss.detach(), classes(logits))
        self._profiler.mark("metrics")
        return result

    def _exchange(self) -> None:
        self._strategy.exchange()
        self._profiler.mark("all_reduce")

    def _check_gradients(self) -> None:
        """Limit the gradients, and note on the device whether all are finite.

        Ranks have averaged them, so a loss that is not finite on one rank makes them not finite on all: the ranks agree
        without a message. Where weights are averaged a rank fails alone, before it spoils the mean.
        """
        self.scaler.unscale_(self.optimizer)
        self._check.look(scaled=self._config.precision == "fp16")

    def _check_at_once(self, sums: Sums) -> None:
        if self._world.device.type == "cpu":  # which need not be waited for
            self.check_finite(sums)

    def _step_weights(self) -> None:
        with nullcontext() if self._rate is None else rate_from(self.optimizer, self._rate):
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self._drop_gradients()
        self._profiler.mark("optimizer")

    def _drop_gradients(self) -> None:
        for parameter in self._parameters:  # an optimizer's zero_grad opens a span for the profiler, which takes longer
            parameter.grad = None

    def _after_update(self) -> None:
        self.schedule.step()
        self._strategy.after_update(self.schedule.last_epoch)
        self._profiler.mark("all_reduce")

    def _set_rate(self) -> None:
        """Bring the learning rate to the GPU where it has changed."""
        if self._rate is not None and self._rate_there != self.learning_rate:
            self._rate_there = self.learning_rate
            self._rate.fill_(self._rate_there)


def _check_logits(logits: object, wanted: tuple[int, int], model: str) -> None:
    """Check what a model returned; a GPU would end with an assertion in a kernel, of another place."""
    shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else None
    if shape == wanted:
        return
    found = type(logits).__name__ if shape is None else f"a tensor of shape {shape}"
    msg = f"model={model} returned {found}, not logits of shape {wanted} for {wanted[0]} inputs"
    raise RunError(msg, "return a row of data.classes numbers for each input from forward, or set data.classes")
