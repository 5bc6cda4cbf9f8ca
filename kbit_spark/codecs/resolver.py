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

from kbit_spark.codecs.registry import SchemaRegistry
from kbit_spark.codecs.topic import TopicDecoder
from kbit_spark.config.ingest import KafkaConfig
from kbit_spark.errors import UsageError
from kbit_spark.schemas import FieldSpec

log = logging.getLogger("kbit")

SAMPLE_RECORDS = 20
"""Records of a topic that decide its framing."""


class PayloadDecoder:
    """Decodes the payloads of all topics into one row type; holds what is known of their schemas."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: KafkaConfig,
        fields: Sequence[FieldSpec],
        further: Sequence[FieldSpec] | None = None,
    ) -> None:
        """Read the schemas that stand in files; the registry is not asked before a record names one of its ids.

        Args:
            spark: the session.
            kafka: the topics and the registry.
            fields: the row.
            further: None: the row stays as it is. Else nullable fields behind it, and the row grows by the fields that
                schemas of the registry bring.

        Raises:
            UsageError: a schema that cannot be read or can never give the fields, settings of the registry.
        """
        registry = SchemaRegistry(kafka.registry) if kafka.registry else None
        self._topics = [TopicDecoder(spark, topic, kafka.framings(topic), fields, registry) for topic in kafka.topics]
        self._grows = further is not None
        self.fields: tuple[FieldSpec, ...] = tuple(fields)
        """The row as it stands; `settle` and `resolve_new` may add to it."""

        for field in further or ():
            self._add(field)

    def decode(self, records: DataFrame) -> DataFrame:
        """Return records, which have the columns topic and value, with `decoded` and the header's `schema_id`."""
        topic, value = sf.col("topic"), sf.col("value")
        schema_id = self.schema_id(topic, value).cast("int")  # where no topic has ids, the null has no type
        return records.withColumns({"decoded": self.column(topic, value), "schema_id": schema_id})

    def column(self, topic: Column, value: Column) -> Column:
        """Return the decoded payload of each record, as far as the schemas are known now.

        Args:
            topic: the record's topic.
            value: the record's payload.

        Returns:
            A struct of `value` and `error`, of which exactly one is null; null itself for a tombstone.
        """
        return self._for_each_topic(topic, lambda known: known.column(value))

    def schema_id(self, topic: Column, value: Column) -> Column:
        """Return the registry's id in the record's header as an int; null where the topic's header has none."""
        header = sf.when(
            (sf.length(value) >= 5) & (sf.substring(value, 1, 1) == sf.lit(b"\0")),
            sf.conv(sf.hex(sf.substring(value, 2, 4)), 16, 10).cast("long").try_cast("int"),
        )
        return self._for_each_topic(topic, lambda known: header if known.framing == "confluent" else sf.lit(None))

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
        try:
            for topic in self._topics:
                topic.take((*self.fields, field))
            self.fields = (*self.fields, field)
        except UsageError as error:
            log.warning("field %s becomes no column: %s", field.name, error.message)
            for topic in self._topics:
                topic.take(self.fields)

    def _for_each_topic(self, topic: Column, make: Callable[[TopicDecoder], Column]) -> Column:
        first, *others = self._topics
        if not others:
            return make(first)
        column = sf.when(topic == first.name, make(first))
        for other in others:
            column = column.when(topic == other.name, make(other))
        return column
