"""The rejected table: every bad record with its coordinates, its bytes, and why it is bad."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kbit_spark.tables.delta import ensure_table
from kbit_spark.tables.samples import HEADERS

REJECTED = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("headers", HEADERS),
        StructField("payload", BinaryType()),
        StructField("format", StringType()),
        StructField("schema_id", IntegerType()),
        StructField("code", StringType()),
        StructField("position", IntegerType()),
        StructField("reason", StringType()),
        StructField("batch_id", LongType()),
    ]
)


def ensure_rejected(spark: SparkSession, path: str) -> None:
    """Create the table, or check the one there.

    Raises:
        RunError: see `ensure_table`.
    """
    ensure_table(spark, path, REJECTED, [], {"delta.checkpointInterval": "100"})


def rejected_rows(decoded: DataFrame, formats: Mapping[str, str], batch_id: int) -> DataFrame:
    """Return the rows for the table from a decoded batch's bad records.

    Args:
        decoded: a decoded batch.
        formats: topic to the format that its payloads should have had.
        batch_id: the batch.
    """
    names = sf.create_map(*(sf.lit(text) for pair in formats.items() for text in pair))
    return decoded.where("decoded.error is not null").select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "headers",
        sf.col("value").alias("payload"),
        names[sf.col("topic")].alias("format"),
        "schema_id",
        "decoded.error.code",
        "decoded.error.position",
        "decoded.error.reason",
        sf.lit(batch_id).cast("long").alias("batch_id"),
    )
