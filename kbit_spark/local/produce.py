"""Writes digits into a Kafka topic, some of them broken on purpose."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from kbit_spark.errors import RunError
from kbit_spark.local.digits import Digit
from kbit_spark.local.payloads import BREAKAGES, Format, encode

BROKEN_HEADER = "kbit-broken"
TIMEOUT_S = 30.0

Headers = list[tuple[str, str | bytes | None]]
Delivered = Callable[[KafkaError | None, Message], None]


def ensure_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Create the topic unless it is there.

    Raises:
        RunError: the broker does not answer or refuses.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        admin.list_topics(timeout=TIMEOUT_S / 3)
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            msg = f"cannot make the topic {topic} at {bootstrap_servers}: {error.args[0].str()}"
            raise RunError(msg, "`kbit broker start` starts a broker here") from error


def records(
    digits: Iterable[Digit], form: Format, rows: int, broken: int, seed: int
) -> Iterator[tuple[Digit, bytes, str]]:
    """Yield (digit, payload, what is broken about it or "") with `broken` of the `rows` broken at seeded places."""
    places = set(np.random.default_rng(seed).choice(rows, size=broken, replace=False).tolist()) if broken else set()
    breakages = cycle(BREAKAGES[form].items())
    for index, digit in enumerate(digits):
        payload = encode(digit, form)
        if index not in places:
            yield digit, payload, ""
            continue
        name, breakage = next(breakages)
        yield digit, breakage(payload), name


def produce(
    bootstrap_servers: str, topic: str, messages: Iterable[tuple[Digit, bytes, str]], rate: float | None = None
) -> int:
    """Write the messages, keyed by the original digit's id, and wait until the broker has all of them.

    Args:
        bootstrap_servers: the broker.
        topic: must exist.
        messages: see `records`.
        rate: records per second; none: as fast as the broker takes them.

    Returns:
        The number of records written.

    Raises:
        RunError: a record was not delivered.
    """
    faults: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            faults.append(error)

    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "acks": "all", "log_level": 0})
    start, count = time.monotonic(), 0
    for digit, payload, broken in messages:
        headers: Headers = [(BROKEN_HEADER, broken.encode())] if broken else []
        _send(producer, topic, str(digit.id).encode(), payload, headers, delivered)
        count += 1
        if rate and (ahead := count / rate - (time.monotonic() - start)) > 0:
            producer.poll(ahead)
        if faults:
            break
    left = producer.flush(TIMEOUT_S)
    if faults or left:
        reason = faults[0].str() if faults else f"{left} records unanswered after {TIMEOUT_S:.0f} s"
        msg = f"topic {topic} at {bootstrap_servers} does not take records: {reason}"
        raise RunError(msg, "check the broker and the topic")
    return count


def _send(producer: Producer, topic: str, key: bytes, value: bytes, headers: Headers, done: Delivered) -> None:
    while True:
        try:
            producer.produce(topic, value=value, key=key, headers=headers, on_delivery=done)
            producer.poll(0)
        except BufferError:  # the queue is full: let the broker catch up
            producer.poll(0.1)
            continue
        return
