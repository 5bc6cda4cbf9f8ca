"""The rejected table: every bad record with its coordinates, its bytes, and why it is bad."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
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

from kbit_spark.errors import RunError
from kbit_spark.schemas.ledger import LedgerEntry, OffsetRange
from kbit_spark.tables.delta import check_columns, ensure_table, lacking, table_schema
from kbit_spark.tables.ledger import BatchName, WholeBatches
from kbit_spark.tables.samples import HEADERS

REQUIRED = StructType(
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
NAMES = (StructField("stream_id", StringType()), StructField("epoch", StringType()))
REJECTED = StructType([*REQUIRED, *NAMES])
"""The last two tell, with `batch_id`, whose letter it is: streams may share the table, and every epoch counts its
batches from 0. A table made before they were there gains them; its letters of that time have null in both."""


def ensure_rejected(spark: SparkSession, path: str) -> None:
    """Create the table, or check the one there, which gains the columns that name a letter's batch.

    Raises:
        RunError: see `ensure_table`.
    """
    ensure_table(spark, path, REJECTED, [], {"delta.checkpointInterval": "100"}, may_lack=True)
    there = table_schema(spark, path)
    check_columns(path, REQUIRED, there)
    if missing := lacking(REJECTED, there):
        columns = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in missing)
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({columns})")


def rejected_rows(decoded: DataFrame, formats: Mapping[str, str], entry: LedgerEntry) -> DataFrame:
    """Return the rows for the table from a decoded batch's bad records.

    Args:
        decoded: a decoded batch.
        formats: topic to the format that its payloads should have had.
        entry: the batch.
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
        sf.lit(entry.batch_id).cast("long").alias("batch_id"),
        sf.lit(entry.stream_id).alias("stream_id"),
        sf.lit(entry.epoch).alias("epoch"),
    )


def of_batch(entry: LedgerEntry) -> Column:
    """Return the condition for the letters of a batch; one that names no stream is taken for its own by its offset."""
    named = (sf.col("stream_id") == entry.stream_id) & (sf.col("epoch") == entry.epoch)
    unnamed = sf.col("stream_id").isNull() & reduce(or_, map(within, entry.ranges), sf.lit(False))
    return (sf.col("batch_id") == entry.batch_id) & (named | unnamed)


def of_batches(stream_id: str, batches: Iterable[BatchName]) -> Column:
    """Return the condition for the letters of a stream's batches."""
    numbers: dict[str, list[int]] = {}
    for epoch, batch_id in batches:
        numbers.setdefault(epoch, []).append(batch_id)
    named = [(sf.col("epoch") == epoch) & sf.col("batch_id").isin(ids) for epoch, ids in numbers.items()]
    return (sf.col("stream_id") == stream_id) & reduce(or_, named, sf.lit(False))


def unfinished(letters: DataFrame, stream_id: str, whole: WholeBatches) -> list[BatchName]:
    """Return the batches of a stream that have letters, but are not whole."""
    found = letters.where(sf.col("stream_id") == stream_id).select("epoch", "batch_id").distinct().collect()
    return sorted(batch for row in found if (batch := (row.epoch, row.batch_id)) not in whole)


def within(offsets: OffsetRange) -> Column:
    """Return the condition for letters of some offsets."""
    place = (sf.col("topic") == offsets.topic) & (sf.col("partition") == offsets.partition)
    return place & sf.col("offset").between(offsets.start, offsets.end - 1)


def drop_letters(spark: SparkSession, path: str, which: Column) -> None:
    """Take letters out of the table.

    Raises:
        RunError: the table takes appends only.
    """
    try:
        DeltaTable.forPath(spark, path).delete(which)
    except (PySparkException, Py4JJavaError) as error:
        if "DELTA_CANNOT_MODIFY_APPEND_ONLY" not in str(error):
            raise
        msg = f"{path} takes appends only, but has letters of a batch that is not whole, which would stand there twice"
        hint = f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false'), then start again"
        raise RunError(msg, hint) from error
