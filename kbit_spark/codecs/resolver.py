"""Decoding of a stream's topics in Spark, with schemas that turn up while it runs.

Executors never talk to the registry. A record whose schema id has no plan yet fails with `unresolved_schema` and the id
goes into an accumulator; the driver asks the registry and the batch is decoded again before anything is committed::

    decoder.settle(batch)
    while True:
        decoded = decoder.decode(batch)
        ...  # an action over all of it; nothing is committed yet
        if not decoder.resolve_new():
            break
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from kbit_spark.codecs.gpu.functions import GpuFunctions
from kbit_spark.codecs.gpu.program import NotOnGpu
from kbit_spark.codecs.placement import Work, joined
from kbit_spark.codecs.registry import SchemaRegistry
from kbit_spark.codecs.topic import TopicDecoder
from kbit_spark.config.kafka import KafkaConfig
from kbit_spark.errors import UsageError
from kbit_spark.schemas.base import Engine
from kbit_spark.schemas.fields import FieldSpec

log = logging.getLogger("kbit")

SAMPLE_RECORDS = 20
"""Records of a topic that decide its framing."""
_BY_CPU = "_decoded_by_cpu"


class PayloadDecoder:
    """Decodes the payloads of all topics into one row type; holds what is known of their schemas."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: KafkaConfig,
        fields: Sequence[FieldSpec],
        further: Sequence[FieldSpec] | None = None,
        gpu: GpuFunctions | str = "no GPU",
    ) -> None:
        """Read the schemas that stand in files; the registry is not asked before a record names one of its ids.

        Args:
            spark: the session.
            kafka: the topics and the registry.
            fields: the row.
            further: None: the row stays as it is. Else nullable fields behind it, and the row grows by the fields that
                schemas of the registry bring.
            gpu: what makes functions for the GPU, or why nothing does.

        Raises:
            UsageError: a schema that cannot be read or can never give the fields, settings of the registry.
        """
        registry = SchemaRegistry(kafka.registry) if kafka.registry else None
        self._gpu = None if isinstance(gpu, str) else gpu
        self._no_gpu = gpu if isinstance(gpu, str) else None
        self._topics = [
            TopicDecoder(spark, topic, kafka.framings(topic), fields, registry, self._gpu) for topic in kafka.topics
        ]
        # columns to add, step by step, until a schema or a framing is new: each column costs dozens of calls
        self._steps: dict[Engine, list[dict[str, Column]]] = {}
        self._grows = further is not None
        self.fields: tuple[FieldSpec, ...] = tuple(fields)
        """The row as it stands; `settle` and `resolve_new` may add to it."""

        for field in further or ():
            self._add(field)

    def decode(self, records: DataFrame, engine: Engine = "cpu") -> DataFrame:
        """Return records, which have the columns topic and value, with `decoded` and the header's `schema_id`."""
        if engine not in self._steps:
            self._steps[engine] = self._gpu_steps() if engine == "gpu" else self._cpu_steps()
        steps = self._steps[engine]
        for columns in steps:
            records = records.withColumns(columns)
        return records.drop(_BY_CPU) if len(steps) > 1 else records

    def _cpu_steps(self) -> list[dict[str, Column]]:
        topic, value = sf.col("topic"), sf.col("value")
        return [{"decoded": self.column(topic, value), "schema_id": self.schema_id(topic, value).cast("int")}]

    def _gpu_steps(self) -> list[dict[str, Column]]:
        """Decode topics without a kernel below, on the CPU, and the others above them.

        RAPIDS evaluates every branch for every row, so each decoder gets nulls for the payloads of other topics, and
        gives nulls for them.
        """
        topic, value = sf.col("topic"), sf.col("value")
        refused = [known for known in self._topics if isinstance(known.kernel(), NotOnGpu)]
        columns = [
            known.column(sf.when(topic == known.name, value) if len(self._topics) > 1 else value, "gpu")
            for known in self._topics
            if known not in refused
        ]
        steps = []
        if refused:  # a step of its own: the optimizer does not merge decoders into what uses their result
            by_cpu = _for_each(refused, topic, lambda known: known.column(value), exhaustive=False)
            steps, columns = [{_BY_CPU: by_cpu}], [sf.col(_BY_CPU), *columns]
        decoded = columns[0] if len(columns) == 1 else sf.coalesce(*columns)
        schema_id = self.schema_id(topic, value, "gpu").cast("int")  # where no topic has ids, the null has no type
        return [*steps, {"decoded": decoded, "schema_id": schema_id}]

    def work(self, rows: int) -> Work:
        """Return what a batch of so many rows asks of an engine, as far as the schemas are known now."""
        name = ",".join(topic.plan_name() for topic in self._topics)
        if self._gpu is None:
            return Work(name, rows, self._no_gpu)
        refusals = [(topic.name, str(why)) for topic in self._topics if isinstance(why := topic.kernel(), NotOnGpu)]
        return Work(name, rows, joined(refusals) if len(refusals) == len(self._topics) else None)

    def differing(self, records: DataFrame) -> DataFrame:
        """Return the coordinates of the records that the engines decode differently."""
        by_cpu = self.column(sf.col("topic"), sf.col("value"))
        same = sf.col("decoded").cast("string").eqNullSafe(by_cpu.cast("string"))  # maps have no equality
        compared = self.decode(records, "gpu").select("topic", "partition", "offset", same.alias("same"))
        return compared.where(~sf.col("same")).drop("same")

    def column(self, topic: Column, value: Column) -> Column:
        """Return the decoded payload of each record, as far as the schemas are known now.

        Args:
            topic: the record's topic.
            value: the record's payload.

        Returns:
            A struct of `value` and `error`, of which exactly one is null; null itself for a tombstone.
        """
        return _for_each(self._topics, topic, lambda known: known.column(value))

    def schema_id(self, topic: Column, value: Column, engine: Engine = "cpu") -> Column:
        """Return the registry's id in the record's header as an int; null where the topic's header has none."""
        if not any(known.framing == "confluent" for known in self._topics):
            return sf.lit(None)
        header = self._gpu.schema_id(value) if engine == "gpu" and self._gpu else header_id(value)
        return _for_each(self._topics, topic, lambda known: header if known.framing == "confluent" else sf.lit(None))

    def settle(self, batch: DataFrame) -> None:
        """Decide the framing of topics that say `auto` by the batch's first records, and log it.

        The framing under which most of them decode is the topic's from then on; while none decodes, the most likely
        one is taken and the next batch asked again. A batch has the columns topic and value.

        Raises:
            RunError: the registry does not answer.
        """
        for topic in self._topics:
            if not topic.settled:
                rows = batch.where((sf.col("topic") == topic.name) & sf.col("value").isNotNull())
                topic.settle([bytes(row.value) for row in rows.select("value").limit(SAMPLE_RECORDS).collect()])
                self._steps.clear()
        self._grow()

    def framings(self) -> dict[str, str]:
        """Return the framing of each topic as it stands."""
        return {topic.name: topic.framing for topic in self._topics}

    def resolve_new(self) -> bool:
        """Ask the registry for the schema ids that records named since the last call.

        Returns:
            Whether there were any; then the column has changed, and what was decoded with the old one must not be
            kept.

        Raises:
            RunError: the registry does not answer.
        """
        answers = [topic.resolve_new() for topic in self._topics]  # every topic, not only up to the first
        self._grow()
        if any(answers):
            self._steps.clear()
        return any(answers)

    def _grow(self) -> None:
        """Add the fields that new schemas have and the row lacks."""
        found = [field for topic in self._topics for field in topic.further_fields()]
        for field in found if self._grows else ():
            self._add(field)

    def _add(self, field: FieldSpec) -> None:
        """Add a nullable field to the row of every topic; one that a topic's own files contradict stays out."""
        same = next((known.name for known in self.fields if known.name.lower() == field.name.lower()), None)
        if same is not None:  # Spark's names do not tell cases apart
            if same != field.name:
                log.warning("field %s becomes no column: there is %s", field.name, same)
            return
        self._steps.clear()
        try:
            for topic in self._topics:
                topic.take((*self.fields, field))
            self.fields = (*self.fields, field)
        except UsageError as error:
            log.warning("field %s becomes no column: %s", field.name, error.message)
            for topic in self._topics:
                topic.take(self.fields)


def header_id(value: Column) -> Column:
    """Return the registry's id in a payload's header as an int; null where it has none, or one above 2^31 - 1."""
    return sf.when(
        (sf.length(value) >= 5) & (sf.substring(value, 1, 1) == sf.lit(b"\0")),
        sf.conv(sf.hex(sf.substring(value, 2, 4)), 16, 10).cast("long").try_cast("int"),
    )


def _for_each(
    topics: Sequence[TopicDecoder],
    topic: Column,
    make: Callable[[TopicDecoder], Column],
    *,
    exhaustive: bool = True,
) -> Column:
    """Return the column that `make` gives for a record's topic; `exhaustive`: there are no records of others."""
    first, *others = topics
    if exhaustive and not others:
        return make(first)
    column = sf.when(topic == first.name, make(first))
    for other in others:
        column = column.when(topic == other.name, make(other))
    return column
