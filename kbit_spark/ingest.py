"""The ingest job: Kafka -> decode -> samples and rejected, one ledger entry a batch.

Exactly once: both tables take a batch under (stream, checkpoint, batch id), so a batch that runs again changes nothing.
`rejected` is written first; once `samples` has the ledger entry, the batch is whole.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kbit_spark.codecs.decoder import value_type
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.load import dump
from kbit_spark.epoch_guard import check_continuity
from kbit_spark.errors import RunError
from kbit_spark.events import Event
from kbit_spark.schemas import LedgerEntry, Loss
from kbit_spark.session import session_given, spark_session
from kbit_spark.sources.continuity import Start
from kbit_spark.sources.kafka import Lag, check_topics, read_stream
from kbit_spark.sources.offsets import CheckpointLog
from kbit_spark.sources.query import Query
from kbit_spark.tables.dead_letters import REJECTED, ensure_rejected, rejected_rows
from kbit_spark.tables.maintenance import TableCare
from kbit_spark.tables.samples import ensure_samples, further_columns, parquet_settings, sample_rows, samples_schema
from kbit_spark.tables.tally import Counts, Tally
from kbit_spark.tables.writer import Append, TableWriter, Transaction
from kbit_spark.telemetry.hub import Telemetry

log = logging.getLogger("kbit.ingest")


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
            ensure_samples(spark, config.tables.samples, value_type(config.fields), may_lack=config.tables.grows)
            ensure_rejected(spark, config.tables.rejected)
            start = check_continuity(spark, config)
            if start.lost:
                telemetry.emit(loss_event(start.lost))
            query = Query(config.trigger, config.checkpoint_dir)
            with closing(BatchWriter(spark, config, telemetry, start)) as writer:
                query.run(read_stream(spark, config.kafka, start.offsets), writer.write)
    finally:
        if not given:
            spark.stop()


def settings(config: IngestConfig) -> dict[str, str]:
    """Return the Spark settings of the job; the user's own win."""
    tensors = [field.name for field in config.fields if field.tensor is not None]
    return {**parquet_settings(tensors), **config.spark}


class BatchWriter:
    """Writes micro-batches: decode and write in one pass, dead letters where there are any, then the ledger entry."""

    def __init__(
        self, spark: SparkSession, config: IngestConfig, telemetry: Telemetry, start: Start | None = None
    ) -> None:
        self._config = config
        self._start = start or Start()
        self._telemetry = telemetry
        self._log = CheckpointLog(spark, config.checkpoint_dir)
        self._decoder = PayloadDecoder(spark, config.kafka, config.fields, further_columns(spark, config))
        self._tally = Tally(spark)
        self._samples = TableWriter(spark, config.tables.samples, evolve=config.tables.grows)
        self._rejected = TableWriter(spark, config.tables.rejected)
        self._care = TableCare(
            spark, config.maintenance, (config.tables.samples, config.tables.rejected), telemetry.emit
        )
        self._lag = Lag(config.kafka)
        self._formats = {topic.name: topic.format for topic in config.kafka.topics}
        self._describe = spark.sparkContext.setJobDescription  # names the stages in telemetry
        self._epoch: str | None = None

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; repeating it changes nothing."""
        start = time.monotonic()
        transaction = self._transaction(batch_id)
        append = self._write_samples(batch, transaction)
        if append is None:
            log.info("batch %d is in the table already", batch_id)
            return
        try:
            entry = self._ledger_entry(batch_id, self._tally.counts())
            check_written(entry, append.rows())
            if entry.bad:
                self._write_rejected(batch, transaction)
            append.commit(entry.to_metadata())
        finally:
            append.close()
        if append.added:
            self._telemetry.emit(evolved_event(self._config.tables.samples, batch_id, append.added))
        self._telemetry.emit(batch_event(entry, time.monotonic() - start, self._lag.behind(entry.ranges)))
        self._care.after(batch_id)

    def close(self) -> None:
        """Let table care under way end."""
        self._care.close()

    def _write_samples(self, batch: DataFrame, transaction: Transaction) -> Append | None:
        """Write the good records, once more where they name schemas that had to be asked for; nothing is committed."""
        self._describe("write samples")
        self._decoder.settle(batch)
        while (append := self._samples.begin(transaction, self._columns())) is not None:
            append.write(sample_rows(self._tally.good_records(self._decoder.decode(batch)), self._config.split))
            if not self._decoder.resolve_new():
                break
            append.close()
        return append

    def _columns(self) -> StructType:
        return samples_schema(value_type(self._decoder.fields))

    def _transaction(self, batch_id: int) -> Transaction:
        if self._epoch is None:
            self._epoch = self._log.query_id() or "none"
        return Transaction(f"kbit:{self._config.stream_id}:{self._epoch}", batch_id)

    def _write_rejected(self, batch: DataFrame, transaction: Transaction) -> None:
        """Read and decode the batch once more for its bad records: they are few, and keeping all would cost more."""
        append = self._rejected.begin(transaction, REJECTED)
        if append is None:
            return  # a crash came before the samples' commit
        try:
            self._describe("write rejected")
            append.write(rejected_rows(self._decoder.decode(batch), self._formats, transaction.version))
            append.commit()
        finally:
            append.close()

    def _ledger_entry(self, batch_id: int, counts: Counts) -> LedgerEntry:
        assert self._epoch is not None
        ranges = self._log.ranges(batch_id)
        return LedgerEntry(
            stream_id=self._config.stream_id,
            epoch=self._epoch,
            batch_id=batch_id,
            ranges=ranges,
            good=counts.good,
            bad=counts.bad,
            tombstones=counts.tombstones,
            gaps=sum(r.span for r in ranges) - counts.seen,
            topic_ids=dict(self._start.topic_ids),
            lost=self._start.lost if batch_id == 0 else (),
        )


def check_written(entry: LedgerEntry, rows: int | None) -> None:
    """Compare the ledger with what the files hold by their own count, before either is committed.

    Raises:
        RunError: they differ.
    """
    if rows is not None and rows != entry.good:
        msg = f"batch {entry.batch_id}: {entry.good} good records were decoded, but {rows} were written"
        raise RunError(msg, "nothing was committed; start again, the batch will run once more")


def loss_event(lost: Sequence[Loss]) -> Event:
    """Return the event that tells of records given up by `guard.accept_loss`."""
    counted = [loss.offsets for loss in lost if loss.offsets is not None]
    places = ", ".join(f"{loss.topic}[{loss.partition}] {loss.start} to {loss.end}: {loss.reason}" for loss in lost)
    numbers = {"offsets": sum(counted), "partitions": len(lost), "uncounted": len(lost) - len(counted)}
    return Event(kind="ingest_loss", numbers=numbers, labels={"places": places})


def evolved_event(table: str, batch_id: int, added: Sequence[str]) -> Event:
    """Return the event that tells of columns which a batch brought."""
    labels = {"table": table, "columns": ", ".join(added)}
    return Event(kind="table_evolved", scope=f"batch={batch_id}", numbers={"columns": len(added)}, labels=labels)


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
