"""Kafka to Delta on the GPU, on the CPU, and by Spark's built-in functions: one machine, one call, the same topics.

    python -m bench.gpu.ingest produce --servers HOST:PORT
    python -m bench.gpu.ingest run ENGINE --servers HOST:PORT --out FILE    (gpu, cpu, builtin or auto)
    python -m bench.gpu.ingest table FILE...

Every engine and shape has a process and a session of its own, with the settings that the job has for such a table; on
the CPU there is no RAPIDS in it. A figure is the median of the batches after the first two, and over the runs; then, in
the same process, `decode` reads payloads from Parquet, decodes them and counts the results, and is the median of five
runs. `auto` chooses batch by batch, see `decode.placement`; what it has learned after ten batches is measured by
``--shapes bytes wide json --sizes 50000:20 --warm-up 10``, given to `produce` and to all engines.
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
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan, nan
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
ENGINES = ("gpu", "cpu", "builtin", "auto")
BATCHES = {400_000: 6, 100_000: 8}
WARM_UP = 2
CORES = 8
DECODED_ROWS = 400_000
NOISE_S = 0.005
"""A difference of two times that is smaller says nothing."""


def main() -> None:
    """Do what the first argument says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    producing = commands.add_parser("produce")
    running = commands.add_parser("run")
    running.add_argument("engine", choices=ENGINES)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--warm-up", type=int, default=WARM_UP, help="batches that do not count")
    running.add_argument("--runs", type=int, default=1, help="streams of each shape and size")
    running.add_argument("--parts", nargs="+", choices=["decode", "stream"], default=["decode", "stream"])
    for command in (producing, running):
        command.add_argument("--servers", required=True)
        command.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
        command.add_argument("--scale", type=float, default=1.0, help="of the batches' rows, for a trial")
        command.add_argument("--sizes", nargs="+", type=_size, default=list(BATCHES.items()), metavar="ROWS:BATCHES")
    showing = commands.add_parser("table")
    showing.add_argument("files", nargs="+", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "table":
        sys.stdout.write(
            table([json.loads(line) for file in arguments.files for line in file.read_text().splitlines()])
        )
    elif arguments.command == "produce":
        produce(arguments.servers, {name: dict(arguments.sizes) for name in arguments.shapes}, arguments.scale)
    else:
        run(arguments)


def _size(text: str) -> tuple[int, int]:
    rows, batches = text.split(":")
    return int(rows), int(batches)


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


def run(arguments: argparse.Namespace) -> None:
    """Measure an engine and append its figures to the file `out`, one line of JSON each."""
    for name in arguments.shapes:
        if arguments.engine == "builtin" and case_of(name).format == "protobuf":
            continue  # Spark's is not to be had
        process = multiprocessing.get_context("spawn").Process(target=run_shape, args=(arguments, name))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"{arguments.engine}, {name}: the process ended with code {process.exitcode}")


def run_shape(arguments: argparse.Namespace, name: str) -> None:
    """Measure an engine on one shape, in a session of its own."""
    engine, out, case = arguments.engine, arguments.out, case_of(name)
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{engine}-"))
    begin = time.time()
    spark = session(engine, [config_of(case, name, arguments.servers, folder, 1, engine)])
    _note(out, {"engine": engine, "shape": name, "session_s": time.time() - begin})
    for rows, batches in arguments.sizes if "stream" in arguments.parts else []:
        size = int(rows * arguments.scale)
        for _ in range(arguments.runs):
            here = folder / f"{name}-{rows}"
            here.mkdir()
            config = config_of(case, name, arguments.servers, here, size, engine, f"{name}-{rows}")
            figures = _stream(spark, engine, case, config, batches, arguments.warm_up)
            _note(out, {"engine": engine, "shape": name, **figures})
            shutil.rmtree(here)
    if "decode" in arguments.parts and engine != "auto":
        _note(out, {"engine": engine, "shape": name, "decode_s": _decode_s(spark, engine, case, name, folder)})
    spark.stop()
    shutil.rmtree(folder)


def _stream(
    spark: SparkSession, engine: str, case: Case, config: dict[str, Any], batches: int, warm_up: int
) -> dict[str, Any]:
    """Run a stream to its end; return the figures of its first `batches` batches."""
    size, first = config["kafka"]["max_offsets_per_trigger"], time.time()
    if engine == "builtin":
        _builtin(spark, case, config)
    else:
        ingest.run(IngestConfig.model_validate(config))
    done = harness.Batches.of_checkpoint(Path(config["checkpoint_dir"]))
    steady = done.steady_s(warm_up)[: batches - warm_up]  # partitions may differ by a row, which is a batch
    assert len(steady) == batches - warm_up, (len(done.done), batches)
    first_s = done.done[0] - first
    print(case.name, size, "first batch", round(first_s, 2), [round(s, 2) for s in steady], flush=True)
    figures = {"batch_rows": size, "batch_s": median(steady), "rows_per_s": size / median(steady)}
    return {**figures, "first_batch_s": first_s, **_events(Path(config["telemetry"]["run_dir"]))}


def _note(out: Path, figures: dict[str, Any]) -> None:
    with out.open("a") as file:
        file.write(json.dumps(figures) + "\n")


def session(
    engine: str, configs: Sequence[dict[str, Any]], further: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """Return the session of an engine for streams of these configurations; ``BENCH_CONF`` adds settings, K=V.

    Raises:
        ValueError: the streams' jobs would have different settings.
    """
    settings = {
        "spark.master": f"local[{CORES}]",
        "spark.driver.memory": os.environ.get("BENCH_MEMORY", "24g"),
        "spark.driver.host": "127.0.0.1",
        **further,
    }
    for config in configs:
        wanted = ingest.settings(IngestConfig.model_validate(config))
        if differing := [key for key, value in wanted.items() if settings.get(key, value) != value]:
            msg = f"streams of one session want different values of {', '.join(differing)}"
            raise ValueError(msg)
        settings |= wanted
    if engine in ("gpu", "auto"):
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
        "decode": {"placement": engine if engine in ("gpu", "auto") else "cpu"},
    }


