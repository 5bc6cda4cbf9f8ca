"""What a rank tells about its progress: windows of steps, epochs, the test."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from kbit_spark.events import Event, Kind
from kbit_spark.training.channel import Client
from kbit_spark.training.collectives import add_up, take_largest
from kbit_spark.training.metrics import Averages, Moment, ProcessLoad, StepClock, Steps
from kbit_spark.training.world import World


@dataclass(frozen=True)
class Window:
    """Some steps of this rank up to the step `step`, and the load of its process over them."""

    step: int
    learning_rate: float
    steps: Steps
    load: Mapping[str, float]


class Reporter:
    """Times the steps of a rank and sends events over the control channel."""

    def __init__(self, client: Client, world: World) -> None:
        self._client, self._world = client, world
        self._load = ProcessLoad(world.device)
        self._epoch_steps, self._before_epoch = 0, 0
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Start the clocks."""
        self._window, self._epoch = StepClock(), StepClock()
        self._began, self._told = time.perf_counter(), Moment(self._world.device)

    def planned(self, epoch_steps: int, before_epoch: int) -> None:
        """Note how many steps the epoch has in all, and how many there were before it."""
        self._epoch_steps, self._before_epoch = epoch_steps, before_epoch

    def step(self, epoch: int, total_steps: int, *, seconds: float, waited: float, rows: int) -> None:
        """Count a step of `rows` local rows; `waited` of its `seconds` went into waiting for data."""
        self._window.step(seconds, waited, rows)
        self._epoch.step(seconds, waited, rows)
        self._client.step(epoch, total_steps)

    def end_of_window(self, total_steps: int, learning_rate: float) -> Window:
        """Return the steps since the last window, up to step `total_steps`, for `window` to tell."""
        return Window(total_steps, learning_rate, self._window.take(), self._load.read())

    def window(self, epoch: int, window: Window, loss: float, ended: Moment) -> None:
        """Tell a window, in the order of its steps, once the device has done them: at `ended`, which is past.

        The times of single steps, and what waited for data, are those of the launching CPU, some steps ahead of a GPU.
        """
        span_s, self._told = ended.seconds_since(self._told), ended
        numbers = {"loss": loss, "learning_rate": window.learning_rate, **window.steps.speeds(span_s), **window.load}
        numbers |= {"epoch_steps": self._epoch_steps, "epoch_step": window.step - self._before_epoch}
        self._emit("train_window", epoch, window.step, numbers, rank=self._world.rank)
        self._client.log(f"epoch {epoch} step {window.step} loss {loss:.4f}")

    def end_of_training(self) -> dict[str, float]:
        """Return the epoch's times over all ranks: speeds added, waits averaged, of the others the slowest rank's."""
        train_s = time.perf_counter() - self._began  # what the clocks of single steps leave out as well
        numbers = self._epoch.take().speeds(train_s)
        added = torch.tensor([numbers["samples_per_s"], numbers["data_wait_share"]], device=self._world.device)
        worst = torch.tensor([numbers["step_p50_s"], numbers["step_p95_s"], train_s], device=self._world.device)
        add_up(added)
        take_largest(worst)
        (speed, wait), (p50, p95, train_s) = added.tolist(), worst.tolist()
        wait /= self._world.size
        steps = {"samples_per_s": speed, "data_wait_share": wait, "step_p50_s": p50, "step_p95_s": p95}
        return {**steps, "train_s": train_s}

    def profile(self, epoch: int, total_steps: int, shares: Mapping[str, float]) -> None:
        """Tell which share of the time of this rank's steps went into each phase."""
        if shares:
            numbers = {f"{phase}_share": share for phase, share in shares.items()}
            self._emit("train_profile", epoch, total_steps, numbers, rank=self._world.rank)

    def epoch(
        self, epoch: int, total_steps: int, train: Averages, validation: Averages, speeds: dict[str, float]
    ) -> None:
        """Tell an epoch, once for all ranks."""
        numbers = {"train_loss": train.loss, "train_accuracy": train.accuracy, **speeds}
        numbers["duration_s"] = time.perf_counter() - self._began
        if validation.rows:
            numbers |= {"validation_loss": validation.loss, "validation_accuracy": validation.accuracy}
        if self._world.is_first:
            self._emit("train_epoch", epoch, total_steps, numbers)

    def test(self, epoch: int, total_steps: int, test: Averages, checkpoint: str) -> None:
        """Tell the test of a checkpoint's weights, once for all ranks."""
        if self._world.is_first and test.rows:
            numbers = {"loss": test.loss, "accuracy": test.accuracy, "rows": float(test.rows)}
            self._emit("train_test", epoch, total_steps, numbers, labels={"checkpoint": checkpoint})

    def _emit(
        self,
        kind: Kind,
        epoch: int,
        step: int,
        numbers: dict[str, float],
        rank: int | None = None,
        labels: dict[str, str] | None = None,
    ) -> None:
        numbers = {"epoch": epoch, "step": step, **numbers}
        self._client.emit(Event(kind=kind, scope=f"epoch={epoch}", numbers=numbers, rank=rank, labels=labels or {}))
