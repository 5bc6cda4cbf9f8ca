"""Kafka to Delta: ``spark-submit jobs/stream_ingest.py --config FILE [FLAGS] [section.key=value ...]``."""

import sys
from pathlib import Path

if "__file__" in globals():  # a checkout works without being installed; Databricks runs the text alone, with a wheel
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kbit_spark import ingest
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.entry import run_job

if __name__ == "__main__":
    run_job(
        IngestConfig,
        ingest.run,
        "Reads Kafka topics into Delta tables, exactly once.",
        flags={"--rebase": "guard.rebase", "--accept-loss": "guard.accept_loss"},
    )
