"""What Spark itself knows, as events: stages from the JVM's StageListener, triggers from the queries' progress."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from kbit_spark.events import Event

log = logging.getLogger(__name__)
LISTENER = "kbit.telemetry.StageListener"
PROGRESS = "kbit.telemetry.ProgressListener"
DRAIN_S = 1.0
DRAIN_MAX = 500

Emit = Callable[[Event], None]


class SparkWatch:
    """Drains the JVM's listeners, of stages and of streaming queries, each second into `emit` until `stop`.

    Without the listener in ``spark.extraListeners`` there are no stage events, said once in the log. Queries have a
    listener of the JVM as well: pyspark's own takes a trigger's progress apart in some 400 calls.
    """

    def __init__(self, spark: SparkSession, emit: Emit) -> None:
        self._spark = spark
        self._emit = emit
        self._stopping = threading.Event()
        jvm: Any = spark.sparkContext._jvm
        self._stages: Any = getattr(jvm, LISTENER)
        self._queries: Any = spark._jsparkSession.streams()
        self._progress: Any = None
        if isinstance(listener := getattr(jvm, PROGRESS), JavaClass):
            self._progress = listener()
            self._queries.addListener(self._progress)
        else:
            log.warning("no progress of queries: the jar kbit-jvm is not in spark.jars")
        if LISTENER not in str(spark.sparkContext.getConf().get("spark.extraListeners", "")):
            log.warning("no stage events: set spark.extraListeners=%s", LISTENER)
        self._thread = threading.Thread(target=self._run, name="telemetry-stages", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 2.5) -> None:
        """Wait for the listener bus, take what is left and let go of the session, for at most `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        try:
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(int(timeout_s * 800))
        except Exception as error:  # a busy bus or a stopped context: the last stages are lost, the run is not
            log.debug("listener bus: %s", error)
        self._stopping.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        try:
            if self._progress is not None:
                self._queries.removeListener(self._progress)
        except Exception as error:
            log.debug("streaming listener: %s", error)

    def _run(self) -> None:
        last = False
        while not last:
            last = self._stopping.wait(DRAIN_S)
            try:
                self._drain()
            except Exception as error:  # no such class, or the JVM is gone
                log.info("stage events end: %s", str(error).splitlines()[0] if str(error) else type(error).__name__)
                return

    def _drain(self) -> None:
        while text := self._stages.drain(DRAIN_MAX):
            for line in text.splitlines():
                self._emit(parse(line))
        while self._progress is not None and (text := self._progress.drain(DRAIN_MAX)):
            for line in text.splitlines():
                self._emit(progress_event(json.loads(line)))


def parse(line: str) -> Event:
    """Read one line of the StageListener."""
    data = json.loads(line)
    return Event(data["kind"], data["scope"], data["numbers"], data["labels"])


def progress_event(progress: dict[str, Any]) -> Event:
    """Return a query's progress (its JSON document) as an event."""
    durations = progress.get("durationMs", {})
    names = {
        "trigger_s": "triggerExecution",
        "add_batch_s": "addBatch",
        "planning_s": "queryPlanning",
        "wal_commit_s": "walCommit",
        "offsets_s": "latestOffset",
    }
    numbers = {name: durations.get(key, 0) / 1000 for name, key in names.items()}
    numbers |= {
        "batch_id": float(progress["batchId"]),
        "input_rows": float(progress.get("numInputRows") or 0),
        "processed_rows_per_s": float(progress.get("processedRowsPerSecond") or 0),
    }
    return Event("stream_progress", f"batch={progress['batchId']}", numbers, {"query": progress.get("name") or ""})
