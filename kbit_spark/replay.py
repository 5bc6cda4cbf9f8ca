"""Decodes dead letters again, with today's configuration, into the samples table.

Exactly once: a letter whose coordinates stand in `samples` is left out, the others come in by one Delta commit, and two
replays at a time exclude each other by the transaction's id. See docs/decisions/0007-replay.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kbit_spark.codecs.decoder import value_type
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas import Places, ReplayEntry
from kbit_spark.session import session_given, spark_session
from kbit_spark.tables.append import Append, Transaction
from kbit_spark.tables.ledger import read_ledger
from kbit_spark.tables.samples import further_columns, parquet_settings, sample_columns, samples_schema
from kbit_spark.tables.scan import open_table
from kbit_spark.tables.tally import Counts, Tally
from kbit_spark.tables.writer import TableWriter


@dataclass(frozen=True)
class Replayed:
    """What became of the letters that a replay was asked for."""

    good: int
    bad: int
    """Letters that are still bad."""

    before: int
    """Letters that earlier replays had brought in."""


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
        reached = read_ledger(tables.samples, self._config.stream_id, self._topics).reached
        # behind the ledger: no letter of a running batch
        rejected = open_table(tables.rejected, "rejected").version()
        newest = open_table(tables.samples, "samples").transaction_version(self._transaction(0).app_id)
        number = 0 if newest is None else newest + 1
        append = self._begin(number)  # from here on another replay's commit is a conflict
        try:
            asked = self._letters(rejected, reached)
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
        return Replayed(counts.good, counts.bad, before)

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

    def _letters(self, version: int, reached: Places) -> DataFrame:
        """Return the letters that were asked for, as Kafka had them.

        Letters behind the offsets reached are of a batch that is not whole: it will run again, and decode them itself.
        """
        table = self._spark.read.format("delta").option("versionAsOf", version).load(self._config.tables.rejected)
        try:
            chosen = table.where(self._where)
        except (AnalysisException, ParseException) as error:
            msg = f"--where {self._where!r}: {str(error).strip().splitlines()[0]}"
            raise UsageError(msg, f"columns: {', '.join(table.columns)}") from error
        whole = sf.lit(False)
        for (topic, partition), offset in reached.items():
            whole |= (sf.col("topic") == topic) & (sf.col("partition") == partition) & (sf.col("offset") < offset)
        kafka = ("topic", "partition", "offset", "timestamp", "key", "headers", sf.col("payload").alias("value"))
        return chosen.where(whole).select(*kafka)

    def _not_replayed(self, letters: DataFrame) -> DataFrame:
        """Return the letters without those in `samples`; the time tells apart topics of one name."""
        names = ("topic", "partition", "offset", "timestamp")
        there = self._spark.read.format("delta").load(self._config.tables.samples)
        there = there.select(*(sf.col(f"_{name}").alias(name) for name in names))
        return letters.join(there, on=list(names), how="left_anti")

    def _rows(self, letters: DataFrame) -> DataFrame:
        return self._tally.good_records(self._decoder.decode(letters)).select(sample_columns(self._config.split))


def _overtaken(config: IngestConfig) -> RunError:
    msg = f"another replay into {config.tables.samples} came first; this one has changed nothing"
    return RunError(msg, "start it again")
