"""Delta to a model: ``spark-submit jobs/train_barrier.py --config FILE [--follow] [section.key=value ...]``."""

import sys
from pathlib import Path

if "__file__" in globals():  # a checkout works without being installed; Databricks runs the text alone, with a wheel
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kbit_spark import follow, train
from kbit_spark.config.train import TrainConfig
from kbit_spark.entry import run_job

if __name__ == "__main__":
    run_job(
        TrainConfig,
        lambda config: follow.run(config) if config.follow.enabled else train.run(config),
        "Trains a model on a samples table with DDP, one barrier task a rank.",
        flags={"--follow": "follow.enabled"},
    )
