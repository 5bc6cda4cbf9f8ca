"""Ingest and follow as two jobs on one table, a real broker before them, and both killed in between."""

from __future__ import annotations

import signal
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from kbit_spark.cli.main import app
from kbit_spark.local.digits import digits
from kbit_spark.local.produce import produce, records
from kbit_spark.training import checkpoint
from kbit_spark.training.manifest import Manifest
from tests.fixtures.jobs import INGEST, SMALL, TRAIN, Job, eventually, ingest_data, ledger, start
from tests.fixtures.kafka import Kafka
from tests.follow.test_follow import windows

pytestmark = pytest.mark.kafka
ROWS, RATE, MORE, BROKEN = 1_500, 40.0, 300, 15


def follow_data(folder: Path) -> dict[str, Any]:
    return {
        "data": {"table": str(folder / "samples")},
        "model": "mlp",
        "device": "cpu",
        "global_batch_size": 32,
        "checkpoint": {"dir": str(folder / "checkpoints"), "every_steps": 5},
        "follow": {"enabled": True, "poll_s": 0.2, "min_rows_per_window": 50},
        "telemetry": {"run_dir": str(folder / "runs")},
    }


def learnt(folder: Path) -> Manifest | None:
    """Return the manifest of the newest checkpoint at the end of a window."""
    found = checkpoint.newest(folder / "checkpoints")
    return found.manifest if found is not None and found.manifest.position.finished else None


def rows_learnt(folder: Path) -> int:
    manifest = learnt(folder)
    return manifest.window.rows_so_far if manifest is not None and manifest.window is not None else 0


def train_rows(folder: Path) -> int:
    splits: list[str] = DeltaTable(str(folder / "samples")).to_pyarrow_table(columns=["_split"]).column(0).to_pylist()
    return splits.count("train")


def offsets_read(folder: Path) -> int:
    return sum(r.span for entry in ledger(folder / "samples") for r in entry.ranges)


@pytest.mark.timeout(600)
def test_both_run_side_by_side_and_come_back_when_killed(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("follow", 2)
    messages = records(digits(ROWS, 1), "json", ROWS, BROKEN, 1)
    producer = threading.Thread(target=produce, args=(kafka.bootstrap_servers, topic, messages, RATE), daemon=True)
    stream = ingest_data(
        tmp_path,
        kafka.bootstrap_servers,
        {topic: "json"},
        kafka={
            "bootstrap_servers": kafka.bootstrap_servers,
            "topics": [{"name": topic, "format": "json"}],
            "max_offsets_per_trigger": 400,
        },
        trigger={"interval_s": 1},
        maintenance={"optimize_every_batches": 5},
        split={"validation": 0.2, "test": 0.1},
    )
    running: dict[str, Job] = {}

    def begin(script: str) -> None:
        running[script] = start(
            tmp_path, stream if script == INGEST else follow_data(tmp_path), ("--master", "local[1]", *SMALL),
            script=script,
        )  # fmt: skip

    try:
        begin(TRAIN)  # before there is a table
        begin(INGEST)
        producer.start()
        for victim in (TRAIN, INGEST):
            before = rows_learnt(tmp_path)
            eventually(lambda: rows_learnt(tmp_path) > before)  # noqa: B023
            running[victim].kill()
            begin(victim)
        producer.join()
        last = records(digits(MORE, 2), "json", MORE, BROKEN, 2)
        produce(kafka.bootstrap_servers, topic, last)  # whoever takes these has come back
        eventually(lambda: offsets_read(tmp_path) == ROWS + MORE)
        eventually(lambda: rows_learnt(tmp_path) >= train_rows(tmp_path) - 49)  # fewer than a window wait for more
        for job in running.values():
            job.process.send_signal(signal.SIGTERM)
        for job in running.values():
            code, output = job.wait(120)
            assert code == 0, output
    finally:
        for job in running.values():
            job.kill()

    told = {event.numbers["window"]: event.numbers for event in windows(tmp_path)}
    assert list(told) == list(range(len(told)))
    assert len(told) >= 3
    numbered = list(told.values())
    assert all(b["first_version"] == a["last_version"] + 1 for a, b in pairwise(numbered))
    assert sum(numbers["new_rows"] for numbers in numbered) == rows_learnt(tmp_path)
    assert all(0 < numbers["freshness_s"] <= numbers["oldest_freshness_s"] < 600 for numbers in numbered)
    manifest = learnt(tmp_path)
    assert manifest is not None
    assert sum(r.span for r in manifest.lineage.kafka) <= ROWS + MORE
    seen = manifest.lineage.kafka[0]
    asked = CliRunner().invoke(
        app, ["lineage", "--offset", f"{topic}:{seen.partition}:{seen.end - 1}", str(tmp_path / "checkpoints")]
    )
    assert asked.exit_code == 0
    assert f"step-{manifest.position.total_steps:09d}" in asked.stdout
