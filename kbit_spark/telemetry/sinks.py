"""Sinks that store events: JSON lines, CSV, and the Delta table `metrics`."""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from kbit_spark.events import Event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METRICS_SCHEMA = (
    "run_id string, job string, kind string, time timestamp, scope string, rank int, "
    "numbers map<string,double>, labels map<string,string>"
)
FLUSH_S = 30.0
MAX_BUFFERED = 10_000


class JsonLines:
    """Writes one JSON object per event, flushed at once, so that a killed run keeps its history."""

    name = "jsonl"

    def __init__(self, path: Path) -> None:
        self._file = _open_to_append(path)

    def write(self, event: Event) -> None:
        """Append one line."""
        self._file.write(json.dumps(event.to_dict()) + "\n")
        self._file.flush()

    def tick(self) -> None:
        """Nothing depends on time."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Csv:
    """Writes one row per number and label: ``time,kind,scope,rank,name,value``."""

    name = "csv"

    def __init__(self, path: Path) -> None:
        fresh = not path.exists() or path.stat().st_size == 0
        self._file = _open_to_append(path)
        self._writer = csv.writer(self._file)
        if fresh:
            self._writer.writerow(["time", "kind", "scope", "rank", "name", "value"])

    def write(self, event: Event) -> None:
        """Append the event's rows."""
        rank = "" if event.rank is None else event.rank
        head = [event.time.isoformat(), event.kind, event.scope, rank]
        self._writer.writerows([*head, name, value] for name, value in {**event.numbers, **event.labels}.items())
        self._file.flush()

    def tick(self) -> None:
        """Nothing depends on time."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _open_to_append(path: Path) -> TextIO:
    """Open a text file for whole lines; one that a killed run has left half-written is ended first."""
    file = path.open("a", encoding="utf-8", newline="")
    with path.open("rb") as before:
        before.seek(max(0, before.seek(0, os.SEEK_END) - 1))
        if before.read() not in (b"", b"\n"):
            file.write("\n")
    return file


class MetricsTable:
    """Appends events to the Delta table at `path`, buffered: every 30 s and at close.

    Its Spark work runs under ``kbit.scope`` "telemetry", which the StageListener leaves out. A failed append keeps the
    buffer for the next try; beyond `MAX_BUFFERED` events the oldest are dropped.
    """

    name = "metrics table"

    def __init__(self, spark: SparkSession, path: str, run_id: str, job: str) -> None:
        self._spark = spark
        self._path = path
        self._head = (run_id, job)
        self._rows: list[tuple[Any, ...]] = []
        self._tried = time.monotonic()

    def write(self, event: Event) -> None:
        """Buffer one event."""
        numbers = {name: float(value) for name, value in event.numbers.items()}
        labels = {name: str(value) for name, value in event.labels.items()}
        self._rows.append((*self._head, event.kind, event.time, event.scope, event.rank, numbers, labels))
        del self._rows[:-MAX_BUFFERED]

    def tick(self) -> None:
        """Append if the last try is 30 s ago."""
        if self._rows and time.monotonic() - self._tried >= FLUSH_S:
            self._flush()

    def close(self) -> None:
        """Append the rest."""
        if self._rows:
            self._flush()

    def _flush(self) -> None:
        self._tried = time.monotonic()
        self._spark.sparkContext.setLocalProperty("kbit.scope", "telemetry")
        frame = self._spark.createDataFrame(self._rows, METRICS_SCHEMA).coalesce(1)
        frame.write.format("delta").mode("append").save(self._path)
        self._rows.clear()
