"""Models of a user's own, for the tests."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from kbit_spark.models.mlp import Mlp


class Deadly(Mlp):
    """Kills the process of one rank in its n-th training step, or raises there; once, if `marker` is given."""

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, rank: int, step: int, marker: str = "", how: str = "kill"
    ) -> None:
        super().__init__(input_shape, classes)
        self._rank, self._step, self._marker, self._how, self._calls = rank, step, marker, how, 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self._calls += self.training
        if self.training and dist.get_rank() == self._rank and self._calls == self._step:
            if not self._marker:
                self._die()
            elif not Path(self._marker).exists():
                Path(self._marker).touch()
                self._die()
        return super().forward(inputs)

    def _die(self) -> None:
        if self._how == "raise":
            msg = "a fault of the model"
            raise ZeroDivisionError(msg)
        os.kill(os.getpid(), signal.SIGKILL)


def deadly(input_shape: tuple[int, ...], classes: int, **options: object) -> nn.Module:
    return Deadly(input_shape, classes, **options)  # type: ignore[arg-type]


class Slow(Mlp):
    """Takes `pause_s` seconds for a training step, for as long as the file `marker` is there."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, marker: str, pause_s: float) -> None:
        super().__init__(input_shape, classes)
        self._marker, self._pause_s = Path(marker), pause_s

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training and self._marker.exists():
            time.sleep(self._pause_s)
        return super().forward(inputs)


def slow(input_shape: tuple[int, ...], classes: int, marker: str, pause_s: float = 0.02) -> nn.Module:
    return Slow(input_shape, classes, marker, pause_s)


def no_module(input_shape: tuple[int, ...], classes: int) -> object:
    return object()
