"""Dead letters on their way back, and the whole table against its history."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kbit_spark import ingest, replay
from kbit_spark.config.ingest import GuardConfig, IngestConfig
from kbit_spark.errors import RunError, UsageError
from kbit_spark.replay import FOREIGN, UNFINISHED, UNREAD, Replayed
from kbit_spark.tables.dead_letters import REQUIRED
from kbit_spark.tables.rejections import group_letters
from kbit_spark.tables.verify import verify
from tests.fixtures.jobs import (
    ROOT,
    eventually,
    forget,
    ingest_config,
    ingest_data,
    json_records,
)
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.kafka
Wrong = tuple[IngestConfig, IngestConfig, str]


@pytest.fixture
def wrong(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Wrong:
    """Return a stream that took JSON for Avro, its configuration put right, and its topic: 40 good, 3 bad records."""
    topic = kafka.topic("replay", 2)
    kafka.produce(topic, [*json_records(40), (b"a", b"{"), (b"b", b""), (b"c", b"[]"), (b"d", None)])
    as_avro = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "avro"})
    ingest.run(as_avro)
    return as_avro, ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"}), topic


def sample_coordinates(config: IngestConfig) -> list[tuple[Any, ...]]:
    table = DeltaTable(config.tables.samples).to_pyarrow_table(columns=["_topic", "_partition", "_offset", "_key"])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_letters_come_in_once(wrong: Wrong) -> None:
    _, config, _ = wrong
    assert sample_coordinates(config) == []
    assert replay.replay(config, "key = 'j7'") == Replayed(1, 0, 0)
    assert [row[3] for row in sample_coordinates(config)] == [b"j7"]
    assert replay.replay(config) == Replayed(39, 3, 1)
    rows = sample_coordinates(config)
    assert {row[3] for row in rows} == {f"j{i}".encode() for i in range(40)}
    version = DeltaTable(config.tables.samples).version()
    assert replay.replay(config) == Replayed(0, 3, 40)
    assert (sample_coordinates(config), DeltaTable(config.tables.samples).version()) == (rows, version)
    ingest.run(config)  # the stream goes on, and changes nothing
    verdict = verify(config.tables.samples, config.tables.rejected)
    assert (verdict.faults, verdict.rows, verdict.rejected, verdict.replayed) == ([], 40, 43, 40)
    assert verify(config.tables.samples).faults == []


def test_a_replay_that_another_one_overtakes_changes_nothing(wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    _, config, _ = wrong
    entry = replay._Replay._entry

    def late(self: Any, *arguments: Any) -> Any:
        monkeypatch.undo()
        assert replay.replay(config).good == 40
        return entry(self, *arguments)

    monkeypatch.setattr(replay._Replay, "_entry", late)
    with pytest.raises(RunError, match="another process"):
        replay.replay(config)
    assert len(sample_coordinates(config)) == 40


def test_a_condition_that_is_no_sql(wrong: Wrong) -> None:
    for where in ("nonsense = 1", "code = = 2"):
        with pytest.raises(UsageError, match="--where"):
            replay.replay(wrong[1], where)


def test_letters_of_a_batch_that_is_not_whole_are_left_to_it(spark: SparkSession, wrong: Wrong) -> None:
    _, config, _ = wrong
    spark.sql(f"RESTORE TABLE delta.`{config.tables.samples}` TO VERSION AS OF 0")  # no batch is whole any more
    assert replay.replay(config) == Replayed(0, 0, 0, {UNFINISHED: 43})


@pytest.mark.parametrize("forgotten", [False, True])
def test_letters_of_a_topic_made_anew(wrong: Wrong, kafka: Kafka, tmp_path: Path, forgotten: bool) -> None:
    """Those of the topic before as well, also behind where the new one has come, also when the log forgot them."""
    as_avro, config, topic = wrong
    kafka.make_anew(topic, 2)
    kafka.produce(topic, [*json_records(2, 40), (b"e", b"{")])
    ingest.run(as_avro.model_copy(update={"guard": GuardConfig(accept_loss=True)}))
    if forgotten:
        forget(config.tables.samples)
    assert replay.replay(config) == Replayed(42, 4, 0)
    assert {row[3] for row in sample_coordinates(config)} == {f"j{i}".encode() for i in range(42)}
    assert replay.replay(config) == Replayed(0, 4, 42)
    assert len(sample_coordinates(config)) == 42
    if not forgotten:
        assert verify(config.tables.samples, config.tables.rejected).faults == []


def test_letters_that_stand_twice_come_in_once(spark: SparkSession, wrong: Wrong) -> None:
    _, config, _ = wrong
    spark.sql(f"INSERT INTO delta.`{config.tables.rejected}` SELECT * FROM delta.`{config.tables.rejected}`")
    assert replay.replay(config) == Replayed(40, 3, 0)
    assert len(sample_coordinates(config)) == len(set(sample_coordinates(config))) == 40


def test_what_is_left_out_is_told(spark: SparkSession, wrong: Wrong, kafka: Kafka, tmp_path: Path) -> None:
    _, config, topic = wrong
    rejected = f"delta.`{config.tables.rejected}`"
    spark.sql(f"UPDATE {rejected} SET stream_id = 'more' WHERE key = 'j1'")
    spark.sql(f"UPDATE {rejected} SET topic = 'unread' WHERE key IN ('j2', 'j3')")
    spark.sql(f"UPDATE {rejected} SET epoch = 'unknown' WHERE key IN ('j4', 'j5', 'j6')")
    file = tmp_path / "ingest.yaml"
    file.write_text(yaml.safe_dump(ingest_data(tmp_path, kafka.bootstrap_servers, {topic: "json"})))
    command = [sys.executable, "-m", "kbit_spark.cli.main", "rejected", "replay", "--config", str(file)]
    done = subprocess.run(
        [*command, "--where", "key <> 'j7'"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    told = [f"left out: {n} {why}" for n, why in ((1, FOREIGN), (2, UNREAD), (3, UNFINISHED))]
    assert sorted(done.stdout.splitlines()) == sorted([*told, "replay: good=33 still_bad=3 replayed_before=0"])


def test_letters_from_before_they_named_their_batch(spark: SparkSession, wrong: Wrong) -> None:
    """They are of a whole batch where the stream has read their offsets."""
    _, config, _ = wrong
    rejected = f"delta.`{config.tables.rejected}`"
    spark.sql(f"UPDATE {rejected} SET offset = 1000 + offset WHERE key IN ('j0', 'j1')")
    table = spark.read.format("delta").load(config.tables.rejected)
    table = table.select(*REQUIRED.names).localCheckpoint()
    table.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(config.tables.rejected)
    assert replay.replay(config) == Replayed(38, 3, 0, {UNFINISHED: 2})


def test_show_groups_the_letters(wrong: Wrong) -> None:
    config = wrong[0]
    groups = group_letters(config.tables.rejected, 2)
    assert sum(group.count for group in groups) == 43
    assert all(group.format == "avro" and len(group.samples) <= 2 for group in groups)
    done = subprocess.run(
        [sys.executable, "-m", "kbit_spark.cli.main", "rejected", "show", "--rejected", config.tables.rejected],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"rejected: letters=43 groups={len(groups)}"


def test_sigkill_half_way(wrong: Wrong, kafka: Kafka, tmp_path: Path) -> None:
    _, config, topic = wrong
    data = ingest_data(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    data["spark"] = {"spark.driver.memory": "700m", "spark.master": "local[2]"}
    file = tmp_path / "ingest.yaml"
    file.write_text(yaml.safe_dump(data))
    command = [sys.executable, "-m", "kbit_spark.cli.main", "rejected", "replay", "--config", str(file)]
    samples = Path(config.tables.samples)
    process = subprocess.Popen(
        command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    eventually(lambda: any(samples.glob("_split=*/*.parquet")) or process.poll() is not None, poll_s=0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    assert list(samples.glob("_split=*/*.parquet"))
    assert replay.replay(config) == Replayed(40, 3, 0)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "replay: good=0 still_bad=3 replayed_before=40\n"
    assert len(sample_coordinates(config)) == len(set(sample_coordinates(config))) == 40


def test_verify_names_what_is_missing_twice_or_of_no_batch(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("verify")
    kafka.produce(topic, [*json_records(60), (b"a", b"{")])
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    ingest.run(config)
    assert verify(config.tables.samples, config.tables.rejected).faults == []
    samples = f"delta.`{config.tables.samples}`"
    spark.sql(f"DELETE FROM {samples} WHERE _offset = 7")
    spark.sql(f"INSERT INTO {samples} SELECT * FROM {samples} WHERE _offset = 50")
    spark.sql(f"DELETE FROM delta.`{config.tables.rejected}`")
    faults = verify(config.tables.samples, config.tables.rejected).faults
    assert len(faults) == 4
    assert faults[0] == f"samples: 1 rows too many, the first at {topic}[0]@50"
    assert "(batch 0 of digits): 40 good records, but 39 rows" in faults[1]
    assert "(batch 1 of digits): 20 good records, but 21 rows" in faults[2]
    assert "1 bad records, but 0 rows in rejected" in faults[3]
    done = subprocess.run(
        [sys.executable, "-m", "kbit_spark.cli.main", "ledger", "verify", config.tables.samples, "--json"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert len(json.loads(done.stdout)["faults"]) == 3
