"""The ranks of a run as plain processes: the product's own loop, without Spark around it."""

from __future__ import annotations

import multiprocessing
import random
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from kbit_spark.config.train import TrainConfig
from kbit_spark.train import plan
from kbit_spark.training import checkpoint
from kbit_spark.training.job import TrainJob
from kbit_spark.training.rank import Task, run_rank

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])


class Noisy(nn.Module):
    """Draws from every random generator, keeps running means, and dies in its n-th training step if asked to.

    It also writes which rows it has seen: one line a step, the sums of its rows.
    """

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, noise: bool = True, die: str = "", seen: str = ""
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16) if noise else nn.Identity(), nn.ReLU(),
            nn.Dropout(0.3 if noise else 0.0), nn.Linear(16, classes),
        )  # fmt: skip
        self._noise, self._die, self._seen = noise, Path(die) if die else None, seen

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self._end_if_told()
            if self._seen and inputs.any():
                with Path(f"{self._seen}-{_place()[0]}").open("a") as file:
                    file.write(" ".join(f"{row:.6f}" for row in inputs.sum(dim=(1, 2)).tolist()) + "\n")
            if self._noise:
                inputs = inputs * (1 + 0.1 * random.random() + 0.1 * float(np.random.rand()))
        logits: torch.Tensor = self.layers(inputs)
        return logits

    def _end_if_told(self) -> None:
        if self._die is not None and self._die.exists():
            rank, size = _place()
            left = int(self._die.read_text()) if rank == size - 1 else 1_000
            if left == 0:
                signal.raise_signal(signal.SIGKILL)
            if left < 1_000:
                self._die.write_text(str(left - 1))


def _place() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def noisy(input_shape: tuple[int, ...], classes: int, **options: Any) -> nn.Module:
    return Noisy(input_shape, classes, **options)


def train(data: dict[str, Any]) -> dict[str, torch.Tensor] | None:
    """Run or go on with the run of a configuration; return its last weights, None where a rank died."""
    config = TrainConfig.model_validate(data)
    snapshot, resume = plan(config)
    root = Path(config.checkpoint.dir)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]  # nobody listens there later: ranks go on without a driver
    job = TrainJob(
        config, snapshot, root, None if resume is None else resume.path, 0, ("127.0.0.1", port), "", code="test",
        one_host=True,
    )  # fmt: skip
    with _PROCESSES.Manager() as manager:
        board, barrier = manager.dict(), manager.Barrier(config.world_size)
        ranks = [
            _PROCESSES.Process(target=_rank, args=(job, rank, board, barrier)) for rank in range(config.world_size)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    if any(process.exitcode for process in ranks):
        return None
    found = checkpoint.newest(root)
    assert found is not None
    weights: dict[str, torch.Tensor] = found.load()["model"]
    return weights


def _rank(job: TrainJob, rank: int, board: dict[int, str], barrier: Any) -> None:
    task = Task(rank, job.config.world_size, "127.0.0.1", cpus=1, gpu=None)
    sys.exit(run_rank(job, task, _publisher(rank, task.size, board, barrier)) is None)


def _publisher(rank: int, size: int, board: dict[int, str], barrier: Any) -> Callable[[str], list[str]]:
    def publish(text: str) -> list[str]:
        board[rank] = text
        barrier.wait(30)
        return [board[other] for other in range(size)]

    return publish
