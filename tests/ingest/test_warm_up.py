"""What is loaded before the first batch: a record goes the stream's way, to a folder that nobody reads."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kbit_spark.codecs.decoder import value_type
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.rapids import ENABLED
from kbit_spark.tables.samples import samples_schema
from kbit_spark.warm_up import WarmUp, write_tombstone
from tests.fixtures.jobs import ingest_config


@pytest.fixture
def config(tmp_path: Path) -> IngestConfig:
    return ingest_config(tmp_path, "nobody:0", {"numbers": "json", "records": "avro"})


def test_a_record_without_a_payload_is_written_as_a_good_one(
    spark: SparkSession, config: IngestConfig, tmp_path: Path
) -> None:
    written = write_tombstone(spark.newSession(), config, tmp_path)
    assert written.columns == samples_schema(value_type(config.fields)).names
    (file,) = (tmp_path / "rows").glob("_split=*/*.parquet")
    (row,) = pq.ParquetFile(file).read().to_pylist()
    assert {name for name, value in row.items() if value is not None} == {
        "_topic",
        "_partition",
        "_offset",
        "_timestamp",
    }
    assert spark.conf.get(ENABLED, None) is None


def test_it_runs_once_in_a_jvm_and_leaves_nothing(
    spark: SparkSession, config: IngestConfig, caplog: pytest.LogCaptureFixture
) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.java.lang.System.clearProperty("kbit.warm")
    caplog.set_level(logging.DEBUG, "kbit.warm_up")
    threads = []
    for _ in range(2):
        with WarmUp(spark, config) as warm_up:
            threads.append(warm_up._thread)
            if warm_up._thread is not None:
                warm_up._thread.join(60)
    assert [thread is None for thread in threads] == [False, True]
    assert not caplog.records


def test_a_stream_that_ends_at_once_does_not_wait_for_it(spark: SparkSession, config: IngestConfig) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.java.lang.System.clearProperty("kbit.warm")
    with WarmUp(spark, config) as warm_up:
        pass
    assert warm_up._thread is not None
    assert not warm_up._thread.is_alive()
