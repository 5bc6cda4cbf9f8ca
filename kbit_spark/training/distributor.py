"""TorchDistributor as the launcher: Spark starts a torchrun in each barrier task, and that starts the rank."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.ml.torch.distributor import TorchDistributor

from kbit_spark.errors import UsageError
from kbit_spark.training.job import Outcome, TrainJob
from kbit_spark.training.slots import gpu_amount


def run_by_distributor(sc: SparkContext, job: TrainJob) -> list[Outcome | None]:
    """Run one attempt in this thread's job group; return the first rank's outcome in place of each rank's.

    Raises:
        UsageError: GPUs are asked for, which TorchDistributor only finds by `spark.task.resource.gpu.amount`.
        Exception: what Spark and TorchDistributor raise where a rank died.
    """
    size, use_gpu = job.config.world_size, _use_gpu(sc, job.config.device)
    distributor = TorchDistributor(num_processes=size, local_mode=False, use_gpu=use_gpu)
    outcome: Outcome | None = distributor.run(_rank_of(pickle.dumps(job), sc._python_includes or ()))
    return [outcome] * size


def _use_gpu(sc: SparkContext, device: str) -> bool:
    given = gpu_amount(sc, "task") >= 1
    if device == "cuda" and not given:
        msg = "launcher=torch_distributor with device=cuda needs one GPU a task"
        raise UsageError(msg, "set spark.task.resource.gpu.amount=1 for the application, or launcher=barrier")
    return given and device != "cpu"


def _rank_of(job: bytes, includes: Sequence[str]) -> Callable[[], Any]:
    """Return the function of a rank.

    It runs in a process that knows nothing of the files that Spark has sent along: they lie in the task's folder, where
    it starts.
    """
    names = tuple(includes)

    def run() -> Any:
        import os
        import pickle
        import sys

        sys.path[1:1] = [os.path.abspath(name) for name in ("", *names)]  # noqa: PTH100
        from kbit_spark.training.environment import run_under_torchrun

        return run_under_torchrun(pickle.loads(job))

    return run
