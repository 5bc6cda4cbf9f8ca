"""The Kafka source: opens the stream, and reads what only records can tell."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kbit_spark.config.kafka import KafkaConfig
from kbit_spark.errors import first_line
from kbit_spark.schemas.ledger import Places
from kbit_spark.sources.continuity import TopicState, topics_of
from kbit_spark.sources.java_client import judge_options
from kbit_spark.sources.offsets import to_json
from kbit_spark.sources.options import reader_options, wrong_option


def check_options(spark: SparkSession, config: KafkaConfig, unjudged: Iterable[str]) -> None:
    """Let Spark and its own client judge the options, before anything is made.

    Args:
        spark: the session.
        config: what to read.
        unjudged: names of options that `broker.check_topics` could not judge.

    Raises:
        UsageError: an option that Spark does not take, that is misspelt, or whose value the client does not take.
    """
    read_stream(spark, config)
    judge_options(spark, config, unjudged)


def read_stream(spark: SparkSession, config: KafkaConfig, start: Places | None = None) -> DataFrame:
    """Return the stream of records: key, value, topic, partition, offset, timestamp, headers.

    Records of transactions come once those are committed, unless `kafka.options` set another ``isolation.level``. A
    record that retention removes before it was read fails the query (Spark's failOnDataLoss), never silently.

    Args:
        spark: the session.
        config: what to read.
        start: where a stream without a checkpoint begins; None: where the configuration says.

    Raises:
        UsageError: an option that Spark does not take.
    """
    reader = (
        spark.readStream.format("kafka")
        .option("startingOffsets", config.starting_offsets if start is None else to_json(start))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
    )
    if config.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", config.max_offsets_per_trigger)
    if config.min_partitions is not None:
        reader = reader.option("minPartitions", config.min_partitions)
    try:
        return reader.options(**reader_options(config)).load()
    except IllegalArgumentException as error:
        raise wrong_option(first_line(str(error)), config) from None


def scanned_states(spark: SparkSession, config: KafkaConfig, reached: Places) -> dict[str, TopicState]:
    """Return the topics, without ids, by a reading of all their records, for where nobody can ask the broker.

    A partition without records is taken to be where the stream is, and none to end before that: the last offsets may be
    markers of transactions, which nobody sees.

    Args:
        spark: the session.
        config: the broker and the topics.
        reached: the next offset of each partition that the stream has read.
    """
    records = spark.read.format("kafka").options(**reader_options(config)).load()
    ends = records.groupBy("topic", "partition").agg(sf.min("offset").alias("first"), sf.max("offset").alias("last"))
    first, behind = dict(reached), dict(reached)
    for row in ends.collect():
        place = row["topic"], row["partition"]
        first[place], behind[place] = row["first"], max(row["last"] + 1, reached.get(place, 0))
    return topics_of(dict.fromkeys(topic.name for topic in config.topics), first, behind)
