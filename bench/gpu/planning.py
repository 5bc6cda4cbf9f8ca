"""What the driver spends on a batch that the GPU writes, without a GPU and without rows: planning, job, commit.

    python -m bench.gpu.planning FOLDER [--shape wide] [--batches 40]

The plans are those of a device (tests/gpu/plans.py says how); a batch without rows has no task. The second half of the
batches counts. FOLDER gets the samples of the driver's stacks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.gpu import ingest, stacks
from kbit_spark.codecs.decoder import value_type
from kbit_spark.codecs.gpu.functions import RapidsFunctions
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.rapids import ENABLED
from kbit_spark.session import spark_session
from kbit_spark.tables.append import Transaction
from kbit_spark.tables.samples import ensure_samples, sample_columns, samples_schema
from kbit_spark.tables.tally import Tally
from kbit_spark.tables.writer import TableWriter
from tests.gpu.plans import KAFKA, SETTINGS


def main() -> None:
    """Write batches without rows and tell what they cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", default="wide", choices=list(ingest.SHAPES))
    parser.add_argument("--batches", type=int, default=40)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    spark = spark_session("planning", SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    stream = Stream(spark, arguments.shape, arguments.folder)
    for _ in range(arguments.batches // 2):
        stream.write()
    stream.times.clear()
    counted = arguments.batches - arguments.batches // 2
    with stacks.Stacks(spark, file := arguments.folder / f"{arguments.shape}.stacks"):
        for _ in range(counted):
            stream.write()
    phases = {name: round(median(times), 4) for name, times in stream.times.items()}
    sys.stdout.write(
        f"{json.dumps({'shape': arguments.shape, **phases})}\n{stacks.summary(stacks.read(file), counted)}\n"
    )
    spark.stop()


class Stream:
    """What `kbit_spark.batch_writer.BatchWriter` does to a batch that the GPU decodes, phase by phase."""

    def __init__(self, spark: SparkSession, shape: str, folder: Path) -> None:
        self.times: dict[str, list[float]] = {}
        case = ingest.case_of(shape)
        config = IngestConfig.model_validate(ingest.config_of(case, shape, "none:0", folder, 1, "gpu"))
        self._spark = spark
        jvm: Any = spark.sparkContext._jvm
        self._java = spark._jsparkSession
        self._nothing = spark.sparkContext._jsc.emptyRDD()
        self._kafka = jvm.org.apache.spark.sql.types.DataType.fromJson(KAFKA.json())
        self._path = str(folder / f"{shape}-{time.time():.0f}")
        self._schema = samples_schema(value_type(config.fields))
        ensure_samples(spark, self._path, value_type(config.fields))
        spark.conf.set("spark.rapids.sql.mode", "executeongpu")
        self._decoder = PayloadDecoder(spark, config.kafka, config.fields, gpu=RapidsFunctions(spark))
        self._tally = Tally(spark)
        self._columns = sample_columns(config.split)
        self._writer = TableWriter(spark, self._path, turns="kbit:planning")
        self._batches = Counter[str]()

    def write(self) -> None:
        """Write a batch without rows."""
        batch = DataFrame(self._java.createDataFrame(self._nothing, self._kafka), self._spark)
        self._clock = time.perf_counter()
        begun = self._clock
        self._batches["batch"] += 1
        append = self._writer.begin(Transaction("planning", self._batches["batch"]), self._schema, "gpu")
        assert append is not None
        self._lap("begin")
        rows = self._tally.good_records(self._decoder.decode(batch, "gpu"), "gpu").select(self._columns)
        self._lap("analyze")
        self._spark.conf.set(ENABLED, "true")
        append.write(rows)
        self._spark.conf.set(ENABLED, "false")
        self._lap("plan and write")
        append.rows()
        append.commit("{}")
        self._lap("commit")
        self.times.setdefault("all", []).append(time.perf_counter() - begun)

    def _lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.times.setdefault(phase, []).append(now - self._clock)
        self._clock = now


if __name__ == "__main__":
    main()
