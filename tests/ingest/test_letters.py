"""Dead letters of batches that are not whole: of one that decodes otherwise when it runs again, of an epoch before."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from kbit_spark import batch_writer, ingest
from kbit_spark.batch_writer import BatchWriter
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.engines import MiscountError
from kbit_spark.errors import RunError
from kbit_spark.replay import Replayed, replay
from kbit_spark.tables.append import CachedAppend, Transaction
from kbit_spark.tables.dead_letters import REJECTED
from kbit_spark.tables.delta_append import DeltaClasses
from kbit_spark.tables.ledger import WholeBatches
from kbit_spark.tables.verify import verify
from kbit_spark.tables.writer import TableWriter
from tests.fixtures.jobs import coordinates, forget, ingest_config, json_records, ledger
from tests.fixtures.kafka import Kafka
from tests.ingest.test_guard import records, run

pytestmark = pytest.mark.kafka
BROKEN = [(b"bad", b"{"), (b"bad", b"")]


def with_broken(kafka: Kafka, name: str, good: int = 18, bad: int = 2) -> str:
    """Make a topic of so many records and return its name; the broken ones come last."""
    topic = kafka.topic(name)
    kafka.produce(topic, [*json_records(good), *BROKEN[:bad]])
    return topic


def letters(config: IngestConfig) -> Counter[tuple[str, str]]:
    """Return how many letters there are of a format and an epoch."""
    rows = DeltaTable(config.tables.rejected).to_pyarrow_table(columns=["format", "epoch"])
    return Counter((row["format"], row["epoch"]) for row in rows.to_pylist())


def settled(config: IngestConfig, folder: Path, topic: str, good: int, bad: int, kind: str) -> None:
    """Check that the batch counts so many records, and each is where its entry says, once."""
    (entry,) = ledger(config.tables.samples)
    assert (entry.good, entry.bad) == (good, bad)
    assert letters(config) == Counter({(kind, entry.epoch): bad} if bad else {})
    assert coordinates(folder) == [(topic, 0, offset) for offset in range(good + bad)]
    assert verify(config.tables.samples, config.tables.rejected).faults == []


def fail_before_the_samples(spark: SparkSession, config: IngestConfig, patch: pytest.MonkeyPatch, public: bool) -> None:
    """Run a stream whose first batch ends between its two commits."""
    if public:
        commit = CachedAppend.commit

        def crash(self: CachedAppend, user_metadata: str | None = None) -> None:
            if user_metadata is not None:
                raise OSError("the machine is gone")
            commit(self, user_metadata)

        patch.setattr(CachedAppend, "commit", crash)
    else:
        method = BatchWriter._write_rejected

        def altered(self: BatchWriter, *arguments: Any) -> Any:
            done = method(self, *arguments)
            table = f"delta.`{config.tables.samples}`"
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('at' = '{time.time_ns()}')")
            return done

        patch.setattr(BatchWriter, "_write_rejected", altered)
    with pytest.raises(RunError, match="the machine is gone" if public else "MetadataChanged"):
        ingest.run(config)
    assert ledger(config.tables.samples) == []
    assert sum(letters(config).values()) > 0


@pytest.mark.parametrize("public", [False, True], ids=["transaction", "public writer"])
@pytest.mark.parametrize(
    ("before", "after", "broken", "good", "bad"),
    [
        ("json", "avro", 2, 0, 20),  # more letters than before
        ("avro", "json", 2, 18, 2),  # fewer
        ("avro", "json", 0, 20, 0),  # none
        ("json", "json", 2, 18, 2),  # the same
    ],
)
def test_a_batch_that_decodes_otherwise_when_it_runs_again(
    spark: SparkSession,
    kafka: Kafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
    broken: int,
    good: int,
    bad: int,
    public: bool,
) -> None:
    topic = with_broken(kafka, "again", 20 - broken, broken)
    first, second = (ingest_config(tmp_path, kafka.bootstrap_servers, {topic: kind}) for kind in (before, after))
    with monkeypatch.context() as patch:
        if public:
            patch.setattr(DeltaClasses, "find", lambda _: None)
        with monkeypatch.context() as failing:
            fail_before_the_samples(spark, first, failing, public)
        ingest.run(second)
        settled(second, tmp_path, topic, good, bad, after)
        ingest.run(second)
    settled(second, tmp_path, topic, good, bad, after)


def test_a_batch_that_fails_and_decodes_otherwise_twice(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = with_broken(kafka, "again")
    for kind in ("json", "avro", "json"):
        config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: kind})
        with monkeypatch.context() as failing:
            fail_before_the_samples(spark, config, failing, public=False)
    ingest.run(config)
    settled(config, tmp_path, topic, 18, 2, "json")


def test_a_table_of_letters_that_takes_appends_only(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = with_broken(kafka, "appended")
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    with monkeypatch.context() as failing:
        fail_before_the_samples(spark, config, failing, public=False)
    spark.sql(f"ALTER TABLE delta.`{config.tables.rejected}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with pytest.raises(RunError, match=f"^{config.tables.rejected} takes appends only") as caught:
        ingest.run(config)
    spark.sql(caught.value.hint.split(",")[0])
    ingest.run(config)
    settled(config, tmp_path, topic, 18, 2, "json")


def test_letters_that_are_not_as_many_as_counted(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the registry comes to know an id between the two passes over a batch."""
    topic = with_broken(kafka, "fewer")
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    rows = batch_writer.rejected_rows

    def fewer(decoded: DataFrame, *arguments: Any) -> DataFrame:
        return rows(decoded, *arguments).where("offset <> 19")

    with monkeypatch.context() as patch, pytest.raises(MiscountError, match=r"2 bad records .* but 1 were") as caught:
        patch.setattr(batch_writer, "rejected_rows", fewer)
        ingest.run(config)
    assert "start again" in caught.value.hint
    assert coordinates(tmp_path) == []
    ingest.run(config)
    settled(config, tmp_path, topic, 18, 2, "json")


