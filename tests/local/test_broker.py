from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from kbit_spark.errors import MissingRequirement, RunError, UsageError
from kbit_spark.local import broker
from kbit_spark.local.produce import ensure_topic


def test_topics_outlive_a_kill_and_a_restart_at_the_same_address(tmp_path: Path) -> None:
    first = broker.start(tmp_path)
    try:
        assert broker.start(tmp_path) == first
        ensure_topic(first.bootstrap_servers, "kept", 1)
        os.kill(first.pid, signal.SIGKILL)
        psutil.Process(first.pid).wait(10)
        assert broker.status(tmp_path) is None
        second = broker.start(tmp_path)
        assert second.bootstrap_servers == first.bootstrap_servers
        assert "kept" in AdminClient({"bootstrap.servers": second.bootstrap_servers}).list_topics(timeout=10).topics
    finally:
        assert broker.stop(tmp_path)
    assert not broker.stop(tmp_path)


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RunError, match="is taken"):
            broker.start(tmp_path, taken.getsockname()[1])
    assert not list(tmp_path.iterdir())


def test_one_that_runs_at_another_port_is_no_answer(tmp_path: Path) -> None:
    this = psutil.Process()
    (tmp_path / "broker.json").write_text(
        f'{{"pid": {this.pid}, "started": {this.create_time()}, "bootstrap_servers": "127.0.0.1:9092"}}'
    )
    assert broker.start(tmp_path).port == broker.start(tmp_path, 9092).port == 9092
    with pytest.raises(UsageError, match=r"runs already, at 127\.0\.0\.1:9092, not at port 9093"):
        broker.start(tmp_path, 9093)


def test_missing_jars_are_a_missing_requirement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "JARS", tmp_path)
    with pytest.raises(MissingRequirement, match="no broker jars"):
        broker.start(tmp_path / "broker")


def test_another_process_with_the_same_pid_is_not_the_broker(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text(
        f'{{"pid": {os.getpid()}, "started": 1.0, "bootstrap_servers": "127.0.0.1:1"}}'
    )
    assert broker.status(tmp_path) is None
