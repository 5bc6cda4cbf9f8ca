"""Runs a streaming query to its end: triggers, signals, and failures as one clear line.

SIGTERM and the first SIGINT let the running batch finish; a second SIGINT ends the process at once, which is as
harmless as any crash: the batch runs again at the next start and changes nothing that is already written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from kbit_spark.config.ingest import TriggerConfig
from kbit_spark.errors import KbitError, RunError, first_line
from kbit_spark.stopping import StopRequest

POLL_S = 0.2
COMMIT_WAIT_S = 5.0
_LOG_CONFLICTS = ("CONCURRENT_STREAM_LOG_UPDATE", "FAILED_RENAME_PATH")
"""Spark's errors where a file of its log is there already, seen before it is renamed or just then."""
_DATA_LOSS = ("data may have been lost", "KAFKA_DATA_LOSS", "OffsetOutOfRangeException")
"""What Spark and Kafka's client say of records that were removed before they were read."""

WriteBatch = Callable[[DataFrame, int], None]
log = logging.getLogger("kbit.query")


class StopRequested(Exception):  # noqa: N818 - not an error
    """Raised inside Spark's thread instead of beginning a batch that nobody waits for."""


class Query:
    """A streaming query over one checkpoint."""

    def __init__(self, trigger: TriggerConfig, checkpoint_dir: str) -> None:
        self._trigger = trigger
        self._checkpoint_dir = checkpoint_dir
        self._stopping = StopRequest("running batch")
        self._writing = threading.Lock()
        self._failure: BaseException | None = None

    def run(self, stream: DataFrame, write: WriteBatch) -> None:
        """Run until the topics are drained (`available_now`), a signal asks to stop, or a batch fails.

        Raises:
            KbitError: what a batch raised, or RunError with Spark's reason.
        """
        writer = stream.writeStream.option("checkpointLocation", self._checkpoint_dir)
        if self._trigger.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._trigger.interval_s} seconds")
        writer = writer.foreachBatch(self._guarded(write))
        with self._stopping:
            try:
                try:
                    self._follow(writer.start())
                except StreamingQueryException as error:
                    if self._stopping.is_set() or self._failure is not None or not _failed_in_metrics(error):
                        raise
                    log.info("the batch that a crash had left is done; starting again (SPARK-55271)")
                    self._follow(writer.start())
            except (StreamingQueryException, Py4JJavaError) as error:
                self._explain(error)

    def _guarded(self, write: WriteBatch) -> WriteBatch:
        def guarded(batch: DataFrame, batch_id: int) -> None:
            with self._writing:
                if self._stopping.is_set():
                    raise StopRequested
                try:
                    write(batch, batch_id)
                except BaseException as error:
                    self._failure = error
                    raise

        return guarded

    def _follow(self, query: StreamingQuery) -> None:
        while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # takes seconds as float as well
            if self._stopping.is_set() and not self._writing.locked():
                self._await_commit(query)
                query.stop()

    def _await_commit(self, query: StreamingQuery) -> None:
        """Let Spark log the batch as done; without it the batch would only run again, to no effect."""
        deadline = time.monotonic() + COMMIT_WAIT_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(POLL_S / 4)

    def _explain(self, error: Exception) -> None:
        if self._stopping.is_set() and self._failure is None:
            return  # StopRequested, or the interruption of an idle query
        cause = self._failure or error
        if isinstance(cause, KbitError):
            raise cause
        if any(conflict in str(error) for conflict in _LOG_CONFLICTS):
            msg = f"another process writes to the checkpoint {self._checkpoint_dir} at the same time"
            raise RunError(msg, "let only one of them run, then start again; nothing is lost") from error
        msg = f"the stream stopped: {root_cause(cause)}"
        if any(word in f"{error} {msg}" for word in _DATA_LOSS):
            raise RunError(msg, "start again: the guard tells what Kafka no longer has, and how to go on") from error
        raise RunError(
            msg, "nothing is lost: the batch runs again at the next start; details are in the log"
        ) from error


def _failed_in_metrics(error: StreamingQueryException) -> bool:
    """Tell whether Spark 4.1's own bug ended the query (SPARK-55271).

    A query whose first batch is one that a crash left unfinished fails when it reports the Kafka metrics of that
    batch, which is written and logged as done by then. The next start has no such batch, so one more is enough.
    """
    return "KafkaMicroBatchStream.metrics(" in str(getattr(error, "_stackTrace", ""))


def root_cause(error: BaseException) -> str:
    """Return the first line of the innermost cause of a Python or JVM exception."""
    cause = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if cause is not None:
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.getMessage() or cause.toString())
        return f"{cause.getClass().getSimpleName()}: {first_line(text)}"
    return f"{type(error).__name__}: {first_line(str(error))}" if str(error) else type(error).__name__
