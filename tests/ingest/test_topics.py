"""What a topic may hold besides good records in order: each record is in the tables once, each gap in the ledger."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kbit_spark import ingest
from kbit_spark.codecs.framing import UNRESOLVED
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.local.registry import RegistryServer
from kbit_spark.tables.verify import verify
from tests.fixtures.jobs import ROOT, coordinates, eventually, ingest_config, json_records, ledger
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.kafka
MEBIBYTE = 1 << 20


def totals(config: IngestConfig) -> dict[str, int]:
    """Return what the ledger counts over all batches, once it agrees with the tables."""
    assert verify(config.tables.samples, config.tables.rejected).faults == []
    entries = ledger(config.tables.samples)
    return {name: sum(getattr(e, name) for e in entries) for name in ("good", "bad", "tombstones", "gaps")}


def test_the_users_own_tuning_wins(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("tuned")
    kafka.produce(topic, json_records(40))
    plain = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    own = {"options": {"max.poll.records": "7", "fetch.max.wait.ms": "50"}, "min_partitions": 4}
    config = plain.model_copy(update={"kafka": plain.kafka.model_copy(update=own)})
    ingest.run(config)
    assert coordinates(tmp_path) == [(topic, 0, offset) for offset in range(40)]
    assert sum("_split=train" in file for file in DeltaTable(config.tables.samples).file_uris()) == 4


def test_transactions_committed_aborted_and_open(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("transactions")
    producers = [
        Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{topic}-{i}"}) for i in range(2)
    ]

    def transaction(first: int, end: Callable[[float], None] | None, producer: Producer = producers[0]) -> None:
        producer.begin_transaction()
        for key, value, *_ in json_records(3, first):
            producer.produce(topic, value, key)
        assert producer.flush(30) == 0
        if end is not None:
            end(30)

    for producer in producers:
        producer.init_transactions(30)
    transaction(0, producers[0].commit_transaction)  # offsets 0 to 2, the marker at 3
    transaction(3, producers[0].abort_transaction)  # 4 to 6, the marker at 7
    transaction(6, producers[0].commit_transaction)  # 8 to 10, the marker at 11
    transaction(9, None, producers[1])  # 12 to 14, not decided yet
    kafka.produce(topic, json_records(1, 12))  # 15, behind what is not decided
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    ingest.run(config)
    decided = [(topic, 0, offset) for offset in (0, 1, 2, 8, 9, 10)]
    assert coordinates(tmp_path) == decided
    assert totals(config) == {"good": 6, "bad": 0, "tombstones": 0, "gaps": 6}
    producers[1].commit_transaction(30)
    ingest.run(config)
    assert coordinates(tmp_path) == [*decided, *((topic, 0, offset) for offset in (12, 13, 14, 15))]
    assert totals(config) == {"good": 10, "bad": 0, "tombstones": 0, "gaps": 7}


def test_gaps_of_compaction(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    clean_often(kafka)
    topic = kafka.topic(
        "compacted", **{"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.001"}
    )
    for first in range(0, 60, 20):  # three versions of each of twenty keys
        kafka.produce(topic, [(f"k{i}".encode(), value) for i, (_, value, *_) in enumerate(json_records(20, first))])
    kafka.produce(topic, [(f"k{i}".encode(), None) for i in range(5)])  # tombstones
    left = list[int]()

    def compacted() -> bool:
        kafka.produce(topic, [(b"last", json_records(1)[0][1])])  # begins a segment, so that the one before is closed
        left[:] = offsets_in(kafka, topic)
        return len(left) < 40

    eventually(compacted, 60, poll_s=0.5)
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    ingest.run(config)
    counts = totals(config)
    found = [offset for _, _, offset in coordinates(tmp_path)]
    assert len(found) == len(set(found)) == counts["good"]
    assert set(found) <= set(left)
    assert counts["gaps"] > 20
    assert sum(counts.values()) == max(offsets_in(kafka, topic)) + 1
    assert counts["bad"] == 0


def clean_often(kafka: Kafka) -> None:
    """Let the broker look for something to compact all the time."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    entry = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def offsets_in(kafka: Kafka, topic: str) -> list[int]:
    """Return the offsets at which the topic has records, tombstones too."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic, "enable.partition.eof": True,
         "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append(message.offset() or 0)
    consumer.close()
    return found


def test_payloads_of_a_mebibyte(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("large")
    numbers = [100 + i % 150 for i in range(MEBIBYTE // 4)]
    good = json.dumps({"image": numbers, "label": 1}, separators=(",", ":")).encode()
    assert len(good) >= MEBIBYTE
    kafka.produce(topic, [(b"good", good), (b"bad", good[:-3]), (b"good", good)])
    config = ingest_config(
        tmp_path,
        kafka.bootstrap_servers,
        {topic: "json"},
        fields=[
            {"name": "image", "tensor": {"dtype": "uint8", "shape": [512, 512]}},
            {"name": "label", "type": "int"},
        ],
    )
    ingest.run(config)
    assert totals(config) == {"good": 2, "bad": 1, "tombstones": 0, "gaps": 0}
    images = DeltaTable(config.tables.samples).to_pyarrow_table()["image"].to_pylist()
    assert images == [bytes(numbers)] * 2
    (letter,) = DeltaTable(config.tables.rejected).to_pyarrow_table().to_pylist()
    assert (letter["payload"], letter["code"], letter["position"]) == (good[:-3], "truncated", len(good) - 3)


def test_tombstones_and_timestamps_out_of_order(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("order", 2)
    now = datetime.now(timezone.utc).replace(microsecond=0)
    ages = [0, 40_000, 3, 9_000, 0, 1, 86_400 * 300, 2, -3_600, 5]  # s; one of them in the future
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    times = {}
    for i, age in enumerate(ages * 6):
        time = now - timedelta(seconds=age)
        key, value, *_ = json_records(1, i)[0]
        times[key] = time
        producer.produce(
            topic, None if i % 10 == 4 else value, key, partition=i % 2, timestamp=int(time.timestamp() * 1_000)
        )
    assert producer.flush(30) == 0
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    ingest.run(config)
    assert totals(config) == {"good": 54, "bad": 0, "tombstones": 6, "gaps": 0}
    rows = DeltaTable(config.tables.samples).to_pyarrow_table(columns=["_key", "_timestamp"]).to_pylist()
    assert {row["_key"]: row["_timestamp"] for row in rows} == {
        key: time for i, (key, time) in enumerate(times.items()) if i % 10 != 4
    }


def codes() -> set[str]:
    """Return every reason code that the decoders' source can give."""
    sources = "\n".join(
        file.read_text()
        for pattern in ("jars/kbit-jvm/src/main/java/kbit/decode/**/*.java", "kbit_spark/codecs/*.py")
        for file in ROOT.glob(pattern)
    )
    made = re.findall(r'DecodeException\(\s*"(\w+)"', sources)
    return {*made, *re.findall(r'"((?:bad|unknown|missing)_\w+)"', sources)}


