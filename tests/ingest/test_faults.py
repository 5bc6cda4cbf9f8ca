"""What goes wrong: one clear line, the right exit code, no stack trace on the terminal, nothing half-written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import table as arrow_table
from pyspark.sql import SparkSession

from kbit_spark import ingest
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.errors import RunError
from kbit_spark.tables.verify import verify
from tests.fixtures.disk import SmallDisk
from tests.fixtures.jobs import coordinates, ingest_config, ingest_data, start
from tests.fixtures.kafka import Kafka, Record

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
    fails(tmp_path, ingest_data(tmp_path, "127.0.0.1:1", {"digits": "json"}), 1, "127.0.0.1:1", "--port 1`")
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


def test_a_table_of_something_else(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "samples"), arrow_table({"other": [1]}))
    with pytest.raises(RunError, match=r"no column image .*choose a new path"):
        ingest.run(ingest_config(tmp_path, kafka.bootstrap_servers, {kafka.topic(): "json"}))
    assert DeltaTable(str(tmp_path / "samples")).version() == 0
    assert not (tmp_path / "rejected").exists()


@pytest.mark.parametrize("full", ["rejected", "samples"])
def test_the_disk_is_full(spark: SparkSession, kafka: Kafka, tmp_path: Path, small_disk: SmallDisk, full: str) -> None:
    topic = kafka.topic()
    kafka.produce(topic, incompressible(900, good=full == "samples"))
    data = ingest_data(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    data["kafka"]["max_offsets_per_trigger"] = 300
    data["fields"][0]["tensor"]["shape"] = [56, 56]
    data["tables"][full] = str(small_disk.path / full)
    config = IngestConfig.model_validate(data)
    with pytest.raises(RunError, match="No space left on device"):
        ingest.run(config)
    assert verify(config.tables.samples, config.tables.rejected).faults == []
    small_disk.grow()
    ingest.run(config)
    assert verify(config.tables.samples, config.tables.rejected).faults == []
    assert coordinates(tmp_path, **data["tables"]) == [(topic, 0, offset) for offset in range(900)]


def incompressible(count: int, *, good: bool) -> list[Record]:
    """Return JSON records of some kilobytes that no compression makes smaller in the table."""
    random = Random(0)
    images = ([random.randrange(256) for _ in range(56 * 56)] for _ in range(count))
    if good:
        return [(str(i).encode(), json.dumps({"image": image, "label": i}).encode()) for i, image in enumerate(images)]
    return [(str(i).encode(), b'{"image": "%d"' % i + bytes(image).hex().encode()) for i, image in enumerate(images)]


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
