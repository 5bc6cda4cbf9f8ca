"""Decoders beside Spark's own functions, on payloads that lie in memory.

    kbit bench decode [--repeats 8] [--case avro] [--json]

Avro against `from_avro`, JSON against `from_json`, Protobuf against the library `protobuf` in a pandas UDF; Spark has
nothing for Extended JSON. Each run is one pass that touches every decoded field; both sides take turns, so that they
meet the same load of the machine. A figure is the best of the runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import pandas as pd
import psutil
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro

from bench import harness
from bench.payloads import TEMPLATES, Case, cases
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.kafka import KafkaConfig
from kbit_spark.config.load import validate
from kbit_spark.session import spark_session

RESULTS = Path(__file__).parent / "results"
MASTER = "local[2]"
PEERS = {"avro": "from_avro", "json": "from_json", "mongo": "none", "protobuf": "protobuf in a pandas UDF"}
_MILLION = 1_000_000


@dataclass(frozen=True)
class Rate:
    """Speed of one side."""

    rows_per_s: float
    mb_per_s: float
    cpu_s_per_million_rows: float
    """Of all processes, so also of the peer's Python workers."""


@dataclass(frozen=True)
class Figure:
    """One case: both sides, and how many times the peer's rate we reach."""

    case: str
    payload_bytes: int
    rows: int
    peer_name: str
    kbit: Rate
    peer: Rate | None
    ratio: float | None
    target: float | None


def main() -> None:
    """Run the cases and print a markdown table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--case", default="", help="only cases whose name contains this; nothing is kept")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    settings = {"spark.master": MASTER, "spark.driver.memory": "2g", "spark.ui.enabled": "false"}
    spark = spark_session("kbit bench decode", settings)
    try:
        figures = [measure(spark, case, arguments.repeats) for case in cases() if arguments.case in case.name]
    finally:
        spark.stop()
    markdown = _markdown(figures, arguments.repeats)
    if not arguments.case:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / "decode.md").write_text(markdown)
    documents = [asdict(figure) for figure in figures]
    sys.stdout.write(json.dumps(documents, indent=2) + "\n" if arguments.json else markdown)


def measure(spark: SparkSession, case: Case, repeats: int, rows: int | None = None) -> Figure:
    """Decode `rows` payloads (none: as many as the shape says) with both sides."""
    rows = rows or case.shape.rows
    templates = sf.array(*(sf.lit(payload) for payload in case.payloads))
    frame = spark.range(rows).select(sf.get(templates, sf.col("id").cast("int") % TEMPLATES).alias("value"))
    sides = [column for column in (_ours(spark, case), _peer(case)) if column is not None]
    for column in sides:  # the first run compiles and loads classes
        _seconds(frame, column, case)
    runs = [[_seconds(frame, column, case) for column in sides] for _ in range(repeats)]
    size = sum(map(len, case.payloads)) // TEMPLATES
    kbit, *others = [_rate([run[side] for run in runs], rows, size) for side in range(len(sides))]
    peer = others[0] if others else None
    ratio = kbit.rows_per_s / peer.rows_per_s if peer else None
    return Figure(case.name, size, rows, PEERS[case.format], kbit, peer, ratio, case.target)


def _ours(spark: SparkSession, case: Case) -> Column:
    with tempfile.TemporaryDirectory() as folder:
        data = {"bootstrap_servers": "none:0", "topics": [case.topic(Path(folder))]}
        kafka = validate(KafkaConfig, data, "bench")
        return PayloadDecoder(spark, kafka, case.shape.fields).column(sf.lit("t"), sf.col("value"))["value"]


def _peer(case: Case) -> Column | None:
    if case.format == "avro":
        return from_avro("value", case.schema)
    if case.format == "json":
        return sf.from_json(sf.col("value").cast("string"), case.schema)
    return _protobuf_peer(case) if case.format == "protobuf" else None


def _protobuf_peer(case: Case) -> Column:
    """Return what a person would write who has the message's class and no connector."""
    definition = FileDescriptorSet.FromString(case.descriptors).file[0].SerializeToString()
    names = [field.name for field in case.shape.fields]
    image = "binary" if case.shape.name == "image bytes" else "array<int>"
    columns = ", ".join(f"{field.name} {field.type or image}" for field in case.shape.fields)

    def decode(batches: Iterator[pd.Series]) -> Iterator[pd.DataFrame]:
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message_factory import GetMessageClass

        pool = DescriptorPool()
        pool.AddSerializedFile(definition)
        kind = GetMessageClass(pool.FindMessageTypeByName("Row"))
        lists = [name for name in names if kind.DESCRIPTOR.fields_by_name[name].is_repeated]
        for batch in batches:
            messages = [kind.FromString(payload) for payload in batch]
            found = {name: [getattr(message, name) for message in messages] for name in names}
            yield pd.DataFrame(found | {name: [list(items) for items in found[name]] for name in lists})

    return sf.pandas_udf(decode, f"struct<{columns}>")("value")  # type: ignore[call-overload,no-any-return]


def _seconds(frame: DataFrame, record: Column, case: Case) -> tuple[float, float]:
    """Return wall and CPU seconds of one pass."""
    names = [sf.col(f"r.{field.name}") for field in case.shape.fields]
    decoded = frame.select(record.alias("r")).select(*names)
    cpu, begin = _cpu_s(), time.perf_counter()
    decoded.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin, _cpu_s() - cpu


def _cpu_s() -> float:
    """Return the CPU seconds of this process and all below it: the JVM, Python workers."""
    root = psutil.Process()
    used = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used += times.user + times.system
    return used


def _rate(runs: list[tuple[float, float]], rows: int, size: int) -> Rate:
    wall_s, cpu_s = (min(side) for side in zip(*runs, strict=True))
    return Rate(rows / wall_s, rows * size / wall_s / _MILLION, cpu_s / rows * _MILLION)


def _markdown(figures: list[Figure], repeats: int) -> str:
    header = [
        "payload",
        "bytes",
        "peer",
        "peer",
        "kbit_spark",
        "ratio",
        "target",
        "CPU s per million rows, peer",
        "kbit",
    ]
    rows = []
    for f in figures:
        ratio = f"{f.ratio:.2f}" if f.ratio else "-"
        peer_cpu = f"{f.peer.cpu_s_per_million_rows:,.1f}" if f.peer else "-"
        cpu = f"{f.kbit.cpu_s_per_million_rows:,.1f}"
        target = f"≥ {f.target:g}" if f.target else "shown"
        rows.append(
            [f.case, f.payload_bytes, f.peer_name, _speed(f.peer), _speed(f.kbit), ratio, target, peer_cpu, cpu]
        )
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    note = f"{when}, {MASTER}, driver memory 2g, best of {repeats} runs, payloads in memory, one JVM for both."
    return f"# Decoders beside Spark's own functions\n\n{note}\n\n{harness.table(header, rows)}\n"


def _speed(rate: Rate | None) -> str:
    return f"{rate.rows_per_s:,.0f} rows/s, {rate.mb_per_s:,.0f} MB/s" if rate else "-"


if __name__ == "__main__":
    main()
