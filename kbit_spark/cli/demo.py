"""The demo: real digits through a real broker into real Delta tables, and a model trained on them by two ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from kbit_spark.cli.report import Report, make_report
from kbit_spark.errors import RunError
from kbit_spark.local import broker
from kbit_spark.local.digits import digits
from kbit_spark.local.payloads import Format
from kbit_spark.local.produce import ensure_topic, produce, records
from kbit_spark.telemetry.report import read_events

ROOT = Path(__file__).parents[2]
BROKEN = 20
MIN_ACCURACY = 0.97
FORMATS: tuple[Format, ...] = ("json", "avro")
TRAIN_MASTER = "local-cluster[2,1,1024]"


@dataclass(frozen=True)
class Result:
    """What the demo reached."""

    accuracy: float
    rows: int
    rejected: int
    seconds: float

    def misses(self, rows: int) -> list[str]:
        """Return the targets that were missed, for `rows` records of which `BROKEN` are broken."""
        wanted = rows - BROKEN
        return [
            text
            for missed, text in (
                (not self.accuracy >= MIN_ACCURACY, f"accuracy {self.accuracy:.4f} is below {MIN_ACCURACY}"),
                (self.rows != wanted, f"{self.rows} rows in samples, not {wanted}"),
                (self.rejected != BROKEN, f"{self.rejected} rows in rejected, not {BROKEN}"),
            )
            if missed
        ]


def run_demo(folder: Path, rows: int) -> None:
    """Run the demo in `folder` with `rows` records; the last line printed is its result.

    Raises:
        MissingRequirement: no Java, or no jars; an earlier demo in `folder` is as it was.
        RunError: a job failed, or a target was missed.
    """
    start = time.monotonic()
    console = Console(highlight=False)
    broker.required_java()  # before anything of an earlier demo goes
    _wipe(folder)
    try:
        console.rule("Kafka", align="left")
        servers = broker.start(folder / "broker").bootstrap_servers
        for form in FORMATS:
            _produce(servers, form, rows // 2)
            console.print(f"topic digits-{form}: {rows // 2} records, {BROKEN // 2} of them broken")
        console.rule("Kafka → Delta", align="left")
        _submit(folder, "ingest", "local[2]", "jobs/stream_ingest.py", f"kafka.bootstrap_servers={servers}")
    finally:
        broker.stop(folder / "broker")
    console.rule("Delta → model, two ranks", align="left")
    _submit(folder, "train", TRAIN_MASTER, "jobs/train_barrier.py")
    result = _result(folder, time.monotonic() - start)
    report = make_report(folder / "report.html", [file.parent for file in _events(folder)], title="kbit_spark demo")
    _summary(console, result, report)
    misses = result.misses(rows)
    line = f"demo: accuracy={result.accuracy:.4f} rows={result.rows} rejected={result.rejected}"
    print(f"{line} seconds={result.seconds:.0f}", flush=True)
    if misses:
        msg = f"the demo missed its target: {'; '.join(misses)}"
        raise RunError(msg, f"see {report.path} and the logs in {folder}")


def _wipe(folder: Path) -> None:
    broker.stop(folder / "broker")  # one that a killed demo left
    if folder.exists() and not (folder / "broker").exists() and any(folder.iterdir()):
        msg = f"{folder} holds something else than a demo"
        raise RunError(msg, "choose another --folder; the demo wipes it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _produce(servers: str, form: Format, rows: int) -> None:
    topic = f"digits-{form}"
    seed = FORMATS.index(form)
    ensure_topic(servers, topic, partitions=2)
    produce(servers, topic, records(digits(rows, seed), form, rows, BROKEN // 2, seed))


def _submit(folder: Path, name: str, master: str, job: str, *overrides: str) -> None:
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(_config(folder, name), sort_keys=False), encoding="utf-8")
    command = [str(ROOT / "spark-submit.sh"), "--master", master, "--driver-memory", "1g"]
    command += [str(ROOT / job), "--config", str(config), *overrides]
    environment = {**os.environ, "KBIT_LOG": str(folder / f"{name}.log"), "PYSPARK_PYTHON": sys.executable}
    job_process = subprocess.Popen(command, env=environment)
    try:
        code = job_process.wait()
    except BaseException:
        job_process.terminate()
        job_process.wait(30)
        raise
    if code != 0:
        msg = f"{job} ended with exit code {code}"
        raise RunError(msg, f"its log is {folder / f'{name}.log'}")


def _config(folder: Path, name: str) -> dict[str, Any]:
    """Return conf/demo-NAME.yaml with every path moved into the demo's folder."""
    text = (ROOT / f"conf/demo-{name}.yaml").read_text(encoding="utf-8")
    config: dict[str, Any] = yaml.safe_load(text.replace(".kbit/demo", str(folder)).replace("conf/", f"{ROOT}/conf/"))
    return config


def _events(folder: Path) -> list[Path]:
    return sorted((folder / "runs").glob("*/events.jsonl"))


def _result(folder: Path, seconds: float) -> Result:
    tests = [event for event in read_events(_events(folder)) if event.kind == "train_test"]
    return Result(
        accuracy=tests[-1].numbers["accuracy"] if tests else float("nan"),
        rows=DeltaTable(folder / "samples").count(),
        rejected=DeltaTable(folder / "rejected").count(),
        seconds=seconds,
    )


def _summary(console: Console, result: Result, report: Report) -> None:
    console.rule("What came out", align="left")
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("test accuracy on unseen digits", f"{result.accuracy:.2%}")
    table.add_row("rows in samples", f"{result.rows:,}")
    codes: Counter[str] = Counter()
    for record in report.bad:
        codes[record.code] += record.count
    reasons = ", ".join(f"{count} {code}" for code, count in codes.most_common())
    table.add_row("rows in rejected", f"{result.rejected}: {reasons}")
    table.add_row("report", str(report.path))
    console.print(table)
