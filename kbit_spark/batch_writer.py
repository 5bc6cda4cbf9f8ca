"""Micro-batches on their way into the tables.

Exactly once: both tables take a batch under (stream, checkpoint, batch id), so a batch that runs again changes nothing.
`rejected` is written first; once `samples` has the ledger entry, the batch is whole.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kbit_spark.codecs.decoder import value_type
from kbit_spark.codecs.gpu.functions import GpuFunctions, rapids_functions
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.engines import Engines, MiscountError
from kbit_spark.errors import RunError
from kbit_spark.events import Event
from kbit_spark.ingest_events import batch_numbers, evolved_event
from kbit_spark.schemas.base import Engine
from kbit_spark.schemas.ledger import LedgerEntry, OffsetRange
from kbit_spark.sources.broker import Lag
from kbit_spark.sources.continuity import Start
from kbit_spark.sources.gathering import gathered
from kbit_spark.sources.offsets import CheckpointLog
from kbit_spark.tables.append import Append, Transaction, batch_app_id, not_alone, turns_name
from kbit_spark.tables.dead_letters import REJECTED, drop_letters, of_batch, rejected_rows
from kbit_spark.tables.maintenance import TableCare
from kbit_spark.tables.samples import (
    further_columns,
    sample_columns,
    samples_schema,
)
from kbit_spark.tables.tally import Counts, Tally
from kbit_spark.tables.writer import TableWriter
from kbit_spark.telemetry.hub import Telemetry

log = logging.getLogger("kbit.ingest")


class BatchWriter:
    """Writes micro-batches: decode and write in one pass, dead letters where there are any, then the ledger entry.

    A batch of the same stream that another process commits from now on, under whatever checkpoint, stops this one.
    """

    def __init__(
        self, spark: SparkSession, config: IngestConfig, telemetry: Telemetry, gpu: GpuFunctions | None = None
    ) -> None:
        functions = gpu or rapids_functions(spark, config.decode.shadow_fraction)
        self._spark = spark
        self._config = config
        self._start = Start()
        self._telemetry = telemetry
        self._log = CheckpointLog(spark, config.checkpoint_dir)
        self._decoder = PayloadDecoder(spark, config.kafka, config.fields, further_columns(spark, config), functions)
        self._engines = Engines(config.decode, self._decoder, functions, telemetry.emit)
        self._tally = Tally(spark)
        self._columns = sample_columns(config.split)
        turns = turns_name(config.stream_id)
        self._samples = TableWriter(spark, config.tables.samples, evolve=config.tables.grows, turns=turns)
        self._rejected = TableWriter(spark, config.tables.rejected)
        self._care = TableCare(
            spark, config.maintenance, (config.tables.samples, config.tables.rejected), telemetry.emit
        )
        self._lag = Lag(config.kafka)
        self._formats = {topic.name: topic.format for topic in config.kafka.topics}
        self._describe = spark.sparkContext.setJobDescription  # names the stages in telemetry
        self._epoch: str | None = None
        self._begun_before = True
        """Whether the batch to come may have letters of an attempt that ended before it was whole."""

    def take_over(self) -> None:
        """Stop whoever else writes the stream at his next commit.

        Raises:
            RunError: he has committed since this writer was made.
        """
        self._samples.take_turn()

    def continue_from(self, start: Start) -> None:
        """Take over what the guard found: the ledger tells of it."""
        self._start = start

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; repeating it changes nothing."""
        start = time.monotonic()
        scope, transaction, ranges = f"batch={batch_id}", self._transaction(batch_id), self._log.ranges(batch_id)
        if self._config.kafka.min_partitions is None:  # else the user has said how many tasks shall read it
            batch = gathered(batch, ranges)
        whole, ran = self._engines.run(
            scope, sum(r.span for r in ranges), lambda engine: self._prepare(batch, transaction, ranges, engine)
        )
        if whole is None:
            self._begun_before = False
            log.info("batch %d is in the table already", batch_id)
            return
        append, entry, letters = whole
        with closing(append):
            try:
                append.commit(entry.to_metadata())
            except RunError:
                if letters is not None and not self._samples.holds(transaction):
                    letters.undo()  # another checkpoint's batch came first, and has these letters, or will have
                raise
        self._begun_before = False
        if append.added:
            self._telemetry.emit(evolved_event(self._config.tables.samples, batch_id, append.added))
        numbers = batch_numbers(entry, time.monotonic() - start, self._lag.behind(entry.ranges))
        numbers |= ran.numbers() | self._engines.check(scope, batch, ran)
        labels = {"engine": ran.engine, "epoch": entry.epoch}
        self._telemetry.emit(Event(kind="ingest_batch", scope=scope, numbers=numbers, labels=labels))
        self._care.after(batch_id)

    def close(self) -> None:
        """Let table care under way end."""
        self._care.close()

    def _prepare(
        self, batch: DataFrame, transaction: Transaction, ranges: tuple[OffsetRange, ...], engine: Engine
    ) -> tuple[Append, LedgerEntry, Append | None] | None:
        """Do all of a batch but the commit of its samples; None where that was made before.

        Returns:
            The append of the samples, its ledger entry, and the append of the dead letters, if it made one.

        Raises:
            MiscountError: see `check_written`.
        """
        again = self._begun_before and self._take_up(transaction)
        append = self._write_samples(batch, transaction, engine)
        if append is None:
            return None
        try:
            entry = self._ledger_entry(transaction.version, ranges, self._tally.counts())
            check_written(entry, append.rows(), entry.good, "good")
            if again:
                transaction = self._drop_letters(transaction, entry)
            letters = self._write_rejected(batch, transaction, entry, engine) if entry.bad else None
        except BaseException:
            append.close()
            raise
        return append, entry, letters

    def _take_up(self, transaction: Transaction) -> bool:
        """Tell whether an attempt at a batch has committed letters, but not the batch.

        Its letters are those of its own decode, which may have been another one: of another configuration, or before
        the registry knew an id. Should it still be under way in another process, it can no longer commit the batch.
        """
        if not self._rejected.holds(transaction) or self._samples.holds(transaction):
            return False
        self._samples.take_turn()
        return True

    def _write_samples(self, batch: DataFrame, transaction: Transaction, engine: Engine) -> Append | None:
        """Write the good records, once more where they name schemas that had to be asked for; nothing is committed."""
        self._describe("write samples")
        self._decoder.settle(batch)
        while (append := self._samples.begin(transaction, self._schema(), engine)) is not None:
            good = self._tally.good_records(self._decoder.decode(batch, engine), engine)
            with self._engines.planning(batch.sparkSession, engine, counting=True):
                append.write(good.select(self._columns))
            if not self._decoder.resolve_new():
                break
            append.close()
        return append

    def _schema(self) -> StructType:
        return samples_schema(value_type(self._decoder.fields))

    def _transaction(self, batch_id: int) -> Transaction:
        if self._epoch is None:
            self._epoch = self._log.query_id() or "none"
        return Transaction(batch_app_id(self._config.stream_id, self._epoch), batch_id)

    def _drop_letters(self, transaction: Transaction, entry: LedgerEntry) -> Transaction:
        """Drop the letters of an earlier attempt; return the transaction for those that take their place.

        Its number is taken first: whoever does the same at the same time either has his letters dropped here, or is a
        conflict when they are committed.
        """
        app_id = f"{transaction.app_id}:letters"
        number = self._rejected.last_version(app_id) + 1
        drop_letters(self._spark, self._config.tables.rejected, of_batch(entry))
        log.info("batch %d: the letters of an earlier attempt were dropped", entry.batch_id)
        return Transaction(app_id, number)

    def _write_rejected(self, batch: DataFrame, transaction: Transaction, entry: LedgerEntry, engine: Engine) -> Append:
        """Read and decode the batch once more for its bad records: they are few, and keeping all would cost more.

        For the same reason the CPU writes them, whichever engine finds them.

        Raises:
            MiscountError: see `check_written`.
            RunError: another process has written them since this batch began here.
        """
        append = self._rejected.begin(transaction, REJECTED)
        if append is None:
            raise not_alone(self._config.tables.rejected)
        try:
            self._describe("write rejected")
            rows = rejected_rows(self._decoder.decode(batch, engine), self._formats, entry)
            with self._engines.planning(batch.sparkSession, engine):
                append.write(rows)
            check_written(entry, append.rows(), entry.bad, "bad")
            self._begun_before = True
            append.commit()
        finally:
            append.close()
        return append

    def _ledger_entry(self, batch_id: int, ranges: tuple[OffsetRange, ...], counts: Counts) -> LedgerEntry:
        assert self._epoch is not None
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


def check_written(entry: LedgerEntry, rows: int | None, counted: int, kind: str) -> None:
    """Compare the ledger with what the files hold by their own count, before either is committed.

    Args:
        entry: the batch.
        rows: what was written; None where nothing tells.
        counted: what the entry says.
        kind: names these records.

    Raises:
        MiscountError: they differ.
    """
    if rows is not None and rows != counted:
        msg = f"batch {entry.batch_id}: {counted} {kind} records were decoded, but {rows} were written"
        raise MiscountError(msg, "nothing was committed; start again, the batch will run once more")
