"""Prints how RAPIDS plans the ingest, as JSON: run in a process of its own, for its class path is another one.

The plugin starts in the mode `explainonly`, which needs no GPU. Planning asks for the mode again; in the other one, it
gives the plans of a device. Only tasks would miss the GPU, and a batch without rows has none.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

from kbit_spark.codecs.decoder import value_type
from kbit_spark.codecs.gpu.functions import RapidsFunctions
from kbit_spark.codecs.gpu.program import NotOnGpu
from kbit_spark.codecs.plan import Plan
from kbit_spark.codecs.resolver import PayloadDecoder, header_id
from kbit_spark.config.ingest import SplitConfig
from kbit_spark.config.kafka import KafkaConfig, TopicConfig
from kbit_spark.config.registry import RegistryConfig
from kbit_spark.rapids import ENABLED, PLUGIN
from kbit_spark.schemas.fields import FieldSpec, Tensor
from kbit_spark.schemas.ledger import LedgerEntry
from kbit_spark.session import spark_session
from kbit_spark.tables.append import Transaction
from kbit_spark.tables.dead_letters import rejected_rows
from kbit_spark.tables.samples import HEADERS, ensure_samples, parquet_settings, sample_columns, samples_schema
from kbit_spark.tables.tally import Tally
from kbit_spark.tables.writer import TableWriter

SETTINGS = {
    "spark.master": "local[1]",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.plugins": PLUGIN,
    "spark.rapids.sql.mode": "explainonly",
    **parquet_settings(["image"]),
}
KAFKA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("headers", HEADERS),
    ]
)
DIGIT = (FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(28, 28))), FieldSpec(name="label", type="int"))
RICH = (
    *DIGIT,
    FieldSpec(name="tags", type="array<string>", required=False),
    FieldSpec(name="bytes", type="array<binary>", required=False),
    FieldSpec(name="metadata", type="map<string, struct<a: double, b: array<bigint>>>", required=False),
    FieldSpec(name="seen", type="timestamp", required=False),
    FieldSpec(name="day", type="date", required=False),
    FieldSpec(name="price", type="decimal(30, 3)", required=False),
)
BATCH = LedgerEntry(stream_id="plans", epoch="e", batch_id=0, ranges=(), good=0, bad=0, tombstones=0, gaps=0)
PROTO = 'syntax = "proto3"; message Digit { bytes image = 1; int32 label = 2; }'
AVSC = str(Path(__file__).parents[2] / "conf/schemas/digit.avsc")


class Kernels(RapidsFunctions):
    """RAPIDS with a kernel for every plan but those named: placement asks for no more than that there is one."""

    def __init__(self, spark: SparkSession, refused: Sequence[str] = ()) -> None:
        super().__init__(spark)
        self._refused = refused

    def program(self, plan: Plan) -> Any:
        if plan["format"] in self._refused:
            raise NotOnGpu(plan["format"])
        return _NoKernel()


class _NoKernel:
    def to_json(self) -> str:
        none: list[object] = []
        return json.dumps(
            {"source": "", "lanes": 0, "warp": False, "codes": none, "buffers": none, "spans": none, "columns": none}
        )


@dataclass(frozen=True)
class Case:
    """A stream that is planned."""

    topics: tuple[TopicConfig, ...]
    fields: tuple[FieldSpec, ...] = DIGIT
    refused: tuple[str, ...] = ()


def cases(folder: Path) -> dict[str, Case]:
    proto = folder / "digit.proto"
    proto.write_text(PROTO)
    avro = TopicConfig(name="a", format="avro", schema_file=AVSC)
    as_json = TopicConfig(name="j", format="json")
    return {
        "json": Case((as_json,), RICH),
        "mongo": Case((TopicConfig(name="m", format="mongo"),), RICH),
        "avro": Case((avro,)),
        "confluent": Case((TopicConfig(name="c", format="avro", framing="confluent"),)),
        "soe": Case((TopicConfig(name="s", format="avro", framing="soe", schema_files=(AVSC,)),)),
        "protobuf": Case((TopicConfig(name="p", format="protobuf", schema_file=str(proto), message="Digit"),)),
        "several": Case((as_json, avro, TopicConfig(name="c", format="avro", framing="confluent"))),
        "mixed": Case((as_json, avro), refused=("json",)),
    }


def plan(spark: SparkSession, folder: Path, name: str, case: Case) -> dict[str, Any]:
    """Return how the case is planned, and what writing a batch of it without rows came to."""
    registry = RegistryConfig(url="http://127.0.0.1:1")
    kafka = KafkaConfig(bootstrap_servers="none:0", topics=case.topics, registry=registry)
    decoder = PayloadDecoder(spark, kafka, case.fields, gpu=Kernels(spark, case.refused))
    spark.conf.set(ENABLED, "false")  # explain takes no plan that is RAPIDS' own already
    ensure_samples(spark, str(folder / name), value_type(case.fields))
    lines = {table: explained(spark, frame) for table, frame in frames(spark, decoder, case).items()}
    spark.conf.set(ENABLED, "true")
    planned = frames(spark, decoder, case)
    return {
        "explained": lines,
        "nodes": {table: nodes(frame) for table, frame in planned.items()},
        "write": write(spark, str(folder / name), case, planned["samples"]),
    }


def frames(spark: SparkSession, decoder: PayloadDecoder, case: Case) -> dict[str, DataFrame]:
    """Return what is made of a batch without rows; Spark plans a frame only once."""
    batch = spark.createDataFrame([], KAFKA)
    decoded = decoder.decode(batch, "gpu")
    return {
        "samples": Tally(spark).good_records(decoded, "gpu").select(sample_columns(SplitConfig())),
        "rejected": rejected_rows(decoded, {topic.name: topic.format for topic in case.topics}, BATCH),
        "gathered": Tally(spark).good_records(decoder.decode(batch.coalesce(1), "gpu"), "gpu"),
        "shadow": decoder.differing(batch),
    }


def explained(spark: SparkSession, frame: DataFrame) -> list[str]:
    """Return the lines that say what does not run on the GPU."""
    jvm: Any = spark.sparkContext._jvm
    text = jvm.com.nvidia.spark.rapids.ExplainPlan.explainPotentialGpuPlan(frame._jdf, "ALL")
    return [line.strip() for line in text.splitlines() if re.match(r"\s*[!^]", line) or "via CPU bridge" in line]


def nodes(frame: DataFrame) -> list[str]:
    """Return the names of the physical plan's nodes, from the top."""
    text = frame._jdf.queryExecution().executedPlan().toString()
    return [line.lstrip(" +-:*()0123456789").split()[0] for line in text.splitlines() if line.strip()]


