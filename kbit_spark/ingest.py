"""The ingest job: Kafka -> decode -> samples and rejected, one ledger entry a batch.

Exactly once: both tables take a batch under (stream, checkpoint, batch id), so a batch that runs again changes nothing.
`rejected` is written first; once `samples` has the ledger entry, the batch is whole.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from kbit_spark.codecs.decoder import decode_column, value_type
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.load import dump
from kbit_spark.events import Event
from kbit_spark.schemas import LedgerEntry
from kbit_spark.session import session_given, spark_session
from kbit_spark.sources.kafka import Lag, check_topics, read_stream
from kbit_spark.sources.offsets import CheckpointLog
from kbit_spark.sources.query import Query
from kbit_spark.tables.dead_letters import ensure_rejected, rejected_rows
from kbit_spark.tables.delta import Transaction, append
from kbit_spark.tables.samples import ROW_GROUP_BYTES, ensure_samples, sample_rows
from kbit_spark.telemetry.hub import Telemetry


def run(config: IngestConfig) -> None:
    """Read the topics until they are drained (`available_now`) or a signal asks to stop.

    Raises:
        KbitError: see the stages; the tables are as they were after the last whole batch.
    """
    check_topics(config.kafka)
    given = session_given()
    spark = spark_session(f"kbit ingest {config.stream_id}", settings(config))
    try:
        with Telemetry.open(config.telemetry, job="ingest", spark=spark, config_text=dump(config)) as telemetry:
            ensure_samples(spark, config.tables.samples, value_type(config.fields))
            ensure_rejected(spark, config.tables.rejected)
            query = Query(config.trigger, config.checkpoint_dir)
            query.run(read_stream(spark, config.kafka), BatchWriter(spark, config, telemetry).write)
    finally:
        if not given:
            spark.stop()


def settings(config: IngestConfig) -> dict[str, str]:
    """Return the Spark settings of the job; the user's own win."""
    return {"spark.hadoop.parquet.block.size": str(ROW_GROUP_BYTES), **config.spark}


@dataclass(frozen=True)
class Counts:
    """Records of a batch by what became of them."""

    good: int
    bad: int
    tombstones: int


class BatchWriter:
    """Writes micro-batches: decode, count, dead letters, samples with the ledger entry."""

    def __init__(self, spark: SparkSession, config: IngestConfig, telemetry: Telemetry) -> None:
        self._config = config
        self._telemetry = telemetry
        self._log = CheckpointLog(spark, config.checkpoint_dir)
        self._decoded = decode_column(spark, config.kafka.topics, config.fields, sf.col("topic"), sf.col("value"))
        self._lag = Lag(config.kafka)
        self._formats = {topic.name: topic.format for topic in config.kafka.topics}
        self._describe = spark.sparkContext.setJobDescription  # names the stages in telemetry
        self._epoch: str | None = None

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; repeating it changes nothing."""
        start = time.monotonic()
        decoded = decode(batch, self._decoded).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            self._describe("decode and count")
            entry = self._ledger_entry(batch_id, count(decoded))
            transaction = Transaction(f"kbit:{entry.stream_id}:{entry.epoch}", batch_id)
            if entry.bad:
                self._describe("write rejected")
                append(rejected_rows(decoded, self._formats, batch_id), self._config.tables.rejected, transaction)
            self._describe("write samples")
            rows = sample_rows(decoded, self._config.split)
            append(rows, self._config.tables.samples, transaction, entry.to_metadata())
        finally:
            decoded.unpersist()
        self._telemetry.emit(batch_event(entry, time.monotonic() - start, self._lag.behind(entry.ranges)))

    def _ledger_entry(self, batch_id: int, counts: Counts) -> LedgerEntry:
        if self._epoch is None:
            self._epoch = self._log.query_id() or "none"
        ranges = self._log.ranges(batch_id)
        seen = counts.good + counts.bad + counts.tombstones
        return LedgerEntry(
            stream_id=self._config.stream_id,
            epoch=self._epoch,
            batch_id=batch_id,
            ranges=ranges,
            good=counts.good,
            bad=counts.bad,
            tombstones=counts.tombstones,
            gaps=sum(r.span for r in ranges) - seen,
        )


def decode(batch: DataFrame, decoded: Column) -> DataFrame:
    """Return the batch with its `decoded` payload; only bad records keep the raw `value`, so the cache stays small."""
    bad_value = sf.when(sf.col("decoded.error").isNotNull(), sf.col("value")).alias("value")
    kept = ("topic", "partition", "offset", "timestamp", "key", "headers", "decoded")
    # a tombstone keeps its coordinates: it is counted, and belongs to neither table
    return batch.withColumn("decoded", decoded).select(*kept, bad_value)


def count(decoded: DataFrame) -> Counts:
    """Count a decoded batch in one stage, without a shuffle; this also fills its cache."""
    observation = Observation()
    decoded.observe(
        observation,
        sf.count("decoded.value").alias("good"),
        sf.count("decoded.error").alias("bad"),
        sf.count(sf.lit(1)).alias("all"),
    ).write.format("noop").mode("overwrite").save()
    seen = observation.get
    return Counts(seen["good"], seen["bad"], seen["all"] - seen["good"] - seen["bad"])


def batch_event(entry: LedgerEntry, duration_s: float, lag_rows: int | None) -> Event:
    """Return the event that tells of a written batch."""
    rows = entry.good + entry.bad + entry.tombstones
    numbers: dict[str, float] = {
        "batch_id": entry.batch_id,
        "rows": rows,
        "good": entry.good,
        "bad": entry.bad,
        "tombstones": entry.tombstones,
        "gaps": entry.gaps,
        "duration_s": duration_s,
        "rows_per_s": rows / max(duration_s, 1e-9),
    }
    if lag_rows is not None:
        numbers["lag_rows"] = lag_rows
    return Event(kind="ingest_batch", scope=f"batch={entry.batch_id}", numbers=numbers)
