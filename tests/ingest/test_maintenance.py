"""Table care beside a real stream: the same rows in fewer files."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kbit_spark.batch_writer import BatchWriter
from kbit_spark.codecs.decoder import value_type
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.events import Event
from kbit_spark.schemas.fields import SPLITS
from kbit_spark.sources.kafka import read_stream
from kbit_spark.sources.query import Query
from kbit_spark.tables.dead_letters import ensure_rejected
from kbit_spark.tables.maintenance import care_session, delete_old_files
from kbit_spark.tables.samples import ensure_samples
from kbit_spark.tables.snapshot import resolve
from kbit_spark.telemetry.hub import Telemetry
from tests.fixtures.jobs import coordinates, ingest_config, json_records, ledger
from tests.fixtures.kafka import Kafka
from tests.ingest.test_batches import Events

pytestmark = pytest.mark.kafka

HOUR_S = 3_600


def drain(spark: SparkSession, config: IngestConfig, kind: str = "table_care") -> list[Event]:
    """Read the topics to their end, let table care end, and return the events of a kind."""
    sink = Events()
    with Telemetry("run", "ingest", [sink]) as telemetry:
        ensure_samples(spark, config.tables.samples, value_type(config.fields), may_lack=config.tables.grows)
        ensure_rejected(spark, config.tables.rejected)
        with closing(BatchWriter(spark, config, telemetry)) as writer:
            Query(config.trigger, config.checkpoint_dir).run(read_stream(spark, config.kafka), writer.write)
    return [event for event in sink.events if event.kind == kind]


def rows(path: str) -> dict[int, dict[str, Any]]:
    return {row["_offset"]: row for row in DeltaTable(path).to_pyarrow_table().to_pylist()}


def files(path: str) -> Counter[str]:
    """Return the number of data files of each split."""
    return Counter(DeltaTable(path).get_add_actions(flatten=True).column("partition._split").to_pylist())


def test_compaction_keeps_rows_and_splits_in_fewer_files(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("care")
    kafka.produce(topic, [*json_records(118), (b"bad", b"{"), (b"gone", None)])
    without = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})  # due after 100 batches only
    assert drain(spark, without) == []
    before, many = rows(without.tables.samples), files(without.tables.samples)
    assert many.total() > len(SPLITS)

    kafka.produce(topic, json_records(10, 118))
    [*told] = drain(spark, ingest_config(
        tmp_path, kafka.bootstrap_servers, {topic: "json"}, maintenance={"optimize_every_batches": 4}
    ))  # fmt: skip
    assert [event.labels["outcome"] for event in told] == ["ok", "ok"], told
    assert {event.labels["table"] for event in told} == {without.tables.samples, without.tables.rejected}
    assert told[0].numbers["files_removed"] > told[0].numbers["files_added"] == len(SPLITS)
    assert told[0].scope == "batch=3"

    after = rows(without.tables.samples)
    assert len(after) == 128
    assert {offset: after[offset] for offset in before} == before
    assert files(without.tables.samples) == dict.fromkeys(SPLITS, 1)
    assert len(coordinates(tmp_path)) == 129
    snapshot = resolve(without.tables.samples)  # what training reads: row counts and offsets are still there
    assert sum(snapshot.rows(split) for split in SPLITS) == 128
    assert snapshot.kafka[0].span == 130
    assert not any(change for commit in optimizations(without.tables.samples) for change in commit)


def optimizations(path: str) -> list[list[bool]]:
    """Return `dataChange` of every action of every compaction."""
    found = []
    for file in sorted(Path(path, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        if any(action.get("commitInfo", {}).get("operation") == "OPTIMIZE" for action in actions):
            found.append([a[kind]["dataChange"] for a in actions for kind in ("add", "remove") if kind in a])
    assert found
    return found


def test_batches_go_on_while_the_tables_are_compacted(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("beside")
    kafka.produce(topic, json_records(400))
    config = ingest_config(
        tmp_path, kafka.bootstrap_servers, {topic: "json"}, maintenance={"optimize_every_batches": 1}
    )
    told = drain(spark, config)
    assert {event.labels["outcome"] for event in told} == {"ok"}, told
    entries = ledger(config.tables.samples)
    assert [entry.batch_id for entry in entries] == list(range(10))
    assert coordinates(tmp_path) == [(topic, 0, offset) for offset in range(400)]


def test_vacuum_leaves_the_files_of_a_batch_under_way(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("vacuum")
    kafka.produce(topic, json_records(20))
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"}, maintenance={"vacuum_every_batches": 1})
    ensure_samples(spark, config.tables.samples, value_type(config.fields))
    spark.sql(
        f"ALTER TABLE delta.`{config.tables.samples}` "
        "SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
    )
    old, new = (Path(config.tables.samples, f"part-{age}.parquet") for age in ("old", "new"))
    for file in (old, new):
        file.write_bytes(b"never committed")
    os.utime(old, (then := time.time() - 2 * HOUR_S, then))
    told = drain(spark, config)
    assert [(event.labels["outcome"], event.numbers["retention_hours"]) for event in told] == [("ok", 1), ("ok", 168)]
    assert (old.exists(), new.exists()) == (False, True)
    assert len(coordinates(tmp_path)) == 20


def test_a_failure_is_told_and_the_stream_goes_on(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("failure")
    kafka.produce(topic, json_records(20))
    care = {"vacuum_every_batches": 1, "retention_hours": 2}
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"}, maintenance=care)
    told = drain(spark, config)
    assert [event.labels["outcome"] for event in told] == ["failed", "failed"]
    assert "maintenance.retention_hours is 2, but" in told[0].labels["reason"]
    assert len(coordinates(tmp_path)) == 20


def test_the_stream_keeps_its_own_settings(spark: SparkSession, tmp_path: Path) -> None:
    session = care_session(spark, 1 << 20)
    assert session.conf.get("spark.databricks.delta.optimize.minFileSize") == str(1 << 19)
    assert spark.conf.get("spark.databricks.delta.optimize.minFileSize", "7") == "7"
    ensure_rejected(spark, str(tmp_path / "t"))
    assert delete_old_files(session, str(tmp_path / "t"), 200) == {"retention_hours": 200}
