"""Asks the broker, through librdkafka where it can connect and through Java's client where only that can."""

from __future__ import annotations

import concurrent.futures
import logging
import re
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from kbit_spark.config.kafka import KafkaConfig
from kbit_spark.errors import RunError
from kbit_spark.schemas.ledger import OffsetRange, Places
from kbit_spark.sources.continuity import TopicState, topics_of
from kbit_spark.sources.java_client import java_topic_states
from kbit_spark.sources.options import client_options, java_only, wrong_option

TIMEOUT_S = 10.0
_AUTHENTICATION = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_NOT_FOR_LIBRDKAFKA = re.compile(
    r'No such configuration property: "(?P<name>[^"]+)"'
    r'|Configuration property "(?P<bounded>[^"]+)" value \S+ is outside allowed range'
    r"|Unsupported (?P<class>partition\.assignment\.strategy)"
)
"""librdkafka refuses what only Java's client knows, or takes; it need not know them, since it reads no records here."""
_NO_PROVIDER = "No provider for SASL mechanism"
_HOST_CHECK = "ssl.endpoint.identification.algorithm"


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
    names = [topic.name for topic in config.topics]
    if client is None:
        return java_topic_states(spark, config.bootstrap_servers, client_options(config), names)
    try:
        asked = client.describe_topics(TopicCollection(names), request_timeout=TIMEOUT_S)
        found = {name: answer.result(TIMEOUT_S) for name, answer in asked.items()}
        parts = [TopicPartition(name, part.id) for name, topic in found.items() for part in topic.partitions]
        earliest = _offsets(client, parts, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        latest = _offsets(client, parts, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    except (KafkaException, TimeoutError, concurrent.futures.TimeoutError) as error:  # two, up to Python 3.10
        msg = f"the broker {config.bootstrap_servers} does not tell the offsets of the topics: {error}"
        raise RunError(msg, "start again once it answers; it needs the right to describe the topics") from error
    return topics_of({name: str(topic.topic_id) for name, topic in found.items()}, earliest, latest)


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


def _client(config: KafkaConfig, faults: list[KafkaError] | None = None) -> tuple[AdminClient | None, tuple[str, ...]]:
    """Return librdkafka's client, None where only Java's could connect, and the names of options that it cannot judge.

    Args:
        config: what to connect to.
        faults: gets what goes wrong in the background.
    """
    given = client_options(config)
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
                raise wrong_option(reason, config) from None


def _silent() -> logging.Logger:
    logger = logging.getLogger("kbit.kafka")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


def _offsets(client: AdminClient, parts: Sequence[TopicPartition], end: OffsetSpec) -> Places:
    asked = client.list_offsets(dict.fromkeys(parts, end), request_timeout=TIMEOUT_S)
    return {(part.topic, part.partition): int(answer.result(TIMEOUT_S).offset) for part, answer in asked.items()}


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
