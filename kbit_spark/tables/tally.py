"""Counts a batch's records while they are being written, so that counting costs no pass of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.classic.column import Column as ClassicColumn

from kbit_spark.schemas.base import Engine


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
        self._jvm: Any = spark.sparkContext._jvm
        self._counters = [context.longAccumulator(f"kbit.{name}") for name in ("good", "bad", "tombstones")]
        self._is_good: dict[Engine, Column] = {}

    def good_records(self, decoded: DataFrame, engine: Engine = "cpu") -> DataFrame:
        """Return the records of a decoded batch that have a value; whoever runs the result counts the batch."""
        for counter in self._counters:
            counter.reset()
        if engine not in self._is_good:
            self._is_good[engine] = self._condition(engine)
        return decoded.where(self._is_good[engine])

    def _condition(self, engine: Engine) -> Column:
        on_gpu = self._jvm.kbit.gpu.GpuTallyUdf if engine == "gpu" else None
        udf = on_gpu if isinstance(on_gpu, JavaClass) else self._jvm.kbit.ledger.TallyUdf
        has_error = sf.col("decoded.error").isNotNull()
        has_value = sf.col("decoded.value").isNotNull()
        if engine == "gpu":  # RAPIDS would copy all columns of the value to look at it
            has_value = sf.col("decoded").isNotNull() & ~has_error
        arguments = self._jvm.PythonUtils.toSeq([has_value._jc, has_error._jc])
        return ClassicColumn(udf.of(*self._counters).apply(arguments))

    def counts(self) -> Counts:
        """Return what the last run of `good_records` counted."""
        good, bad, tombstones = (int(counter.sum()) for counter in self._counters)
        return Counts(good, bad, tombstones)
