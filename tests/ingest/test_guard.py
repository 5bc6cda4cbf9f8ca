"""The guard before a stream starts: each fault is refused with the command that goes on, and then nothing is twice."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from kbit_spark import ingest
from kbit_spark.config.ingest import GuardConfig, IngestConfig
from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas.ledger import LedgerState
from kbit_spark.sources import java_client
from kbit_spark.sources.continuity import Start, TopicState, losses, resume_offsets
from kbit_spark.tables.verify import read_history, verify
from tests.fixtures.jobs import (
    ROOT,
    coordinates,
    eventually,
    forget,
    ingest_config,
    ingest_data,
    json_records,
    ledger,
    start,
)
from tests.fixtures.kafka import Kafka, Record, remove

pytestmark = pytest.mark.kafka


def records(count: int, first: int = 0) -> list[Record]:
    """Return records of which every tenth is broken."""
    made = json_records(count, first)
    return [(record[0], b"{") if i % 10 == 9 else record for i, record in enumerate(made)]


def once(folder: Path, topic: str, offsets: range) -> None:
    assert coordinates(folder) == [(topic, 0, offset) for offset in offsets]


def run(config: IngestConfig, *, rebase: bool = False, accept_loss: bool = False) -> None:
    guard = GuardConfig(rebase=rebase, accept_loss=accept_loss)
    ingest.run(config.model_copy(update={"guard": guard}))


def refused(config: IngestConfig, flag: str, *words: str) -> None:
    with pytest.raises(RunError) as caught:
        run(config)
    assert flag in caught.value.hint
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.fixture
def stream(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> tuple[IngestConfig, str]:
    """Return a stream that has read 60 records in two batches."""
    topic = kafka.topic("guard")
    kafka.produce(topic, records(60))
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    run(config)
    assert [entry.batch_id for entry in ledger(config.tables.samples)] == [0, 1]
    return config, topic


Stream = tuple[IngestConfig, str]


def test_flags_change_nothing_while_all_is_well(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    config, topic = stream
    kafka.produce(topic, records(20))
    run(config, rebase=True, accept_loss=True)
    once(tmp_path, topic, range(80))
    assert len({entry.epoch for entry in ledger(config.tables.samples)}) == 1
    assert len({entry.topic_ids[topic] for entry in ledger(config.tables.samples)}) == 1


def test_a_deleted_checkpoint(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    config, topic = stream
    shutil.rmtree(config.checkpoint_dir)
    kafka.produce(topic, records(20))
    refused(config, "--rebase", "batch 1", f"{topic}[0] at 60")
    once(tmp_path, topic, range(60))
    run(config, rebase=True)
    once(tmp_path, topic, range(80))
    kafka.produce(topic, records(5))
    run(config)
    once(tmp_path, topic, range(85))


def test_a_checkpoint_that_is_a_file_stays_where_it_is(stream: Stream, tmp_path: Path) -> None:
    config, _ = stream
    file = tmp_path / "file"
    file.write_text("of somebody")
    wrong = config.model_copy(update={"checkpoint_dir": str(file)})
    for rebase in (False, True):
        with pytest.raises(UsageError, match=f"^the checkpoint {file} is a file, not a folder"):
            run(wrong, rebase=rebase)
    assert file.read_text() == "of somebody"


def test_a_rebase_killed_before_its_first_batch_goes_on_without_a_flag(
    stream: Stream, kafka: Kafka, tmp_path: Path
) -> None:
    config, topic = stream
    shutil.rmtree(config.checkpoint_dir)
    kafka.produce(topic, records(20))
    before = tmp_path / "before"
    shutil.copytree(config.tables.samples, before)
    run(config, rebase=True)
    shutil.rmtree(config.tables.samples)  # as if killed when the dead letters were committed and the samples not
    shutil.copytree(before, config.tables.samples)
    (Path(config.checkpoint_dir) / "commits/0").unlink()
    (Path(config.checkpoint_dir) / "commits/.0.crc").unlink(missing_ok=True)
    run(config)
    once(tmp_path, topic, range(80))


def test_a_foreign_checkpoint(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    config, topic = stream
    other = tmp_path / "other"
    foreign = ingest_config(other, kafka.bootstrap_servers, {topic: "json"})
    kafka.produce(topic, records(20))
    run(foreign)
    mixed = config.model_copy(update={"checkpoint_dir": foreign.checkpoint_dir})
    refused(mixed, "--rebase", foreign.checkpoint_dir, "not the one that wrote batch 1")
    run(mixed, rebase=True)
    once(tmp_path, topic, range(80))
    assert Path(f"{foreign.checkpoint_dir}.before-1").is_dir()


def test_a_checkpoint_from_a_backup(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    config, topic = stream
    shutil.copytree(config.checkpoint_dir, tmp_path / "backup")
    kafka.produce(topic, records(80))
    run(config)
    shutil.rmtree(config.checkpoint_dir)
    shutil.copytree(tmp_path / "backup", config.checkpoint_dir)
    kafka.produce(topic, records(20))
    refused(config, "--rebase", "older than the table")
    run(config, rebase=True)
    once(tmp_path, topic, range(160))


@pytest.mark.parametrize("name", ["metadata", "sources/0/0", "offsets/1", "commits/1"])
@pytest.mark.parametrize("left", [0, 5, 40, None])
def test_a_checkpoint_that_a_power_failure_has_damaged(
    stream: Stream, kafka: Kafka, tmp_path: Path, name: str, left: int | None
) -> None:
    config, topic = stream
    kafka.produce(topic, records(20))
    file = Path(config.checkpoint_dir, name)
    content = file.read_bytes()
    file.write_bytes(content[:left] if left is not None else bytes(len(content)))  # None: blocks that were not written
    if left is not None:  # else the file no longer has the checksum beside it
        file.with_name(f".{file.name}.crc").unlink()
    if left == 40 and len(content) <= 40:
        run(config)
    else:
        refused(config, "--rebase", f"has no readable {name}", f"{topic}[0] at 60")
        run(config, rebase=True)
    once(tmp_path, topic, range(80))


def test_a_restored_table(spark: SparkSession, stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    config, topic = stream
    kafka.produce(topic, records(80))
    run(config)
    spark.sql(f"RESTORE TABLE delta.`{config.tables.samples}` TO VERSION AS OF 1")
    refused(config, "--rebase", "restored to an older version", f"{topic}[0] at 40")
    run(config, rebase=True)
    once(tmp_path, topic, range(140))
    run(config)
    once(tmp_path, topic, range(140))


@pytest.mark.parametrize("noted", [True, False], ids=["done", "killed before Spark noted it"])
def test_a_table_restored_by_one_batch(
    spark: SparkSession, stream: Stream, kafka: Kafka, tmp_path: Path, noted: bool
) -> None:
    config, topic = stream
    if not noted:
        for name in ("1", ".1.crc"):
            Path(config.checkpoint_dir, "commits", name).unlink()
    restore(spark, config, back=1)
    kafka.produce(topic, records(20))
    refused(config, "--rebase", "restored to an older version", "is 0, but", f"{topic}[0] at 40")
    run(config, rebase=True)
    once(tmp_path, topic, range(80))
    run(config)
    once(tmp_path, topic, range(80))
    assert verify(config.tables.samples, config.tables.rejected).faults == []


@pytest.mark.parametrize("noted", [True, False], ids=["done", "killed before Spark noted it"])
def test_a_table_restored_to_before_its_epoch(
    spark: SparkSession, stream: Stream, kafka: Kafka, tmp_path: Path, noted: bool
) -> None:
    config, topic = stream
    shutil.rmtree(config.checkpoint_dir)
    kafka.produce(topic, records(20))
    run(config, rebase=True)
    if not noted:
        for name in ("0", ".0.crc"):
            Path(config.checkpoint_dir, "commits", name).unlink()
    restore(spark, config, back=1)
    refused(config, "--rebase", "restored to an older version", f"{topic}[0] at 60")
    run(config, rebase=True)
    once(tmp_path, topic, range(80))


def test_a_table_restored_between_two_batches(
    spark: SparkSession, stream: Stream, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, topic = stream
    kafka.produce(topic, records(100))
    write = ingest.BatchWriter.write

    def restoring(writer: ingest.BatchWriter, batch: DataFrame, batch_id: int) -> None:
        write(writer, batch, batch_id)
        if batch_id == 3:
            restore(spark, config, back=1)

    with monkeypatch.context() as meddled:
        meddled.setattr(ingest.BatchWriter, "write", restoring)
        with pytest.raises(RunError, match=r"restored the table to an older one while the stream was running"):
            run(config)
    once_in_samples = [entry.batch_id for _, entry in read_history(config.tables.samples).entries]
    assert once_in_samples == [0, 1, 2]
    refused(config, "--rebase", "restored to an older version", f"{topic}[0] at 100")
    run(config, rebase=True)
    once(tmp_path, topic, range(160))
    assert whole(config)


def test_a_table_restored_within_a_batch(
    spark: SparkSession, stream: Stream, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, topic = stream
    kafka.produce(topic, records(20))
    prepare = ingest.BatchWriter._prepare

    def restoring(*args: Any) -> Any:
        prepared = prepare(*args)
        restore(spark, config, back=1)
        return prepared

    with monkeypatch.context() as meddled:
        meddled.setattr(ingest.BatchWriter, "_prepare", restoring)
        run(config)  # the batch's own commit comes right behind the RESTORE, and nothing follows that could notice
    for flags in ({}, {"rebase": True}, {"accept_loss": True}):
        with pytest.raises(
            RunError, match=rf"just after a RESTORE: {topic}\[0\] from offset 40 to 59 is missing"
        ) as told:
            run(config, **flags)
    spark.sql(next(part for part in str(told.value.hint).split(" by ") if part.startswith("RESTORE")).partition(";")[0])
    refused(config, "--rebase", "restored to an older version", f"{topic}[0] at 40")
    run(config, rebase=True)
    once(tmp_path, topic, range(80))
    assert whole(config)


def restore(spark: SparkSession, config: IngestConfig, back: int) -> None:
    """Restore the samples to the version that was there `back` commits ago."""
    version = DeltaTable(config.tables.samples).version() - back
    spark.sql(f"RESTORE TABLE delta.`{config.tables.samples}` TO VERSION AS OF {version}")


def test_another_stream_into_the_same_table(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    config, topic = stream
    other = config.model_copy(update={"stream_id": "more", "checkpoint_dir": str(tmp_path / "more")})
    refused(other, "stream_id: digits", f"the stream digits has read the topic {topic}")
    new = kafka.topic("guard-more")
    kafka.produce(new, records(10))
    topics = tuple(listed.model_copy(update={"name": new}) for listed in other.kafka.topics)
    run(other.model_copy(update={"kafka": other.kafka.model_copy(update={"topics": topics})}))  # another topic may come
    once_of = [place for place in coordinates(tmp_path) if place[0] == new]
    assert once_of == [(new, 0, offset) for offset in range(10)]


def test_another_stream_into_a_table_whose_log_was_cleaned(
    spark: SparkSession, stream: Stream, kafka: Kafka, tmp_path: Path
) -> None:
    config, topic = stream
    new = kafka.topic("guard-more")
    kafka.produce(new, records(10))
    made: dict[str, Any] = {"stream_id": "more", "checkpoint_dir": str(tmp_path / "more")}
    more, twice = (ingest_config(tmp_path, kafka.bootstrap_servers, {name: "json"}, **made) for name in (new, topic))

    def clean() -> None:
        spark.sql(f"ALTER TABLE delta.`{config.tables.samples}` SET TBLPROPERTIES ('kept' = 'the newest commit')")
        forget(config.tables.samples)

    clean()
    refused(twice, "--rebase", f"has rows of {topic}, but its log no longer tells")  # whoever has read them
    run(more)
    assert [place for place in coordinates(tmp_path) if place[0] == new] == [(new, 0, offset) for offset in range(10)]
    shutil.rmtree(more.checkpoint_dir)
    clean()
    refused(more, "--rebase", "has lost its oldest commits")  # but the table has a transaction of the stream


def test_a_table_that_was_deleted(stream: Stream, tmp_path: Path) -> None:
    config, topic = stream
    shutil.rmtree(config.tables.samples)
    refused(config, "--rebase", "holds none of the stream")
    run(config, rebase=True)
    once(tmp_path, topic, range(60))


def test_records_that_retention_removed(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    config, topic = stream
    kafka.produce(topic, records(40))
    remove(kafka, topic, 75)
    refused(config, "--accept-loss", f"offsets 60 to 74 of {topic}[0]")
    run(config, accept_loss=True)
    assert coordinates(tmp_path) == [(topic, 0, offset) for offset in (*range(60), *range(75, 100))]
    (lost,) = [loss for entry in ledger(config.tables.samples) for loss in entry.lost]
    assert (lost.start, lost.end, lost.offsets, lost.reason) == (60, 75, 15, "retention")
    run(config)


def whole(config: IngestConfig) -> bool:
    """Tell whether the ledger agrees with the tables."""
    return verify(config.tables.samples, config.tables.rejected).faults == []


def with_added(kafka: Kafka, tmp_path: Path, topic: str) -> tuple[IngestConfig, list[tuple[str, int, int]]]:
    """Add a topic that retention went through; return the stream of both, and the records that it is to read."""
    added = kafka.topic("guard-added")
    kafka.produce(added, records(30))
    remove(kafka, added, 7)
    kafka.produce(topic, records(5))
    both = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json", added: "json"})
    places = [*((topic, 0, offset) for offset in range(65)), *((added, 0, offset) for offset in range(7, 30))]
    return both, sorted(places)


def test_a_topic_added_after_retention_needs_no_flag(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    _, topic = stream
    both, places = with_added(kafka, tmp_path, topic)
    for _ in range(2):
        run(both)
        assert coordinates(tmp_path) == places
    assert whole(both)


@pytest.mark.parametrize("left", ["nothing", "an id"])
def test_a_new_epoch_killed_before_spark_has_begun_it_goes_on_without_a_flag(
    stream: Stream, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    config, topic = stream
    both, places = with_added(kafka, tmp_path, topic)
    for _ in range(2):
        with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
            killed.setattr(ingest, "read_stream", Mock(side_effect=KeyboardInterrupt))
            run(both)
        assert not Path(config.checkpoint_dir).exists()
        if left == "an id":  # what Spark writes first
            Path(config.checkpoint_dir).mkdir()
            (Path(config.checkpoint_dir) / "metadata").write_text('{"id":"5f2f2a6e-6b57-4e5b-9d0e-0d4b2ab1c9aa"}')
    for _ in range(2):
        run(both)
        assert coordinates(tmp_path) == places
    assert whole(both)


def test_a_checkpoint_deleted_behind_a_new_epoch_wants_a_flag(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    config, topic = stream
    (Path(config.checkpoint_dir) / "sources/0/0").write_text("")
    (Path(config.checkpoint_dir) / "sources/0/.0.crc").unlink(missing_ok=True)
    kafka.produce(topic, records(5))
    refused(config, "--rebase", "sources/0/0")
    run(config, rebase=True)
    shutil.rmtree(config.checkpoint_dir)  # the one before it was set aside batches ago
    refused(config, "--rebase", "is not there")


def test_a_topic_added_to_a_stream_that_starts_at_the_latest(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    _, topic = stream
    added = kafka.topic("guard-added")
    kafka.produce(added, records(30))
    kafka.produce(topic, records(5))
    both = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json", added: "json"})
    both = both.model_copy(update={"kafka": both.kafka.model_copy(update={"starting_offsets": "latest"})})
    run(both)
    once(tmp_path, topic, range(65))
    kafka.produce(added, records(4))
    run(both)
    assert [place for place in coordinates(tmp_path) if place[0] == added] == [(added, 0, i) for i in range(30, 34)]
    assert whole(both)


def test_a_partition_added_and_emptied_before_it_was_read(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    config, topic = stream
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    eventually(lambda: len(admin.list_topics(topic).topics[topic].partitions) == 2)
    kafka.produce(topic, records(10), partition=1)
    remove(kafka, topic, 4, partition=1)
    refused(config, "--accept-loss", f"offsets 0 to 3 of {topic}[1]")
    run(config, accept_loss=True)
    places = [*((topic, 0, offset) for offset in range(60)), *((topic, 1, offset) for offset in range(4, 10))]
    assert coordinates(tmp_path) == places
    (lost,) = [loss for entry in ledger(config.tables.samples) for loss in entry.lost]
    assert (lost.partition, lost.start, lost.end, lost.reason) == (1, 0, 4, "retention")
    assert whole(config)


def test_retention_passes_the_start_of_a_first_batch_that_failed(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic("guard")
    kafka.produce(topic, records(30))
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})

    def fail(*_: object) -> None:
        msg = "the registry is down"
        raise RunError(msg)

    with monkeypatch.context() as broken:
        broken.setattr(ingest.BatchWriter, "_write_samples", fail)
        with pytest.raises(RunError, match="the registry is down"):
            run(config)
    remove(kafka, topic, 7)
    with monkeypatch.context() as blind, pytest.raises(RunError, match=r"(?i)may have been lost|OffsetOutOf") as told:
        blind.setattr(ingest, "check_continuity", lambda *_: Start())
        run(config)
    assert told.value.hint == "start again: the guard tells what Kafka no longer has, and how to go on"
    refused(config, "--accept-loss", f"offsets 0 to 6 of {topic}[0]")
    run(config, accept_loss=True)
    once(tmp_path, topic, range(7, 30))
    (lost,) = [loss for entry in ledger(config.tables.samples) for loss in entry.lost]
    assert (lost.start, lost.end, lost.reason) == (0, 7, "retention")
    assert whole(config)


def test_a_topic_taken_back_after_the_log_was_cleaned(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    config, topic = stream
    other = kafka.topic("guard-other")
    kafka.produce(other, json_records(10))
    alone = ingest_config(tmp_path, kafka.bootstrap_servers, {other: "json"})
    run(alone, rebase=True)
    forget(config.tables.samples)
    kafka.produce(topic, records(20))
    both = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json", other: "json"})
    refused(both, "--rebase", f"has rows of {topic}, but its log no longer tells")
    run(both, rebase=True)
    samples = DeltaTable(config.tables.samples).to_pyarrow_table(columns=["_topic", "_offset"]).to_pylist()
    of_topic = sorted(row["_offset"] for row in samples if row["_topic"] == topic)
    assert of_topic == [offset for offset in range(80) if offset % 10 != 9]
    run(both)
    # where samples end a bad record may follow, whose letter then stands twice: nothing but rows tells of the topic
    there = coordinates(tmp_path)
    assert len(set(there)) == 80 + 10
    assert [place for place in set(there) if there.count(place) > 1] == [(topic, 0, 59)]


def test_a_topic_made_anew(stream: Stream, kafka: Kafka, tmp_path: Path) -> None:
    config, topic = stream
    kafka.make_anew(topic)
    kafka.produce(topic, records(70))  # more than before: offsets alone would not tell
    refused(config, "--accept-loss", f"{topic}[0] was made anew")
    run(config, accept_loss=True)
    assert coordinates(tmp_path) == sorted((topic, 0, offset) for offset in (*range(60), *range(70)))
    (lost,) = [loss for entry in ledger(config.tables.samples) for loss in entry.lost]
    assert (lost.start, lost.end, lost.offsets, lost.reason) == (60, 0, None, "recreated")
    shutil.rmtree(config.checkpoint_dir)
    run(config, rebase=True)
    assert len(coordinates(tmp_path)) == 130


JAAS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="kbit" password="right";',
}
PLAIN = {name: value for name, value in JAAS.items() if name != "sasl.jaas.config"} | {
    "sasl.username": "kbit",
    "sasl.password": "right",
}


@pytest.fixture
def secured(spark: SparkSession, sasl_broker: str, tmp_path: Path) -> tuple[IngestConfig, str, Kafka]:
    """Return a stream that has read 20 records with credentials that only Java's client understands."""
    kafka = Kafka(sasl_broker, PLAIN)
    topic = kafka.topic("secured")
    kafka.produce(topic, records(20))
    config = ingest_config(tmp_path, sasl_broker, {topic: "json"})
    config = config.model_copy(update={"kafka": config.kafka.model_copy(update={"options": JAAS})})
    run(config)
    once(tmp_path, topic, range(20))
    return config, topic, kafka