def test_letters_that_another_process_wrote_meanwhile(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = with_broken(kafka, "meanwhile")
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    method = BatchWriter._write_samples

    def late(self: BatchWriter, batch: DataFrame, transaction: Transaction, *arguments: Any) -> Any:
        other = TableWriter(spark, config.tables.rejected).begin(transaction, REJECTED)
        assert other is not None
        other.write(spark.createDataFrame([], REJECTED))
        other.commit()
        return method(self, batch, transaction, *arguments)

    with monkeypatch.context() as patch, pytest.raises(RunError, match="another process"):
        patch.setattr(BatchWriter, "_write_samples", late)
        ingest.run(config)
    ingest.run(config)
    settled(config, tmp_path, topic, 18, 2, "json")


def test_batches_that_nobody_began_before_ask_for_nothing(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = with_broken(kafka, "ordinary", 118)
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    asked, holds = list[int](), TableWriter.holds

    def counted(self: TableWriter, transaction: Transaction) -> bool:
        asked.append(transaction.version)
        return holds(self, transaction)

    monkeypatch.setattr(TableWriter, "holds", counted)
    ingest.run(config)
    assert [entry.batch_id for entry in ledger(config.tables.samples)] == [0, 1, 2]
    assert asked == [0]


def test_a_new_epoch_leaves_the_letters_of_another_stream(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Two streams with tables of their own, but one for their letters, read one topic; the one behind begins anew."""
    topic, shared = kafka.topic("shared"), str(tmp_path / "rejected")
    one, two = (
        ingest_config(
            tmp_path / name,
            kafka.bootstrap_servers,
            {topic: "json"},
            stream_id=name,
            tables={"samples": str(tmp_path / name / "samples"), "rejected": shared},
        )
        for name in ("one", "two")
    )

    def found() -> Counter[tuple[str, int]]:
        rows = DeltaTable(shared).to_pyarrow_table(columns=["stream_id", "offset"]).to_pylist()
        return Counter((row["stream_id"], row["offset"]) for row in rows)

    kafka.produce(topic, records(20))
    ingest.run(two)
    kafka.produce(topic, records(20))
    ingest.run(one)
    shutil.rmtree(two.checkpoint_dir)
    run(two, rebase=True)
    assert found() == Counter({(name, offset): 1 for name in ("one", "two") for offset in (9, 19, 29, 39)})
    for config in (one, two):
        verdict = verify(config.tables.samples, shared)
        assert (verdict.rejected, verdict.faults) == (4, [])


def test_a_new_epoch_leaves_the_letters_of_a_topic_made_anew(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Also when the log has forgotten the batches of the topic before, whose offsets were higher."""
    topic = kafka.topic("before")
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    kafka.produce(topic, records(60))
    ingest.run(config)
    kafka.make_anew(topic)
    kafka.produce(topic, records(20))
    run(config, accept_loss=True)
    everything = sorted((topic, 0, offset) for offset in (*range(60), *range(20)))
    assert coordinates(tmp_path) == everything
    forget(config.tables.samples)
    assert len(ledger(config.tables.samples)) == 1
    shutil.rmtree(config.checkpoint_dir)
    run(config, rebase=True)
    assert coordinates(tmp_path) == everything


def test_letters_whose_batches_the_table_has_forgotten_are_of_whole_ones(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic("forgotten")
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    kafka.produce(topic, records(40))
    ingest.run(config)
    assert sum(letters(config).values()) == 4
    retention = "'delta.setTransactionRetentionDuration' = 'interval 1 second'"
    spark.sql(f"ALTER TABLE delta.`{config.tables.samples}` SET TBLPROPERTIES ({retention})")
    time.sleep(1.1)
    forget(config.tables.samples)
    whole = WholeBatches(config.tables.samples, config.stream_id)
    ((_, epoch),) = letters(config)
    assert (epoch, 0) in whole
    assert DeltaTable(config.tables.samples).transaction_version(f"kbit:digits:{epoch}") is None
    assert replay(config) == Replayed(0, 4, 0)


def test_a_new_epoch_drops_the_letters_of_a_batch_that_is_not_whole(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever its offsets are: here below those that the table had reached of the topic before."""
    topic = kafka.topic("unfinished")
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    kafka.produce(topic, records(40))
    ingest.run(config)
    kafka.make_anew(topic)
    kafka.produce(topic, records(20))
    method = BatchWriter._write_rejected

    def killed(self: BatchWriter, *arguments: Any) -> Any:
        method(self, *arguments)
        raise OSError("the machine is gone")

    with monkeypatch.context() as patch, pytest.raises(RunError, match="the machine is gone"):
        patch.setattr(BatchWriter, "_write_rejected", killed)
        run(config, accept_loss=True)
    assert sum(letters(config).values()) == 6
    forget(config.tables.samples)
    shutil.rmtree(config.checkpoint_dir)
    run(config, rebase=True, accept_loss=True)
    assert sum(letters(config).values()) == 6
    assert coordinates(tmp_path) == sorted((topic, 0, offset) for offset in (*range(40), *range(20)))
