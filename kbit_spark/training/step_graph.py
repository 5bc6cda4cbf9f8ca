"""A whole optimizer step on a GPU as one launch: a CUDA graph, captured once the step has been taken a few times.

The launches of a small model's step take a CPU longer than their work takes the GPU. A graph launches them all at once;
what it computes, and the random numbers that it draws, are those of the step that was captured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature

import torch
from torch import nn

from kbit_spark.config.train import TrainConfig
from kbit_spark.datasets.batches import Batch
from kbit_spark.errors import RunError
from kbit_spark.training.collectives import on_any_rank
from kbit_spark.training.hang_watch import HangWatch
from kbit_spark.training.process_group import COLLECTIVE_TIMEOUT
from kbit_spark.training.profiler import Marks, Profiler
from kbit_spark.training.world import World

WARM_UP_STEPS = 12
"""Steps before the capture; under DDP, the eleventh is the first that is as all later ones are."""

LEAST_STEPS = 200
"""Of a run for which `auto` captures: a capture takes some tenths of a second."""

LEAD_STEPS = 16
"""Steps that may wait on the GPU: their batches are in its memory."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """Of one batch: `loss`, its summed loss of shape (), and `predicted`, the classes of shape (rows,)."""

    loss: torch.Tensor
    predicted: torch.Tensor

    def copy(self) -> Result:
        """Return a copy in memory of its own."""
        return Result(self.loss.clone(), self.predicted.clone())


@dataclass(frozen=True)
class _Captured:
    """A graph, where it leaves its result, and the profiler's marks in it."""

    graph: torch.cuda.CUDAGraph
    result: Result
    marks: Marks


