"""A stream's checks, against a real broker, registry, checkpoint and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from kbit_spark.cli.doctor import stream
from kbit_spark.cli.doctor.findings import Finding, examine
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.local.registry import RegistryServer
from tests.cli.test_main import kbit
from tests.fixtures.jobs import SCHEMA, ingest_config, ingest_data, json_records
from tests.fixtures.kafka import Kafka
from tests.ingest.test_maintenance import drain

pytestmark = pytest.mark.kafka


def findings(config: IngestConfig) -> dict[str, Finding]:
    return {finding.check: finding for finding in examine(stream.checks(config))}


def faults(config: IngestConfig) -> dict[str, str]:
    """Return what is not well, and check that each fault names a way out."""
    wrong = {name: finding for name, finding in findings(config).items() if finding.level != "ok"}
    assert all(finding.hint for finding in wrong.values()), wrong
    return {name: finding.message for name, finding in wrong.items()}


def changed(config: IngestConfig, **changes: Any) -> IngestConfig:
    return IngestConfig.model_validate({**config.model_dump(), **changes})


@pytest.fixture(scope="module")
def written(spark: SparkSession, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> IngestConfig:
    """A stream that has run."""
    topic = kafka.topic("doctor")
    kafka.produce(topic, [*json_records(20), (b"bad", b"{")])
    config = ingest_config(tmp_path_factory.mktemp("doctor"), kafka.bootstrap_servers, {topic: "json"})
    drain(spark, config)
    return config


def test_a_stream_before_and_after_its_first_start(kafka: Kafka, written: IngestConfig, tmp_path: Path) -> None:
    found = findings(written)
    assert {finding.level for finding in found.values()} == {"ok"}, found
    assert "belongs to query" in found["checkpoint"].message
    assert "version 1" in found["table samples"].message
    assert not Path(written.checkpoint_dir, stream.PROBE).exists()
    topic = written.kafka.topics[0].name
    found = findings(ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"}))
    assert {finding.level for finding in found.values()} == {"ok"}, found
    assert "the first start makes it" in found["checkpoint"].message
    assert not list(tmp_path.iterdir())  # a doctor leaves nothing behind


def test_a_table_of_another_stream_or_of_other_fields(written: IngestConfig) -> None:
    wrong = faults(changed(written, stream_id="others"))
    assert wrong == {"table samples": f"{written.tables.samples} belongs to the stream digits, not to others"}
    wrong = faults(changed(written, fields=[{"name": "label", "type": "string"}]))
    assert list(wrong) == ["table samples"]
    assert "label" in wrong["table samples"]


def test_paths_that_hold_something_else(written: IngestConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/metadata").write_text("not JSON")
    tables = {"samples": str(tmp_path), "rejected": str(tmp_path / "file/rejected")}
    wrong = faults(changed(written, tables=tables, checkpoint_dir=str(tmp_path / "checkpoint")))
    assert set(wrong) == {"checkpoint", "table samples", "table rejected"}
    assert "no Delta table" in wrong["table samples"]
    assert "is no folder" in wrong["table rejected"]
    wrong = faults(changed(written, checkpoint_dir=str(tmp_path / "file")))
    assert wrong == {"checkpoint": f"the checkpoint {tmp_path}/file is a file, not a folder"}


def test_schemas_that_cannot_give_the_fields(kafka: Kafka, written: IngestConfig, tmp_path: Path) -> None:
    topic = written.kafka.topics[0].name
    avro = {"name": topic, "format": "avro", "schema_file": str(SCHEMA)}
    servers = written.kafka.bootstrap_servers
    assert not faults(changed(written, kafka={"bootstrap_servers": servers, "topics": [avro]}))
    avro["schema_file"] = str(tmp_path / "nowhere.avsc")
    wrong = {
        f.check: f
        for f in examine(stream.checks(changed(written, kafka={"bootstrap_servers": servers, "topics": [avro]})))
    }
    assert wrong[f"schema {topic}"].level == "fail"
    assert "nowhere.avsc" in wrong[f"schema {topic}"].message


def test_a_registry_that_answers_and_one_that_does_not(written: IngestConfig, registry: RegistryServer) -> None:
    topic = {"name": written.kafka.topics[0].name, "format": "json", "framing": "confluent"}
    kafka = {"bootstrap_servers": written.kafka.bootstrap_servers, "topics": [topic], "registry": {"url": registry.url}}
    assert findings(changed(written, kafka=kafka))["registry"].level == "ok"
    kafka["registry"] = {"url": "http://127.0.0.1:9", "retry_for_s": 60}
    assert "no answer" in faults(changed(written, kafka=kafka))["registry"]


def test_credentials_that_only_java_reads_are_no_proof(written: IngestConfig) -> None:
    kafka = {**written.kafka.model_dump(), "options": {"ssl.truststore.location": "trust.jks"}}
    found = findings(changed(written, kafka=kafka))["kafka"]
    assert (found.level, "was not asked" in found.message) == ("warn", True)


def test_options_that_only_java_knows_are_named(written: IngestConfig) -> None:
    kafka = {**written.kafka.model_dump(), "options": {"ssl.protocol": "TLSv1.3", "fetch.max.bytes": "9000000"}}
    found = findings(changed(written, kafka=kafka))["kafka"]
    assert (found.level, found.message.endswith("only Spark's own client can judge ssl.protocol")) == ("warn", True)


def test_columns_that_the_table_will_gain(written: IngestConfig) -> None:
    more = [*written.model_dump()["fields"], {"name": "camera", "type": "string"}]
    assert "has no column camera" in faults(changed(written, fields=more))["table samples"]
    tables = {**written.tables.model_dump(), "evolve": "added-fields"}
    found = findings(changed(written, fields=more, tables=tables))["table samples"]
    assert (found.level, found.message.partition("; ")[2]) == ("ok", "the next batch adds camera")


def test_the_command_in_a_pipeline(written: IngestConfig, kafka: Kafka, tmp_path: Path) -> None:
    file = tmp_path / "ingest.yaml"
    file.write_text(yaml.safe_dump(ingest_data(tmp_path, kafka.bootstrap_servers, {"no-such-topic": "json"})))
    done = kbit("doctor", "--config", str(file), "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    [failed] = [finding for finding in json.loads(done.stdout) if finding["level"] == "fail"]
    assert (failed["check"], failed["message"][:22]) == ("kafka", "no topic no-such-topic")
    file.write_text(yaml.safe_dump(written.model_dump(mode="json", exclude_none=True)))
    done = kbit("doctor", "--config", str(file), cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert all(line.startswith(("ok ", "warn ")) for line in done.stdout.splitlines())
    done = kbit("doctor", "--config", str(file), "stream=x", cwd=tmp_path)
    assert (done.returncode, "stream_id" in done.stderr) == (2, True)
