"""Kafka to Delta on the GPU, on the CPU, and by Spark's built-in functions: one machine, one call, the same topics.

    python -m bench.gpu.ingest produce --servers HOST:PORT
    python -m bench.gpu.ingest run ENGINE --servers HOST:PORT --out FILE    (gpu, cpu or builtin)
    python -m bench.gpu.ingest table FILE...

Every engine has a session of its own; on the CPU there is no RAPIDS in it. A figure is the median of the batches after
the first two; `decode` reads payloads from Parquet, decodes and aggregates, and is the median of five runs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro

from bench import harness
from bench.gpu.numbers import numbers
from bench.gpu.pictures import pictures
from bench.payloads import Case, cases
from kbit_spark import ingest
from kbit_spark.codecs.gpu.functions import rapids_functions
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.session import spark_session
from kbit_spark.telemetry.report import read_events

SHAPES = {
    "bytes": "avro, image bytes",
    "array": "avro, image as 784 ints",
    "json": "json, image as 784 ints",
    "numbers": "avro, 200 numbers",
    "wide": "avro, 200 columns",
    "protobuf": "protobuf, image as 784 ints",
}
LARGE_SHAPES = {"picture": "avro, picture bytes", "picture-ints": "avro, picture as 3072 ints"}
"""Those of `bench.gpu.memory`."""
BATCHES = {400_000: 6, 100_000: 8}
WARM_UP = 2
CORES = 8
DECODED_ROWS = 400_000


def main() -> None:
    """Do what the first argument says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    producing = commands.add_parser("produce")
    running = commands.add_parser("run")
    running.add_argument("engine", choices=["gpu", "cpu", "builtin"])
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--decode-only", action="store_true")
    for command in (producing, running):
        command.add_argument("--servers", required=True)
        command.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
        command.add_argument("--scale", type=float, default=1.0, help="of the batches' rows, for a trial")
    showing = commands.add_parser("table")
    showing.add_argument("files", nargs="+", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "table":
        sys.stdout.write(
            table([json.loads(line) for file in arguments.files for line in file.read_text().splitlines()])
        )
    elif arguments.command == "produce":
        produce(arguments.servers, dict.fromkeys(arguments.shapes, BATCHES), arguments.scale)
    else:
        sizes = {} if arguments.decode_only else BATCHES
        run(arguments.engine, arguments.servers, arguments.shapes, arguments.scale, arguments.out, sizes)


def case_of(name: str) -> Case:
    """Return the records of a shape, as they are on the wire."""
    wanted = {**SHAPES, **LARGE_SHAPES}[name]
    return next(case for case in [*cases(), numbers(), *pictures()] if case.name == wanted)


def produce(servers: str, sizes: Mapping[str, Mapping[int, int]], scale: float) -> None:
    """Fill a topic for each shape and batch size; `sizes`: by shape, rows of a batch and how many of them."""
    admin = AdminClient({"bootstrap.servers": servers})
    jobs = []
    for name, batches_of in sizes.items():
        for rows, batches in batches_of.items():
            topic = f"{name}-{rows}"
            admin.create_topics([NewTopic(topic, CORES, 1)])[topic].result()
            share = int(rows * scale) * batches // 4
            jobs += [(servers, topic, name, share, part) for part in range(4)]
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        pool.starmap(_send, jobs)


def _send(servers: str, topic: str, name: str, rows: int, part: int) -> None:
    payloads = case_of(name).payloads
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    for index in range(rows):
        while True:
            try:
                producer.produce(
                    topic, payloads[index % len(payloads)], f"{part}-{index}".encode(), partition=index % CORES
                )
                break
            except BufferError:
                producer.poll(0.05)
        if index % 1000 == 0:
            producer.poll(0)
    producer.flush()


def run(engine: str, servers: str, names: Sequence[str], scale: float, out: Path, sizes: Mapping[int, int]) -> None:
    """Measure an engine and append its figures to `out`, one line of JSON each."""
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{engine}-"))
    chosen = {name: case_of(name) for name in names}
    if engine == "builtin":
        chosen = {name: case for name, case in chosen.items() if case.format != "protobuf"}  # Spark's is not to be had
    begin = time.time()
    spark = session(engine, [config_of(case, name, servers, folder, 1, engine) for name, case in chosen.items()])
    started = time.time()
    for name, case in chosen.items():
        _note(out, {"engine": engine, "shape": name, "decode_s": _decode_s(spark, engine, case, name, folder)})
        for rows, batches in sizes.items():
            size = int(rows * scale)
            here = folder / f"{name}-{rows}"
            here.mkdir()
            first = time.time()
            if engine == "builtin":
                _builtin(spark, case, f"{name}-{rows}", servers, here, size)
            else:
                config = config_of(case, name, servers, here, size, engine, f"{name}-{rows}")
                ingest.run(IngestConfig.model_validate(config))
            done = harness.Batches.of_checkpoint(here / "checkpoint")
            steady = done.steady_s(WARM_UP)[: batches - WARM_UP]  # partitions may differ by a row, which is a batch
            figures = {"batch_rows": size, "batch_s": median(steady), "rows_per_s": size / median(steady)}
            events = _events(here)
            assert len(steady) == batches - WARM_UP, (len(done.done), batches)
            print(name, size, "first batch", round(done.done[0] - first, 2), [round(s, 2) for s in steady], flush=True)
            _note(out, {"engine": engine, "shape": name, **figures, "first_batch_s": done.done[0] - first, **events})
            shutil.rmtree(here)
    _note(out, {"engine": engine, "session_s": started - begin})
    spark.stop()


def _note(out: Path, figures: dict[str, Any]) -> None:
    with out.open("a") as file:
        file.write(json.dumps(figures) + "\n")


def session(
    engine: str, configs: Sequence[dict[str, Any]], further: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """Return the session of an engine for streams of these configurations; ``BENCH_CONF`` adds settings, K=V."""
    settings = {
        "spark.master": f"local[{CORES}]",
        "spark.driver.memory": os.environ.get("BENCH_MEMORY", "24g"),
        "spark.driver.host": "127.0.0.1",
        **further,
    }
    for config in configs:
        settings |= ingest.settings(IngestConfig.model_validate(config))
    if engine == "gpu":
        settings["spark.plugins"] = "com.nvidia.spark.SQLPlugin"
    if engine == "builtin":
        settings = {k: v for k, v in settings.items() if not k.startswith("spark.hadoop.parquet")}
    settings |= dict(item.split("=", 1) for item in os.environ.get("BENCH_CONF", "").split())
    return spark_session(f"bench {engine}", settings)


def config_of(
    case: Case, name: str, servers: str, folder: Path, rows: int, engine: str, topic: str = "t"
) -> dict[str, Any]:
    """Return the configuration of a stream that drains a topic in batches of so many rows."""
    source = {**case.topic(folder), "name": topic}
    return {
        "stream_id": "bench",
        "kafka": {"bootstrap_servers": servers, "topics": [source], "max_offsets_per_trigger": rows},
        "fields": [field.model_dump(exclude_defaults=True) for field in case.shape.fields],
        "tables": {"samples": str(folder / "samples"), "rejected": str(folder / "rejected")},
        "checkpoint_dir": str(folder / "checkpoint"),
        "trigger": {"available_now": True},
        "telemetry": {"run_dir": str(folder / "runs")},
        "decode": {"placement": "gpu" if engine == "gpu" else "cpu"},
    }


def _builtin(spark: SparkSession, case: Case, topic: str, servers: str, folder: Path, rows: int) -> None:
    """Run the plain template: the built-in function, and the native sink of Delta."""
    records = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"})
        .option("maxOffsetsPerTrigger", rows)
        .load()
    )
    query = (
        records.select(_peer(case).alias("r"))
        .select("r.*")
        .writeStream.format("delta")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "samples"))
    )
    query.awaitTermination()


