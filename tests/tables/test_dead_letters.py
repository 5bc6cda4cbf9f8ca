"""Whose a dead letter is: by the batch that it names, in tables that were made before letters named one as well."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kbit_spark.errors import RunError
from kbit_spark.schemas.ledger import LedgerEntry, OffsetRange
from kbit_spark.tables.dead_letters import REJECTED, REQUIRED, drop_letters, ensure_rejected, of_batch
from kbit_spark.tables.delta import ensure_table

BATCH = LedgerEntry(
    stream_id="digits",
    epoch="e",
    batch_id=3,
    ranges=(OffsetRange(topic="t", partition=0, start=10, end=20), OffsetRange(topic="t", partition=1, start=0, end=5)),
    good=15,
    bad=0,
    tombstones=0,
    gaps=0,
)


def letter(place: tuple[str, int, int], batch_id: int, *names: str | None) -> tuple[Any, ...]:
    """Return a row of the table."""
    record = (*place, datetime(2026, 1, 1, tzinfo=UTC), b"key", [], b"{")
    return (*record, "json", None, "truncated", 1, "ends early", batch_id, *names)


def places(path: str) -> list[tuple[Any, ...]]:
    rows = DeltaTable(path).to_pyarrow_table(columns=["partition", "offset", "batch_id", "stream_id", "epoch"])
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=str)


def test_the_letters_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "rejected")
    ensure_rejected(spark, path)
    own = [letter(("t", 0, 11), 3, "digits", "e"), letter(("t", 0, 99), 3, "digits", "e")]
    unnamed = [letter(("t", 0, offset), 3, None, None) for offset in (10, 19)] + [letter(("t", 1, 4), 3, None, None)]
    foreign = [
        letter(("t", 0, 11), 2, "digits", "e"),
        letter(("t", 0, 11), 3, "digits", "before"),
        letter(("t", 0, 11), 3, "more", "e"),
        letter(("t", 0, 11), 2, None, None),
        letter(("t", 0, 9), 3, None, None),
        letter(("t", 0, 20), 3, None, None),
        letter(("t", 2, 11), 3, None, None),
        letter(("u", 0, 11), 3, None, None),
    ]
    spark.createDataFrame([*own, *unnamed, *foreign], REJECTED).write.format("delta").mode("append").save(path)
    drop_letters(spark, path, of_batch(BATCH))
    assert places(path) == sorted(((row[1], row[2], *row[-3:]) for row in foreign), key=str)


def test_a_table_of_before_gains_the_names(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "rejected of old")
    ensure_table(spark, path, REQUIRED, [], {})
    spark.createDataFrame([letter(("t", 0, 1), 0)], REQUIRED).write.format("delta").mode("append").save(path)
    for _ in range(2):  # the second time there is nothing to do
        ensure_rejected(spark, path)
        assert (DeltaTable(path).version(), places(path)) == (2, [(0, 1, 0, None, None)])


def test_another_table_gains_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "other")
    ensure_table(spark, path, REQUIRED[:3], [], {})
    with pytest.raises(RunError, match="has no column timestamp"):
        ensure_rejected(spark, path)
    assert DeltaTable(path).version() == 0
