"""The Kafka source: checks what it is to read before Spark starts, then opens the stream."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kbit_spark.config.ingest import KafkaConfig
from kbit_spark.config.secrets import MASK
from kbit_spark.errors import RunError, UsageError, first_line
from kbit_spark.schemas import OffsetRange, Places
from kbit_spark.sources.continuity import TopicState, topics_of
from kbit_spark.sources.java_admin import java_topic_states
from kbit_spark.sources.offsets import to_json
from kbit_spark.sources.query import root_cause

TIMEOUT_S = 10.0
_FETCH_BYTES = 8 << 20
_RECEIVE_BUFFER_BYTES = 1 << 20
_POLL_RECORDS = 5_000
"""Spark asks the broker for the ends of a partition behind every poll; Kafka's default, 500 records, makes that 100
times in a range of 50,000. What was polled stays in memory until it is read."""
_FETCH_WAIT_MS = 10
"""How long the broker may hold an answer that has no records yet. Spark's question for the ends of a partition waits
behind the fetch that the client sends ahead: with Kafka's default, half a second in each batch that ends where the
topic does. Tasks read only what is there, so nothing is asked in vain for long."""
_AUTHENTICATION = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_NOT_FOR_LIBRDKAFKA = re.compile(
    r'No such configuration property: "(?P<name>[^"]+)"'
    r'|Configuration property "(?P<bounded>[^"]+)" value \S+ is outside allowed range'
    r"|Unsupported (?P<class>partition\.assignment\.strategy)"
)
"""librdkafka refuses what only Java's client knows, or takes; it need not know them, since it reads no records here."""
_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_NO_PROVIDER = "No provider for SASL mechanism"
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
# librdkafka has its own names for what Java's client keeps in a JAAS line; Spark checks these at its own start
_JAVA_ONLY = ("sasl.jaas.config", "ssl.truststore", "ssl.keystore", "sasl.login", "sasl.client.callback")


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
        return reader.options(**_reader_options(config)).load()
    except IllegalArgumentException as error:
        raise _wrong_option(first_line(str(error)), config) from None


def _reader_options(config: KafkaConfig) -> dict[str, str]:
    """Return the options of Spark's source that a stream and a single read have in common; the user's own win."""
    options: dict[str, Any] = {
        "kafka.bootstrap.servers": config.bootstrap_servers,
        "subscribe": ",".join(topic.name for topic in config.topics),
        # Kafka's default would give records of transactions that were aborted, or may be yet
        "kafka.isolation.level": "read_committed",
        # Kafka's defaults, 1 MiB a partition and 64 KiB, make a batch wait for many small answers
        "kafka.max.partition.fetch.bytes": _FETCH_BYTES,
        "kafka.receive.buffer.bytes": _RECEIVE_BUFFER_BYTES,
        "kafka.max.poll.records": _POLL_RECORDS,
        "kafka.fetch.max.wait.ms": _FETCH_WAIT_MS,
    }
    own = {f"kafka.{name}": value for name, value in _options(config).items()}
    return {**{name: str(value) for name, value in options.items()}, **own}


def check_options(spark: SparkSession, config: KafkaConfig, unjudged: Iterable[str]) -> None:
    """Let Spark and its own client judge the options, before anything is made.

    A name that Java's client does not know either may be meant for a plugin of it, unless it looks like a misspelt one.

    Args:
        spark: the session.
        config: what to read.
        unjudged: names of options that `check_topics` could not judge.

    Raises:
        UsageError: an option that Spark does not take, that is misspelt, or whose value the client does not take.
    """
    read_stream(spark, config)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    clients = jvm.org.apache.kafka.clients
    if not isinstance(clients.consumer.ConsumerConfig, JavaClass):  # Databricks has it under another name
        return
    known = set(clients.consumer.ConsumerConfig.configNames())
    for name in sorted(set(unjudged) - known):
        if nearest := get_close_matches(name, known, n=1, cutoff=0.85):
            msg = f"kafka.options: no client of Kafka knows {name}; did you mean {nearest[0]}?"
            raise UsageError(msg)
    settings = {**_options(config), "bootstrap.servers": config.bootstrap_servers}
    try:
        clients.consumer.ConsumerConfig({"key.deserializer": _BYTES, "value.deserializer": _BYTES, **settings})
        clients.admin.AdminClient.create(settings).close(jvm.java.time.Duration.ZERO)  # asks nothing, but checks more
    except Py4JJavaError as error:
        kind, _, reason = root_cause(error).partition(": ")
        if kind == "ConfigException":  # all else, a login for one, is told when the stream starts
            raise _wrong_option(reason, config) from None


