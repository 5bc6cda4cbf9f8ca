"""Signals: a batch is whole or not there, whatever ends the driver; for kills see tests/soak."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from tests.fixtures.jobs import coordinates, eventually, ingest_data, json_records, ledger, start, table_version
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_sigterm_finishes_the_running_batch(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("term")
    kafka.produce(topic, json_records(400))
    data = ingest_data(tmp_path, kafka.bootstrap_servers, {topic: "json"}, trigger={"interval_s": 0})
    job = start(tmp_path, data, measured=True)
    try:
        eventually(lambda: table_version(tmp_path / "samples") >= 2)
        job.remember()
        job.process.send_signal(signal.SIGTERM)
        code, output = job.wait(60)
        assert code == 0, output
        assert "error" not in output
        assert not job.left_over()
    finally:
        job.kill()
    rows = sum(entry.good for entry in ledger(tmp_path / "samples"))
    assert len(coordinates(tmp_path)) == rows


def test_a_second_sigint_ends_everything_at_once(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("int")
    kafka.produce(topic, json_records(2000))
    data = ingest_data(tmp_path, kafka.bootstrap_servers, {topic: "json"}, trigger={"interval_s": 0})
    job = start(tmp_path, data)
    try:
        eventually(lambda: table_version(tmp_path / "samples") >= 2)
        driver = job.python_driver()
        job.process.send_signal(signal.SIGSTOP)  # Spark stands still: no batch can end between the two
        driver.send_signal(signal.SIGINT)
        eventually(lambda: "signal 2" in (tmp_path / "kbit.log").read_text())
        driver.send_signal(signal.SIGINT)
        eventually(lambda: not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE)
        job.process.send_signal(signal.SIGCONT)
        code, output = job.wait(60)
        assert code == 130, output
        assert "Traceback" not in output
        assert not job.left_over()
    finally:
        job.kill()