WRITER = {
    "type": "record",
    "name": "Digit",
    "fields": [
        {"name": "image", "type": "bytes"},
        {"name": "label", "type": "int"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "note", "type": ["null", "string"]},
    ],
}
PROTO = """\
syntax = "proto3";
message Digit { bytes image = 1; int32 label = 2; }
"""
IMAGE = bytes(range(4))
JSON_TEXT = b'{"image": [0, 1, 2, 3], "label": 1'
AVRO_HEAD = b"\x08" + IMAGE + b"\x02"  # image and label

POISON: dict[str, tuple[str, bytes]] = {
    "empty_payload": ("json", b""),
    "bad_json": ("json", b'{"image" [0'),
    "truncated": ("json", JSON_TEXT),
    "trailing_bytes": ("json", JSON_TEXT + b"} {"),
    "type_mismatch": ("json", b'{"image": [0, 1, 2, 3], "label": "one"}'),
    "missing_field": ("json", b'{"image": [0, 1, 2, 3]}'),
    "bad_utf8": ("json", b'{"note": "\xff"}'),
    "depth_exceeded": ("json", b'{"note": ' + b"[" * 300),
    "int_overflow": ("json", b'{"label": 2147483648}'),
    "bad_length": ("json", b'{"image": [0, 1], "label": 1}'),
    "bad_varint": ("avro", b"\x08" + IMAGE + b"\xff" * 11),
    "bad_enum": ("avro", AVRO_HEAD + b"\x08\x00"),
    "bad_union_index": ("avro", AVRO_HEAD + b"\x00\x08"),
    "wrong_wire_type": ("protobuf", b"\x0d\x00\x00\x00\x00"),
    "unbalanced_group": ("protobuf", b"\x1c"),
    "bad_framing": ("framed", b"\x01\x00\x00\x00\x01"),
    "unknown_schema": ("framed", b"\x00\x00\x00\x00\x63"),
}
"""Reason code to a format and a payload."""


