"""Repeats or compares training: ``spark-submit jobs/experiment.py --config FILE [FLAGS] [section.key=value ...]``."""

import sys
from pathlib import Path

if "__file__" in globals():  # a checkout works without being installed; Databricks runs the text alone, with a wheel
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kbit_spark import experiment
from kbit_spark.config.experiment import ExperimentConfig
from kbit_spark.entry import run_job

if __name__ == "__main__":
    run_job(
        ExperimentConfig,
        experiment.run,
        "Repeats a training run with different seeds, and compares two configurations.",
        options={"--iterations": "iterations={}", "--against": "against.{}"},
    )
