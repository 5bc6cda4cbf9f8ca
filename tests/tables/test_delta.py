"""Which tables the stream takes for its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kbit_spark.codecs.decoder import value_type
from kbit_spark.errors import RunError
from kbit_spark.schemas.fields import FieldSpec
from kbit_spark.tables import delta
from kbit_spark.tables.samples import ensure_samples


def fields(dtype: str = "uint8", shape: tuple[int, ...] = (28, 28), label: str = "int") -> list[FieldSpec]:
    return [
        FieldSpec.model_validate({"name": "image", "tensor": {"dtype": dtype, "shape": shape}}),
        FieldSpec.model_validate({"name": "label", "type": label}),
    ]


def test_the_streams_own_table_only(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "samples")
    ensure_samples(spark, path, value_type(fields()))
    ensure_samples(spark, path, value_type(fields()))
    with pytest.raises(RunError, match=r"image .* another shape"):
        ensure_samples(spark, path, value_type(fields(shape=(14, 56))))
    with pytest.raises(RunError, match="another shape or dtype"):
        ensure_samples(spark, path, value_type(fields(dtype="int8")))
    with pytest.raises(RunError, match=r"label .* is int, not bigint"):
        ensure_samples(spark, path, value_type(fields(label="long")))


def test_a_table_of_another_layout(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "flat")
    ensure_samples(spark, str(tmp_path / "samples"), value_type(fields()))
    made = spark.read.format("delta").load(str(tmp_path / "samples"))
    made.write.format("delta").save(path)
    with pytest.raises(RunError, match="is partitioned by nothing"):
        ensure_samples(spark, path, value_type(fields()))


def test_a_folder_that_is_no_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"not a table")
    with pytest.raises(RunError, match="cannot open the table"):
        ensure_samples(spark, str(tmp_path), value_type(fields()))


def test_a_log_that_a_crash_left_before_its_first_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "CREATE_WAIT_S", 0.3)
    log = tmp_path / "samples/_delta_log"
    log.mkdir(parents=True)
    (log / ".00000000000000000000.json.tmp").write_bytes(b"{")
    ensure_samples(spark, str(tmp_path / "samples"), value_type(fields()))
    assert DeltaTable(str(tmp_path / "samples")).version() == 0


def test_two_jobs_that_make_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "samples")
    with ThreadPoolExecutor(3) as pool:
        for made in [pool.submit(ensure_samples, spark, path, value_type(fields())) for _ in range(3)]:
            made.result()
    assert DeltaTable(path).version() == 0
