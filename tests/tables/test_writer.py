"""Appends in two steps: what they count, what they commit, and what happens when two drivers do the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from kbit_spark.errors import RunError
from kbit_spark.tables import writer as writer_module
from kbit_spark.tables.append import CachedAppend, Transaction
from kbit_spark.tables.delta import ensure_table
from kbit_spark.tables.delta_append import DeltaClasses
from kbit_spark.tables.tally import Counts, Tally
from kbit_spark.tables.writer import TableWriter

SCHEMA = StructType([StructField("n", LongType()), StructField("word", StringType())])


def table(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    ensure_table(spark, path, SCHEMA, [], {})
    return path


def rows(spark: SparkSession, count: int = 3) -> DataFrame:
    return spark.range(count).select(sf.col("id").alias("n"), sf.lit("word").alias("word"))


def read(path: str) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["n"].to_pylist())


def test_rows_appear_with_the_commit_and_not_before(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    append = TableWriter(spark, path).begin(Transaction("app", 0), SCHEMA)
    assert append is not None
    append.write(rows(spark))
    assert append.rows() == 3
    assert read(path) == []
    append.commit("said in the commit")
    assert read(path) == [0, 1, 2]
    assert DeltaTable(path).history(1)[0]["userMetadata"] == "said in the commit"


def test_a_transaction_that_was_committed_is_not_begun_again(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    for version in range(15):  # beyond a checkpoint of the log
        append = TableWriter(spark, path).begin(Transaction("app", version), SCHEMA)
        assert append is not None
        append.write(rows(spark, 1))
        append.commit()
        assert TableWriter(spark, path).begin(Transaction("app", version), SCHEMA) is None
    assert TableWriter(spark, path).begin(Transaction("app", 3), SCHEMA) is None
    assert TableWriter(spark, path).begin(Transaction("other", 3), SCHEMA) is not None
    assert read(path) == [0] * 15


def test_of_two_drivers_with_the_same_batch_only_one_commits(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    first, second = (TableWriter(spark, path).begin(Transaction("app", 0), SCHEMA) for _ in range(2))
    assert first is not None
    assert second is not None
    first.write(rows(spark))
    second.write(rows(spark))
    first.commit()
    with pytest.raises(RunError, match="another"):
        second.commit()
    assert read(path) == [0, 1, 2]


def test_rows_that_somebody_dropped_can_be_taken_back_still(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    append = TableWriter(spark, path).begin(Transaction("app", 0), SCHEMA)
    assert append is not None
    append.write(rows(spark))
    append.commit()
    spark.sql(f"DELETE FROM delta.`{path}` WHERE n < 3")
    rows(spark, 1).write.format("delta").mode("append").save(path)
    append.undo()
    assert read(path) == [0]


def test_other_applications_commit_in_between(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    append = TableWriter(spark, path).begin(Transaction("app", 0), SCHEMA)
    assert append is not None
    append.write(rows(spark))
    rows(spark, 1).write.format("delta").mode("append").save(path)
    append.commit()
    assert read(path) == [0, 0, 1, 2]


def test_a_table_that_changes_under_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    writer = TableWriter(spark, path)
    assert writer.begin(Transaction("app", 0), SCHEMA) is not None
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (more int)")
    append = writer.begin(Transaction("app", 0), SCHEMA)
    assert append is not None
    append.write(rows(spark))
    append.commit()
    assert read(path) == [0, 1, 2]
    changed = StructType([StructField("n", IntegerType()), StructField("word", StringType())])
    spark.createDataFrame([], changed).write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(
        path
    )
    with pytest.raises(RunError, match=r"column n of the table .* is int, not bigint"):
        writer.begin(Transaction("app", 1), SCHEMA)


def test_the_public_writer_gives_the_same_commits(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    for _ in range(2):  # the second time changes nothing
        append = CachedAppend(path, Transaction("app", 0))
        append.write(rows(spark))
        assert append.rows() is None
        append.commit("said in the commit")
        append.close()
    assert read(path) == [0, 1, 2]
    assert DeltaTable(path).history(1)[0]["userMetadata"] == "said in the commit"
    assert TableWriter(spark, path).begin(Transaction("app", 0), SCHEMA) is None


def test_the_tally_counts_each_record_once(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    value = sf.struct(sf.col("id").alias("n"), sf.lit("word").alias("word"))
    error = sf.struct(sf.lit("bad").alias("code"))
    kind = sf.col("id") % 4
    decoded = spark.range(0, 400, 1, 3).select(
        sf.struct(sf.when(kind < 2, value).alias("value"), sf.when(kind == 2, error).alias("error")).alias("decoded")
    )
    tally = Tally(spark)
    for version in range(2):  # counts begin anew with each batch
        append = TableWriter(spark, path).begin(Transaction("app", version), SCHEMA)
        assert append is not None
        append.write(tally.good_records(decoded).select("decoded.value.*"))
        assert tally.counts() == Counts(good=200, bad=100, tombstones=100)
        assert append.rows() == 200
        append.commit()
    assert len(read(path)) == 400


@pytest.mark.parametrize("public", [False, True], ids=["transaction", "public writer"])
def test_a_table_restored_under_the_stream(
    public: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(spark, tmp_path)
    if public:
        monkeypatch.setattr(DeltaClasses, "find", lambda spark: None)
    writer = TableWriter(spark, path, turns="kbit:s")

    def append(version: int) -> None:
        appended = writer.begin(Transaction("app", version), SCHEMA)
        assert appended is not None
        appended.write(rows(spark, 1))
        appended.commit()
        appended.close()

    for version in range(3):
        append(version)
        rows(spark, 1).write.format("delta").mode("append").save(path)  # others may append
    restored = DeltaTable(path).version() + 1
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 3")
    for _ in range(2):
        with pytest.raises(RunError, match=f"version {restored} of .* restored the table") as told:
            append(3)
        assert told.value.hint is not None
        assert told.value.hint.startswith("start again")
    assert len(read(path)) == 3
    writer = TableWriter(spark, path, turns="kbit:s")  # what was restored before is the guard's
    append(3)
    assert len(read(path)) == 4


def test_the_writers_own_commits_are_not_read_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(spark, tmp_path)
    asked: list[int] = []
    monkeypatch.setattr(writer_module, "restored_among", lambda path, versions: asked.extend(versions))
    writer = TableWriter(spark, path, turns="kbit:s")
    for version in range(3):
        appended = writer.begin(Transaction("app", version), SCHEMA)
        assert appended is not None
        appended.write(rows(spark, 1))
        if version == 1:
            rows(spark, 1).write.format("delta").mode("append").save(path)
        appended.commit()
    assert asked == [2, 3]  # somebody else's, and what the writer committed behind it


@pytest.mark.parametrize("public", [False, True], ids=["transaction", "public writer"])
def test_columns_come_with_the_commit(
    public: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(spark, tmp_path)
    if public:
        monkeypatch.setattr(DeltaClasses, "find", lambda spark: None)
    wide = StructType([*SCHEMA, StructField("more", IntegerType(), True, {"note": "x"})])
    writer = TableWriter(spark, path, evolve=True)
    for version in range(2):
        append = writer.begin(Transaction("app", version), wide)
        assert append is not None
        assert append.added == (() if version else ("more int",))
        append.write(
            rows(spark, 2).withColumn("more", sf.col("n").cast("int") if version else sf.lit(None).cast("int"))
        )
        assert len(DeltaTable(path).schema().fields) == 2 + version
        append.commit()
        append.close()
    column = DeltaTable(path).schema().fields[2]
    assert (column.name, column.nullable, column.metadata) == ("more", True, {"note": "x"})
    assert DeltaTable(path).to_pyarrow_table()["more"].null_count == 2
    with pytest.raises(RunError, match=r"column more of the table .* is int, not string"):
        TableWriter(spark, path, evolve=True).begin(
            Transaction("app", 2), StructType([*SCHEMA, StructField("more", StringType())])
        )
    if not public:  # which leaves that check to Delta
        other = StructType([*wide, StructField("other", StringType())])
        with pytest.raises(RunError, match="has no column other"):
            TableWriter(spark, path).begin(Transaction("app", 2), other)
