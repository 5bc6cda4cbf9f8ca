"""spark-submit jobs/train_barrier.py [--config FILE] [section.key=value ...]: train on a samples table."""

from kbit_spark import train
from kbit_spark.config.train import TrainConfig
from kbit_spark.entry import run_job

if __name__ == "__main__":
    run_job(TrainConfig, train.run, __doc__ or "")
