"""Two jobs on one table: one of them is refused, whichever way they meet, and nothing is there twice."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kbit_spark import ingest
from kbit_spark.batch_writer import BatchWriter
from kbit_spark.config.ingest import GuardConfig, IngestConfig
from kbit_spark.errors import RunError
from kbit_spark.tables.verify import verify
from tests.fixtures.jobs import (
    coordinates,
    eventually,
    ingest_config,
    ingest_data,
    json_records,
    ledger,
    start,
    table_version,
)
from tests.fixtures.kafka import Kafka, Record

pytestmark = pytest.mark.kafka


def records(count: int, first: int = 0) -> list[Record]:
    """Return records of which every tenth is broken."""
    return [(record[0], b"{") if i % 10 == 9 else record for i, record in enumerate(json_records(count, first))]


def whole(config: IngestConfig, folder: Path, topic: str, count: int) -> None:
    """Check that every record is in the tables once."""
    assert coordinates(folder) == [(topic, 0, offset) for offset in range(count)]
    assert verify(config.tables.samples, config.tables.rejected).faults == []


def beside(config: IngestConfig, folder: Path) -> IngestConfig:
    """Return the same stream with a checkpoint of its own."""
    return config.model_copy(update={"checkpoint_dir": str(folder / "beside")})


@pytest.mark.parametrize(
    ("moment", "batch_id"),
    [("_write_samples", 0), ("_write_rejected", 0), ("_transaction", 1), ("_write_rejected", 1)],
)
def test_another_job_in_the_middle_of_a_batch(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, batch_id: int
) -> None:
    """It runs from start to end before or behind what this one does at the moment, in a new epoch of its own."""
    topic = kafka.topic("both")
    kafka.produce(topic, records(60))
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    rebase = GuardConfig(rebase=True)
    other = config.model_copy(update={"checkpoint_dir": str(tmp_path / "beside"), "guard": rebase})
    method, calls = getattr(BatchWriter, moment), list[Any]()

    def late(self: BatchWriter, *arguments: Any) -> Any:
        done = method(self, *arguments)
        calls.append(done)
        if len(calls) == batch_id + 1:
            monkeypatch.undo()
            ingest.run(other)
        return done

    monkeypatch.setattr(BatchWriter, moment, late)
    with pytest.raises(RunError, match="another process writes the same") as caught:
        ingest.run(config)
    assert "let only one of them run" in caught.value.hint
    assert len(ledger(config.tables.samples)) == 2
    whole(config, tmp_path, topic, 60)


def test_two_processes(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("processes")
    kafka.produce(topic, records(20))
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    data = ingest_data(tmp_path, kafka.bootstrap_servers, {topic: "json"}, trigger={"interval_s": 0})
    job = start(tmp_path, data, options=(), launcher=(sys.executable,), conf=False)
    try:
        eventually(lambda: table_version(config.tables.samples) > 0)
        with pytest.raises(RunError, match="not there or has not begun") as caught:
            ingest.run(beside(config, tmp_path))
        assert "--rebase" in caught.value.hint
        errors = []
        for count in range(20, 420, 20):  # with one checkpoint: whoever comes second to a batch has to go
            kafka.produce(topic, records(20, count))
            try:
                ingest.run(config)
            except RunError as error:
                errors.append(str(error))
            if errors or job.process.poll() is not None:
                break
    finally:
        with suppress(ProcessLookupError):
            job.process.terminate()
        code, output = job.wait()
        job.kill()
    told = "".join(errors) or output
    assert "another process" in told, told
    assert code == (0 if errors else 1), output
    ingest.run(config)
    whole(config, tmp_path, topic, count + 20)
