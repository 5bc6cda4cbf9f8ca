"""Records that keep coming, and where each of them landed: what the tables are held against in the end."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import TracebackType

from confluent_kafka import KafkaError, Message, Producer

from tests.fixtures.jobs import avro_records, json_records

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""

Payload = Callable[[int], bytes | None]
MAKERS: Mapping[str, Payload] = {
    "json": lambda number: json_records(1, number)[0][1],
    "avro": lambda number: avro_records(1, number)[0][1],
}
BROKEN = {"json": b'{"image": [1', "avro": b"\x02"}
KINDS, SHARES = ("good", "bad", "tombstone"), (90, 8, 2)


class Traffic:
    """Writes records in a thread of its own until it is stopped.

    Args:
        bootstrap_servers: the broker.
        topics: names to formats; a record goes to any of them.
        rate: records per second.
        seed: of what is written where.
    """

    def __init__(self, bootstrap_servers: str, topics: Mapping[str, str], rate: float, seed: int) -> None:
        # idempotent: a record that was sent twice would lie at an offset that no report names
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        )
        self._topics = dict(topics)
        self._rate = rate
        self._chance = random.Random(seed)
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._faults: list[str] = []
        self.landed: dict[str, set[Place]] = defaultdict(set)
        """Kind of record to the places where the broker put such records."""

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._enough.set()
        self._thread.join()

    def stop(self) -> None:
        """Write no more, and make sure that the broker has everything.

        Raises:
            AssertionError: it has not; nothing can be said of the tables then.
        """
        self._enough.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert not left and not self._faults, f"{left} records unanswered, refused: {self._faults[:3]}"

    def _run(self) -> None:
        begin, number = time.monotonic(), 0
        while not self._enough.is_set():
            topic, form = self._chance.choice(sorted(self._topics.items()))
            (kind,) = self._chance.choices(KINDS, SHARES)
            value = {"good": MAKERS[form](number), "bad": BROKEN[form], "tombstone": None}[kind]
            self._producer.produce(topic, value, key=str(number).encode(), on_delivery=self._note(kind))
            number += 1
            self._producer.poll(0)
            self._enough.wait(max(0.0, number / self._rate - (time.monotonic() - begin)))

    def _note(self, kind: str) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._faults.append(error.str())
                return
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None
            self.landed[kind].add((topic, partition, offset))

        return delivered
