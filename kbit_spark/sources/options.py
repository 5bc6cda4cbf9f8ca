"""Consumer options of Kafka: ours, the user's, and how a wrong one is told."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from kbit_spark.config.kafka import KafkaConfig
from kbit_spark.config.secrets import MASK
from kbit_spark.errors import UsageError

_FETCH_BYTES = 8 << 20
_RECEIVE_BUFFER_BYTES = 1 << 20
_POLL_RECORDS = 5_000
"""Spark asks the broker for the ends of a partition behind every poll; Kafka's default, 500 records, makes that 100
times in a range of 50,000. What was polled stays in memory until it is read."""
_FETCH_WAIT_MS = 10
"""How long the broker may hold an answer that has no records yet. Spark's question for the ends of a partition waits
behind the fetch that the client sends ahead: with Kafka's default, half a second in each batch that ends where the
topic does. Tasks read only what is there, so nothing is asked in vain for long."""
# librdkafka has its own names for what Java's client keeps in a JAAS line; Spark checks these at its own start
_JAVA_ONLY = ("sasl.jaas.config", "ssl.truststore", "ssl.keystore", "sasl.login", "sasl.client.callback")


def client_options(config: KafkaConfig) -> dict[str, str]:
    """Return the user's consumer options by Kafka's own names, secrets included. Never log the result."""
    return {name.removeprefix("kafka."): value for name, value in config.consumer_options().items()}


def reader_options(config: KafkaConfig) -> dict[str, str]:
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
    own = {f"kafka.{name}": value for name, value in client_options(config).items()}
    return {**{name: str(value) for name, value in options.items()}, **own}


def java_only(options: Iterable[str]) -> bool:
    """Tell whether consumer options, by their names, hold credentials that only Java's client can read."""
    return any(name.removeprefix("kafka.").startswith(_JAVA_ONLY) for name in options)


def wrong_option(reason: str, config: KafkaConfig) -> UsageError:
    """Return what to tell of a client's reason, which may quote the value; for `from None`: the log gets causes."""
    for variable in config.options_from_env.values():
        reason = reason.replace(os.environ[variable] or MASK, MASK)
    return UsageError(f"kafka.options: {reason}")
