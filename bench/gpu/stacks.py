"""Where the time of a run goes, by samples of its threads' stacks: those of the JVM and those of Python.

A sample is a span of time, a kind of thread (`stream`, `call`: what else Python has called, `task`, `python`,
`machine`) and frames from the leaf on. Only the JVM can look at its own threads at a bearable price, so a class of ours
does, compiled by the compiler that Spark brings.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from pyspark.sql import SparkSession

from bench.gpu.sampler import Sampler

SOURCE = Path(__file__).with_name("Sampler.java")
INTERVAL_MS = 20
Labels = Sequence[tuple[str, str]]
"""What a frame tells of its thread, and a pattern of the frame; the innermost frame that matches one counts."""
_ANYWHERE: Labels = (
    ("load classes", r"ClassLoader\w*\.(load|find|define)"),
    ("generate code", r"CodeGenerator|janino"),
)
_DRIVER: Labels = (
    *_ANYWHERE,
    ("RAPIDS plans", r"com\.nvidia\.spark\.rapids"),
    ("analyze", r"Analyzer|CheckAnalysis|QueryExecution\.analyzed"),
    ("optimize", r"Optimizer|QueryExecution\.optimizedPlan"),
    ("run a job", r"DAGScheduler\.(run|submit)Job|LinkedBlockingQueue\.take"),
    ("plan", r"QueryPlanner|QueryExecution\.|IncrementalExecution|AdaptiveSparkPlanExec|InsertAdaptive"),
    ("commit to Delta", r"OptimisticTransaction\w*\.\$?(anonfun\$)?(commit|doCommit)"),
    ("read the log of Delta", r"SnapshotManagement|delta\.Snapshot|DeltaLog"),
    ("make a decoder", r"kbit\.(gpu|decode)"),
    ("clean closures", r"ClosureCleaner"),
    ("broadcast", r"TorrentBroadcast"),
    ("offsets of Kafka", r"KafkaOffsetReader|latestOffset"),
    ("logs of the checkpoint", r"HDFSMetadataLog|CheckpointFileManager|OffsetSeqLog|CommitLog"),
    ("wait for Python", r"py4j\.ClientServerConnection\.(sendCommand|readBlockingResponse|readNonBlockingResponse)"),
    ("wait for a trigger", r"TriggerExecutor|awaitTrigger"),
)
LABELS: Mapping[str, Labels] = {
    "task": (
        *_ANYWHERE,
        ("wait for the GPU", r"GpuSemaphore.*acquire|PrioritySemaphore"),
        ("Kafka", r"kafka"),
        ("rows to columns", r"GpuRowToColumn|RowToColumnarIterator|RapidsHostColumnBuilder|GpuColumnarBatchBuilder"),
        ("decode", r"kbit\.gpu\.(GpuDecode|Schema)|kbit\.decode"),
        ("tally", r"TallyUdf"),
        ("split by partition", r"splitBatch|contiguousSplit"),
        ("statistics of Delta", r"GpuDelta\w*Statistics"),
        ("write a file", r"writeBufferedData|kbit\.disk|FileOutputStream"),
        ("encode Parquet", r"bufferBatchAndClose|TableWriter|ParquetWriter|parquet\.hadoop"),
        ("open a file", r"newOutputWriter|newWriter|newTempFile|newInstance"),
        ("commit a task", r"commitTask|FileCommitProtocol"),
        ("coalesce batches", r"CoalesceBatches|CoalesceIterator"),
        ("project", r"GpuProjectExec|GpuFilter"),
        ("deserialize", r"ObjectInputStream|JavaDeserialization"),
    ),
    "call": _DRIVER,
    "stream": _DRIVER,
}


@dataclass(frozen=True)
class Sample:
    """A stack and how often it was seen within a span of time."""

    at_ms: int
    kind: str
    frames: tuple[str, ...]
    count: int

    @property
    def label(self) -> str:
        """What the innermost frame that has a name here does, else the leaf."""
        if self.kind == "python":
            return " > ".join(reversed(self.frames[:2]))
        for frame in self.frames:
            for name, pattern in LABELS.get(self.kind, ()):
                if re.search(pattern, frame):
                    return name
        return f"({self.frames[0]})" if self.frames else "(nothing)"


class Stacks(Sampler):
    """Samples this process and its JVM.

    Args:
        spark: the session.
        file: gets the samples.
        bucket_ms: the span of time by which they are counted.
    """

    def __init__(self, spark: SparkSession, file: Path, bucket_ms: int = 1_000_000_000) -> None:
        super().__init__(INTERVAL_MS / 1000)
        self._file = file
        self._bucket_ms = bucket_ms
        self._python: Counter[tuple[int, tuple[str, ...]]] = Counter()
        self._jvm = _sampler(spark, bucket_ms)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._jvm.write(str(self._file.absolute()))
        with self._file.open("a") as file:
            for (bucket, frames), count in self._python.items():
                file.write(f"{bucket}\tpython\t{'<'.join(frames)}\t{count}\n")

    def sample(self) -> None:
        """See `Sampler`."""
        bucket = int(time.time() * 1000) // self._bucket_ms * self._bucket_ms
        for frame in sys._current_frames().values():
            if frames := _ours(frame):
                self._python[bucket, frames] += 1


def _sampler(spark: SparkSession, bucket_ms: int) -> Any:
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
    assert jvm is not None
    assert gateway is not None
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0], arguments[1] = INTERVAL_MS, bucket_ms
    return _constructor(jvm).newInstance(arguments)


@lru_cache(maxsize=1)
def _constructor(jvm: Any) -> Any:
    """Return the sampler's constructor: py4j takes two classes of one name for the same one."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(SOURCE.read_text())
    return compiler.getClassLoader().loadClass("bench.Sampler").getConstructors()[0]


