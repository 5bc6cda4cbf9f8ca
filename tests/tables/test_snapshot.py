"""Snapshots of real Delta tables: what is in them, what Spark has done to them, and tables that are none."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from kbit_spark.datasets.batches import Source, evaluation_batches
from kbit_spark.datasets.row_groups import list_row_groups
from kbit_spark.datasets.rows import Columns
from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas.fields import SPLITS
from kbit_spark.schemas.ledger import LedgerEntry, OffsetRange
from kbit_spark.schemas.snapshot import Snapshot
from kbit_spark.tables.retention import retention_s
from kbit_spark.tables.snapshot import require_columns, resolve
from tests.fixtures.samples import IMAGE, write_samples

WEEK_S, DAY_S = 604_800.0, 86_400.0


def test_files_rows_splits_and_tensors(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "with space", train=30, validation=20, test=10)
    write_samples(tmp_path / "with space", train=5, validation=0, test=0)
    snapshot = resolve(table)
    assert snapshot.version == 1
    assert [snapshot.rows(split) for split in SPLITS] == [35, 20, 10]
    assert all(Path(file.path).exists() for file in snapshot.files)
    assert snapshot.tensors == {"image": IMAGE}
    assert require_columns(snapshot, "image", "label") == IMAGE
    assert resolve(table, 0).rows("train") == 30


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no Delta table"):
        resolve(str(tmp_path))


def test_a_version_that_is_not_there(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=3, validation=0, test=0)
    with pytest.raises(RunError, match="has no version 7"):
        resolve(table, 7)


def test_a_foreign_table(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "foreign"), pa.table({"a": [1]}))
    with pytest.raises(RunError, match="is not partitioned by _split"):
        resolve(str(tmp_path / "foreign"))


def test_an_empty_table(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("label", pa.int32()), pa.field("_split", pa.string())])
    write_deltalake(str(tmp_path / "empty"), schema.empty_table(), partition_by=["_split"])
    with pytest.raises(RunError, match="holds no rows at version 0"):
        resolve(str(tmp_path / "empty"))


def test_an_unknown_split(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "odd"), pa.table({"a": [1], "_split": ["other"]}), partition_by=["_split"])
    with pytest.raises(RunError, match="unknown split 'other'"):
        resolve(str(tmp_path / "odd"))


def test_an_input_that_is_no_tensor(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=3, validation=0, test=0)
    with pytest.raises(UsageError, match="no tensor column 'picture'; its tensor columns: image"):
        require_columns(resolve(table), "picture", "label")


def test_a_target_that_is_no_column(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=3, validation=0, test=0)
    with pytest.raises(UsageError, match="no column 'lable'; did you mean 'label'") as raised:
        require_columns(resolve(table), "image", "lable")
    assert raised.value.hint == "set data.target to one of image, label, _split"


def rows_read(snapshot: Snapshot) -> list[tuple[bytes, int]]:
    """Return what training would read: image and label of every row of all splits, sorted."""
    columns = Columns("image", "label", snapshot.tensors["image"], 10, snapshot.stored)
    read: list[tuple[bytes, int]] = []
    for split in SPLITS:
        groups = list_row_groups(snapshot.of_split(split))
        for batch in evaluation_batches(Source(groups, columns, 0, 1), 50):
            read += [(i.numpy().tobytes(), int(t)) for i, t in zip(batch.inputs, batch.targets, strict=True)]
    return sorted(read)


def rows_of(spark: SparkSession, path: str) -> list[tuple[bytes, int]]:
    rows = spark.read.format("delta").load(path).select("image", "label").collect()
    return sorted((bytes(row.image), row.label) for row in rows)


VECTORS, MAPPED = {"delta.enableDeletionVectors": "true"}, {"delta.columnMapping.mode": "name"}


@pytest.mark.parametrize(
    ("properties", "partitions"),
    [
        (VECTORS, ["_split"]),
        (MAPPED, ["_split"]),
        ({**VECTORS, "delta.columnMapping.mode": "id"}, ["_split", "label"]),
        (VECTORS, ["place", "_split"]),
        ({**VECTORS, **MAPPED}, ["_split", "place", "label"]),
    ],
)
def test_tables_that_spark_has_changed_are_read_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], partitions: list[str]
) -> None:
    source = write_samples(tmp_path / "plain", train=300, validation=40, test=40)
    plain = spark.read.format("delta").load(source).selectExpr(
        "*", "case label % 3 when 0 then 'a b%:/é' when 1 then 'x' end as place", "label as old_name"
    )  # fmt: skip
    path = str(tmp_path / "my table")
    table = SparkTable.create(spark).location(path).addColumns(plain.schema).partitionedBy(*partitions)
    for key, value in properties.items():
        table = table.property(key, value)
    table.execute()
    for batch in range(2):
        metadata = ledger_entry(batch, (0, 380 * batch, 380 * (batch + 1))).to_metadata()
        plain.write.format("delta").mode("append").option("userMetadata", metadata).save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE crc32(image) % 5 = 0")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE _split = 'test' AND old_name < 9")
    if "delta.columnMapping.mode" in properties:
        spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN image TO picture")
        spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN old_name TO image_number")
        spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN picture TO image")
    snapshot = resolve(path)
    expected = rows_of(spark, path)
    assert 0 < len(expected) < 2 * 380
    assert sum(snapshot.rows(split) for split in SPLITS) == len(expected)
    assert any(file.deleted for file in snapshot.files) == ("delta.enableDeletionVectors" in properties)
    assert rows_read(snapshot) == expected
    assert snapshot.kafka == (OffsetRange(topic="t", partition=0, start=0, end=760),)


def test_an_error_names_the_row_in_the_file_even_behind_deleted_ones(spark: SparkSession, tmp_path: Path) -> None:
    source = write_samples(tmp_path / "plain", train=100, validation=0, test=0, labels=np.arange(100) % 10)
    path = str(tmp_path / "samples")
    plain = spark.read.format("delta").load(source).coalesce(1)
    plain.write.format("delta").partitionBy("_split").option("delta.enableDeletionVectors", "true").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE label < 7")
    snapshot = resolve(path)
    groups = list_row_groups(snapshot.of_split("train"))
    narrow = Columns("image", "label", IMAGE, 9, snapshot.stored)
    with pytest.raises(RunError, match="row 9: label 9 is out of range"):
        list(evaluation_batches(Source(groups, narrow, 0, 1), 50))


def test_a_version_whose_files_vacuum_may_take_is_refused(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=30, validation=0, test=0)
    write_samples(tmp_path / "samples", train=30, validation=0, test=0, seed=1)
    assert resolve(table, 1, DAY_S).rows("train") == 60
    DeltaTable(table).optimize.compact()
    assert resolve(table, 1, DAY_S).rows("train") == 60  # removed just now, kept for a week
    with pytest.raises(RunError, match=r"2 files of .* version 1 .* VACUUM may delete _split=train/.* in 16[78]\.\d h"):
        resolve(table, 1, WEEK_S)
    with pytest.raises(RunError, match=r"keeps removed files for 168.0 h only, but the run may take 192.0 h"):
        resolve(table, longest_run_s=8 * DAY_S)


@pytest.mark.parametrize(
    ("text", "hours"), [("interval 2 days", 48), ("interval 1 week 3 hours", 171), ("90 minutes", 1.5), (None, 168)]
)
def test_how_long_removed_files_are_kept(text: str | None, hours: float) -> None:
    assert retention_s({"delta.deletedFileRetentionDuration": text}) == hours * 3_600


@pytest.mark.parametrize("text", ["soon", "interval 2 fortnights", "interval 1 day and a half"])
def test_an_unknown_retention(text: str) -> None:
    with pytest.raises(RunError, match="cannot understand the table's delta"):
        retention_s({"delta.deletedFileRetentionDuration": text})


def ledger_entry(batch: int, *ranges: tuple[int, int, int]) -> LedgerEntry:
    offsets = tuple(OffsetRange(topic="t", partition=p, start=start, end=end) for p, start, end in ranges)
    good = sum(r.span for r in offsets)
    return LedgerEntry(stream_id="s", epoch="e", batch_id=batch, ranges=offsets, good=good, bad=0, tombstones=0, gaps=0)


def commit(path: str, batch: int, *ranges: tuple[int, int, int]) -> None:
    entry = ledger_entry(batch, *ranges)
    rows = pa.table({"n": list(range(entry.good)), "_split": ["train"] * entry.good})
    properties = CommitProperties(custom_metadata={"userMetadata": entry.to_metadata()})
    write_deltalake(path, rows, partition_by=["_split"], mode="append", commit_properties=properties)


def test_kafka_ranges_of_all_commits_up_to_the_version(tmp_path: Path) -> None:
    path = str(tmp_path / "samples")
    commit(path, 0, (0, 0, 5), (1, 10, 12))
    commit(path, 1, (0, 5, 8))
    DeltaTable(path).optimize.compact()
    commit(path, 2, (1, 14, 15))
    ranges = [(r.partition, r.start, r.end) for r in resolve(path).kafka]
    assert ranges == [(0, 0, 8), (1, 10, 12), (1, 14, 15)]
    assert [(r.partition, r.start, r.end) for r in resolve(path, 1).kafka] == [(0, 0, 8), (1, 10, 12)]
    assert resolve(path).kafka_complete


def test_what_a_restore_undid_is_no_part_of_the_ranges(tmp_path: Path) -> None:
    path = str(tmp_path / "samples")
    for batch in range(3):
        commit(path, batch, (0, batch, batch + 1))
    DeltaTable(path).restore(0)
    commit(path, 1, (0, 7, 8))
    DeltaTable(path).restore(2)
    ends = {version: [(r.start, r.end) for r in resolve(path, version).kafka] for version in range(2, 6)}
    assert ends == {2: [(0, 3)], 3: [(0, 1)], 4: [(0, 1), (7, 8)], 5: [(0, 3)]}
    assert resolve(path).kafka_complete
    now = datetime.now(timezone.utc)
    commit(path, 3, (0, 8, 9))
    DeltaTable(path).restore(now)
    assert not resolve(path).kafka_complete  # nobody knows which version that was


def test_a_log_without_its_first_commits_says_so(tmp_path: Path) -> None:
    path = str(tmp_path / "samples")
    for batch in range(2):
        commit(path, batch, (0, batch, batch + 1))
    DeltaTable(path).create_checkpoint()
    (tmp_path / "samples/_delta_log" / f"{0:020d}.json").unlink()
    snapshot = resolve(path)
    assert [(r.start, r.end) for r in snapshot.kafka] == [(1, 2)]
    assert not snapshot.kafka_complete