def test_poison_of_every_reason_in_one_batch(
    spark: SparkSession, kafka: Kafka, registry: RegistryServer, tmp_path: Path
) -> None:
    assert codes() - {UNRESOLVED} == POISON.keys()  # schemas that are not resolved yet never reach the table
    topics = {form: kafka.topic(form) for form in ("json", "avro", "protobuf", "framed")}
    (tmp_path / "digit.avsc").write_text(json.dumps(WRITER))
    (tmp_path / "digit.proto").write_text(PROTO)
    number = registry.registry.register("digits", {"schema": json.dumps(WRITER)})
    row = {"image": IMAGE, "label": 1, "kind": "b", "note": "ä"}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(WRITER), row)
    good = {
        "json": JSON_TEXT + b"}",
        "avro": out.getvalue(),
        "protobuf": b"\x0a\x04" + IMAGE + b"\x10\x01",
        "framed": b"\0" + number.to_bytes(4, "big") + out.getvalue(),
    }
    for form, topic in topics.items():
        bad = [(code.encode(), payload) for code, (poisoned, payload) in POISON.items() if poisoned == form]
        kafka.produce(topic, [(None, good[form]), *bad, (None, good[form])])
    listed: list[dict[str, Any]] = [
        {"name": topics["json"], "format": "json"},
        {"name": topics["avro"], "format": "avro", "schema_file": str(tmp_path / "digit.avsc")},
        {
            "name": topics["protobuf"],
            "format": "protobuf",
            "schema_file": str(tmp_path / "digit.proto"),
            "message": "Digit",
        },
        {"name": topics["framed"], "format": "avro", "framing": "confluent"},
    ]
    servers, asked = kafka.bootstrap_servers, {"url": registry.url, "retry_for_s": 5}
    config = ingest_config(
        tmp_path,
        servers,
        {},
        kafka={"bootstrap_servers": servers, "topics": listed, "registry": asked},
        fields=[{"name": "image", "tensor": {"dtype": "uint8", "shape": [4]}}, {"name": "label", "type": "int"}],
    )
    ingest.run(config)
    assert len(ledger(config.tables.samples)) == 1
    assert totals(config) == {"good": 8, "bad": len(POISON), "tombstones": 0, "gaps": 0}
    letters = DeltaTable(config.tables.rejected).to_pyarrow_table().to_pylist()
    assert {row["key"].decode(): row["code"] for row in letters} == {code: code for code in POISON}
    assert Counter(row["payload"] for row in letters) == Counter(payload for _, payload in POISON.values())
    assert all(row["reason"] and row["position"] is not None for row in letters)
    ingest.run(config)
    assert len(coordinates(tmp_path)) == 8 + len(POISON)
