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
    """Kills or stops the process of one rank in its n-th training step, raises there, or makes the loss NaN.

    Once, if `marker` is given.
    """

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, rank: int, step: int, marker: str = "", how: str = "kill"
    ) -> None:
        super().__init__(input_shape, classes)
        self._rank, self._step, self._marker, self._how, self._calls = rank, step, marker, how, 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self._calls += self.training
        if self._how != "nan" and self._is_time():
            if not self._marker:
                self._die()
            elif not Path(self._marker).exists():
                Path(self._marker).touch()
                self._die()
        logits = super().forward(inputs)
        return logits * float("nan") if self._how == "nan" and self._is_time() else logits

    def _is_time(self) -> bool:
        return self.training and dist.get_rank() == self._rank and self._calls == self._step

    def _die(self) -> None:
        if self._how == "raise":
            msg = "a fault of the model"
            raise ZeroDivisionError(msg)
        if self._how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
            return
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


def counted(input_shape: tuple[int, ...], classes: int, file: str) -> nn.Module:
    """Return a model; write the number of torch's threads into `file`."""
    Path(file).write_text(str(torch.get_num_threads()))
    return Mlp(input_shape, classes)


def no_module(input_shape: tuple[int, ...], classes: int) -> object:
    return object()