def write(spark: SparkSession, path: str, case: Case, rows: DataFrame) -> dict[str, Any]:
    writer, columns = TableWriter(spark, path), samples_schema(value_type(case.fields))
    append = writer.begin(Transaction("app", 7), columns, "gpu")
    assert append is not None
    append.write(rows)
    counted = append.rows()
    append.commit("said in the commit")
    return {
        "transaction": append._delta.getClass().getName(),  # type: ignore[attr-defined]
        "rows": counted,
        "again": writer.begin(Transaction("app", 7), columns, "gpu") is not None,
    }


def schema_ids(spark: SparkSession) -> list[list[int | None]]:
    """Return the ids in some headers as the CPU's expression has them, and as kbit-gpu's function has them by rows."""
    headers = [None, b"", b"\0", b"\0\0\0\1", b"\0\0\0\1\2", b"\1\0\0\0\7", b"\0\x7f\xff\xff\xff!", b"\0\x80\0\0\0"]
    frame = spark.createDataFrame([(header,) for header in headers], "value binary").coalesce(1)
    both = frame.select(header_id(sf.col("value")), RapidsFunctions(spark).schema_id(sf.col("value"))).collect()
    return [list(pair) for pair in zip(*both, strict=True)]


def stream_is_active(spark: SparkSession, folder: Path) -> bool:
    """Tell whether a batch's own session is the active one where the batch is written.

    RAPIDS' transaction plans with the active session, and the setting that lets it do so is made in the batch's.
    """
    jvm: Any = spark.sparkContext._jvm
    found: list[bool] = []

    def look(batch: DataFrame, batch_id: int) -> None:
        found.append(jvm.org.apache.spark.sql.SparkSession.active().equals(batch.sparkSession._jsparkSession))

    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = stream.writeStream.foreachBatch(look).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(once=True).start().awaitTermination()
    return bool(found) and all(found)


def main(folder: Path, out: Callable[[str], object] = print) -> None:
    spark = spark_session("plans", SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    ids = schema_ids(spark)
    active = stream_is_active(spark, folder)
    spark.conf.set("spark.rapids.sql.mode", "executeongpu")
    plans: dict[str, Any] = {name: plan(spark, folder, name, case) for name, case in cases(folder).items()}
    out(json.dumps({**plans, "schema_ids": ids, "stream_is_active": active}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
