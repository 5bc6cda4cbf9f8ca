from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kbit_spark.session import session_given, spark_session


def test_session_reads_and_writes_delta(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "t"))
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 3


def test_a_running_session_is_reused_and_takes_the_users_settings(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        assert spark_session("other", {"spark.sql.shuffle.partitions": "7"}) is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))


def test_on_databricks_the_session_is_left_running(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert session_given()
    assert spark_session("other", {}) is spark
