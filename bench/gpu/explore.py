"""Where the time of a micro-batch goes, and what settings change about it.

    python -m bench.gpu.explore produce --servers HOST:PORT
    python -m bench.gpu.explore run ENGINE --servers HOST:PORT --out FOLDER [--shape wide] [--parts first phases ...]

All is of one shape, in a session with the settings that the job has for it. `first` is the first stream of the process,
span by span (`start`: its figures alone); `phases` are steady batches of 400,000 rows, `fixed` such of 5,000; `matrix`
and `small-matrix` try settings on batches of these sizes one after another. ``explore.jsonl`` in FOLDER has the
figures; `*.stacks` the samples. Settings that need a session of their own come by ``BENCH_CONF``, with
`--parts matrix --only base`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench import harness
from bench.gpu import ingest, sql_metrics, stacks
from kbit_spark import ingest as job
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.events import Event
from kbit_spark.sources import gathering
from kbit_spark.telemetry.report import read_events

LARGE, SMALL = 400_000, 5_000
SIZES: Mapping[str, Mapping[int, int]] = {
    "wide": {LARGE: 4, SMALL: 16},
    "array": {LARGE: 4, SMALL: 16},
    "bytes": {LARGE: 4, SMALL: 16},
}
WARM_UP = 1
SHOWN_BATCHES = 1
"""Batches whose queries are told node by node."""
SPAN_MS = 250
GROUPS = "spark.rapids.sql.format.parquet.writer.rowGroupSizeBytes"
DICTIONARY = "spark.rapids.sql.format.parquet.writer.dictionaryPolicy"
CODEC = "spark.sql.parquet.compression.codec"
TASKS = "spark.rapids.sql.concurrentGpuTasks"
ASYNC = "spark.rapids.sql.asyncWrite.queryOutput.enabled"
BATCH = "spark.rapids.sql.batchSizeBytes"
WRITERS = "spark.sql.maxConcurrentOutputFileWriters"
STATISTICS = "spark.databricks.delta.stats.collect"


@dataclass(frozen=True)
class Variant:
    """What to try: settings of Spark, read when a batch is planned or a task runs, of the stream's Kafka, of tasks."""

    settings: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, Any] = field(default_factory=dict)
    gathering: Mapping[str, int] = field(default_factory=dict)
    """Constants of `kbit_spark.sources.gathering`."""


