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

from deltalake import DeltaTable
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kbit_spark.errors import RunError
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


@dataclass
class Turns:
    """Appends under a name that only one writer may use at a time, counted in the table itself.

    Whoever finds that the count went on without him is not alone.
    """

    name: str
    taken: int
    """The count as the writer knows it."""

    def next(self) -> Transaction:
        """Return the turn to take."""
        return Transaction(self.name, self.taken + 1)


class Append(Protocol):
    """One append under way."""

    def write(self, rows: DataFrame) -> None:
        """Run `rows`, once; the table does not show them yet."""

    def rows(self) -> int | None:
        """Return the number of rows in the data files by the files' own statistics; None where nothing tells yet."""

    def commit(self, user_metadata: str | None = None) -> None:
        """Make the rows part of the table, all at once.

        Raises:
            RunError: somebody else committed the transaction, or took a turn, in the meantime; nothing is changed.
        """

    def undo(self) -> None:
        """Take the rows out of the table again, where Delta's own transaction can be reached."""

    def close(self) -> None:
        """Release what the append holds, committed or not."""


class TableWriter:
    """Appends to one table.

    Args:
        spark: the session.
        path: the table, which exists.
        schema: the columns that the rows have; checked again whenever the table's own schema changes.
        turns: a name under which nobody else may append from now on, or one of the two is refused; None: anybody may.
            Works where Delta's own transaction can be reached.
    """

    def __init__(self, spark: SparkSession, path: str, schema: StructType, turns: str | None = None) -> None:
        self._spark = spark
        self._path = path
        self._schema = schema
        self._checked: str | None = None
        self._delta = _delta_log(spark)
        self._turns: Turns | None = None
        if turns is not None and self._delta is not None:
            started = DeltaAppend(spark, path, self._delta, Transaction(turns, 0))
            self._turns = Turns(turns, started.last_version(turns))

    def begin(self, transaction: Transaction) -> Append | None:
        """Begin an append; None where the transaction was committed before.

        Raises:
            RunError: the table's columns have changed so that the rows do not fit any more, or somebody took a turn.
        """
        if self._delta is None:
            return CachedAppend(self._path, transaction)
        append = DeltaAppend(self._spark, self._path, self._delta, transaction, self._turns)
        self._check_schema(append.table_schema())
        if append.last_version(transaction.app_id) >= transaction.version:
            return None
        if self._turns is not None and append.last_version(self._turns.name) != self._turns.taken:
            raise not_alone(self._path)
        return append

    def take_turn(self) -> None:
        """Commit nothing but a turn: whoever else has an append under way can no longer commit it.

        Raises:
            RunError: somebody took a turn since this writer was made.
        """
        if self._turns is None:
            return
        append = DeltaAppend(self._spark, self._path, self._delta, self._turns.next())
        if append.last_version(self._turns.name) != self._turns.taken:
            raise not_alone(self._path)
        append.commit()
        self._turns.taken += 1

    def holds(self, transaction: Transaction) -> bool:
        """Tell whether a transaction, or a later one of its application, was committed."""
        if self._delta is None:
            found = DeltaTable(self._path).transaction_version(transaction.app_id)
            return found is not None and found >= transaction.version
        started = DeltaAppend(self._spark, self._path, self._delta, transaction)
        return started.last_version(transaction.app_id) >= transaction.version

    def _check_schema(self, found: str) -> None:
        if found != self._checked:
            check_columns(self._path, self._schema, StructType.fromJson(json.loads(found)))
            self._checked = found


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

    def __init__(
        self, spark: SparkSession, path: str, log: Any, transaction: Transaction, turns: Turns | None = None
    ) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._path = path
        self._log = log.forTable(spark._jsparkSession, path)
        self._delta = self._log.startTransaction()
        self._transaction = transaction
        self._turns = turns
        self._files: Any = jvm.PythonUtils.toSeq([])

    def table_schema(self) -> str:
        """Return the table's columns as the JSON of Spark's type."""
        return str(self._delta.metadata().schemaString())

    def last_version(self, app_id: str) -> int:
        """Return the last version that an application id committed, -1 for none; one from now on is a conflict."""
        checksum = self._delta.snapshot().checksumOpt()
        known = checksum.get().setTransactions() if checksum.isDefined() else checksum
        if known.isEmpty():
            return int(self._delta.txnVersion(app_id))
        # a commit that another driver makes under the id from now on is a conflict, not a second copy of the batch
        self._delta.readTxn().addOne(app_id)
        entries = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(known.get())
        return max((int(entry.version()) for entry in entries if entry.appId() == app_id), default=-1)

    def write(self, rows: DataFrame) -> None:
        """Write the data files."""
        self._files = self._delta.writeFiles(rows._jdf)

    def rows(self) -> int | None:
        """Return the number of rows that the write reported; None where Delta's history metrics are switched off."""
        metric = self._delta.getMetric("numOutputRows")
        return int(metric.get().value()) if metric.isDefined() else None

    def commit(self, user_metadata: str | None = None) -> None:
        """Commit the data files, the application's version, our turn and `user_metadata`."""
        actions = self._files
        for transaction in (self._transaction, *([self._turns.next()] if self._turns else [])):
            actions = actions.appended(self._set(transaction))
        try:
            self._delta.commit(actions, self._operation(user_metadata))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "ConcurrentTransactionException":
                raise
            raise not_alone(self._path) from error
        if self._turns is not None:
            self._turns.taken += 1

    def undo(self) -> None:
        """Remove the files that were committed."""
        files: Any = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(self._files)
        removed = self._jvm.PythonUtils.toSeq([file.remove() for file in files])
        self._log.startTransaction().commit(removed, self._operation(None))

    def _set(self, transaction: Transaction) -> Any:
        now = self._jvm.scala.Some(self._jvm.java.lang.System.currentTimeMillis())
        return self._jvm.org.apache.spark.sql.delta.actions.SetTransaction(transaction.app_id, transaction.version, now)

    def _operation(self, user_metadata: str | None) -> Any:
        return getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$StreamingUpdate")(
            self._jvm.org.apache.spark.sql.streaming.OutputMode.Append(),
            self._transaction.app_id,
            self._transaction.version,
            self._jvm.scala.Option.apply(user_metadata),
        )

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

    def undo(self) -> None:
        """Nothing: the public writer does not tell which files it wrote."""

    def close(self) -> None:
        """Release the cache."""
        if self._rows is not None:
            self._rows.unpersist()


def not_alone(path: str) -> RunError:
    """Return the error of a writer who finds that somebody else writes the same to a table."""
    msg = f"another process writes the same to {path}; this one has stopped before it changed anything"
    return RunError(msg, "let only one of them run, then start again")
