"""A broker or a registry that goes away and comes back: the stream waits or stops, and loses nothing."""

from __future__ import annotations

import io
import os
import signal
import threading
from pathlib import Path

import fastavro
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kbit_spark import ingest
from kbit_spark.errors import RunError
from kbit_spark.local import broker
from kbit_spark.local.registry import serve
from kbit_spark.tables.verify import verify
from tests.fixtures.jobs import SCHEMA, coordinates, eventually, image, ingest_config, json_records, ledger
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_a_broker_that_stops_and_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    kafka = Kafka(broker.start(folder).bootstrap_servers)
    topic = kafka.topic("restart", 2)
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"}, trigger={"interval_s": 0})
    seen: list[int] = []

    def arrived(count: int) -> bool:
        if not DeltaTable.is_deltatable(config.tables.samples):
            return False
        seen.append(sum(entry.good for entry in ledger(config.tables.samples)))
        return seen[-1] >= count

    def restart() -> None:
        try:
            kafka.produce(topic, json_records(60))
            eventually(lambda: arrived(1), 60)
            broker.stop(folder)
            assert broker.start(folder).bootstrap_servers == kafka.bootstrap_servers
            kafka.produce(topic, json_records(60, 60))
            eventually(lambda: arrived(120), 60)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    meanwhile = threading.Thread(target=restart)
    meanwhile.start()
    try:
        ingest.run(config)
    finally:
        meanwhile.join(90)
        broker.stop(folder)
    assert len(coordinates(tmp_path)) == len(set(coordinates(tmp_path))) == 120
    assert verify(config.tables.samples, config.tables.rejected).faults == []


def test_a_registry_that_is_down(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("registry")
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.schema.load_schema(str(SCHEMA)), {"image": bytes(image(1)), "label": 1})
    down = [503]
    with serve(before=lambda path: down[0] or None) as server:
        number = server.registry.register("digits", {"schema": SCHEMA.read_text()})
        framed = b"\0" + number.to_bytes(4, "big") + out.getvalue()
        kafka.produce(topic, [(b"good", framed)] * 5 + [(b"bad", b"\x01")])
        listed = [{"name": topic, "format": "avro", "framing": "confluent"}]
        config = ingest_config(
            tmp_path,
            kafka.bootstrap_servers,
            {},
            kafka={
                "bootstrap_servers": kafka.bootstrap_servers,
                "topics": listed,
                "registry": {"url": server.url, "retry_for_s": 0.3},
            },
        )
        with pytest.raises(RunError, match=r"the Schema Registry .* gave no answer .* 503") as caught:
            ingest.run(config)
        assert "nothing is lost" in caught.value.hint
        assert coordinates(tmp_path) == []
        down[0] = 0
        ingest.run(config)
    assert coordinates(tmp_path) == [(topic, 0, offset) for offset in range(6)]
    assert [(entry.good, entry.bad) for entry in ledger(config.tables.samples)] == [(5, 1)]