def _peer(case: Case) -> Column:
    if case.format == "avro":
        return from_avro("value", case.schema)
    return sf.from_json(sf.col("value").cast("string"), case.schema)


def _decode_s(spark: SparkSession, engine: str, case: Case, name: str, folder: Path) -> list[float]:
    """Return the median seconds to read payloads from Parquet, and to read, decode and aggregate them."""
    file = folder / f"{name}.parquet"
    spark.conf.set("spark.rapids.sql.enabled", "false")
    templates = sf.array(*(sf.lit(payload) for payload in case.payloads))
    rows = spark.range(DECODED_ROWS, numPartitions=CORES)
    value = sf.get(templates, sf.col("id").cast("int") % len(case.payloads))
    rows.select(sf.lit(name).alias("topic"), value.alias("value")).write.parquet(str(file))
    records = spark.read.parquet(str(file))
    if engine == "builtin":
        decoded = records.select(_peer(case).alias("value"))
    else:
        config = IngestConfig.model_validate(config_of(case, name, "none:0", folder, 1, engine, name))
        functions = rapids_functions(spark, 0.0)
        decoder = PayloadDecoder(spark, config.kafka, config.fields, gpu=functions)
        decoded = decoder.decode(records, "gpu" if engine == "gpu" else "cpu").select(
            sf.col("decoded.value").alias("value")
        )
    spark.conf.set("spark.rapids.sql.enabled", str(engine == "gpu").lower())
    fields = [sf.count(sf.col(f"value.{field.name}")) for field in case.shape.fields]
    times = [_median_s(lambda: records.agg(sf.count("value"))), _median_s(lambda: decoded.agg(*fields))]
    spark.conf.set("spark.rapids.sql.enabled", "false")
    return times


