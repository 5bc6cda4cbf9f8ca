"""Batches that the GPU fails, with a stand-in for the GPU: the real one needs a device (tests/gpu)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from kbit_spark.batch_writer import BatchWriter
from kbit_spark.codecs.decoder import DecodeFunction, value_type
from kbit_spark.codecs.gpu.functions import Counted, Decode
from kbit_spark.codecs.gpu.program import NotOnGpu, Program, program_for
from kbit_spark.codecs.placement import MOST_FAILURES
from kbit_spark.codecs.plan import Plan
from kbit_spark.codecs.resolver import header_id
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.errors import MissingRequirement
from kbit_spark.events import Event
from kbit_spark.rapids import ENABLED
from kbit_spark.schemas.fields import FieldSpec
from kbit_spark.sources.kafka import read_stream
from kbit_spark.sources.query import Query
from kbit_spark.tables.dead_letters import ensure_rejected
from kbit_spark.tables.samples import ensure_samples
from kbit_spark.telemetry.hub import Telemetry
from tests.fixtures.jobs import avro_records, coordinates, ingest_config, json_records, ledger
from tests.fixtures.kafka import Kafka
from tests.ingest.test_batches import Events

pytestmark = pytest.mark.kafka
FAILS = "kbit.test.gpu_fails"
"""System property that tasks ask: decoders are made once for many batches."""


class StandIn:
    """A GPU that decodes on the CPU: its first batches fail in a task, and it may decode labels wrongly."""

    def __init__(self, spark: SparkSession, fails: int = 0, wrong: bool = False, refuses: tuple[str, ...] = ()) -> None:
        self._spark = spark
        self._fails = fails
        self._wrong = wrong
        self._refuses = refuses
        self.batches = 0

    def program(self, plan: Plan) -> Program:
        if plan["format"] in self._refuses:
            return program_for({"format": "nothing that a kernel reads"})
        return program_for(plan)

    def decoder(self, plan: Plan, program: Program, fields: Sequence[FieldSpec], unresolved: JavaObject) -> Decode:
        decode = DecodeFunction(self._spark, plan, fields, unresolved)

        def column(value: Column) -> Column:
            decoded = decode(value)
            if self._wrong:
                label = sf.when(decoded["value"].isNotNull(), decoded["value"].withField("label", sf.lit(-1)))
                decoded = sf.when(decoded.isNotNull(), decoded.withField("value", label))
            fault = sf.raise_error(sf.lit("CUDA error: out of memory"))
            asked = sf.reflect(sf.lit("java.lang.System"), sf.lit("getProperty"), sf.lit(FAILS))
            return sf.when(value.isNotNull() & (asked == "true"), fault).otherwise(decoded)

        return column

    def schema_id(self, value: Column) -> Column:
        return header_id(value)

    def reset(self) -> None:
        self.batches += 1
        jvm: Any = self._spark.sparkContext._jvm
        jvm.java.lang.System.setProperty(FAILS, str(self.batches <= self._fails).lower())

    def counted(self) -> Counted:
        return Counted(refereed=3, shadowed=4, differences=int(self._wrong))


def drain(spark: SparkSession, config: IngestConfig, gpu: StandIn | None) -> dict[str, list[Event]]:
    """Read the topics to their end and return the events by kind."""
    sink = Events()
    with Telemetry("run", "ingest", [sink]) as telemetry:
        ensure_samples(spark, config.tables.samples, value_type(config.fields))
        ensure_rejected(spark, config.tables.rejected)
        writer = BatchWriter(spark, config, telemetry, gpu=gpu)
        Query(config.trigger, config.checkpoint_dir).run(read_stream(spark, config.kafka), writer.write)
    kinds: dict[str, list[Event]] = {}
    for event in sink.events:
        kinds.setdefault(event.kind, []).append(event)
    return kinds


def config_of(folder: Path, kafka: Kafka, formats: Sequence[str], decode: dict[str, object], each: int) -> IngestConfig:
    topics = {kafka.topic(kind): kind for kind in formats}
    for topic, kind in topics.items():
        records = json_records(each) if kind == "json" else avro_records(each)
        kafka.produce(topic, [*records, (b"bad", b"\x02"), (b"gone", None)])
    return ingest_config(folder, kafka.bootstrap_servers, topics, decode=decode)


def test_batches_that_the_gpu_fails_are_decoded_by_the_cpu(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    config = config_of(tmp_path, kafka, ["json"], {"placement": "gpu"}, each=118)
    events = drain(spark, config, StandIn(spark, fails=1))
    batches = events["ingest_batch"]
    assert [event.labels["engine"] for event in batches] == ["cpu", "gpu", "gpu"]
    assert [event.numbers.get("fell_back", 0) for event in batches] == [1, 0, 0]
    assert [event.numbers.get("refereed") for event in batches] == [None, 3, 3]
    assert "CUDA error: out of memory" in events["decode_fallback"][0].labels["reason"]
    assert len(set(coordinates(tmp_path))) == len(coordinates(tmp_path)) == 119
    assert [(entry.good, entry.bad, entry.tombstones) for entry in ledger(config.tables.samples)] == [
        (40, 0, 0),
        (40, 0, 0),
        (38, 1, 1),
    ]
    assert spark.conf.get(ENABLED, "false") == "false"


def test_after_some_failed_batches_the_stream_stays_on_the_cpu(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    config = config_of(tmp_path, kafka, ["json"], {"placement": "auto"}, each=198)
    gpu = StandIn(spark, fails=99)
    events = drain(spark, config, gpu)
    assert len(events["ingest_batch"]) == 5
    assert len(events["decode_fallback"]) == gpu.batches == MOST_FAILURES
    assert "the GPU failed" in events["decode_placement"][-1].labels["reason"]
    assert len(coordinates(tmp_path)) == 199


def test_topics_without_a_kernel_are_decoded_below_the_others(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    config = config_of(tmp_path, kafka, ["json", "avro"], {"placement": "gpu"}, each=20)
    events = drain(spark, config, StandIn(spark, refuses=("json",)))
    assert {event.labels["engine"] for event in events["ingest_batch"]} == {"gpu"}
    assert sum(event.numbers["good"] for event in events["ingest_batch"]) == 40
    assert sum(event.numbers["bad"] for event in events["ingest_batch"]) == 2
    assert sum(event.numbers["tombstones"] for event in events["ingest_batch"]) == 2


def test_where_no_topic_has_a_kernel_the_cpu_decodes_and_says_why(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    config = config_of(tmp_path, kafka, ["json"], {"placement": "gpu"}, each=100)
    events = drain(spark, config, StandIn(spark, refuses=("json",)))
    assert {event.labels["engine"] for event in events["ingest_batch"]} == {"cpu"}
    (told,) = events["decode_placement"]
    assert told.labels["reason"].endswith("no kernel reads nothing that a kernel reads")


@pytest.mark.parametrize("placement", ["cpu", "gpu"])
@pytest.mark.parametrize("wrong", [False, True])
def test_the_shadow_check_names_the_records_that_differ(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, placement: str, wrong: bool
) -> None:
    config = config_of(tmp_path, kafka, ["json", "avro"], {"placement": placement, "shadow_fraction": 1.0}, each=4)
    events = drain(spark, config, StandIn(spark, wrong=wrong))
    differences = sum(event.numbers["shadow_differences"] for event in events["ingest_batch"])
    assert differences == (8 if wrong else 0)
    if wrong:
        places = ", ".join(event.labels["places"] for event in events["decode_difference"])
        assert places.count("[0]@") == 8


def test_the_gpu_must_be_there_where_it_is_asked_for(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    config = config_of(tmp_path, kafka, ["json"], {"placement": "gpu"}, each=1)
    with pytest.raises(MissingRequirement, match=r"decode.placement is gpu, but spark.plugins does not name"):
        drain(spark, config, None)


def test_a_refusal_says_why() -> None:
    with pytest.raises(NotOnGpu, match="no kernel reads x"):
        program_for({"format": "x"})
