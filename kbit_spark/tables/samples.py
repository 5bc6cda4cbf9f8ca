"""The samples table: decoded fields, where each record came from, and its split.

Partitioned by split: every data file is then of one split, so a training plan needs only the files' row counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic import ValidationError
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kbit_spark.config.ingest import IngestConfig, SplitConfig
from kbit_spark.schemas.fields import OWN_COLUMNS, SPLIT_COLUMN, FieldSpec, Tensor
from kbit_spark.schemas.ledger import Places
from kbit_spark.tables.delta import ensure_table, table_schema

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COORDINATES = (
    StructField("_topic", StringType()),
    StructField("_partition", IntegerType()),
    StructField("_offset", LongType()),
    StructField("_timestamp", TimestampType()),
    StructField("_key", BinaryType()),
    StructField("_headers", HEADERS),
    StructField("_schema_id", IntegerType()),
    StructField(SPLIT_COLUMN, StringType()),
)
_BUCKETS = 1_000_000
_PROPERTIES = {
    # the columns are tensors, keys and coordinates that only grow: statistics cost time and skip nothing
    "delta.dataSkippingNumIndexedCols": "0",
    "delta.checkpointInterval": "100",
}
ROW_GROUP_BYTES = 8 * 1024 * 1024
"""Small row groups: a training rank reads one at a time, and the memory that it needs is theirs."""

LARGEST_ROW_GROUP_BYTES = 128 * 1024 * 1024
CHUNK_BYTES = 160 * 1024
"""What a column has in a row group at least, on the average. A task holds a row group of each split while it writes."""

GPU_CHUNK_BYTES = 2 * CHUNK_BYTES
"""The same on a GPU, where each piece of a column costs the same, however small: a batch of 400,000 rows of 200 columns
took 1.27 s with row groups of 8 MiB, 1.17 s with 64 MiB, 1.11 s with 128 MiB. Where a file fits into 32 MiB, that is as
good as 64."""


def parquet_settings(tensors: Sequence[str], columns: int = 0) -> dict[str, str]:
    """Return the Spark settings of a session that writes a table with so many columns, of which these are tensors."""
    # tensors hardly ever repeat: looking each one up in a dictionary would take a third of the time to write it
    no_dictionary = {f"spark.hadoop.parquet.enable.dictionary#{name}": "false" for name in tensors}
    return {
        "spark.hadoop.parquet.block.size": _row_group_bytes(CHUNK_BYTES * columns),
        # RAPIDS ignores the one above
        "spark.rapids.sql.format.parquet.writer.rowGroupSizeBytes": _row_group_bytes(GPU_CHUNK_BYTES * columns),
        **no_dictionary,
    }


def _row_group_bytes(wanted: int) -> str:
    return str(min(LARGEST_ROW_GROUP_BYTES, max(ROW_GROUP_BYTES, wanted)))


def ensure_samples(spark: SparkSession, path: str, value: StructType, *, may_lack: bool = False) -> None:
    """Create the table, or check that the one there has these columns; `may_lack`: or those of them that are not new.

    Raises:
        RunError: see `ensure_table`.
    """
    ensure_table(spark, path, samples_schema(value), [SPLIT_COLUMN], _PROPERTIES, may_lack=may_lack)


def further_columns(spark: SparkSession, config: IngestConfig) -> list[FieldSpec] | None:
    """Return the columns that the table has beside `fields` and its own, as nullable fields; None where it never grows.

    Raises:
        RunError: the table cannot be read.
    """
    if not config.tables.grows:
        return None
    known = {name.lower() for name in (*OWN_COLUMNS, *(field.name for field in config.fields))}
    table = table_schema(spark, config.tables.samples)
    return [field for column in table if column.name.lower() not in known and (field := _field(column))]


def _field(column: StructField) -> FieldSpec | None:
    """Return a column as a field; None where no field can be of its type."""
    tensor = Tensor.from_metadata(column.metadata)
    try:
        if tensor is not None:
            return FieldSpec(name=column.name, tensor=tensor, required=False)
        return FieldSpec(name=column.name, type=column.dataType.simpleString(), required=False)
    except ValidationError:
        return None


def samples_schema(value: StructType) -> StructType:
    """Return the table's columns for decoded values of this type."""
    columns = [StructField(field.name, field.dataType, True, field.metadata) for field in value]
    return StructType([*columns, *COORDINATES])


def samples_end(spark: SparkSession, path: str, topics: Collection[str]) -> Places:
    """Return the offset behind the last row of each partition of some topics; partitions without rows are left out."""
    rows = spark.read.format("delta").load(path).where(sf.col("_topic").isin(*topics))
    ends = rows.groupBy("_topic", "_partition").agg(sf.max("_offset").alias("last")).collect()
    return {(row["_topic"], row["_partition"]): row["last"] + 1 for row in ends}


def sample_columns(split: SplitConfig) -> list[Column]:
    """Return the table's columns over the good records of a decoded batch; made once, they serve every batch."""
    return [
        sf.col("decoded.value.*"),
        sf.col("topic").alias("_topic"),
        sf.col("partition").alias("_partition"),
        sf.col("offset").alias("_offset"),
        sf.col("timestamp").alias("_timestamp"),
        sf.col("key").alias("_key"),
        sf.col("headers").alias("_headers"),
        sf.col("schema_id").alias("_schema_id"),
        split_column(split).alias(SPLIT_COLUMN),
    ]


def split_column(split: SplitConfig) -> Column:
    """Return the split of a record: a hash of its key, else of its coordinates, held against the shares.

    The hash (xxhash64 of salt and key) is part of the tables' meaning: changing it would leak test rows into training.
    It is one of bytes, so a key's hash is that of the string with its bytes, which RAPIDS has and that of binary not.
    """
    keyed = sf.xxhash64(sf.lit(split.salt), sf.col("key").cast("string"))
    keyless = sf.xxhash64(sf.lit(split.salt), sf.col("topic"), sf.col("partition"), sf.col("offset"))
    bucket = sf.pmod(sf.when(sf.col("key").isNotNull(), keyed).otherwise(keyless), sf.lit(_BUCKETS))
    test = round(split.test * _BUCKETS)
    validation = test + round(split.validation * _BUCKETS)
    return sf.when(bucket < test, "test").when(bucket < validation, "validation").otherwise("train")
