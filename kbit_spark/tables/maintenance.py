"""Table care while the stream goes on: small files become few, files that nobody can need any more are deleted.

Neither changes a row: a compaction's commit says `dataChange = false` and keeps to one partition, so each file stays of
one split, and an append that commits meanwhile is no conflict. Care that fails is told and tried again when it is due
the next time; the stream never waits for it, save a while at its end.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kbit_spark.config.ingest import MaintenanceConfig
from kbit_spark.errors import KbitError, RunError, first_line
from kbit_spark.events import Event
from kbit_spark.tables.retention import retention_s

log = logging.getLogger("kbit.maintenance")

CLOSE_WAIT_S = 60.0
"""How long the end of a run waits for care under way; what is left then was never committed."""

LISTING_TASKS = 16

Numbers = Mapping[str, float]
Action = Callable[[SparkSession, str], Numbers]
"""Takes care of the table at a path."""


class TableCare:
    """Looks after tables on a schedule of batches, in a thread and a session of its own.

    Args:
        spark: the stream's session.
        config: what is due when.
        tables: their paths.
        emit: takes an event for each action and table, also where it failed.
    """

    def __init__(
        self, spark: SparkSession, config: MaintenanceConfig, tables: Sequence[str], emit: Callable[[Event], None]
    ) -> None:
        self._spark = spark
        self._config = config
        self._tables = tables
        self._emit = emit
        self._thread: threading.Thread | None = None

    def after(self, batch_id: int) -> None:
        """Begin what is due after a batch; where the last care still runs, it is left to the next time."""
        due = list(self._due(batch_id))
        if not due:
            return
        if self._thread is not None and self._thread.is_alive():
            log.info("batch %d: the last table care still runs; the next time it is due", batch_id)
            return
        # a daemon: the end of the process never waits for it
        self._thread = threading.Thread(target=self._run, args=(batch_id, due), name="kbit-table-care", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let care under way end, for at most `CLOSE_WAIT_S`."""
        if self._thread is None:
            return
        self._thread.join(CLOSE_WAIT_S)
        if self._thread.is_alive():
            log.warning("table care did not end in %.0f s; its uncommitted files are VACUUM's", CLOSE_WAIT_S)

    def _due(self, batch_id: int) -> Iterator[tuple[str, Action]]:
        batches = batch_id + 1  # batches count from 0
        optimize, vacuum = self._config.optimize_every_batches, self._config.vacuum_every_batches
        if optimize is not None and batches % optimize == 0:
            yield "optimize", compact
        if vacuum is not None and batches % vacuum == 0:
            yield "vacuum", lambda spark, table: delete_old_files(spark, table, self._config.retention_hours)

    def _run(self, batch_id: int, due: Sequence[tuple[str, Action]]) -> None:
        for name, action in due:
            for table in self._tables:
                self._emit(self._told(f"batch={batch_id}", name, action, table))

    def _told(self, scope: str, name: str, action: Action, table: str) -> Event:
        """Run an action and return the event that tells of it."""
        start = time.monotonic()
        labels, numbers = {"action": name, "table": table, "outcome": "ok"}, dict[str, float]()
        try:
            numbers.update(action(care_session(self._spark, self._config.target_file_bytes), table))
        except Exception as error:  # never fatal for the stream
            log.exception("%s of %s failed", name, table)
            labels |= {"outcome": "failed", "reason": _reason(error)}
        return Event("table_care", scope, {**numbers, "duration_s": time.monotonic() - start}, labels)


def care_session(spark: SparkSession, target_file_bytes: int) -> SparkSession:
    """Return a session with settings of its own, beside `spark` on the same Spark."""
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.optimize.maxFileSize", target_file_bytes)
    # A file of half the target is left alone: else each compaction would write the last, unfilled file once more.
    session.conf.set("spark.databricks.delta.optimize.minFileSize", math.ceil(target_file_bytes / 2))
    # One file at a time, that is one task: the stream keeps the other cores.
    session.conf.set("spark.databricks.delta.optimize.maxThreads", 1)
    # VACUUM lists a table in so many tasks whatever its size; by default 10,000, and the stream waits for each core.
    session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", LISTING_TASKS)
    # Else Delta 4.1 takes the table's own retention whatever it is told; a table that keeps nothing would then lose
    # the files of the batch under way.
    session.conf.set("spark.databricks.delta.vacuum.retentionWindowIgnore.enabled", "false")
    return session


def compact(spark: SparkSession, table: str) -> Numbers:
    """Write small files together, each partition for itself; return how many files and bytes went and came."""
    spark.sparkContext.setJobDescription(f"optimize {table}")
    metrics = DeltaTable.forPath(spark, table).optimize().executeCompaction().select("metrics.*").collect()[0]
    return {
        "files_removed": metrics.numFilesRemoved,
        "files_added": metrics.numFilesAdded,
        "bytes_removed": metrics.filesRemoved.totalSize or 0,
        "bytes_added": metrics.filesAdded.totalSize or 0,
    }


def delete_old_files(spark: SparkSession, table: str, retention_hours: float | None) -> Numbers:
    """Delete files that left the table, or never came into it, more than `retention_hours` ago (None: the table's own).

    Raises:
        RunError: the table promises to keep them for longer, and training runs rely on that.
    """
    spark.sparkContext.setJobDescription(f"vacuum {table}")
    delta = DeltaTable.forPath(spark, table)
    promised_hours = retention_s(delta.detail().select("properties").collect()[0][0]) / 3_600
    # a batch writes its files before it commits them, so even a table that keeps nothing must keep new files
    hours = max(promised_hours, MaintenanceConfig.SHORTEST_RETENTION_HOURS)
    if retention_hours is not None:
        if retention_hours < promised_hours:
            msg = f"maintenance.retention_hours is {retention_hours:g}, but {table} keeps files for {promised_hours:g}"
            raise RunError(msg, "raise it, or lower the table's delta.deletedFileRetentionDuration")
        hours = retention_hours
    delta.vacuum(hours)
    return {"retention_hours": hours}


def _reason(error: Exception) -> str:
    if isinstance(error, KbitError):
        return str(error)
    cause: Any = error.java_exception if isinstance(error, Py4JJavaError) else None
    text = cause.toString() if cause is not None else str(error)
    first = first_line(str(text))
    return first if isinstance(error, PySparkException) else f"{type(error).__name__}: {first}"
