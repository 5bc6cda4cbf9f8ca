"""Decodes dead letters again, with today's configuration, into the samples table.

Exactly once: a letter whose coordinates stand in `samples` is left out, the others come in by one Delta commit, and two
replays at a time exclude each other by the transaction's id. See docs/decisions/0007-replay.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from kbit_spark.codecs.decoder import value_type
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas.ledger import OffsetRange, ReplayEntry
from kbit_spark.session import session_given, spark_session
from kbit_spark.tables.append import Append, Transaction
from kbit_spark.tables.dead_letters import NAMES, of_batches, unfinished, within
from kbit_spark.tables.delta import lacking
from kbit_spark.tables.ledger import WholeBatches, batch_ranges, read_ledger
from kbit_spark.tables.samples import further_columns, parquet_settings, sample_columns, samples_schema
from kbit_spark.tables.scan import open_table
from kbit_spark.tables.tally import Counts, Tally
from kbit_spark.tables.writer import TableWriter

FOREIGN = "of another stream"
UNREAD = "of topics that kafka.topics does not name"
UNFINISHED = "of batches that are not whole: these run again, and decode their records themselves"
_PLACE = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True)
class Replayed:
    """What became of the letters that a replay was asked for."""

    good: int
    bad: int
    """Letters that are still bad."""

    before: int
    """Letters that earlier replays had brought in."""

    left_out: Mapping[str, int] = field(default_factory=dict)
    """Why letters that were asked for are not decoded, and how many."""


def replay(config: IngestConfig, where: str = "true") -> Replayed:
    """Bring the letters that decode today into `samples`.

    Args:
        config: the stream's configuration, with whatever was wrong put right.
        where: SQL condition over the columns of the rejected table.

    Raises:
        UsageError: a condition that is no SQL over these columns.
        RunError: no such tables, a registry that does not answer, another replay at the same time.
    """
    open_table(config.tables.samples, "samples")  # before Spark starts: it would take its time to find none
    open_table(config.tables.rejected, "rejected")
    given = session_given()
    tensors = [field.name for field in config.fields if field.tensor is not None]
    spark = spark_session(
        f"kbit replay {config.stream_id}", {**parquet_settings(tensors, len(config.fields)), **config.spark}
    )
    try:
        return _Replay(spark, config, where).run()
    finally:
        if not given:
            spark.stop()


class _Replay:
    def __init__(self, spark: SparkSession, config: IngestConfig, where: str) -> None:
        self._spark = spark
        self._config = config
        self._where = where
        self._topics = [topic.name for topic in config.kafka.topics]
        self._tally = Tally(spark)
        self._decoder = PayloadDecoder(spark, config.kafka, config.fields, further_columns(spark, config))
        self._writer = TableWriter(spark, config.tables.samples, evolve=config.tables.grows)

    def run(self) -> Replayed:
        tables = self._config.tables
        whole = WholeBatches(tables.samples, self._config.stream_id)
        # behind the ledger: no letter of a running batch
        rejected = open_table(tables.rejected, "rejected").version()
        number = self._writer.last_version(self._transaction(0).app_id) + 1
        append = self._begin(number)  # from here on another replay's commit is a conflict
        try:
            chosen = self._letters(rejected)
            why = self._why_not(chosen, whole)
            left_out = {row.why: row["count"] for row in chosen.groupBy(why.alias("why")).count().collect() if row.why}
            asked = _as_read(chosen.where(why.isNull()))
            letters = self._not_replayed(asked)
            before = asked.count() - letters.count()
            self._decoder.settle(letters)
            while True:
                append.write(self._rows(letters))
                if not self._decoder.resolve_new():
                    break
                append.close()
                append = self._begin(number)
            counts = self._tally.counts()
            if counts.good:
                append.commit(self._entry(number, rejected, counts).to_metadata())
        finally:
            append.close()
        return Replayed(counts.good, counts.bad, before, left_out)

    def _transaction(self, number: int) -> Transaction:
        return Transaction(f"kbit-replay:{self._config.stream_id}", number)

    def _begin(self, number: int) -> Append:
        columns = samples_schema(value_type(self._decoder.fields))
        append = self._writer.begin(self._transaction(number), columns)
        if append is None:
            raise _overtaken(self._config)
        return append

    def _entry(self, number: int, rejected_version: int, counts: Counts) -> ReplayEntry:
        return ReplayEntry(
            stream_id=self._config.stream_id,
            number=number,
            where=self._where,
            rejected_version=rejected_version,
            good=counts.good,
            bad=counts.bad,
        )

    def _letters(self, version: int) -> DataFrame:
        """Return the letters that were asked for; where they do not name their batch yet, with null for its name."""
        table = self._spark.read.format("delta").option("versionAsOf", version).load(self._config.tables.rejected)
        try:
            chosen = table.where(self._where)
        except (AnalysisException, ParseException) as error:
            msg = f"--where {self._where!r}: {str(error).strip().splitlines()[0]}"
            raise UsageError(msg, f"columns: {', '.join(table.columns)}") from error
        missing = {column.name: sf.lit(None).cast("string") for column in lacking(StructType([*NAMES]), chosen.schema)}
        return chosen.withColumns(missing) if missing else chosen

    def _why_not(self, letters: DataFrame, whole: WholeBatches) -> Column:
        """Return why a letter is left out, null where it is not."""
        stream_id, unnamed = self._config.stream_id, sf.col("stream_id").isNull()
        not_whole = of_batches(stream_id, unfinished(letters, stream_id, whole))
        if not letters.where(unnamed).isEmpty():
            not_whole = sf.when(unnamed, ~self._read()).otherwise(not_whole)
        foreign, unread = sf.col("stream_id") != stream_id, ~sf.col("topic").isin(*self._topics)
        return sf.when(foreign, FOREIGN).when(unread, UNREAD).when(not_whole, UNFINISHED)

    def _read(self) -> Column:
        """Return the condition for letters of offsets that the stream has read, of whatever topic of that name."""
        tables, stream_id = self._config.tables, self._config.stream_id
        reached = read_ledger(tables.samples, stream_id, self._topics).reached
        below = [
            OffsetRange(topic=topic, partition=partition, start=0, end=offset)
            for (topic, partition), offset in reached.items()
        ]
        return reduce(or_, map(within, (*below, *batch_ranges(tables.samples, stream_id))), sf.lit(False))

    def _not_replayed(self, letters: DataFrame) -> DataFrame:
        """Return the letters without those in `samples`; the time tells apart topics of one name."""
        there = self._spark.read.format("delta").load(self._config.tables.samples)
        there = there.select(*(sf.col(f"_{name}").alias(name) for name in _PLACE))
        return letters.join(there, on=list(_PLACE), how="left_anti")

    def _rows(self, letters: DataFrame) -> DataFrame:
        return self._tally.good_records(self._decoder.decode(letters)).select(sample_columns(self._config.split))


def _as_read(letters: DataFrame) -> DataFrame:
    """Return letters as Kafka had them, each once, though a crash may have left it twice."""
    kafka = (*_PLACE, "key", "headers", sf.col("payload").alias("value"))
    return letters.select(*kafka).dropDuplicates(list(_PLACE))


def _overtaken(config: IngestConfig) -> RunError:
    msg = f"another replay into {config.tables.samples} came first; this one has changed nothing"
    return RunError(msg, "start it again")
