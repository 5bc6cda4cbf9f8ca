"""TorchDistributor's loader of DataFrame partitions, as its users run it: inside a function it trains on a DataFrame.

What Spark spends on writing the partition into the file that the loader reads is left out, in the peer's favour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.ml.torch.data import _SparkPartitionTorchDataset
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import DataFrame, SparkSession

from kbit_spark.session import spark_session

MASTER = "local[2]"


def session() -> SparkSession:
    """Return a plain session."""
    settings = {"spark.master": MASTER, "spark.driver.memory": "2g", "spark.ui.enabled": "false"}
    return spark_session("kbit bench loader", settings)


def rate(frame: DataFrame, batch: int, passes: int) -> dict[str, float]:
    """Return rows per CPU second of the median pass with one worker process, the loader's default, and with none."""
    samples = frame.count()
    distributor = TorchDistributor(num_processes=1, local_mode=False, use_gpu=False)
    train = _train(samples, batch, passes)
    found: dict[str, float] = distributor._train_on_dataframe(train, frame.repartition(1))
    return found


def refusal(frame: DataFrame) -> str | None:
    """Return why the loader cannot load these columns, None where it can."""
    try:
        _SparkPartitionTorchDataset("", frame.schema, 1)
    except ValueError as error:
        return str(error)
    return None


def _train(samples: int, batch: int, passes: int) -> Callable[[], Any]:
    """Return the function of the one rank; it goes there by value, for the rank does not know this module."""

    def train() -> dict[str, float]:
        import resource
        from statistics import median

        import torch
        from pyspark.ml.torch.distributor import _get_spark_partition_data_loader

        def cpu_s() -> float:
            usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            return sum(usage.ru_utime + usage.ru_stime for usage in usages)

        def one_pass(workers: int) -> float:
            before, rows = cpu_s(), 0
            for columns in _get_spark_partition_data_loader(samples, batch, num_workers=workers):
                rows += len(columns[-1])
            return rows / (cpu_s() - before)

        torch.set_num_threads(1)
        return {
            f"{workers} workers": median([one_pass(workers) for _ in range(passes + 1)][1:])  # the first one imports
            for workers in (1, 0)
        }

    return train
