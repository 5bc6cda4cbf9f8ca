"""Java's own Kafka client, which Spark reads with.

It alone reads a JAAS line, a truststore or a keystore of Java's, so it asks the broker where those are given; and it
alone can judge its options.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from kbit_spark.config.kafka import KafkaConfig
from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas.ledger import Places
from kbit_spark.sources.continuity import TopicState, topics_of
from kbit_spark.sources.options import client_options, wrong_option
from kbit_spark.sources.query import root_cause

log = logging.getLogger("kbit.kafka_options")

TIMEOUT_S = 10
_PACKAGES = ("org.apache.kafka", "kafkashaded.org.apache.kafka")
"""Where Spark has Kafka's client: under its own name, or renamed, as Databricks does."""


def judge_options(spark: SparkSession, config: KafkaConfig, unjudged: Iterable[str]) -> None:
    """Let the client judge its options, as far as it can without a broker; no verdict where it is not to be found.

    A name that it does not know either may be meant for a plugin of it, unless it looks like a misspelt one. One that
    only librdkafka knows, with which kbit asks the broker, does nothing where Spark reads: the log tells which.

    Args:
        spark: the session whose JVM has the client.
        config: what to read.
        unjudged: names of options that nobody has judged yet.

    Raises:
        UsageError: an option that is misspelt, or whose value the client does not take.
    """
    jvm: Any = spark.sparkContext._jvm
    package = _package(jvm)
    if package is None:
        return
    consumer = getattr(jvm, f"{package}.clients.consumer.ConsumerConfig")
    options, known, unjudged = client_options(config), set(consumer.configNames()), set(unjudged)
    for name in sorted(unjudged - known):
        if nearest := get_close_matches(name, known, n=1, cutoff=0.85):
            msg = f"kafka.options: no client of Kafka knows {name}; did you mean {nearest[0]}?"
            raise UsageError(msg)
    if unheard := sorted(options.keys() - known - unjudged):
        log.warning(
            "kafka.options: Spark's client, which reads the records, does not know %s; "
            "only kbit's own questions to the broker heed it",
            ", ".join(unheard),
        )
    settings = {**options, "bootstrap.servers": config.bootstrap_servers}
    deserializer = f"{package}.common.serialization.ByteArrayDeserializer"
    try:
        consumer({"key.deserializer": deserializer, "value.deserializer": deserializer, **settings})
        _admin(jvm, package, settings).close(jvm.java.time.Duration.ZERO)  # asks nothing, but checks more
    except Py4JJavaError as error:
        kind, _, reason = root_cause(error).partition(": ")
        if kind == "ConfigException":  # all else, a login for one, is told when the stream starts
            raise wrong_option(reason, config) from None


def java_topic_states(
    spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str], names: Sequence[str]
) -> dict[str, TopicState] | None:
    """Return topics as the broker has them; None where this Spark's client is not to be found.

    Args:
        spark: the session whose JVM asks.
        bootstrap_servers: the broker.
        options: consumer options by Java's names; what an admin client does not know, it ignores.
        names: the topics.

    Raises:
        RunError: the broker does not answer, refuses the credentials or has no such topic.
    """
    jvm: Any = spark.sparkContext._jvm
    package = _package(jvm)
    if package is None:
        return None
    try:
        admin = _admin(jvm, package, {**options, "bootstrap.servers": bootstrap_servers})
        try:
            return _states(jvm, package, admin, names)
        finally:
            admin.close(jvm.java.time.Duration.ZERO)
    except Py4JJavaError as error:
        msg = f"the broker {bootstrap_servers} does not tell the offsets of {', '.join(names)}: {root_cause(error)}"
        hint = (
            "check kafka.options and the variables in kafka.options_from_env, the topics and the right to describe them"
        )
        raise RunError(msg, hint) from error


def _package(jvm: Any) -> str | None:
    """Return where the client's classes are; None where this Spark's are not to be found."""
    there = (p for p in _PACKAGES if isinstance(getattr(jvm, f"{p}.clients.admin.AdminClient"), JavaClass))
    return next(there, None)


def _admin(jvm: Any, package: str, settings: Mapping[str, str]) -> Any:
    return getattr(jvm, f"{package}.clients.admin.AdminClient").create(settings)


def _states(jvm: Any, package: str, admin: Any, names: Sequence[str]) -> dict[str, TopicState]:
    found = _answer(jvm, admin.describeTopics(list(names)).allTopicNames())
    places = [(name, int(part.partition())) for name in names for part in found[name].partitions()]
    spec = getattr(jvm, f"{package}.clients.admin.OffsetSpec")
    earliest = _offsets(jvm, package, admin, places, spec.earliest())
    latest = _offsets(jvm, package, admin, places, spec.latest())
    return topics_of({name: _topic_id(found[name].topicId()) for name in names}, earliest, latest)


def _topic_id(uuid: Any) -> str:
    """Return a topic's id as librdkafka and the ledger have it: in base64, where Java's is base64url."""
    return str(uuid.toString()).replace("-", "+").replace("_", "/")


def _offsets(jvm: Any, package: str, admin: Any, places: Iterable[tuple[str, int]], end: Any) -> Places:
    topic_partition = getattr(jvm, f"{package}.common.TopicPartition")
    keys = {place: topic_partition(*place) for place in places}
    result = admin.listOffsets(dict.fromkeys(keys.values(), end))
    return {place: int(_answer(jvm, result.partitionResult(key)).offset()) for place, key in keys.items()}


def _answer(jvm: Any, future: Any) -> Any:
    return future.get(TIMEOUT_S, jvm.java.util.concurrent.TimeUnit.SECONDS)
