"""Appends to Delta tables in two steps: `write` puts the rows there unseen, `commit` makes them part of the table.

Between the two, the caller knows what it wrote, and says so in the very commit: the first step is the only pass over
the data. Where Delta's own transaction can be reached (open-source Delta), both steps are its; elsewhere (Databricks)
the first step fills a cache that the second one writes from. Both give the same commits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from kbit_spark.errors import RunError
from kbit_spark.tables.delta import check_columns, lacking, with_columns


@dataclass(frozen=True)
class Transaction:
    """What makes an append harmless to repeat: Delta skips a version of an application that it has seen.

    Delta also skips a version that went back, without a word. So an application id belongs to one checkpoint: a new
    checkpoint, which counts from 0 again, gets another one.
    """

    app_id: str
    version: int


class Append(Protocol):
    """One append under way."""

    @property
    def added(self) -> tuple[str, ...]:
        """The columns that its commit adds to the table, each with its type."""

    def write(self, rows: DataFrame) -> None:
        """Run `rows`, once; the table does not show them yet."""

    def rows(self) -> int | None:
        """Return the number of rows in the data files by the files' own statistics; None where nothing tells yet."""

    def commit(self, user_metadata: str | None = None) -> None:
        """Make the rows part of the table, all at once.

        Raises:
            RunError: the transaction was committed by somebody else in the meantime.
        """

    def close(self) -> None:
        """Release what the append holds, committed or not."""


class TableWriter:
    """Appends to one table.

    Args:
        spark: the session.
        path: the table, which exists.
        evolve: columns that the table lacks are added in the commit that has them first.
    """

    def __init__(self, spark: SparkSession, path: str, *, evolve: bool = False) -> None:
        self._spark = spark
        self._path = path
        self._evolve = evolve
        self._checked: tuple[object, StructType] | None = None
        self._delta = _delta_log(spark)

    def begin(self, transaction: Transaction, columns: StructType) -> Append | None:
        """Begin an append of rows with these columns; None where the transaction was committed before.

        Raises:
            RunError: the table's columns are such that the rows do not fit.
        """
        if self._delta is None:
            further = (
                self._missing(self._spark.read.format("delta").load(self._path).schema, columns) if self._evolve else []
            )
            return CachedAppend(self._path, transaction, further)
        delta = self._delta.forTable(self._spark._jsparkSession, self._path).startTransaction()
        append = DeltaAppend(self._spark, self._path, delta, transaction)
        if append.last_version() >= transaction.version:
            return None
        found = delta.metadata().schemaString()
        if (found, columns) != self._checked:
            there = StructType.fromJson(json.loads(found))
            append.add_columns(there, self._missing(there, columns))
            self._checked = None if append.added else (found, columns)
        return append

    def _missing(self, there: StructType, columns: StructType) -> list[StructField]:
        """Return the columns to add to those that are there, after a check of all others."""
        missing = lacking(columns, there) if self._evolve else []
        check_columns(self._path, columns, with_columns(there, missing))
        return missing


def _delta_log(spark: SparkSession) -> Any | None:
    """Return Delta's log class, None where this Delta is not the open-source one."""
    jvm: Any = spark.sparkContext._jvm
    found = jvm.org.apache.spark.sql.delta.DeltaLog
    return found if isinstance(found, JavaClass) else None


class DeltaAppend:
    """An append as a transaction of Delta's own: its files are written first, its commit comes when we say so.

    Delta's DataFrameWriter would rebuild the table's whole log state for every commit, only to look up the last version
    of our application id, which the table's checksum file holds as well.
    """

    def __init__(self, spark: SparkSession, path: str, delta: Any, transaction: Transaction) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._path = path
        self._delta = delta
        self._transaction = transaction
        self._files: Any = None
        self.added: tuple[str, ...] = ()

    def last_version(self) -> int:
        """Return the last version that our application id committed, -1 for none."""
        app_id = self._transaction.app_id
        checksum = self._delta.snapshot().checksumOpt()
        known = checksum.get().setTransactions() if checksum.isDefined() else checksum
        if known.isEmpty():
            return int(self._delta.txnVersion(app_id))
        # a commit that another driver makes under our id from now on is a conflict, not a second copy of the batch
        self._delta.readTxn().addOne(app_id)
        entries = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(known.get())
        return max((int(entry.version()) for entry in entries if entry.appId() == app_id), default=-1)

    def add_columns(self, there: StructType, further: Sequence[StructField]) -> None:
        """Add columns to those that are there, by the commit to come; before anything is written."""
        if not further:
            return
        old = self._delta.metadata()
        new = old.copy(
            old.id(),
            old.name(),
            old.description(),
            old.format(),
            with_columns(there, further).json(),
            old.partitionColumns(),
            old.configuration(),
            old.createdTime(),
        )
        self._delta.updateMetadata(new, False)
        self.added = _described(further)

    def write(self, rows: DataFrame) -> None:
        """Write the data files."""
        self._files = self._delta.writeFiles(rows._jdf)

    def rows(self) -> int | None:
        """Return the number of rows that the write reported; None where Delta's history metrics are switched off."""
        metric = self._delta.getMetric("numOutputRows")
        return int(metric.get().value()) if metric.isDefined() else None

    def commit(self, user_metadata: str | None = None) -> None:
        """Commit the data files, the application's version and `user_metadata`."""
        delta = self._jvm.org.apache.spark.sql.delta
        now = self._jvm.scala.Some(self._jvm.java.lang.System.currentTimeMillis())
        version = delta.actions.SetTransaction(self._transaction.app_id, self._transaction.version, now)
        operation = getattr(delta, "DeltaOperations$StreamingUpdate")(
            self._jvm.org.apache.spark.sql.streaming.OutputMode.Append(),
            self._transaction.app_id,
            self._transaction.version,
            self._jvm.scala.Option.apply(user_metadata),
        )
        try:
            self._delta.commit(self._files.appended(version), operation)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "ConcurrentTransactionException":
                raise
            place = f"{self._transaction.app_id} {self._transaction.version}"
            msg = f"another process committed {place} to {self._path} at the same time; this one has changed nothing"
            raise RunError(msg, "let only one of them run, then start again") from error

    def close(self) -> None:
        """Nothing is held; files that were never committed are VACUUM's."""


class CachedAppend:
    """An append through Delta's public writer: the first step caches the rows, the second one writes them."""

    def __init__(self, path: str, transaction: Transaction, further: Sequence[StructField] = ()) -> None:
        self._path = path
        self._transaction = transaction
        self.added = _described(further)
        self._further = further
        self._rows: DataFrame | None = None

    def write(self, rows: DataFrame) -> None:
        """Run and cache the rows."""
        self._rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        self._rows.write.format("noop").mode("overwrite").save()

    def rows(self) -> int | None:
        """Nothing tells: no file is written yet."""
        return None

    def commit(self, user_metadata: str | None = None) -> None:
        """Write and commit the rows."""
        assert self._rows is not None
        rows = self._rows
        for column in self._further:
            rows = rows.withMetadata(column.name, column.metadata)
        writer = (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", self._transaction.app_id)
            .option("txnVersion", self._transaction.version)
        )
        if user_metadata is not None:
            writer = writer.option("userMetadata", user_metadata)
        if self.added:
            writer = writer.option("mergeSchema", "true")
        writer.save(self._path)

    def close(self) -> None:
        """Release the cache."""
        if self._rows is not None:
            self._rows.unpersist()


def _described(columns: Sequence[StructField]) -> tuple[str, ...]:
    return tuple(f"{column.name} {column.dataType.simpleString()}" for column in columns)
