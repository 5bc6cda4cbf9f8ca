"""The run's telemetry: takes events from anywhere and hands each to every sink, without ever holding the work up."""

from __future__ import annotations

import logging
import secrets
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kbit_spark.config.telemetry import TelemetryConfig
from kbit_spark.events import Event
from kbit_spark.telemetry.channel import Channel, Sink
from kbit_spark.telemetry.console import Console
from kbit_spark.telemetry.sinks import Csv, JsonLines, MetricsTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kbit_spark.telemetry.listener import SparkWatch

log = logging.getLogger(__name__)
WATCH_TIMEOUT_S = 2.5
"""How long the end of a run may wait for the events that Spark has queued."""
TABLE_TIMEOUT_S = 30.0
"""How long it may wait for the last append to the metrics table, which takes Spark 10 s on a busy machine."""


def new_run_id(job: str) -> str:
    """Return a run id that sorts by time, e.g. ``20261128T025801Z-ingest-3fa9``."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{job}-{secrets.token_hex(2)}"


class Telemetry:
    """Context manager around one run.

    Args:
        run_id: names the run in the table and its folder.
        job: what runs, e.g. ``ingest``.
        sinks: where events go, each behind its own queue and thread.
        folder: the run's folder, None without one.
        config: sinks asked for; `watch_spark` adds the metrics table from it.
        config_text: the job's configuration as YAML, carried by the event ``run`` at the start.
    """

    def __init__(
        self,
        run_id: str,
        job: str,
        sinks: list[Sink],
        folder: Path | None = None,
        config: TelemetryConfig | None = None,
        config_text: str = "",
    ) -> None:
        self.run_id = run_id
        self.job = job
        self.folder = folder
        self._config = config or TelemetryConfig()
        self._config_text = config_text
        self.channels = [Channel(sink) for sink in sinks]
        self._watch: SparkWatch | None = None
        self._closed = False
        self._start: Event | None = None

    @classmethod
    def open(
        cls,
        config: TelemetryConfig,
        job: str,
        spark: SparkSession | None = None,
        run_id: str | None = None,
        config_text: str | None = None,
    ) -> Telemetry:
        """Return a run's telemetry: console, events.jsonl and what `config` asks for. A folder that fails is logged."""
        run_id = run_id or new_run_id(job)
        sinks: list[Sink] = [Console()]
        folder: Path | None = None
        try:
            folder = _make_folder(Path(config.run_dir) / run_id, config_text)
            sinks.append(JsonLines(folder / "events.jsonl"))
            if config.csv:
                sinks.append(Csv(folder / "events.csv"))
        except OSError as error:  # a full or read-only disk must not stop the job
            log.warning("no run folder in %s: %s", config.run_dir, error)
            folder = None
        telemetry = cls(run_id, job, sinks, folder, config, config_text or "")
        if spark is not None:
            telemetry.watch_spark(spark)
        return telemetry

    def __enter__(self) -> Telemetry:
        self._start = Event("run", labels={"phase": "start", "job": self.job, "config": self._config_text})
        self.emit(self._start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outcome = "ok" if error is None else f"{type(error).__name__}: {error}".splitlines()[0]
        self.close(outcome)

    def emit(self, event: Event) -> None:
        """Hand the event to every sink; never blocks, never raises."""
        for channel in self.channels:
            channel.put(event)

    def watch_spark(self, spark: SparkSession) -> None:
        """Take stages and the queries' progress as events; write the metrics table if configured."""
        if self._watch is not None:
            return
        from kbit_spark.telemetry.listener import SparkWatch  # pyspark: only where there is a session

        if self._config.metrics_table:
            table = MetricsTable(spark, self._config.metrics_table, self.run_id, self.job)
            channel = Channel(table, close_timeout_s=TABLE_TIMEOUT_S)
            if self._start is not None:
                channel.put(self._start)
            self.channels = [*self.channels, channel]
        self._watch = SparkWatch(spark, self.emit)

    def close(self, outcome: str = "ok") -> None:
        """Flush every sink, each for as long as its channel may take; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._watch is not None:
            self._watch.stop(WATCH_TIMEOUT_S)
        self.emit(Event("run", labels={"phase": "end", "job": self.job, "outcome": outcome}))
        for channel in self.channels:
            channel.start_closing()
        for channel in self.channels:
            if not channel.join():
                log.warning("telemetry sink %s did not finish in %.0f s", channel.sink.name, channel.close_timeout_s)
            if channel.dropped:
                log.warning("telemetry sink %s dropped %d events", channel.sink.name, channel.dropped)


def _make_folder(folder: Path, config_text: str | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if config_text is not None:
        (folder / "config.yaml").write_text(config_text, encoding="utf-8")
    return folder
