"""Micro-batches in this process: real broker, real tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from kbit_spark import ingest, replay
from kbit_spark.batch_writer import BatchWriter
from kbit_spark.codecs.decoder import value_type
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.errors import RunError
from kbit_spark.events import Event
from kbit_spark.sources.kafka import read_stream
from kbit_spark.sources.query import Query
from kbit_spark.tables.append import CachedAppend
from kbit_spark.tables.dead_letters import ensure_rejected
from kbit_spark.tables.delta_append import DeltaClasses
from kbit_spark.tables.samples import ensure_samples
from kbit_spark.tables.verify import verify
from kbit_spark.telemetry.hub import Telemetry
from tests.fixtures.jobs import avro_records, coordinates, image, ingest_config, json_records, ledger, table_version
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.kafka


class Events:
    """A telemetry sink that keeps what it gets."""

    name = "list"

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        self.events.append(event)

    def tick(self) -> None: ...

    def close(self) -> None: ...


def drain(spark: SparkSession, config: IngestConfig) -> list[Event]:
    """Read the topics to their end and return the batches' events."""
    sink = Events()
    with Telemetry("run", "ingest", [sink]) as telemetry:
        ensure_samples(spark, config.tables.samples, value_type(config.fields))
        ensure_rejected(spark, config.tables.rejected)
        batches = BatchWriter(spark, config, telemetry)
        Query(config.trigger, config.checkpoint_dir).run(read_stream(spark, config.kafka), batches.write)
    return [event for event in sink.events if event.kind == "ingest_batch"]


def test_two_formats_and_bad_records_become_one_table(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    json_topic, avro_topic = kafka.topic("json", 2), kafka.topic("avro")
    kafka.produce(json_topic, [*json_records(50), (b"bad", b'{"image": [1, 2], "label": 1}'), (b"gone", None)])
    kafka.produce(avro_topic, [*avro_records(40), (None, b"\x02", [("why", b"broken")]), (b"text", b"not avro")])
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {json_topic: "json", avro_topic: "avro"})
    events = drain(spark, config)

    samples = DeltaTable(config.tables.samples).to_pyarrow_table().to_pylist()
    assert len(samples) == 90
    one = next(row for row in samples if row["_key"] == b"j7")
    assert one["image"] == bytes(image(7))
    assert (one["label"], one["_topic"], one["_schema_id"]) == (7, json_topic, None)
    assert one["_headers"] == [{"key": "origin", "value": b"json"}]
    assert {row["_split"] for row in samples} == {"train", "validation", "test"}

    rejected = DeltaTable(config.tables.rejected).to_pyarrow_table().to_pylist()
    assert {(row["topic"], row["key"], row["format"]) for row in rejected} == {
        (json_topic, b"bad", "json"),
        (avro_topic, None, "avro"),
        (avro_topic, b"text", "avro"),
    }
    broken = next(row for row in rejected if row["key"] is None)
    assert (broken["payload"], broken["headers"]) == (b"\x02", [{"key": "why", "value": b"broken"}])
    assert broken["code"]
    assert broken["reason"]

    entries = ledger(config.tables.samples)
    assert [entry.batch_id for entry in entries] == list(range(len(entries)))
    assert len(entries) > 1
    assert [sum(getattr(e, what) for e in entries) for what in ("good", "bad", "tombstones", "gaps")] == [90, 3, 1, 0]
    assert sum(event.numbers["rows"] for event in events) == 94
    assert events[-1].numbers["lag_rows"] == 0
    assert events[0].numbers["lag_rows"] > 0


def test_the_ranges_of_the_ledger_follow_each_other_without_a_hole(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic("chain", 2)
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    for start in (0, 30):
        kafka.produce(topic, json_records(30, start))
        drain(spark, config)
    reached: dict[tuple[str, int], int] = {}
    for entry in ledger(config.tables.samples):
        for r in entry.ranges:
            assert r.start == reached.get((r.topic, r.partition), 0)
            reached[r.topic, r.partition] = r.end
    assert sum(reached.values()) == 60
    assert len({entry.epoch for entry in ledger(config.tables.samples)}) == 1


def test_a_batch_written_twice_changes_nothing(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("twice")
    kafka.produce(topic, [*json_records(20), (b"bad", b"{")])
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    drain(spark, config)
    before = table_version(config.tables.samples), table_version(config.tables.rejected), coordinates(tmp_path)
    newest = max((tmp_path / "checkpoint/commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()  # as after a crash between the table's commit and Spark's
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    assert drain(spark, config) == []
    assert newest.exists()  # the batch ran again
    assert (table_version(config.tables.samples), table_version(config.tables.rejected)) == before[:2]
    assert coordinates(tmp_path) == before[2]


def test_a_new_checkpoint_never_loses_data_silently(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("epoch")
    kafka.produce(topic, json_records(5))
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    drain(spark, config)
    drain(spark, config.model_copy(update={"checkpoint_dir": str(tmp_path / "other")}))
    assert len(coordinates(tmp_path)) == 10
    assert len({entry.epoch for entry in ledger(config.tables.samples)}) == 2


def test_transaction_markers_are_gaps(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    topic = kafka.topic("transactions")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for start in (0, 3):
        producer.begin_transaction()
        for key, value, _ in json_records(3, start):  # type: ignore[misc]
            producer.produce(topic, key=key, value=value)
        producer.commit_transaction(30)
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    drain(spark, config)
    entries = ledger(config.tables.samples)
    assert (sum(e.good for e in entries), sum(e.gaps for e in entries)) == (6, 2)


def test_the_public_writer_gives_the_same_stream(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Databricks, where Delta's own transaction cannot be reached: batches, a crash, a replay, the ledger."""
    monkeypatch.setattr(DeltaClasses, "find", lambda _: None)
    topic = kafka.topic("public", 2)
    records = json_records(60)
    records[::10] = [(b"bad", b"{")] * 6
    records.append((b"gone", None))
    kafka.produce(topic, records)
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    commit = CachedAppend.commit

    def crash(self: CachedAppend, user_metadata: str | None = None) -> None:
        if user_metadata is not None:  # the dead letters are committed by then
            monkeypatch.setattr(CachedAppend, "commit", commit)
            raise OSError("the machine is gone")
        commit(self, user_metadata)

    monkeypatch.setattr(CachedAppend, "commit", crash)
    with pytest.raises(RunError, match="the machine is gone"):
        ingest.run(config)
    assert ledger(config.tables.samples) == []
    for _ in range(2):  # the second time there is nothing to do
        ingest.run(config)
    entries = ledger(config.tables.samples)
    assert [entry.batch_id for entry in entries] == [0, 1]
    assert [sum(getattr(e, what) for e in entries) for what in ("good", "bad", "tombstones", "gaps")] == [54, 6, 1, 0]
    found = coordinates(tmp_path)
    assert len(found) == len(set(found)) == 60
    replay.replay(config)
    assert verify(config.tables.samples, config.tables.rejected).faults == []
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


def test_every_data_file_is_of_one_split_and_tells_its_rows(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("files")
    kafka.produce(topic, json_records(60))
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    drain(spark, config)
    files = DeltaTable(config.tables.samples).get_add_actions(flatten=True)
    rows = dict.fromkeys(("train", "validation", "test"), 0)
    for split, count in zip(
        files.column("partition._split").to_pylist(), files.column("num_records").to_pylist(), strict=True
    ):
        rows[split] += count
    counted = spark.read.format("delta").load(config.tables.samples).groupBy("_split").agg(sf.count("*")).collect()
    assert rows == {row[0]: row[1] for row in counted}
