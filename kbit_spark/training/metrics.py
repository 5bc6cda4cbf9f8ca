"""Sums that live on the device, and the clock of a rank's steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import psutil
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kbit_spark.errors import RunError
from kbit_spark.training.collectives import add_up


class EchoError(RunError):
    """A fault that this rank sees, but another one caused, as far as this one can tell."""


HELD_BATCHES = 32
"""Batches whose results are added up together: each addition alone would cost a small model several kernels a step."""


class Sums:
    """Loss, correct predictions and rows, summed on the device: adding a batch waits for nothing.

    When held batches are folded into the sums depends on the calls alone, so that a run which goes on from `state`
    rounds as the one that was never interrupted.
    """

    def __init__(self, device: torch.device) -> None:
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._rows = 0
        self._told = (0.0, 0)
        self._held: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def add(self, loss_sum: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Add one batch: its summed loss, its logits (rows, classes), its targets (rows,)."""
        self.add_predicted(loss_sum.detach(), classes(logits), targets)

    def add_predicted(self, loss_sum: torch.Tensor, predicted: torch.Tensor, targets: torch.Tensor) -> None:
        """Add one batch: its summed loss, the classes that were predicted (rows,), its targets (rows,)."""
        self._held.append((loss_sum, predicted, targets))
        self._rows += len(targets)
        if len(self._held) == HELD_BATCHES:
            self._fold()

    def reading(self, *others: torch.Tensor) -> Reading:
        """Return the loss and the rows so far, with `others` of shape (), on their way to the CPU."""
        self._fold()
        return Reading(torch.stack([self._loss, *(other.double() for other in others)]), self._rows)

    def window_loss(self, loss: float, rows: int) -> float:
        """Return this rank's mean loss between the last call and the reading of a `loss` over `rows`."""
        mean = (loss - self._told[0]) / max(1, rows - self._told[1])
        self._told = (loss, rows)
        return mean

    def check_own(self, error: RunError) -> RunError:
        """Return `error` where this rank's own loss is not finite, else an `EchoError` of the same text."""
        self._fold()
        return EchoError(error.message, error.hint) if bool(torch.isfinite(self._loss)) else error

    def state(self) -> torch.Tensor:
        """Return loss, correct predictions and rows as float64 of shape (3,) on the CPU (waits for the device)."""
        self._fold()
        return torch.tensor([float(self._loss), float(self._correct), float(self._rows)], dtype=torch.float64)

    def add_state(self, state: torch.Tensor) -> None:
        """Add `state` of sums that were saved; a window's loss does not count them."""
        loss, correct, rows = state.tolist()
        self._loss += loss
        self._correct += int(correct)
        self._rows += int(rows)
        self._told = (float(self._loss), self._rows)

    def reduced(self) -> Averages:
        """Return the averages over all ranks; every rank must call it."""
        self._fold()
        totals = torch.stack([self._loss, self._correct.double(), torch.full_like(self._loss, self._rows)])
        add_up(totals)
        loss, correct, rows = totals.tolist()
        return Averages(loss / rows if rows else 0.0, correct / rows if rows else 0.0, int(rows))

    def _fold(self) -> None:
        if not self._held:
            return
        losses, predicted, targets = zip(*self._held, strict=True)
        self._held = []
        self._loss += torch.stack(losses).double().sum()
        self._correct += (torch.cat(predicted) == torch.cat(targets)).sum()


class Reading:
    """Numbers that a device may still be computing, on their way to the CPU.

    Args:
        values: float64 of shape (n,), in memory of its own.
        rows: rows of this rank so far.
    """

    def __init__(self, values: torch.Tensor, rows: int) -> None:
        self.rows = rows
        self._values = values.to("cpu", non_blocking=True)
        self.at = Moment(values.device)

    def wait(self) -> list[float]:
        """Return the numbers; waits for what the device had to do before them, not for what came after."""
        self.at.wait()
        numbers: list[float] = self._values.tolist()
        return numbers


class Moment:
    """When the device has done all that was given to it so far, which on a GPU is yet to come."""

    def __init__(self, device: torch.device) -> None:
        self._now = time.perf_counter()
        self._event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        if self._event is not None:
            self._event.record(torch.cuda.current_stream(device))

    def reached(self, timeout_s: float) -> bool:
        """Return whether it is past, after `timeout_s` seconds at most."""
        end = time.perf_counter() + timeout_s
        while self._event is not None and not self._event.query():  # type: ignore[no-untyped-call]
            if time.perf_counter() > end:
                return False
            time.sleep(0.001)
        return True

    def wait(self) -> None:
        """Wait until it is past."""
        if self._event is not None:
            self._event.synchronize()

    def seconds_since(self, before: Moment) -> float:
        """Return the seconds from `before`, of the same device, to this one; both must be past."""
        if self._event is None or before._event is None:
            return self._now - before._now
        return float(before._event.elapsed_time(self._event)) / 1_000


@dataclass(frozen=True)
class Averages:
    """Mean loss and accuracy over `rows` rows of all ranks."""

    loss: float
    accuracy: float
    rows: int


def classes(logits: torch.Tensor) -> torch.Tensor:
    """Return the predicted classes, int64 of shape (rows,), of logits of shape (rows, classes)."""
    return logits.detach().argmax(dim=1)


def cross_entropy_sum(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the summed cross entropy in float32, whatever the precision of the logits."""
    return F.cross_entropy(logits.float(), targets, reduction="sum")


@dataclass(frozen=True)
class Steps:
    """Some steps of this rank: the seconds of each, how many of them waited for data, and their rows."""

    seconds: Sequence[float]
    waited_s: float
    rows: int

    def speeds(self, span_s: float) -> dict[str, float]:
        """Return samples_per_s, data_wait_share, step_p50_s and step_p95_s of steps that took `span_s` in all."""
        span_s = max(span_s, 1e-9)
        steps = np.asarray(self.seconds or [0.0])
        return {
            "samples_per_s": self.rows / span_s,
            "data_wait_share": min(1.0, self.waited_s / span_s),
            "step_p50_s": float(np.percentile(steps, 50)),
            "step_p95_s": float(np.percentile(steps, 95)),
        }


@dataclass
class StepClock:
    """Counts steps until they are taken."""

    _steps: list[float] = field(default_factory=list)
    _waited_s: float = 0.0
    _rows: int = 0

    def step(self, seconds: float, waited: float, rows: int) -> None:
        """Count one finished step of `rows` local rows; `seconds` include what was `waited` for data."""
        self._steps.append(seconds)
        self._waited_s += waited
        self._rows += rows

    def take(self) -> Steps:
        """Return the steps counted since the last call."""
        steps = Steps(self._steps, self._waited_s, self._rows)
        self._steps, self._waited_s, self._rows = [], 0.0, 0
        return steps


class ProcessLoad:
    """CPU and memory of this process."""

    def __init__(self, device: torch.device) -> None:
        self._process = psutil.Process()
        self._device = device
        self._process.cpu_percent()  # the first call only sets the beginning of the measured span

    def read(self) -> dict[str, float]:
        """Return cpu_percent since the last call (100 is one core), rss_bytes and the peak gpu_bytes."""
        gpu = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else 0
        return {
            "cpu_percent": self._process.cpu_percent(),
            "rss_bytes": float(self._process.memory_info().rss),
            "gpu_bytes": float(gpu),
        }
