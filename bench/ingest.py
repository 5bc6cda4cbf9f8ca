"""Ingest against the plain template: same topic, same batches, same cores, side by side in one run.

    kbit bench ingest [--rounds 3] [--json]

Each round runs the template and the product one after the other; a figure is the median over rounds, a ratio the median
of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from bench import harness

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "conf/schemas/digit.avsc"
RESULTS = ROOT / "bench/results"
MASTER = "local[2]"
MEMORY = "2g"


@dataclass(frozen=True)
class Case:
    """One comparison: what the topic holds and how it is cut into batches."""

    name: str
    format: str
    batch_rows: int
    batches: int
    warm_up: int
    image: str
    """`tensor`: one BINARY column; `array<int>` or `binary`: the template's own column type."""

    topic: str
    """Holds exactly the rows of the batches."""

    target: float | None
    """Ratio that the issue asks for, template time over ours."""


CASES = (
    Case("Avro, image bytes", "avro", 50_000, 16, 8, "tensor", "bench-avro", 2.5),
    Case("JSON, 784 numbers", "json", 25_000, 32, 16, "tensor", "bench-json", 6.0),
    Case("JSON, 784 numbers, the template's own types", "json", 25_000, 32, 16, "array<int>", "bench-json", None),
    Case("near-empty batch (8 rows)", "avro", 8, 40, 20, "tensor", "bench-small", 4.0),
)


def main() -> None:
    """Run the cases and print a markdown table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", help="only cases whose name contains this")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    cases = [case for case in CASES if not arguments.case or arguments.case in case.name]
    with tempfile.TemporaryDirectory(prefix="kbit-bench-") as folder:
        results = compare(cases, arguments.rounds, Path(folder))
    RESULTS.mkdir(parents=True, exist_ok=True)
    markdown = _markdown(results, arguments.rounds)
    (RESULTS / "ingest.md").write_text(markdown)
    sys.stdout.write(json.dumps(results, indent=2) + "\n" if arguments.json else markdown)


def compare(cases: list[Case], rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Return for each case the rates of both sides and their ratio."""
    from kbit_spark.local import broker

    servers = broker.start(folder / "broker").bootstrap_servers
    try:
        for topic, case in {case.topic: case for case in cases}.items():
            _produce(servers, topic, case)
        return [_compare(case, rounds, servers, folder) for case in cases]
    finally:
        broker.stop(folder / "broker")


def _compare(case: Case, rounds: int, servers: str, folder: Path) -> dict[str, Any]:
    pairs = []
    for number in range(rounds):
        sides = {}
        for side in (_template, _product):
            here = folder / f"{side.__name__}-{number}"
            here.mkdir()
            sides[side.__name__.strip("_")] = side(case, servers, here)
            shutil.rmtree(here)
        pairs.append(sides)
    return {
        "case": asdict(case),
        "template": _median([asdict(pair["template"]) for pair in pairs]),
        "product": _median([asdict(pair["product"]) for pair in pairs]),
        "ratio": median(pair["template"].batch_s / pair["product"].batch_s for pair in pairs),
        "ratio_per_round": [round(pair["template"].batch_s / pair["product"].batch_s, 2) for pair in pairs],
    }


def _template(case: Case, servers: str, folder: Path) -> harness.Rate:
    jars = ",".join(str(jar) for jar in sorted((ROOT / "jars/target/spark").glob("*.jar")))
    submit = Path(sys.executable).parent / "spark-submit"
    command = [str(submit), "--master", MASTER, "--driver-memory", MEMORY, "--jars", jars]
    command += [str(ROOT / "bench/template.py"), "--bootstrap-servers", servers, "--topic", case.topic]
    command += ["--format", case.format, "--batch-rows", str(case.batch_rows), "--folder", str(folder)]
    command += ["--schema", str(SCHEMA)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    watch = harness.run(command, folder / "log.txt", environment)
    return harness.rate(watch, harness.Batches.of_checkpoint(folder / "checkpoint"), case.batch_rows, case.warm_up)


def _product(case: Case, servers: str, folder: Path) -> harness.Rate:
    config = folder / "config.yaml"
    config.write_text(json.dumps(_config(case, servers, folder)))  # JSON is YAML
    command = [str(ROOT / "spark-submit.sh"), "--master", MASTER, "--driver-memory", MEMORY]
    command += [str(ROOT / "jobs/stream_ingest.py"), "--config", str(config)]
    watch = harness.run(command, folder / "log.txt")
    return harness.rate(watch, harness.Batches.of_checkpoint(folder / "checkpoint"), case.batch_rows, case.warm_up)


def _config(case: Case, servers: str, folder: Path) -> dict[str, Any]:
    topic = {"name": case.topic, "format": case.format}
    if case.format == "avro":
        topic["schema_file"] = str(SCHEMA)
    tensor = {"name": "image", "tensor": {"dtype": "uint8", "shape": [28, 28]}}
    return {
        "stream_id": "bench",
        "kafka": {"bootstrap_servers": servers, "topics": [topic], "max_offsets_per_trigger": case.batch_rows},
        "fields": [
            tensor if case.image == "tensor" else {"name": "image", "type": case.image},
            {"name": "label", "type": "int"},
        ],
        "tables": {"samples": str(folder / "samples"), "rejected": str(folder / "rejected")},
        "checkpoint_dir": str(folder / "checkpoint"),
        "trigger": {"available_now": True},
        "telemetry": {"run_dir": str(folder / "runs")},
    }


def _produce(servers: str, topic: str, case: Case) -> None:
    command = [sys.executable, "-m", "kbit_spark.cli.main", "produce", "--bootstrap-servers", servers]
    command += ["--topic", topic, "--format", case.format, "--partitions", "2"]
    command += ["--rows", str(case.batch_rows * case.batches)]
    with tempfile.NamedTemporaryFile(suffix=".txt") as log:
        harness.run(command, Path(log.name))


def _median(rates: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(median(rate[key] for rate in rates), 3) for key in rates[0]}


def _markdown(results: list[dict[str, Any]], rounds: int) -> str:
    header = ["case", "template", "kbit_spark", "ratio", "target", "rows per CPU second, template", "kbit_spark"]
    rows = []
    for result in results:
        case, template, product = result["case"], result["template"], result["product"]
        speed = [f"{side['rows_per_s']:,.0f} rows/s ({side['batch_s']:.2f} s a batch)" for side in (template, product)]
        target = f"≥ {case['target']}" if case["target"] else "shown"
        per_cpu = [f"{side['rows_per_cpu_s']:,.0f}" for side in (template, product)]
        rows.append([case["name"], *speed, f"{result['ratio']:.2f}", target, *per_cpu])
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    note = f"{when}, {MASTER}, driver memory {MEMORY}, medians of {rounds} rounds, each side in a JVM of its own."
    return f"# Ingest against the plain template\n\n{note}\n\n{harness.table(header, rows)}\n"


if __name__ == "__main__":
    main()
