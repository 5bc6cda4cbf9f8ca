"""Where the time of a rank's steps goes, cheap enough to stay on, and torch.profiler's traces of chosen steps.

On the CPU every step is measured by the wall clock. On a GPU events are recorded on its stream between the phases of
every `GPU_EVERY`-th step and read steps later, so nothing waits for them; copies that run beside the computation then
cost only what the stream waits. DDP's all-reduce overlaps the backward pass: only the part that the pass ends up
waiting for, the slowest rank included, counts as `all_reduce` and not as `backward`. DDP's own timers tell it, of a
sample of steps.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from kbit_spark.config.train import ProfileConfig
from kbit_spark.training.world import World

Phase = Literal["data_wait", "host_to_device", "forward", "backward", "all_reduce", "optimizer", "metrics"]
PHASES: tuple[Phase, ...] = get_args(Phase)
GPU_EVERY = 16
DDP_FIRST_STEPS = 10
"""DDP takes the times of all of them; they are those of a process that still warms up."""

DDP_EVERY = {"cpu": 10, "cuda": 200}
"""Steps between two of which DDP takes its times; at first fewer, twice as many each time, so that a short run has some
as well. On a GPU reading them waits for the step before, and until launches are ahead of it again a small model loses
some 3 ms: every 50 steps, that was 1.5 % of steps of 4.4 ms."""


class Profiler:
    """The clock of one rank's phases; `mark` ends one, and whatever follows belongs to the next.

    Args:
        config: what to measure.
        world: this rank.
        folder: where traces go.
    """

    def __init__(self, config: ProfileConfig, world: World, folder: Path) -> None:
        self._clock = _Clock() if world.device.type == "cpu" else _GpuClock()
        self._on, self._trace_steps = config.phases, config.trace_steps
        self._world, self._folder = world, folder
        self._ddp: _AllReduceTimes | None = None
        self._trace: profile | None = None
        self._measuring = False
        self._updates, self._steps = 0, 0

    def watch(self, network: torch.nn.Module) -> None:
        """Take the all-reduce times of `network` if it is DDP's."""
        if self._on and isinstance(network, DistributedDataParallel):
            self._ddp = _AllReduceTimes(network, DDP_EVERY[self._world.device.type])

    def begin_step(self, step: int) -> None:
        """Begin the clock and, where it is asked for, the trace of the run's step number `step` (from 1)."""
        if self._trace_steps is not None and step == self._trace_steps[0]:
            self._start_trace()
        if self._on:
            self._measuring = self._clock.begin()

    def mark(self, phase: Phase) -> None:
        """End `phase`, which began at the mark before."""
        if self._measuring:
            self._clock.mark(phase)

    def end_step(self, step: int, *, updated: bool) -> None:
        """End the step; `updated` if it ended with an all-reduce."""
        self._updates += updated
        self._steps += 1
        if self._ddp is not None and updated:
            self._ddp.look()
        if self._trace is not None and self._trace_steps is not None and step >= self._trace_steps[1]:
            self.close()

    def take(self) -> dict[str, float]:
        """Return each phase's share of the time measured since the last call, together 1; empty without steps."""
        seconds = self._clock.take()
        if self._ddp is not None and self._steps:
            waited = seconds["backward"] * self._ddp.take() * self._updates / self._steps
            seconds = {**seconds, "backward": seconds["backward"] - waited, "all_reduce": waited}
        self._updates, self._steps = 0, 0
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
    """Measures some steps by events on the current stream."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = 0
        self._open: list[tuple[Phase | None, torch.cuda.Event]] = []
        self._waiting: deque[list[tuple[Phase | None, torch.cuda.Event]]] = deque()

    def begin(self) -> bool:
        self._begun += 1
        if self._open:
            self._waiting.append(self._open)
            self._open = []
        if self._begun % GPU_EVERY != 1:
            return False
        self._read(wait=False)
        self._record(None)
        return True

    def mark(self, phase: Phase) -> None:
        self._record(phase)

    def take(self) -> dict[Phase, float]:
        if self._open:
            self._waiting.append(self._open)
            self._open = []
        self._read(wait=True)
        return super().take()

    def _record(self, phase: Phase | None) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._open.append((phase, event))

    def _read(self, *, wait: bool) -> None:
        while self._waiting and (wait or self._waiting[0][-1][1].query()):  # type: ignore[no-untyped-call]
            events = self._waiting.popleft()
            events[-1][1].synchronize()
            for (_, before), (phase, event) in pairwise(events):
                assert phase is not None
                self._seconds[phase] += before.elapsed_time(event) / 1_000


class _AllReduceTimes:
    """Which share of a backward pass waits for its all-reduce, from the timers of DDP's reducer.

    The reducer takes a sample in each of its first steps and in those whose number is a multiple of the rate; it tells
    it from the step after on, until it has the next one.
    """

    def __init__(self, network: DistributedDataParallel, most: int) -> None:
        self._network, self._most = network, most
        self._set_rate(min(most, 2 * DDP_FIRST_STEPS))
        self._steps, self._seen = 0, -1
        self._first, self._later = _Share(), _Share()
        self._last: float | None = None

    def look(self) -> None:
        """Take the newest sample if there is a new one."""
        sampled, self._steps = self._steps, self._steps + 1
        if sampled > DDP_FIRST_STEPS and sampled % self._rate:
            return
        found = self._network._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        if found.get("iteration", -1) == self._seen or "backward_comm_time" not in found:
            return
        self._seen = found["iteration"]
        share = self._first if sampled <= DDP_FIRST_STEPS else self._later
        share.add(found)
        if share is self._later and self._rate < self._most:
            self._set_rate(min(self._most, 2 * self._rate))

    def take(self) -> float:
        """Return the share in the samples since the last call, that before where there are none.

        The samples of the first steps count only until there are others.
        """
        if self._later.passes:
            self._last, self._later = self._later.value, _Share()
        return self._first.value if self._last is None else self._last

    def _set_rate(self, rate: int) -> None:
        self._rate = rate
        self._network._set_ddp_runtime_logging_sample_rate(rate)  # type: ignore[no-untyped-call]


@dataclass
class _Share:
    """Nanoseconds of backward passes, and how many of them waited."""

    waited: int = 0
    passes: int = 0

    def add(self, sample: Mapping[str, int]) -> None:
        waited = max(0, sample["backward_comm_time"] - sample["backward_compute_comm_overlap_time"])
        self.waited += waited
        self.passes += sample["backward_compute_time"] + waited

    @property
    def value(self) -> float:
        return self.waited / self.passes if self.passes else 0.0
