"""Appends by Delta's own transaction, driven from here: open-source Delta only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from kbit_spark.schemas.base import Engine
from kbit_spark.tables.append import Transaction, described, not_alone
from kbit_spark.tables.delta import delta_log, with_columns


@dataclass
class Turns:
    """Appends under a name that only one writer may use at a time, counted in the table itself.

    Whoever finds that the count went on without him is not alone.
    """

    name: str
    taken: int
    """The count as the writer knows it."""

    newest: int = -1
    """The version of the table that the writer's last commit made."""

    def next(self) -> Transaction:
        """Return the turn to take."""
        return Transaction(self.name, self.taken + 1)


@dataclass(frozen=True)
class DeltaClasses:
    """The JVM's classes that a commit needs, looked up once: each look-up may search every jar."""

    session: Any
    log: Any
    set_transaction: Any
    streaming_update: Any
    append_mode: Any
    option: Any
    clock: Any
    to_seq: Any
    jvm: Any

    @classmethod
    def find(cls, spark: SparkSession) -> DeltaClasses | None:
        """Return them, None where this Delta is not the open-source one."""
        jvm: Any = spark.sparkContext._jvm

        def named(name: str) -> Any:
            return getattr(jvm, name)  # the whole name at once; by its parts, each package is searched for as a class

        delta = "org.apache.spark.sql.delta"
        if (log := delta_log(spark)) is None:
            return None
        return cls(
            session=spark._jsparkSession,
            log=log,
            set_transaction=named(f"{delta}.actions.SetTransaction"),
            streaming_update=named(f"{delta}.DeltaOperations$StreamingUpdate"),
            append_mode=named("org.apache.spark.sql.streaming.OutputMode").Append(),
            option=named("scala.Option"),
            clock=named("java.lang.System"),
            to_seq=jvm.PythonUtils.toSeq,
            jvm=jvm,
        )

    def start(self, log: Any, engine: Engine) -> Any:
        """Return a transaction on a table's log: RAPIDS has a subclass of Delta's own, which writes files by column."""
        rapids = self.jvm.org.apache.spark.sql.delta.rapids.GpuDeltaLog if engine == "gpu" else None
        if not isinstance(rapids, JavaClass):
            return log.startTransaction()
        settings = self.jvm.com.nvidia.spark.rapids.RapidsConf(self.session.sessionState().conf())
        nothing = self.option.empty()
        return rapids(log, settings).startTransaction(nothing, nothing)


class DeltaAppend:
    """An append as a transaction of Delta's own: its files are written first, its commit comes when we say so.

    Delta's DataFrameWriter would rebuild the table's whole log state for every commit, only to look up the last version
    of our application id, which the table's checksum file holds as well.
    """

    def __init__(
        self,
        classes: DeltaClasses,
        path: str,
        transaction: Transaction,
        turns: Turns | None = None,
        engine: Engine = "cpu",
    ) -> None:
        self._classes = classes
        self._path = path
        self._log = classes.log.forTable(classes.session, path)
        self._delta = classes.start(self._log, engine)
        self._transaction = transaction
        self._turns = turns
        self._files: Any = classes.to_seq([])
        self.added: tuple[str, ...] = ()

    def version(self) -> int:
        """Return the version of the table that the transaction began with."""
        return int(self._delta.readVersion())

    def table_metadata(self) -> Any:
        """Return the table's metadata in the JVM; such objects compare there, by value."""
        return self._delta.metadata()

    def table_schema(self) -> StructType:
        """Return the table's columns; of a wide table, the text alone takes 40 ms to come from the JVM."""
        return StructType.fromJson(json.loads(self._delta.metadata().schemaString()))

    def last_version(self, app_id: str) -> int:
        """Return the last version that an application id committed, -1 for none; one from now on is a conflict."""
        checksum = self._delta.snapshot().checksumOpt()
        known = checksum.get().setTransactions() if checksum.isDefined() else checksum
        if known.isEmpty():
            return int(self._delta.txnVersion(app_id))
        # a commit that another driver makes under the id from now on is a conflict, not a second copy of the batch
        self._delta.readTxn().addOne(app_id)
        entries = known.get()
        found = (entries.apply(index) for index in range(entries.size()))
        return max((int(entry.version()) for entry in found if entry.appId() == app_id), default=-1)

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
        self.added = described(further)

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
            version = int(self._delta.commit(actions, self._operation(user_metadata)))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "ConcurrentTransactionException":
                raise
            raise not_alone(self._path) from error
        if self._turns is not None:
            self._turns.taken += 1
            self._turns.newest = version

    def undo(self) -> None:
        """Remove the files that were committed."""
        files = (self._files.apply(index) for index in range(self._files.size()))
        removed = self._classes.to_seq([file.remove() for file in files])
        self._log.startTransaction().commit(removed, self._operation(None))

    def _set(self, transaction: Transaction) -> Any:
        now = self._classes.option.apply(self._classes.clock.currentTimeMillis())
        return self._classes.set_transaction(transaction.app_id, transaction.version, now)

    def _operation(self, user_metadata: str | None) -> Any:
        java, transaction = self._classes, self._transaction
        metadata = java.option.apply(user_metadata)
        return java.streaming_update(java.append_mode, transaction.app_id, transaction.version, metadata)

    def close(self) -> None:
        """Nothing is held; files that were never committed are VACUUM's."""
