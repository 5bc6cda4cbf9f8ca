"""Asks the broker through Java's own Kafka client: it alone reads a JAAS line, a truststore or a keystore of Java's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from kbit_spark.errors import RunError
from kbit_spark.schemas import Places
from kbit_spark.sources.continuity import TopicState, topics_of
from kbit_spark.sources.query import root_cause

TIMEOUT_S = 10
_PACKAGES = ("org.apache.kafka", "kafkashaded.org.apache.kafka")
"""Where Spark has Kafka's client: under its own name, or renamed, as Databricks does."""


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
    for package in _PACKAGES:
        if isinstance(getattr(jvm, f"{package}.clients.admin.AdminClient"), JavaClass):
            break
    else:
        return None
    try:
        client = getattr(jvm, f"{package}.clients.admin.AdminClient")
        admin = client.create({**options, "bootstrap.servers": bootstrap_servers})
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
