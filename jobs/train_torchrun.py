"""Delta to a model without Spark: ``torchrun --nproc-per-node N jobs/train_torchrun.py --config FILE``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from kbit_spark import torchrun
from kbit_spark.config.train import TrainConfig
from kbit_spark.entry import run_job

if __name__ == "__main__":
    run_job(TrainConfig, torchrun.run, "Trains a model on a samples table, as one of the ranks that torchrun starts.")