def check_topics(config: KafkaConfig) -> tuple[str, ...]:
    """Make sure that the broker answers and has every topic.

    Returns:
        Names of consumer options that only Spark's own client, Java's, can judge.

    Raises:
        UsageError: a value that a consumer option cannot have, or a secret that is not in the environment.
        RunError: no broker, wrong credentials, a missing topic.
    """
    faults: list[KafkaError] = []
    client, unjudged = _client(config, faults)
    if client is None:
        logging.getLogger("kbit").info("credentials in Java's form: Spark's own client checks them")
        return unjudged
    there = _topics(config.bootstrap_servers, client, faults)
    missing = [topic.name for topic in config.topics if topic.name not in there]
    if missing:
        known = ", ".join(sorted(name for name in there if not name.startswith("__"))[:10]) or "none"
        msg = f"no topic {', '.join(missing)} at {config.bootstrap_servers}"
        raise RunError(msg, f"topics there: {known}")
    return unjudged


def topic_states(spark: SparkSession, config: KafkaConfig) -> dict[str, TopicState] | None:
    """Return the topics as the broker has them; None where only Java's client could ask, and is not to be found.

    Raises:
        RunError: the broker does not answer.
    """
    client, _ = _client(config)
    if client is None:
        names = [topic.name for topic in config.topics]
        return java_topic_states(spark, config.bootstrap_servers, _options(config), names)
    try:
        asked = client.describe_topics(
            TopicCollection([topic.name for topic in config.topics]), request_timeout=TIMEOUT_S
        )
        found = {name: answer.result(TIMEOUT_S) for name, answer in asked.items()}
        parts = [TopicPartition(name, part.id) for name, topic in found.items() for part in topic.partitions]
        earliest = _offsets(client, parts, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        latest = _offsets(client, parts, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    except (KafkaException, TimeoutError, concurrent.futures.TimeoutError) as error:  # two, up to Python 3.10
        msg = f"the broker {config.bootstrap_servers} does not tell the offsets of the topics: {error}"
        raise RunError(msg, "start again once it answers; it needs the right to describe the topics") from error
    return topics_of({name: str(topic.topic_id) for name, topic in found.items()}, earliest, latest)


def scanned_states(spark: SparkSession, config: KafkaConfig, reached: Places) -> dict[str, TopicState]:
    """Return the topics, without ids, by a reading of all their records, for where nobody can ask the broker.

    A partition without records is taken to be where the stream is, and none to end before that: the last offsets may be
    markers of transactions, which nobody sees.

    Args:
        spark: the session.
        config: the broker and the topics.
        reached: the next offset of each partition that the stream has read.
    """
    records = spark.read.format("kafka").options(**_reader_options(config)).load()
    ends = records.groupBy("topic", "partition").agg(sf.min("offset").alias("first"), sf.max("offset").alias("last"))
    first, behind = dict(reached), dict(reached)
    for row in ends.collect():
        place = row["topic"], row["partition"]
        first[place], behind[place] = row["first"], max(row["last"] + 1, reached.get(place, 0))
    return topics_of(dict.fromkeys(topic.name for topic in config.topics), first, behind)


def _offsets(client: AdminClient, parts: Sequence[TopicPartition], end: OffsetSpec) -> Places:
    asked = client.list_offsets(dict.fromkeys(parts, end), request_timeout=TIMEOUT_S)
    return {(part.topic, part.partition): int(answer.result(TIMEOUT_S).offset) for part, answer in asked.items()}


def _client(config: KafkaConfig, faults: list[KafkaError] | None = None) -> tuple[AdminClient | None, tuple[str, ...]]:
    """Return librdkafka's client, None where only Java's could connect, and the names of options that it cannot judge.

    Args:
        config: what to connect to.
        faults: gets what goes wrong in the background.
    """
    given = _options(config)
    if java_only(given):
        return None, tuple(given)
    options = dict(given)
    if options.get(_HOST_CHECK) == "":  # Java's word for it
        options[_HOST_CHECK] = "none"
    more: dict[str, Any] = {} if faults is None else {"error_cb": faults.append}
    while True:
        settings = {**options, "bootstrap.servers": config.bootstrap_servers, "log_level": 0, **more}
        try:
            client = AdminClient(settings, logger=_silent())
            return client, tuple(name for name in given if name not in options)
        except KafkaException as error:
            reason = error.args[0].str().strip()
            if _NO_PROVIDER in reason:  # Kerberos
                return None, tuple(given)
            found = _NOT_FOR_LIBRDKAFKA.search(reason)
            if found is None or options.pop(found[str(found.lastgroup)], None) is None:
                raise _wrong_option(reason, config) from None


def _options(config: KafkaConfig) -> dict[str, str]:
    return {name.removeprefix("kafka."): value for name, value in config.consumer_options().items()}


def _wrong_option(reason: str, config: KafkaConfig) -> UsageError:
    """Return what to tell of a client's reason, which may quote the value; for `from None`: the log gets causes."""
    for variable in config.options_from_env.values():
        reason = reason.replace(os.environ[variable] or MASK, MASK)
    return UsageError(f"kafka.options: {reason}")


def java_only(options: Iterable[str]) -> bool:
    """Tell whether consumer options, by their names, hold credentials that only Java's client can read."""
    return any(name.removeprefix("kafka.").startswith(_JAVA_ONLY) for name in options)


def _topics(bootstrap_servers: str, client: AdminClient, faults: list[KafkaError]) -> set[str]:
    try:
        return set(client.list_topics(timeout=TIMEOUT_S).topics)
    except KafkaException as error:
        client.poll(0)
        raise _unreachable(bootstrap_servers, error.args[0], faults) from error


def _unreachable(bootstrap_servers: str, error: KafkaError, faults: list[KafkaError]) -> RunError:
    for fault in [*faults, error]:
        if fault.code() in _AUTHENTICATION:
            msg = f"the broker {bootstrap_servers} refuses the credentials"
            return RunError(msg, "check kafka.options and the variables in kafka.options_from_env")
    reason = (faults[0] if faults else error).str()
    msg = f"no Kafka broker answers at {bootstrap_servers}: {reason}"
    return RunError(msg, f"{_own_broker(bootstrap_servers)}correct kafka.bootstrap_servers")


def _own_broker(bootstrap_servers: str) -> str:
    """Return how to start a broker at an address of this machine; "" for another's."""
    host, _, port = bootstrap_servers.partition(",")[0].strip().rpartition(":")
    return f"`kbit broker start --port {port}` starts one; else " if host in ("localhost", "127.0.0.1") else ""


def _silent() -> logging.Logger:
    logger = logging.getLogger("kbit.kafka")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


class Lag:
    """How many records wait behind the last batch, asked of the broker."""

    def __init__(self, config: KafkaConfig) -> None:
        self._client, _ = _client(config)

    def behind(self, ranges: Sequence[OffsetRange]) -> int | None:
        """Return the number of offsets behind the ends of `ranges`; None where the broker does not tell in time."""
        if self._client is None:
            return None
        ends = {TopicPartition(r.topic, r.partition): r.end for r in ranges}
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        try:
            asked = self._client.list_offsets(dict.fromkeys(ends, newest), request_timeout=2)
            return sum(max(0, int(latest.result(2).offset) - ends[place]) for place, latest in asked.items())
        except (KafkaException, TimeoutError, concurrent.futures.TimeoutError):  # two, up to Python 3.10
            return None
