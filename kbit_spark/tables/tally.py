"""Counts a batch's records while they are being written, so that counting costs no pass of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

_FUNCTION = "kbit_tally"


@dataclass(frozen=True)
class Counts:
    """Records of a batch by what became of them."""

    good: int
    bad: int
    tombstones: int

    @property
    def seen(self) -> int:
        """All records of the batch."""
        return self.good + self.bad + self.tombstones


class Tally:
    """A filter for good records that counts every record which passes through it.

    It counts in accumulators: Spark adds a task's share once, when the task of a job's last stage succeeds, and before
    the job ends. So the counts are whole when the write returns, and a retried task is not counted twice.
    """

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext._jsc.sc()
        jvm: Any = spark.sparkContext._jvm
        self._counters = [context.longAccumulator(f"kbit.{name}") for name in ("good", "bad", "tombstones")]
        spark._jsparkSession.udf().register(_FUNCTION, jvm.kbit.ledger.TallyUdf.of(*self._counters))
        has_value, has_error = sf.col("decoded.value").isNotNull(), sf.col("decoded.error").isNotNull()
        self._is_good = sf.call_function(_FUNCTION, has_value, has_error)

    def good_records(self, decoded: DataFrame) -> DataFrame:
        """Return the records of a decoded batch that have a value; whoever runs the result counts the batch."""
        for counter in self._counters:
            counter.reset()
        return decoded.where(self._is_good)

    def counts(self) -> Counts:
        """Return what the last run of `good_records` counted."""
        good, bad, tombstones = (int(counter.sum()) for counter in self._counters)
        return Counts(good, bad, tombstones)
