"""Sums that live on the device, and the clock of a rank's steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import psutil
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - the usual name


class Sums:
    """Loss, correct predictions and rows summed on the device; nothing waits for it until `reduced` or `loss`."""

    def __init__(self, device: torch.device) -> None:
        self._totals = torch.zeros(3, dtype=torch.float64, device=device)

    def add(self, loss_sum: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Add one batch: its summed loss, its logits (rows, classes), its targets (rows,)."""
        correct = (logits.detach().argmax(dim=1) == targets).sum()
        self._totals[0] += loss_sum.detach()
        self._totals[1] += correct
        self._totals[2] += len(targets)

    def loss(self) -> float:
        """Return this rank's mean loss so far (waits for the device)."""
        loss, _, rows = self._totals.tolist()
        return loss / rows if rows else 0.0

    def reduced(self) -> Averages:
        """Return the averages over all ranks; every rank must call it."""
        totals = self._totals.clone()
        dist.all_reduce(totals)
        loss, correct, rows = totals.tolist()
        return Averages(loss / rows if rows else 0.0, correct / rows if rows else 0.0, int(rows))


@dataclass(frozen=True)
class Averages:
    """Mean loss and accuracy over `rows` rows of all ranks."""

    loss: float
    accuracy: float
    rows: int


def cross_entropy_sum(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the summed cross entropy in float32, whatever the precision of the logits."""
    return F.cross_entropy(logits.float(), targets, reduction="sum")


@dataclass
class StepClock:
    """Times of the steps since the last `take`: seconds a step, and how many of them waited for data."""

    _steps: list[float] = field(default_factory=list)
    _waits: list[float] = field(default_factory=list)
    _rows: int = 0
    _began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time the wait for a batch."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._waits.append(time.perf_counter() - begin)

    def step(self, seconds: float, rows: int) -> None:
        """Count one finished step of `rows` local rows; `seconds` include the wait."""
        self._steps.append(seconds)
        self._rows += rows

    def take(self) -> dict[str, float]:
        """Return samples_per_s (of this rank), data_wait_share, step_p50_s, step_p95_s, and begin anew."""
        now = time.perf_counter()
        total = max(now - self._began, 1e-9)
        steps = np.asarray(self._steps or [0.0])
        numbers = {
            "samples_per_s": self._rows / total,
            "data_wait_share": min(1.0, sum(self._waits) / total),
            "step_p50_s": float(np.percentile(steps, 50)),
            "step_p95_s": float(np.percentile(steps, 95)),
        }
        self._steps, self._waits, self._rows, self._began = [], [], 0, now
        return numbers


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
