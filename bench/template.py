"""The plain template that everyone starts from: readStream kafka, from_avro or from_json, writeStream delta.

All settings are Spark's and Delta's defaults. `bench/ingest.py` runs it under spark-submit beside the product and reads
the batch times off the checkpoint's own files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro

JSON_DDL = "image array<int>, label int"


def main() -> None:
    """Run the template once over what the topic holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--format", choices=["avro", "json"], required=True)
    parser.add_argument("--schema", type=Path, help="Avro schema file")
    parser.add_argument("--batch-rows", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("template")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap_servers)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.batch_rows)
        .load()
    )
    if arguments.format == "avro":
        decoded = from_avro("value", arguments.schema.read_text())
    else:
        decoded = sf.from_json(sf.col("value").cast("string"), JSON_DDL)
    query = (
        records.select(decoded.alias("record"))
        .select("record.*")
        .writeStream.format("delta")
        .option("checkpointLocation", str(arguments.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(arguments.folder / "table"))
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