def captures(config: TrainConfig, world: World, total_steps: int) -> bool:
    """Return whether the steps of a run are to be captured; the log tells why one that asks for it is not."""
    wanted = config.cuda_graph
    worth_it = world.device.type == "cuda" and total_steps >= LEAST_STEPS
    if wanted is False or (wanted == "auto" and not worth_it):
        return False
    reasons = {
        f"the device is {world.device}": world.device.type != "cuda",
        "precision=fp16 asks the GPU after each step whether its scale fits": config.precision == "fp16",
        "optimizer.accumulate_steps makes steps of several batches": config.optimizer.accumulate_steps > 1,
        f"torch {torch.__version__} cannot time what is in a graph": "external"
        not in signature(torch.cuda.Event.__new__).parameters,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        log.info("steps are launched kernel by kernel: %s", "; ".join(found))
    return not found


@contextmanager
def keeping_buffers(model: nn.Module) -> Iterator[None]:
    """Leave `model` with the buffers that it has, whatever a pass meanwhile puts in their place.

    A graph reads and writes the memory of its capture: it would hand no such buffer on to the next step.

    Raises:
        RuntimeError: a buffer was replaced.
    """
    before = [(module, *named) for module in model.modules() for named in module.named_buffers(recurse=False)]
    try:
        yield
    finally:
        replaced = [each for each in before if getattr(each[0], each[1], None) is not each[2]]
        for module, name, buffer in replaced:
            setattr(module, name, buffer)
    if replaced:
        msg = f"a pass puts a new tensor in the place of the buffer {replaced[0][1]}, which it must write into"
        raise RuntimeError(msg)


class StepGraph:
    """Takes steps by a graph where it can, and by `step` itself where it cannot; `close` before the process group.

    Args:
        step: takes a step on a batch: gradients and weights; it must not wait for the GPU.
        profiler: some steps are measured, by a graph of their own.
        trial: adds the gradients of a batch as `step` does, without telling other ranks. It is captured first, since a
            step that has begun to tell them cannot be broken off: DDP does not begin again.
        prevented: is called where steps cannot be captured, before they go on kernel by kernel.

    The current stream must not be CUDA's default one, or DDP cannot be captured.
    """

    def __init__(
        self,
        step: Callable[[Batch], Result],
        profiler: Profiler,
        trial: Callable[[Batch], Result] | None = None,
        prevented: Callable[[], None] = lambda: None,
    ) -> None:
        self._step, self._profiler, self._trial, self._prevented = step, profiler, trial, prevented
        self._left: int | None = WARM_UP_STEPS
        self._batch: Batch | None = None
        self._plain: _Captured | None = None
        self._measured: _Captured | None = None
        self._done = [torch.cuda.Event(blocking=True) for _ in range(LEAD_STEPS)]  # type: ignore[no-untyped-call]
        self._replayed = 0
        self._watch: HangWatch | None = None

    def take(self, batch: Batch) -> Result:
        """Take a step; the result is the caller's.

        Raises:
            RunError: the capture failed in a way after which the rank cannot go on.
        """
        if self._left == 0:
            self._left = None
            if (prevented := self._capture(batch)) is not None:
                return self._after(prevented, batch)
        if self._plain is None or not self._fits(batch):
            self._left = self._left and self._left - 1
            return self._step(batch)
        return self._replay(batch)

    def close(self) -> None:
        """Give back the graphs, whose collectives keep a communicator from ending."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        for captured in (self._plain, self._measured):
            if captured is not None:
                captured.graph.reset()
        self._plain = self._measured = None

    def _fits(self, batch: Batch) -> bool:
        held = self._batch
        return held is not None and (held.inputs.shape, held.inputs.dtype) == (batch.inputs.shape, batch.inputs.dtype)

    def _replay(self, batch: Batch) -> Result:
        assert self._batch is not None and self._plain is not None
        done = self._done[self._replayed % LEAD_STEPS]
        done.synchronize()
        self._batch.inputs.copy_(batch.inputs)
        self._batch.targets.copy_(batch.targets)
        captured = (self._profiler.measuring and self._measured) or self._plain
        captured.graph.replay()
        self._profiler.replayed(captured.marks)
        result = captured.result.copy()
        done.record()
        self._replayed += 1
        return result

    def _after(self, prevented: str, batch: Batch) -> Result:
        """Take the step that could not be captured, after which all others are launched kernel by kernel."""
        try:
            self._prevented()
            result = self._step(batch)
        except RuntimeError as second:  # DDP, for one, cannot begin again where its backward pass was broken off
            msg = f"a step cannot be captured as a CUDA graph, nor taken after that: {prevented}"
            raise RunError(msg, "set cuda_graph=false") from second
        log.info("steps are launched kernel by kernel: the model cannot be captured as a CUDA graph: %s", prevented)
        return result

    def _capture(self, batch: Batch) -> str | None:
        """Capture the steps to come, on all ranks or on none, as NCCL asks for; return what prevents it."""
        self._batch = Batch(batch.inputs.clone(), batch.targets.clone())
        random = torch.cuda.default_generators[torch.cuda.current_device()]
        state = random.clone_state()
        for capture in (self._capture_trial, self._capture_steps):
            prevented = _attempt(capture, self._batch)
            if on_any_rank(prevented is not None, batch.targets.device):
                self.close()
                self._batch = None
                random.graphsafe_set_state(state)  # the one that it has still counts what a graph would draw
                return prevented or "it cannot be on another rank"
        log.info("a step is one CUDA graph from here on")
        self._watch = HangWatch(partial(self._progress, batch.targets.device), COLLECTIVE_TIMEOUT.total_seconds())
        return None

    def _progress(self, device: torch.device) -> tuple[int, int] | None:
        """Return how many steps were begun and how many of them the GPU has yet to end; None where it has ended all."""
        with torch.cuda.device(device):  # a thread that asks would take memory of the first one
            under_way = sum(not done.query() for done in self._done)  # type: ignore[no-untyped-call]
        return (self._replayed, under_way) if under_way else None

    def _capture_trial(self, batch: Batch) -> None:
        if self._trial is not None:
            self._captured(self._trial, batch, measured=False).graph.reset()

    def _capture_steps(self, batch: Batch) -> None:
        self._plain = self._captured(self._step, batch, measured=False)
        if self._profiler.on:
            self._measured = self._captured(self._step, batch, measured=True)

    def _captured(self, step: Callable[[Batch], Result], batch: Batch, *, measured: bool) -> _Captured:
        """Capture a step, which is not taken by it."""
        graph = torch.cuda.CUDAGraph()
        pool = None if self._plain is None else self._plain.graph.pool()
        # Other threads copy into page-locked memory meanwhile, and a mode that is not this thread's would see them.
        capture = torch.cuda.graph(
            graph, pool=pool, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
        )
        with self._profiler.capturing(measured=measured) as marks, capture:
            result = step(batch)
        return _Captured(graph, result, marks)


def _attempt(capture: Callable[[Batch], None], batch: Batch) -> str | None:
    """Return what prevents a capture: not the error itself, which holds the activations."""
    try:
        capture(batch)
    except Exception as error:
        return _reason(error)
    return None


def _reason(error: Exception) -> str:
    """Return an error in one line; before it, the one that broke the capture, after which its end fails as well."""
    errors = [error] if error.__context__ is None else [error.__context__, error]
    return "; ".join(" ".join(str(each).split()) for each in errors)
