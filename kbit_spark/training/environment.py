"""A rank's place among ranks that torchrun started, here or inside TorchDistributor, and how they exchange texts."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from datetime import timedelta

from torch.distributed import Store  # type: ignore[attr-defined]  # not in its __all__
from torch.distributed.rendezvous import rendezvous
from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]  # only there on Linux

from kbit_spark.training.job import Outcome, TrainJob
from kbit_spark.training.rank import Task, heed_signals, run_rank


def task_from(environ: Mapping[str, str]) -> Task:
    """Return what torchrun says about this process; without torchrun it is the only rank.

    The GPU is the rank's ordinal among the visible ones, None where none are visible; the cores are those that OpenMP
    may use, else this rank's part of the host.
    """
    local_rank, local_size = int(environ.get("LOCAL_RANK", "0")), int(environ.get("LOCAL_WORLD_SIZE", "1"))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    shown = [str(local_rank)] if visible is None else visible.split(",")[local_rank : local_rank + 1]
    return Task(
        rank=int(environ.get("RANK", "0")),
        size=int(environ.get("WORLD_SIZE", "1")),
        host=environ.get("MASTER_ADDR", "127.0.0.1"),
        cpus=int(environ.get("OMP_NUM_THREADS", "0")) or max(1, (os.cpu_count() or 1) // local_size),
        gpu=shown[0].strip() or None if shown else None,
    )


def restart_count(environ: Mapping[str, str]) -> int:
    """Return how often torchrun has started all ranks anew."""
    return int(environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def die_with_parent() -> None:
    """Have the system end this process when its launcher dies, even while it is stopped."""
    _prctl_pr_set_pdeathsig(signal.SIGKILL)


class Board:
    """Exchanges one text among all ranks, round after round, over torchrun's own store.

    Every restart by torchrun gets keys of its own. One rank alone needs no store.
    """

    def __init__(self, task: Task, restart: int, timeout_s: float) -> None:
        self._task, self._restart, self._timeout_s, self._round = task, restart, timeout_s, 0
        self._store: Store | None = None
        if task.size > 1:
            self._store, _, _ = next(iter(rendezvous("env://", timeout=timedelta(seconds=timeout_s))))

    def publish(self, text: str, timeout_s: float | None = None) -> list[str]:
        """Return the texts of all ranks, in the order of ranks.

        Raises:
            torch.distributed.DistStoreError: a rank has not come within `timeout_s` (None: that of the beginning).
        """
        if self._store is None:
            return [text]
        self._round += 1
        keys = [f"kbit/{self._restart}/{self._round}/{rank}" for rank in range(self._task.size)]
        self._store.set(keys[self._task.rank], text)
        self._store.wait(keys, timedelta(seconds=self._timeout_s if timeout_s is None else timeout_s))
        return [self._store.get(key).decode() for key in keys]


def run_under_torchrun(job: TrainJob) -> Outcome | None:
    """Run the rank of this process; see `run_rank`."""
    die_with_parent()
    heed_signals()
    task = task_from(os.environ)
    board = Board(task, restart_count(os.environ), job.config.rendezvous_timeout_s)
    return run_rank(job, task, board.publish)