def _median_s(make: Callable[[], DataFrame]) -> float:
    times = []
    for _ in range(6):
        frame = make()  # a frame that ran before would only read what its stages have left
        begin = time.perf_counter()
        frame.collect()
        times.append(time.perf_counter() - begin)
    return median(times[1:])


def _events(folder: Path) -> dict[str, Any]:
    """Return what the run's events say of the engine: batches by engine, rows that the CPU decoded after all."""
    engines: dict[str, int] = {}
    refereed = 0.0
    for event in read_events(folder.glob("runs/*/events.jsonl")):
        if event.kind == "ingest_batch":
            engine = event.labels["engine"]
            engines[engine] = engines.get(engine, 0) + 1
            refereed += event.numbers.get("refereed", 0)
        elif event.kind.startswith("decode_"):
            print(json.dumps(event.to_dict()), flush=True)
    return {"engines": engines, "refereed": refereed}


def table(figures: Sequence[dict[str, Any]]) -> str:
    """Return markdown tables of the figures of all three engines."""
    header = ["payload", "rows a batch", "GPU", "CPU", "built-in", "GPU/CPU", "GPU/built-in"]
    lines = []
    for name in SHAPES:
        for rows in sorted({f["batch_rows"] for f in figures if "batch_rows" in f}, reverse=True):
            rate = {
                engine: median(
                    [
                        f["rows_per_s"]
                        for f in figures
                        if (f["engine"], f.get("shape"), f.get("batch_rows")) == (engine, name, rows)
                    ]
                    or [float("nan")]
                )
                for engine in ("gpu", "cpu", "builtin")
            }
            ratios = [f"{rate['gpu'] / rate[peer]:.2f}" for peer in ("cpu", "builtin")]
            lines.append([SHAPES[name], f"{rows:,}", *(f"{value:,.0f}" for value in rate.values()), *ratios])
    stage = []
    for name in SHAPES:
        spent = {
            engine: [
                f["decode_s"] for f in figures if (f["engine"], f.get("shape")) == (engine, name) and "decode_s" in f
            ]
            for engine in ("gpu", "cpu", "builtin")
        }
        cells = [
            f"{median(t[1] for t in times):.3f} ({median(t[0] for t in times):.3f})" if times else ""
            for times in spent.values()
        ]
        alone = {
            engine: max(median(t[1] - t[0] for t in times), 1e-3) if times else float("nan")
            for engine, times in spent.items()
        }
        stage.append([SHAPES[name], *cells, *(f"{alone[peer] / alone['gpu']:.1f}" for peer in ("cpu", "builtin"))])
    end_to_end = harness.table(header, lines)
    decoding = harness.table(
        ["payload", "GPU", "CPU", "built-in", "GPU/CPU, less reading", "GPU/built-in, less reading"], stage
    )
    return (
        f"Rows/s from Kafka to Delta:\n\n{end_to_end}\n\n"
        f"Seconds to read {DECODED_ROWS:,} payloads from Parquet, decode and aggregate them (to read alone):\n\n"
        f"{decoding}\n"
    )


if __name__ == "__main__":
    main()