MATRIX: Mapping[str, Variant] = {
    "base": Variant(),
    "2 tasks on the GPU": Variant({TASKS: "2"}),
    "6 tasks on the GPU": Variant({TASKS: "6"}),
    "8 tasks on the GPU": Variant({TASKS: "8"}),
    "asynchronous write": Variant({ASYNC: "true"}),
    "batches of 1 GiB": Variant({BATCH: "1g"}),
    "row groups of 8 MiB": Variant({GROUPS: "8m"}),
    "row groups of 32 MiB": Variant({GROUPS: "32m"}),
    "row groups of 64 MiB": Variant({GROUPS: "64m"}),
    "row groups of 128 MiB": Variant({GROUPS: "128m"}),
    "no dictionary": Variant({DICTIONARY: "NEVER"}),
    "uncompressed": Variant({CODEC: "uncompressed"}),
    "no statistics": Variant({STATISTICS: "false"}),
    "one writer a task": Variant({WRITERS: "0"}),
    "16 tasks": Variant(kafka={"min_partitions": 16}),
    "4 tasks": Variant(gathering={"TASK_ROWS": LARGE // 4}),
    "2 tasks": Variant(gathering={"TASK_ROWS": LARGE // 2}),
    "64 MiB, 8 tasks on the GPU": Variant({GROUPS: "64m", TASKS: "8"}),
    "8 tasks on the GPU, 1 GiB": Variant({TASKS: "8", BATCH: "1g"}),
    "8 tasks on the GPU, no statistics": Variant({TASKS: "8", STATISTICS: "false"}),
    "base again": Variant(),
}
SMALL_MATRIX: Mapping[str, Variant] = {
    "base": Variant(),
    "1 task": Variant(gathering={"TASK_RANGES": 8}),
    "4 tasks": Variant(gathering={"TASK_ROWS": SMALL // 4}),
    "8 tasks": Variant(gathering={"TASK_ROWS": SMALL // 8}),
    "no statistics": Variant({STATISTICS: "false"}),
    "base again": Variant(),
}
"""For batches of `SMALL` rows."""


@dataclass(frozen=True)
class Stream:
    """What one stream showed."""

    begun: float
    """When the job was called, in seconds since the epoch."""

    done: tuple[float, ...]
    """When its batches were committed."""

    events: tuple[Event, ...]
    files: int
    bytes: int

    @property
    def steady(self) -> list[float]:
        """Seconds of each batch after the first ones."""
        return harness.Batches(self.done).steady_s(WARM_UP)

    def figures(self) -> dict[str, Any]:
        """Return what the record of a run holds of it."""
        batches = [event for event in self.events if event.kind == "ingest_batch"]
        engines = sorted({event.labels["engine"] for event in batches})
        triggers = [event.numbers for event in self.events if event.kind == "stream_progress"][WARM_UP:]
        phases = (
            {name: median(t[name] for t in triggers) for name in triggers[0] if name.endswith("_s")} if triggers else {}
        )
        written = [event.numbers["duration_s"] for event in batches][WARM_UP:]
        return {
            "first_s": round(self.done[0] - self.begun, 3),
            "batch_s": [round(seconds, 3) for seconds in self.steady],
            "median_s": round(median(self.steady), 3),
            "written_s": round(median(written), 3),
            "trigger": phases,
            "engines": engines,
            "fell_back": [dict(event.labels) for event in self.events if event.kind == "decode_fallback"],
            "files": self.files,
            "bytes": self.bytes,
        }


class Explorer:
    """Runs streams of one engine in one session and keeps what they show."""

    def __init__(self, engine: str, shape: str, servers: str, out: Path, scale: float) -> None:
        self._engine = engine
        self._shape = shape
        self._servers = servers
        self._out = out
        self._scale = scale
        self._folder = Path(tempfile.mkdtemp(prefix=f"explore-{engine}-"))
        begin = time.time()
        config = self._config(LARGE, self._folder)
        self.spark = ingest.session(engine, [config], {"spark.rapids.sql.metrics.level": "DEBUG"})
        self.ready = time.time()
        self._note("session", seconds=round(self.ready - begin, 2))

    def close(self) -> None:
        """End the session."""
        self.spark.stop()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Tell when the first batch of the process was committed, unobserved: samples take their time."""
        self._note("start", **self._stream(LARGE).figures())

    def first(self) -> None:
        """Tell the first stream of the process span by span, and a second one beside it."""
        for turn in ("first", "second"):
            with stacks.Stacks(self.spark, file := self._file(turn), SPAN_MS):
                stream = self._stream(LARGE)
            until = stream.done[0] * 1000
            samples = [sample for sample in stacks.read(file) if sample.at_ms <= until]
            self._note(turn, **stream.figures())
            if turn == "first":
                self._tell(stacks.timeline(samples, stream.begun * 1000))
            self._tell(stacks.summary(samples))

    def phases(self, rows: int) -> None:
        """Tell where steady batches of a size spend their time; the samples hold the stream's start as well."""
        self._stream(rows)
        before = sql_metrics.last_id(self.spark)
        with stacks.Stacks(self.spark, file := self._file(f"steady-{rows}"), SPAN_MS):
            stream = self._stream(rows)
        self._note("phases", rows=rows, **stream.figures())
        steady = [s for s in stacks.read(file) if stream.done[WARM_UP - 1] * 1000 <= s.at_ms <= stream.done[-1] * 1000]
        self._tell(stacks.summary(steady, len(stream.steady)))
        found = sql_metrics.executions(self.spark, before)
        writes = [execution for execution in found if execution.writes]
        for execution in writes:
            self._note("query", rows=rows, id=execution.id, duration_s=execution.duration_s, nodes=execution.nodes)
        last = writes[-SHOWN_BATCHES].id if len(writes) >= SHOWN_BATCHES else -1
        self._tell(sql_metrics.described([execution for execution in found if execution.id >= last - 2]))

    def matrix(self, rows: int, variants: Mapping[str, Variant]) -> None:
        """Try variants, each with a stream of its own over the same records."""
        for name, variant in variants.items():
            after = sql_metrics.last_id(self.spark)
            try:
                with self._changed(variant):
                    stream = self._stream(rows, variant.kafka)
            except Exception as error:  # a setting that does not work is a finding too
                self._note("matrix", rows=rows, variant=name, error=str(error)[:300])
                continue
            writes = [e for e in sql_metrics.executions(self.spark, after) if e.writes]
            write = _top(writes[-1]) if writes else {}
            self._note("matrix", rows=rows, variant=name, write=write, **stream.figures())

    @contextmanager
    def _changed(self, variant: Variant) -> Iterator[None]:
        before: dict[str, str | None] = {key: self.spark.conf.get(key, None) for key in variant.settings}
        constants = {name: getattr(gathering, name) for name in variant.gathering}
        for key, value in variant.settings.items():
            self.spark.conf.set(key, value)
        for name, number in variant.gathering.items():
            setattr(gathering, name, number)
        try:
            yield
        finally:
            for key, old in before.items():
                self.spark.conf.unset(key) if old is None else self.spark.conf.set(key, old)
            for name, number in constants.items():
                setattr(gathering, name, number)

    def _stream(self, rows: int, kafka: Mapping[str, Any] | None = None) -> Stream:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        config = self._config(rows, folder)
        config["kafka"] |= kafka or {}
        begun = time.time()
        job.run(IngestConfig.model_validate(config))
        done = harness.Batches.of_checkpoint(folder / "checkpoint").done[: SIZES[self._shape][rows]]
        events = read_events(folder.glob("runs/*/events.jsonl"))
        files = list(folder.glob("samples/*/*.parquet"))
        size = sum(file.stat().st_size for file in files)
        shutil.rmtree(folder)
        return Stream(begun, done, tuple(events), len(files), size)

    def _config(self, rows: int, folder: Path) -> dict[str, Any]:
        case, topic = ingest.case_of(self._shape), f"{self._shape}-{rows}"
        return ingest.config_of(case, self._shape, self._servers, folder, int(rows * self._scale), self._engine, topic)

    def _file(self, name: str) -> Path:
        return self._out / f"{self._engine}-{self._shape}-{name}.stacks"

    def _note(self, part: str, **figures: Any) -> None:
        line = {"engine": self._engine, "part": part, "shape": self._shape, **figures}
        with (self._out / "explore.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        if part != "query":
            self._tell(json.dumps(line))

    def _tell(self, text: str) -> None:
        with (self._out / f"{self._engine}.txt").open("a") as file:
            file.write(text + "\n")
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _top(execution: sql_metrics.Execution) -> dict[str, float]:
    """Return the metrics of the write itself."""
    return next((metrics for name, metrics in execution.nodes if "Write" in name), {})


def main() -> None:
    """Do what the first argument says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    producing = commands.add_parser("produce")
    running = commands.add_parser("run")
    running.add_argument("engine", choices=["gpu", "cpu"])
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--parts", nargs="*", default=["first", "phases", "fixed", "matrix"])
    running.add_argument("--shape", default="wide", choices=list(SIZES), help="of the records")
    running.add_argument("--only", nargs="*", default=list(MATRIX), choices=list(MATRIX))
    for command in (producing, running):
        command.add_argument("--servers", required=True)
        command.add_argument("--scale", type=float, default=1.0, help="of the batches' rows, for a trial")
    arguments = parser.parse_args()
    if arguments.command == "produce":
        ingest.produce(arguments.servers, SIZES, arguments.scale)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    explorer = Explorer(arguments.engine, arguments.shape, arguments.servers, arguments.out, arguments.scale)
    if "start" in arguments.parts:
        explorer.start()
    if "first" in arguments.parts:
        explorer.first()
    if "phases" in arguments.parts:
        explorer.phases(LARGE)
    if "fixed" in arguments.parts:
        explorer.phases(SMALL)
    if "matrix" in arguments.parts:
        explorer.matrix(LARGE, {name: MATRIX[name] for name in arguments.only})
    if "small-matrix" in arguments.parts:
        explorer.matrix(SMALL, SMALL_MATRIX)
    explorer.close()


if __name__ == "__main__":
    main()
