from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message

from kbit_spark.cli.demo import Result, run_demo
from kbit_spark.errors import MissingRequirement
from tests.fixtures.kafka import Kafka

ROOT = Path(__file__).parents[2]


def kbit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kbit_spark.cli.main", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, env=environment, check=False)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["broker", "status"], 1, "no broker runs"),
        (["broker", "start", "--port", "99999"], 2, "65535"),
        (["produce", "--topic", "t"], 2, "no embedded broker runs"),
        (["produce", "--topic", "t", "--format", "xml"], 2, "xml"),
        (["produce", "--topic", "t", "--rows", "1", "--broken", "2"], 2, "--broken 2"),
        (["nonsense"], 2, "nonsense"),
        (["bench", "nonsense"], 2, "known: "),
        (["doctor", "stream_id=x"], 2, "--config"),
        (["doctor", "--config", "nowhere.yaml"], 2, "nowhere.yaml"),
        (["report", "nowhere"], 2, "no events in nowhere"),
        (["version"], 0, "0.1.0"),
        (["--help"], 0, "broker"),
    ],
)
def test_exit_code_and_one_clear_line(arguments: list[str], code: int, says: str, tmp_path: Path) -> None:
    done = kbit(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_broker_on_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = kbit("broker", "start", "--port", str(port), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"error: port {port} is taken\n  choose another --port, or none for a free one\n"
    assert not (tmp_path / ".kbit/broker").exists()


@pytest.mark.parametrize("job", ["ingest", "train", "experiment"])
def test_config_init_never_overwrites(job: str, tmp_path: Path) -> None:
    assert kbit("config", "init", job, "--output", "c.yaml", cwd=tmp_path).returncode == 0
    text = (tmp_path / "c.yaml").read_text()
    assert "#" in text
    again = kbit("config", "init", job, "--output", "c.yaml", cwd=tmp_path)
    assert again.returncode == 2
    assert (tmp_path / "c.yaml").read_text() == text


@pytest.mark.parametrize("form", ["avro", "mongo-canonical"])
def test_produce_writes_keys_headers_and_the_broken_ones(form: str, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("produce")
    wanted = ["--rows", "200", "--broken", "7", "--format", form, "--bootstrap-servers", kafka.bootstrap_servers]
    done = kbit("produce", "--topic", topic, *wanted, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Message] = []
    while len(found) < 200:
        found += consumer.consume(200, timeout=10)
    consumer.close()
    assert len(found) == 200
    assert all(0 <= int(message.key() or -1) < 1_797 for message in found)
    assert sum(1 for message in found if message.headers()) == 7


def test_a_demo_without_java_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "report.html").touch()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingRequirement, match="no java on the PATH"):
        run_demo(tmp_path, rows=20)
    assert (tmp_path / "report.html").exists()


def test_the_demo_names_each_missed_target() -> None:
    assert Result(accuracy=0.98, rows=1_980, rejected=20, seconds=1).misses(2_000) == []
    assert len(Result(accuracy=float("nan"), rows=1_979, rejected=19, seconds=1).misses(2_000)) == 3
