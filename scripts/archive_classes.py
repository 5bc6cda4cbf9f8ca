"""A little of what Spark and Delta do in a job, for the archive of the classes that it takes (see setup.sh)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame

from kbit_spark.session import spark_session


def main() -> None:
    """Stream a few rows into a Delta table, read them again, and run a job of Python's own."""
    spark = spark_session("kbit-classes", {"spark.master": "local[2]", "spark.driver.host": "127.0.0.1"})
    with tempfile.TemporaryDirectory(prefix="kbit-classes-") as name:
        folder = Path(name)
        spark.range(10).selectExpr("id", "cast(cast(id AS string) AS binary) value").write.parquet(
            str(folder / "source")
        )

        def write(batch: DataFrame, number: int) -> None:
            batch.withColumn("text", batch.value.cast("string")).write.format("delta").mode("append").save(
                str(folder / "table")
            )

        rows = spark.readStream.schema("id long, value binary").parquet(str(folder / "source"))
        query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        spark.read.format("delta").load(str(folder / "table")).groupBy("text").count().collect()
    spark.sparkContext.parallelize(range(4), 2).barrier().mapPartitions(list).count()
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
