"""Loads what the first batch of a process needs while its tables and its checkpoint are still being looked at.

Spark, Delta, Kafka's client and RAPIDS load some 15,000 classes and compile code for each plan; a GPU loads its kernels
besides. So a record without a payload goes the way of a batch, in a session and to a folder of its own: decoded, made
into the table's columns, written as Parquet. Nobody waits for that, and nothing depends on it.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from kbit_spark.codecs.gpu.functions import rapids_functions
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.rapids import ENABLED
from kbit_spark.schemas import SPLIT_COLUMN, Engine
from kbit_spark.tables.samples import sample_columns
from kbit_spark.tables.tally import Tally

log = logging.getLogger("kbit.warm_up")

JOIN_TIMEOUT_S = 10.0
_TAG = "kbit-warm-up"
_DONE = "kbit.warm"
"""System property of a JVM that is warm."""
_TOMBSTONE = """
    SELECT * FROM VALUES (
        CAST(NULL AS BINARY), CAST(NULL AS BINARY), 'warm-up', 0, 0L, TIMESTAMP '2000-01-01',
        CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>)
    ) AS records(key, value, topic, partition, offset, timestamp, headers)
"""


class WarmUp:
    """Context manager around the set-up and the run of a stream; on leaving it, a warm-up under way is cancelled.

    Only a JVM that executes as well is warmed, and only once: of a cluster one executor in many would be.
    """

    def __init__(self, spark: SparkSession, config: IngestConfig) -> None:
        self._spark = spark
        self._config = config
        self._thread: InheritableThread | None = None

    def __enter__(self) -> WarmUp:
        jvm: Any = self._spark.sparkContext._jvm
        local = str(self._spark.sparkContext.master).startswith("local[")
        if local and jvm.java.lang.System.setProperty(_DONE, "true") is None:
            self._thread = InheritableThread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._spark.sparkContext.cancelJobsWithTag(_TAG)
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._spark.sparkContext.addJobTag(_TAG)
            self._spark.sparkContext.setLocalProperty("kbit.scope", "telemetry")  # no stage of the stream's
            with tempfile.TemporaryDirectory(prefix="kbit-warm-up-") as folder:
                write_tombstone(self._spark.newSession(), self._config, Path(folder))
        except Exception as error:  # the first batch will load what is missing, or tell what is wrong
            log.debug("warm-up: %s", error)


def write_tombstone(session: SparkSession, config: IngestConfig, folder: Path) -> DataFrame:
    """Write a record without a payload as the stream would write a good one, and return its rows.

    Args:
        session: nobody else's, for its settings change.
        config: the stream.
        folder: an existing folder for the files.
    """
    functions = rapids_functions(session)
    engine: Engine = "cpu" if isinstance(functions, str) or config.decode.placement == "cpu" else "gpu"
    decoder = PayloadDecoder(session, config.kafka, config.fields, gpu=functions)
    if decoder.work(0).refusal:
        engine = "cpu"
    decoded = decoder.decode(session.sql(_TOMBSTONE), engine)
    session.conf.set(ENABLED, str(engine == "gpu").lower())
    rows = decoded.select(sample_columns(config.split))
    rows.write.partitionBy(SPLIT_COLUMN).parquet(str(folder / "rows"))
    Tally(session).good_records(decoded, engine).write.format("noop").mode("overwrite").save()
    return rows
