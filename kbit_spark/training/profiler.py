"""Where the time of a rank's steps goes, cheap enough to stay on, and torch.profiler's traces of chosen steps.

On the CPU every step is measured by the wall clock. On a GPU events are recorded on its stream between the phases of
every `GPU_EVERY`-th step and read when the next such step begins, so hardly anything waits for them; copies that run
beside the computation then cost only what the stream waits. DDP's all-reduce overlaps the backward pass: only the part
that the pass ends up waiting for, the slowest rank included, counts as `all_reduce` and not as `backward`. A pass calls
back when all gradients are computed, just before DDP does that waiting. Gradients that are exchanged at once count in
full, from when they are gathered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch
from torch.autograd import Variable
from torch.profiler import ProfilerActivity, profile

from kbit_spark.config.train import ProfileConfig
from kbit_spark.training.world import World

Phase = Literal["data_wait", "host_to_device", "forward", "backward", "all_reduce", "optimizer", "metrics"]
PHASES: tuple[Phase, ...] = get_args(Phase)
GPU_EVERY = 16

Marks = list[tuple[Phase, torch.cuda.Event]]
"""Phases and when each of them ends."""


class Profiler:
    """The clock of one rank's phases; `mark` ends one, and whatever follows belongs to the next.

    Args:
        config: what to measure.
        world: this rank.
        folder: where traces go.
    """

    def __init__(self, config: ProfileConfig, world: World, folder: Path) -> None:
        self._clock = _Clock() if world.device.type == "cpu" else _GpuClock()
        self.on, self._trace_steps = config.phases, config.trace_steps
        self._world, self._folder = world, folder
        self._trace: profile | None = None
        self.measuring = False
        """Whether the marks of this step count."""

    def begin_step(self, step: int) -> None:
        """Begin the clock and, where it is asked for, the trace of the run's step number `step` (from 1)."""
        if self._trace_steps is not None and step == self._trace_steps[0]:
            self._start_trace()
        if self.on:
            self.measuring = self._clock.begin()

    def mark(self, phase: Phase) -> None:
        """End `phase`, which began at the mark before."""
        if self.measuring:
            self._clock.mark(phase)

    def mark_gradients(self, loss: torch.Tensor) -> None:
        """Have the pass back from `loss` end `backward` when it has computed all gradients of this rank."""
        if self.measuring:
            callback = partial(self.mark, "backward")
            loss.register_hook(lambda _: Variable._execution_engine.queue_callback(callback))  # type: ignore[no-untyped-call]

    def end_step(self, step: int) -> None:
        """End the step."""
        if self._trace is not None and self._trace_steps is not None and step >= self._trace_steps[1]:
            self.close()

    @contextmanager
    def capturing(self, *, measured: bool) -> Iterator[Marks]:
        """Keep the marks of a step that a CUDA graph captures, if it is to be `measured`, for `replayed`."""
        assert isinstance(self._clock, _GpuClock)
        before, self.measuring = self.measuring, measured
        try:
            with self._clock.capturing() as marks:
                yield marks
        finally:
            self.measuring = before

    def replayed(self, marks: Marks) -> None:
        """Count the marks of a step that was replayed just now."""
        if self.measuring:
            assert isinstance(self._clock, _GpuClock)
            self._clock.replayed(marks)

    def take(self) -> dict[str, float]:
        """Return each phase's share of the time measured since the last call, together 1; empty without steps."""
        seconds = self._clock.take()
        total = sum(seconds.values())
        return {phase: value / total for phase, value in seconds.items()} if total else {}

    def close(self) -> None:
        """End a trace that is being taken, and write it."""
        if self._trace is None:
            return
        trace, self._trace = self._trace, None
        trace.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._folder.mkdir(parents=True, exist_ok=True)
        assert self._trace_steps is not None
        first, last = self._trace_steps
        trace.export_chrome_trace(str(self._folder / f"steps-{first}-{last}-rank-{self._world.rank}.json.gz"))

    def _start_trace(self) -> None:
        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (self._world.device.type == "cuda")
        self._trace = profile(activities=kinds)
        self._trace.__enter__()  # type: ignore[no-untyped-call]


class _Clock:
    """Measures every step by the wall clock."""

    def __init__(self) -> None:
        self._seconds: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        self._last = 0.0

    def begin(self) -> bool:
        """Begin a step; return whether it is measured."""
        self._last = time.perf_counter()
        return True

    def mark(self, phase: Phase) -> None:
        now = time.perf_counter()
        self._seconds[phase] += now - self._last
        self._last = now

    def take(self) -> dict[Phase, float]:
        """Return the measured seconds of each phase since the last call."""
        taken, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        return taken


class _GpuClock(_Clock):
    """Measures some steps by events on the current stream, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = 0
        self._start: torch.cuda.Event | None = None
        self._marks: Marks = []

    def begin(self) -> bool:
        self._begun += 1
        if self._begun % GPU_EVERY != 1:
            return False
        # The step before has been done for long; a graph records its events anew, and no rank may measure another step.
        self._read()
        self._start = _event()
        return True

    def mark(self, phase: Phase) -> None:
        self._marks.append((phase, _event()))

    def take(self) -> dict[Phase, float]:
        self._read()
        return super().take()

    @contextmanager
    def capturing(self) -> Iterator[Marks]:
        """Collect marks apart from those of this step."""
        before, self._marks = self._marks, []
        try:
            yield self._marks
        finally:
            self._marks = before

    def replayed(self, marks: Marks) -> None:
        """Add the marks of a graph."""
        self._marks += marks

    def _read(self) -> None:
        """Wait for the step that was measured last, if it was not read yet, and add up its phases."""
        start, marks = self._start, self._marks
        self._start, self._marks = None, []
        if start is None:
            return
        _last(start, marks).synchronize()
        for before, (phase, event) in zip([start, *(event for _, event in marks)], marks, strict=False):
            self._seconds[phase] += before.elapsed_time(event) / 1_000


def _event() -> torch.cuda.Event:
    """Return an event that is recorded on the current stream; where that is captured, by each replay."""
    captured = torch.cuda.is_current_stream_capturing()
    options = {"external": True} if captured else {}
    event = torch.cuda.Event(enable_timing=True, **options)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _last(start: torch.cuda.Event, marks: Marks) -> torch.cuda.Event:
    return marks[-1][1] if marks else start
