"""Snapshots of real Delta tables, and tables that training cannot read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from kbit_spark.errors import RunError
from kbit_spark.tables.snapshot import require_columns, resolve
from tests.fixtures.samples import IMAGE, write_samples


def test_files_rows_splits_and_tensors(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "with space", train=30, validation=20, test=10)
    write_samples(tmp_path / "with space", train=5, validation=0, test=0)
    snapshot = resolve(table)
    assert snapshot.version == 1
    assert [snapshot.rows(split) for split in ("train", "validation", "test")] == [35, 20, 10]  # type: ignore[arg-type]
    assert all(Path(file.path).exists() for file in snapshot.files)
    assert snapshot.tensors == {"image": IMAGE}
    assert require_columns(snapshot, "image") == IMAGE
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
    with pytest.raises(RunError, match="no tensor column 'picture'; its tensor columns: image"):
        require_columns(resolve(table), "picture")


@pytest.mark.parametrize(
    ("feature", "says"),
    [
        ("delta.enableDeletionVectors=true", r"allows deletion vectors.* DROP FEATURE deletionVectors"),
        ("delta.columnMapping.mode=name", r"uses column mapping.* without delta\.columnMapping\.mode"),
    ],
)
def test_tables_whose_files_alone_do_not_tell_their_rows(
    spark: SparkSession, tmp_path: Path, feature: str, says: str
) -> None:
    path = str(tmp_path / "samples")
    plain = spark.read.format("delta").load(write_samples(tmp_path / "plain", train=30, validation=0, test=0))
    name, _, value = feature.partition("=")
    table = DeltaTable.create(spark).location(path).addColumns(plain.schema).partitionedBy("_split")
    table.property(name, value).execute()
    plain.write.format("delta").mode("append").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE label = 3")
    with pytest.raises(RunError, match=says):
        resolve(path)
