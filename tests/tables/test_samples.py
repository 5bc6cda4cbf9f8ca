"""The split of a record, which must be the same for ever, on every engine."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from kbit_spark.config.ingest import SplitConfig
from kbit_spark.tables.samples import parquet_settings, split_column

SPLIT = SplitConfig(validation=0.3, test=0.3, salt="salt")


def test_the_split_is_the_hash_of_the_keys_bytes_be_they_text_or_not(spark: SparkSession) -> None:
    random.seed(7)
    keys = [random.randbytes(length) for length in (*range(70), 1_000) for _ in range(4)]
    rows = [(key, "topic", 0, offset) for offset, key in enumerate(keys)]
    frame = spark.createDataFrame(rows, "key binary, topic string, partition int, offset bigint").coalesce(1)
    bucket = sf.pmod(sf.xxhash64(sf.lit(SPLIT.salt), sf.col("key")), sf.lit(1_000_000))
    by_bytes = sf.when(bucket < 300_000, "test").when(bucket < 600_000, "validation").otherwise("train")
    assert frame.where(split_column(SPLIT) != by_bytes).count() == 0


def test_known_records_have_known_splits(spark: SparkSession) -> None:
    rows = [(key, "topic", 0, offset) for offset, key in enumerate([b"a", b"b", b"c", b"\xff", b"", None, None, None])]
    frame = spark.createDataFrame(rows, "key binary, topic string, partition int, offset bigint").coalesce(1)
    splits = [row[0] for row in frame.select(split_column(SPLIT)).collect()]
    assert splits == ["train", "train", "train", "validation", "test", "validation", "test", "train"]


@pytest.mark.parametrize(
    ("key", "mib"),
    [
        ("spark.hadoop.parquet.block.size", [8, 8, 8, 31, 128]),
        ("spark.rapids.sql.format.parquet.writer.rowGroupSizeBytes", [8, 8, 15, 62, 128]),
    ],
)
def test_many_columns_get_larger_row_groups(key: str, mib: list[int]) -> None:
    assert [int(parquet_settings([], columns)[key]) >> 20 for columns in (0, 2, 51, 200, 5_000)] == mib
