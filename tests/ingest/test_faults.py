"""What goes wrong: one clear line, the right exit code, no stack trace on the terminal, nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import table as arrow_table

from tests.fixtures.jobs import ingest_data, ledger, start
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.kafka
PLAIN = (sys.executable,)
LOGS = {".log", ".jsonl", ".yaml", ".txt", ".html"}


def fails(folder: Path, data: dict[str, Any], code: int, *words: str, env: dict[str, str] | None = None) -> str:
    """Run the job as plain Python and check what the terminal saw; return it."""
    job = start(folder, data, options=(), launcher=PLAIN, env=env, conf=False)
    returned, output = job.wait()
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    assert (returned, len(errors)) == (code, 1), output
    assert all(word in output for word in words), output
    assert "Traceback" not in output
    assert "\tat " not in output
    return output


def test_no_broker(tmp_path: Path) -> None:
    fails(tmp_path, ingest_data(tmp_path, "127.0.0.1:1", {"digits": "json"}), 1, "127.0.0.1:1", "kbit broker start")
    assert not (tmp_path / "samples").exists()


def test_missing_topic(kafka: Kafka, tmp_path: Path) -> None:
    fails(tmp_path, ingest_data(tmp_path, kafka.bootstrap_servers, {"nowhere": "json"}), 1, "no topic nowhere")
    assert not (tmp_path / "samples").exists()


def test_a_typo_in_the_configuration(tmp_path: Path) -> None:
    data = ingest_data(tmp_path, "127.0.0.1:1", {"digits": "json"}, checkpointdir="x")
    fails(tmp_path, data, 2, "checkpointdir", "did you mean checkpoint_dir?")


def test_a_secret_that_is_not_in_the_environment(tmp_path: Path) -> None:
    data = ingest_data(tmp_path, "127.0.0.1:1", {"digits": "json"})
    data["kafka"]["options_from_env"] = {"sasl.password": "KBIT_TEST_UNSET"}
    fails(tmp_path, data, 2, "KBIT_TEST_UNSET")


def test_a_table_of_something_else(kafka: Kafka, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "samples"), arrow_table({"other": [1]}))
    data = ingest_data(tmp_path, kafka.bootstrap_servers, {kafka.topic(): "json"})
    fails(tmp_path, data, 1, "no column image", "choose a new path")
    assert DeltaTable(str(tmp_path / "samples")).version() == 0
    assert not (tmp_path / "rejected").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Two megabytes of disk."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_the_disk_is_full(kafka: Kafka, tmp_path: Path, small_disk: Path) -> None:
    topic = kafka.topic()
    kafka.produce(
        topic, [(str(i).encode(), b'{"image": "%d"' % i + os.urandom(2000).hex().encode()) for i in range(900)]
    )
    data = ingest_data(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    data["kafka"]["max_offsets_per_trigger"] = 300
    data["tables"]["rejected"] = str(small_disk / "rejected")
    fails(tmp_path, data, 1, "No space left on device")
    rows = DeltaTable(str(small_disk / "rejected")).to_pyarrow_table().num_rows
    assert sum(entry.bad for entry in ledger(tmp_path / "samples")) == rows


def test_wrong_credentials_and_no_secret_anywhere(sasl_broker: str, tmp_path: Path) -> None:
    secret = "hunter2-c0ffee"
    data = ingest_data(tmp_path, sasl_broker, {"digits": "json"})
    data["kafka"]["options"] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    data["kafka"]["options_from_env"] = {"sasl.jaas.config": "KBIT_TEST_JAAS"}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    jaas = f'{module} username="kbit" password="{secret}";'
    output = fails(tmp_path, data, 1, "uthentication", env={"KBIT_TEST_JAAS": jaas})
    seen = output + "".join(
        f.read_text(errors="replace") for f in tmp_path.rglob("*") if f.is_file() and f.suffix in LOGS
    )
    assert len(seen) > len(output)
    assert secret not in seen
