"""Rows from the pages of files that Spark wrote: the loader asks pyarrow for none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kbit_spark.datasets import rows as rows_module
from kbit_spark.datasets.row_groups import list_row_groups
from kbit_spark.datasets.row_reader import RowGroupReader
from kbit_spark.datasets.rows import Columns
from kbit_spark.datasets.sharding import Segment
from kbit_spark.schemas.fields import Tensor
from kbit_spark.schemas.snapshot import DataFile
from kbit_spark.tables.samples import parquet_settings

ROWS, NBYTES = 3_000, 784
COLUMNS = Columns("image", "label", Tensor(dtype="uint8", shape=(28, 28)), 10)
INGEST = {name.removeprefix("spark.hadoop."): value for name, value in parquet_settings(["image"]).items()}
DICTIONARIES = {
    "parquet.enable.dictionary#image": "true",
    "parquet.page.size": str(64 * NBYTES),
    "parquet.block.size": str(1_600 * NBYTES),
    "parquet.dictionary.page.size": str(200 * NBYTES),  # a larger one is given up for PLAIN pages
}


@contextmanager
def session_with(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def written(spark: SparkSession, path: Path, alike: int, settings: Mapping[str, str]) -> Path:
    """Write a Delta table in one file, whose first `alike` images are 7 different ones; return the file."""
    random = np.random.default_rng(0)
    pool = [random.bytes(NBYTES) for _ in range(7)]
    rows = [(pool[i % 7] if i < alike else random.bytes(NBYTES), i % 10) for i in range(ROWS)]
    with session_with(spark, settings):
        frame = spark.createDataFrame(rows, "image binary, label int").coalesce(1)
        frame.write.format("delta").save(str(path))
    [file] = path.glob("*.parquet")
    return file


def loaded(file: Path, skip: int) -> tuple[list[bytes], list[int]]:
    """Return what the loader reads of a file, without the first `skip` rows of each row group."""
    groups = list_row_groups([DataFile(path=str(file), rows=ROWS, split="train")])
    reader = RowGroupReader(groups, COLUMNS)
    found = [reader.read([Segment(i, skip, group.rows - skip)]) for i, group in enumerate(groups)]
    return [row.tobytes() for rows in found for row in rows.inputs], [int(y) for rows in found for y in rows.targets]


def scanned(file: Path, skip: int) -> tuple[list[bytes], list[int]]:
    """Return the same as pyarrow reads it."""
    with pq.ParquetFile(file) as parquet:
        groups = [parquet.read_row_group(i).slice(skip) for i in range(parquet.num_row_groups)]
    return [x for group in groups for x in group["image"].to_pylist()], [
        y for group in groups for y in group["label"].to_pylist()
    ]


def no_arrow(*_: Any) -> Any:
    raise AssertionError("pyarrow was asked for rows")


@pytest.mark.parametrize("codec", ["snappy", "zstd", "uncompressed"])
@pytest.mark.parametrize(
    ("alike", "settings", "encodings"),
    [
        (0, INGEST, {"PLAIN"}),
        (ROWS, DICTIONARIES, {"PLAIN_DICTIONARY"}),
        (700, DICTIONARIES, {"PLAIN", "PLAIN_DICTIONARY"}),
    ],
    ids=["as ingest does", "dictionaries", "a dictionary given up"],
)
def test_all_rows_come_from_pages(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    alike: int,
    settings: dict[str, str],
    encodings: set[str],
    codec: str,
) -> None:
    file = written(spark, tmp_path / "table", alike, {**settings, "spark.sql.parquet.compression.codec": codec})
    column = pq.read_metadata(file).row_group(0).column(0)
    assert column.compression == codec.upper()
    assert set(column.encodings) - {"BIT_PACKED", "RLE"} == encodings  # those two are of levels
    monkeypatch.setattr(rows_module, "_from_arrow", no_arrow)
    for skip in (0, 101):
        assert loaded(file, skip) == scanned(file, skip)


def test_pages_of_version_2_are_left_to_pyarrow(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(spark, tmp_path / "table", 7, {**INGEST, "parquet.writer.version": "v2"})
    assert loaded(file, 101) == scanned(file, 101)
    monkeypatch.setattr(rows_module, "_from_arrow", no_arrow)
    with pytest.raises(AssertionError, match="pyarrow was asked"):
        loaded(file, 101)