def _builtin(spark: SparkSession, case: Case, config: dict[str, Any]) -> None:
    """Run the plain template on a stream of ours: the built-in function, and the native sink of Delta."""
    kafka = config["kafka"]
    source = {"kafka.bootstrap.servers": kafka["bootstrap_servers"], "subscribe": kafka["topics"][0]["name"]}
    records = (
        spark.readStream.format("kafka")
        .options(**source, startingOffsets="earliest", maxOffsetsPerTrigger=kafka["max_offsets_per_trigger"])
        .load()
    )
    query = (
        records.select(_peer(case).alias("r"))
        .select("r.*")
        .writeStream.format("delta")
        .option("checkpointLocation", config["checkpoint_dir"])
        .trigger(availableNow=True)
        .start(config["tables"]["samples"])
    )
    query.awaitTermination()


def _peer(case: Case) -> Column:
    if case.format == "avro":
        return from_avro("value", case.schema)
    return sf.from_json(sf.col("value").cast("string"), case.schema)


def _decode_s(spark: SparkSession, engine: str, case: Case, name: str, folder: Path) -> list[float]:
    """Return the median seconds to read payloads from Parquet, to read, decode and count them, and to count a field.

    The last one leaves records in the decoder's hands: to count them RAPIDS copies a struct of all their columns. Where
    Spark parses only the field that is asked for, as its JSON function does, it says nothing of the decoder.
    """
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
    # every engine decodes whole records; an aggregate of each of 200 columns would cost more than to decode them
    field = sf.count(sf.col("value").getField(case.shape.fields[-1].name))
    times = [
        _median_s(lambda: records.agg(sf.count("value"))),
        _median_s(lambda: decoded.agg(sf.count("value"), field)),
        _median_s(lambda: decoded.agg(field)),
    ]
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
    for event in read_events(folder.glob("*/events.jsonl")):
        if event.kind == "ingest_batch":
            engine = event.labels["engine"]
            engines[engine] = engines.get(engine, 0) + 1
            refereed += event.numbers.get("refereed", 0)
        elif event.kind.startswith("decode_"):
            print(json.dumps(event.to_dict()), flush=True)
    return {"engines": engines, "refereed": refereed}


def table(figures: Sequence[dict[str, Any]]) -> str:
    """Return markdown tables of the figures of all engines."""
    return (
        f"Rows/s from Kafka to Delta:\n\n{_end_to_end(figures)}\n\n"
        f"Seconds to read {DECODED_ROWS:,} payloads from Parquet and decode them (to read alone):\n\n"
        f"{_decode_stage(figures)}\n"
    )


def _end_to_end(figures: Sequence[dict[str, Any]]) -> str:
    rates: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for figure in figures:
        if "rows_per_s" in figure:
            rates[figure["shape"], figure["batch_rows"], figure["engine"]].append(figure["rows_per_s"])
    sizes = sorted({rows for _, rows, _ in rates}, reverse=True)
    lines = []
    for name, rows in ((name, rows) for name in SHAPES for rows in sizes):
        rate = {engine: median(rates.get((name, rows, engine)) or [nan]) for engine in ENGINES}
        better = max((rate[engine] for engine in ("gpu", "cpu") if not isnan(rate[engine])), default=nan)
        ratios = [rate["gpu"] / rate["cpu"], rate["gpu"] / rate["builtin"], rate["auto"] / better]
        if not all(isnan(value) for value in rate.values()):
            lines.append([SHAPES[name], f"{rows:,}", *_cells(rate.values(), ",.0f"), *_cells(ratios, ".2f")])
    header = ["payload", "rows a batch", "GPU", "CPU", "built-in", "auto", "GPU/CPU", "GPU/built-in", "auto/better"]
    return harness.table(header, lines)


def _decode_stage(figures: Sequence[dict[str, Any]]) -> str:
    engines = ENGINES[:3]
    lines = []
    for name in SHAPES:
        spent = {
            engine: [
                f["decode_s"] for f in figures if f.get("shape") == name and f["engine"] == engine and "decode_s" in f
            ]
            for engine in engines
        }
        if not any(spent.values()):
            continue
        # files from before a field was counted by itself have two figures
        read, *counted = (
            {e: median([t[part] for t in spent[e] if part < len(t)] or [nan]) for e in engines} for part in range(3)
        )
        for what, both in zip(("records and a field", "a field"), counted, strict=True):
            alone = {engine: both[engine] - read[engine] for engine in engines}
            if alone["gpu"] < NOISE_S:
                alone["gpu"] = nan
            cells = [f"{both[engine]:.3f} ({read[engine]:.3f})" if spent[engine] else "" for engine in engines]
            ratios = [alone[peer] / alone["gpu"] for peer in engines[1:]]
            if all(isnan(seconds) for seconds in both.values()):
                continue
            lines.append([SHAPES[name], what, *cells, *_cells(ratios, ".1f")])
    header = ["payload", "counted", "GPU", "CPU", "built-in", "GPU/CPU, less reading", "GPU/built-in, less reading"]
    return harness.table(header, lines)


def _cells(values: Iterable[float], form: str) -> list[str]:
    return ["" if isnan(value) else format(value, form) for value in values]


if __name__ == "__main__":
    main()
