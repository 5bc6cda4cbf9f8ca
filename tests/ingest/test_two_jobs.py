"""Two jobs on one table: one of them is refused, whichever way they meet, and nothing is there twice."""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kbit_spark import ingest
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.errors import RunError
from kbit_spark.ingest import BatchWriter
from kbit_spark.sources.query import Query
from kbit_spark.tables.verify import verify
from kbit_spark.tables.writer import Append
from tests.fixtures.jobs import coordinates, eventually, ingest_config, ingest_data, json_records, start, table_version
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


def in_between(config: IngestConfig) -> None:
    """Run a job inside a batch of another one: Spark's thread, in which Python takes no signals."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Query, "_signals", lambda _: nullcontext())
        ingest.run(config)


@pytest.mark.parametrize("moment", ["_write_samples", "_write_rejected"])
def test_both_started_on_an_empty_table(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The other one runs from start to end while this one is in the middle of its first batch."""
    topic = kafka.topic("both")
    kafka.produce(topic, records(60))
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    method = getattr(BatchWriter, moment)

    def late(self: BatchWriter, batch: DataFrame, *rest: Any) -> Append | None:
        monkeypatch.undo()
        before: Append | None = method(self, batch, *rest)
        in_between(beside(config, tmp_path))
        return before

    monkeypatch.setattr(BatchWriter, moment, late)
    with pytest.raises(RunError, match="another process writes the same") as caught:
        ingest.run(config)
    assert "let only one of them run" in caught.value.hint
    whole(config, tmp_path, topic, 60)


def test_the_other_one_took_a_turn_between_two_batches(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic("turn")
    kafka.produce(topic, records(60))
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    write = BatchWriter.write

    def overtaken(self: BatchWriter, batch: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            monkeypatch.undo()
            in_between(rebased)
        write(self, batch, batch_id)

    rebased = beside(config, tmp_path).model_copy(update={"guard": config.guard.model_copy(update={"rebase": True})})
    monkeypatch.setattr(BatchWriter, "write", overtaken)
    with pytest.raises(RunError, match="another process writes the same"):
        ingest.run(config)
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
