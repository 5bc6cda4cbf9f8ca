"""Appends to Delta tables in two steps: `write` puts the rows there unseen, `commit` makes them part of the table.

Between the two, the caller knows what it wrote, and says so in the very commit: the first step is the only pass over
the data. Where Delta's own transaction can be reached (open-source Delta), both steps are its; elsewhere (Databricks)
the first step fills a cache that the second one writes from. Both give the same commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kbit_spark.errors import RunError
from kbit_spark.schemas import Engine
from kbit_spark.tables.delta import check_columns

Check = Callable[[StructType], None]


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
        schema: the columns that the rows have; checked again whenever the table's own schema changes.
    """

    def __init__(self, spark: SparkSession, path: str, schema: StructType) -> None:
        self._spark = spark
        self._path = path
        self._schema = schema
        self._checked: str | None = None
        self._delta = DeltaClasses.find(spark)

    def begin(self, transaction: Transaction, engine: Engine = "cpu") -> Append | None:
        """Begin an append; None where the transaction was committed before.

        Args:
            transaction: names the append.
            engine: what writes the data files; the commit is the same.

        Raises:
            RunError: the table's columns have changed so that the rows do not fit any more.
        """
        if self._delta is None:
            return CachedAppend(self._path, transaction)
        delta = self._start(self._delta.log.forTable(self._spark._jsparkSession, self._path), engine)
        self._check_schema(delta.metadata().schemaString())
        append = DeltaAppend(self._delta, self._path, delta, transaction)
        return None if append.last_version() >= transaction.version else append

    def _start(self, log: Any, engine: Engine) -> Any:
        """Return a transaction on Delta's log: RAPIDS has a subclass of Delta's own, which writes files by column."""
        jvm: Any = self._spark.sparkContext._jvm
        rapids = jvm.org.apache.spark.sql.delta.rapids.GpuDeltaLog if engine == "gpu" else None
        if not isinstance(rapids, JavaClass):
            return log.startTransaction()
        settings = jvm.com.nvidia.spark.rapids.RapidsConf(self._spark._jsparkSession.sessionState().conf())
        nothing = jvm.scala.Option.empty()
        return rapids(log, settings).startTransaction(nothing, nothing)

    def _check_schema(self, found: str) -> None:
        if found != self._checked:
            check_columns(self._path, self._schema, StructType.fromJson(json.loads(found)))
            self._checked = found


@dataclass(frozen=True)
class DeltaClasses:
    """The JVM's classes that a commit needs, looked up once: each look-up may search every jar."""

    log: Any
    set_transaction: Any
    streaming_update: Any
    append_mode: Any
    option: Any
    clock: Any

    @classmethod
    def find(cls, spark: SparkSession) -> DeltaClasses | None:
        """Return them, None where this Delta is not the open-source one."""
        jvm: Any = spark.sparkContext._jvm

        def named(name: str) -> Any:
            return getattr(jvm, name)  # the whole name at once; by its parts, each package is searched for as a class

        delta = "org.apache.spark.sql.delta"
        if not isinstance(log := named(f"{delta}.DeltaLog"), JavaClass):
            return None
        return cls(
            log=log,
            set_transaction=named(f"{delta}.actions.SetTransaction"),
            streaming_update=named(f"{delta}.DeltaOperations$StreamingUpdate"),
            append_mode=named("org.apache.spark.sql.streaming.OutputMode").Append(),
            option=named("scala.Option"),
            clock=named("java.lang.System"),
        )


class DeltaAppend:
    """An append as a transaction of Delta's own: its files are written first, its commit comes when we say so.

    Delta's DataFrameWriter would rebuild the table's whole log state for every commit, only to look up the last version
    of our application id, which the table's checksum file holds as well.
    """

    def __init__(self, classes: DeltaClasses, path: str, delta: Any, transaction: Transaction) -> None:
        self._classes = classes
        self._path = path
        self._delta = delta
        self._transaction = transaction
        self._files: Any = None

    def last_version(self) -> int:
        """Return the last version that our application id committed, -1 for none."""
        app_id = self._transaction.app_id
        checksum = self._delta.snapshot().checksumOpt()
        known = checksum.get().setTransactions() if checksum.isDefined() else checksum
        if known.isEmpty():
            return int(self._delta.txnVersion(app_id))
        # a commit that another driver makes under our id from now on is a conflict, not a second copy of the batch
        self._delta.readTxn().addOne(app_id)
        entries = known.get()
        found = (entries.apply(index) for index in range(entries.size()))
        return max((int(entry.version()) for entry in found if entry.appId() == app_id), default=-1)

    def write(self, rows: DataFrame) -> None:
        """Write the data files."""
        self._files = self._delta.writeFiles(rows._jdf)

    def rows(self) -> int | None:
        """Return the number of rows that the write reported; None where Delta's history metrics are switched off."""
        metric = self._delta.getMetric("numOutputRows")
        return int(metric.get().value()) if metric.isDefined() else None

    def commit(self, user_metadata: str | None = None) -> None:
        """Commit the data files, the application's version and `user_metadata`."""
        java = self._classes
        app_id, number = self._transaction.app_id, self._transaction.version
        version = java.set_transaction(app_id, number, java.option.apply(java.clock.currentTimeMillis()))
        operation = java.streaming_update(java.append_mode, app_id, number, java.option.apply(user_metadata))
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

    def __init__(self, path: str, transaction: Transaction) -> None:
        self._path = path
        self._transaction = transaction
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
        writer = (
            self._rows.write.format("delta")
            .mode("append")
            .option("txnAppId", self._transaction.app_id)
            .option("txnVersion", self._transaction.version)
        )
        if user_metadata is not None:
            writer = writer.option("userMetadata", user_metadata)
        writer.save(self._path)

    def close(self) -> None:
        """Release the cache."""
        if self._rows is not None:
            self._rows.unpersist()