def test_javas_credentials_do_not_blind_the_guard(secured: tuple[IngestConfig, str, Kafka], tmp_path: Path) -> None:
    config, topic, kafka = secured
    kafka.produce(topic, records(20))
    remove(kafka, topic, 30)
    refused(config, "--accept-loss", f"offsets 20 to 29 of {topic}[0]")
    run(config, accept_loss=True)
    places = [(topic, 0, offset) for offset in (*range(20), *range(30, 40))]
    assert coordinates(tmp_path) == places
    kafka.make_anew(topic)
    kafka.produce(topic, records(45))  # more than before: offsets alone would not tell
    refused(config, "--accept-loss", f"{topic}[0] was made anew")
    run(config, accept_loss=True)
    assert coordinates(tmp_path) == sorted([*places, *((topic, 0, offset) for offset in range(45))])


def test_where_nobody_can_ask_the_broker_a_loss_can_be_accepted(
    secured: tuple[IngestConfig, str, Kafka],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config, topic, kafka = secured
    monkeypatch.setattr(java_client, "_PACKAGES", ("elsewhere",))
    kafka.produce(topic, records(20))
    remove(kafka, topic, 30)
    with pytest.raises(RunError, match=r"(?i)may have been lost|OffsetOutOf"):
        run(config)
    assert any("the topics were not checked" in record.getMessage() for record in caplog.records)
    run(config, accept_loss=True)
    assert coordinates(tmp_path) == [(topic, 0, offset) for offset in (*range(20), *range(30, 40))]
    (lost,) = [loss for entry in ledger(config.tables.samples) for loss in entry.lost]
    assert (lost.start, lost.end, lost.reason) == (20, 30, "retention")
    kafka.produce(topic, records(5))
    run(config, accept_loss=True)
    assert len(coordinates(tmp_path)) == 35
    assert whole(config)


def test_the_command_in_the_refusal_goes_on(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("command")
    kafka.produce(topic, records(20))
    run(ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"}))
    data: dict[str, Any] = ingest_data(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    plain: dict[str, Any] = {"options": (), "launcher": ("/usr/bin/env", str(ROOT / ".venv/bin/python")), "conf": False}
    shutil.rmtree(tmp_path / "checkpoint")
    kafka.produce(topic, records(20))
    code, output = start(tmp_path, data, **plain).wait()
    assert code == 1, output
    (hint,) = [line for line in output.splitlines() if line.startswith("  to go on")]
    command = hint.partition(": ")[2]
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    once(tmp_path, topic, range(40))


def test_a_topic_without_an_id_is_told_by_its_end() -> None:
    ledger_state = LedgerState(None, {("t", 0): 30, ("t", 1): 5}, {})
    topics = {"t": TopicState(None, {0: 0, 1: 0}, {0: 10, 1: 9})}
    (lost,) = losses(ledger_state, topics)
    assert (lost.partition, lost.reason) == (0, "recreated")
    topics = {"t": TopicState("a", {0: 0, 1: 0, 2: 0}, {0: 10, 1: 9, 2: 4})}
    ledger_state = LedgerState(None, {("t", 0): 30, ("t", 1): 5}, {"t": "a"})
    (lost,) = losses(ledger_state, topics)
    assert (lost.partition, lost.reason, lost.end) == (0, "truncated", 10)
    assert resume_offsets(ledger_state, topics, [lost], "latest") == {("t", 0): 10, ("t", 1): 5, ("t", 2): -2}