def _ours(frame: FrameType | None) -> tuple[str, ...]:
    """Return the product's frames of a stack from the leaf on, the JVM's method that was called before them."""
    frames = []
    called = ""
    while frame is not None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
        if module == "py4j.java_gateway" and code.co_name == "__call__":
            known = vars(frame.f_locals["self"])  # its attributes are the JVM's
            called = f"java:{known.get('name') or known.get('_fqn', '')}"
        elif module.startswith("kbit_spark.") and "telemetry" not in module:
            frames.append(f"{module.removeprefix('kbit_spark.')}.{getattr(code, 'co_qualname', code.co_name)}")
        frame = frame.f_back
    return tuple([called, *frames] if called and frames else frames)


def read(file: Path) -> Iterator[Sample]:
    """Yield the samples of a file."""
    for line in file.read_text().splitlines():
        bucket, kind, frames, count = line.split("\t")
        yield Sample(int(bucket), kind, tuple(frames.split("<")), int(count))


def summary(samples: Iterable[Sample], batches: int = 1, most: int = 14) -> str:
    """Return milliseconds a batch by kind of thread and what they did; of tasks the sum over all of them."""
    spent: dict[str, Counter[str]] = {}
    for sample in samples:
        if sample.kind != "machine":
            spent.setdefault(sample.kind, Counter())[sample.label] += sample.count
    lines = []
    for kind, labels in sorted(spent.items()):
        lines.append(f"{kind}: {sum(labels.values()) * INTERVAL_MS / batches:,.0f} ms")
        lines += [f"  {count * INTERVAL_MS / batches:8,.0f}  {label}" for label, count in labels.most_common(most)]
    return "\n".join(lines)


def timeline(samples: Iterable[Sample], start_ms: float) -> str:
    """Return what each kind of thread did most, span by span, from `start_ms` on."""
    spans: dict[int, dict[str, Counter[str]]] = {}
    for sample in samples:
        text = sample.frames[0] if sample.kind == "machine" else sample.label
        spans.setdefault(sample.at_ms, {}).setdefault(sample.kind, Counter())[text] += sample.count
    lines = []
    for at, kinds in sorted(spans.items()):
        lines.append(f"{(at - start_ms) / 1000:6.2f} s  {' '.join(kinds.pop('machine', Counter()))}")
        for kind, labels in sorted(kinds.items()):
            told = "; ".join(f"{count} {label}" for label, count in labels.most_common(3))
            lines.append(f"          {kind:9} {told}")
    return "\n".join(lines)
