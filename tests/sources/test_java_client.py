"""What only Java's client can ask of a broker: the answers are those of librdkafka, its faults are told in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kbit_spark.errors import RunError
from kbit_spark.sources import java_client
from kbit_spark.sources.broker import topic_states
from kbit_spark.sources.java_client import java_topic_states
from kbit_spark.sources.kafka import scanned_states
from tests.fixtures.jobs import ingest_config, json_records
from tests.fixtures.kafka import Kafka, remove

pytestmark = pytest.mark.kafka


def test_both_clients_tell_the_same(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    names = [kafka.topic("java", 2), *(kafka.topic("java") for _ in range(5))]  # ids with any letter
    for partition in range(2):
        kafka.produce(names[0], json_records(20 + partition), partition=partition)
    remove(kafka, names[0], 7, partition=1)
    config = ingest_config(tmp_path, kafka.bootstrap_servers, dict.fromkeys(names, "json")).kafka
    told = java_topic_states(spark, kafka.bootstrap_servers, {"max.poll.records": "7"}, names)
    assert told == topic_states(spark, config)
    assert told is not None
    assert (told[names[0]].earliest, told[names[0]].latest) == ({0: 0, 1: 7}, {0: 20, 1: 21})


def test_without_javas_client_records_tell(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic("java", 3)
    for partition in range(2):
        kafka.produce(topic, json_records(20), partition=partition)
    remove(kafka, topic, 7, partition=1)
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"}).kafka
    (told,) = scanned_states(spark, config, {(topic, 0): 25, (topic, 1): 3, (topic, 2): 9}).values()
    assert (told.topic_id, told.earliest, told.latest) == (None, {0: 0, 1: 7, 2: 9}, {0: 25, 1: 20, 2: 9})
    monkeypatch.setattr(java_client, "_PACKAGES", ("elsewhere",))
    assert java_topic_states(spark, kafka.bootstrap_servers, {}, [topic]) is None


def test_faults_are_told_in_words(spark: SparkSession, kafka: Kafka, sasl_broker: str) -> None:
    with pytest.raises(RunError, match="does not tell the offsets of nowhere: UnknownTopicOrPartitionException"):
        java_topic_states(spark, kafka.bootstrap_servers, {}, ["nowhere"])
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} username="kbit" password="hunter2";',
    }
    with pytest.raises(RunError, match=r"SaslAuthenticationException.*kafka\.options") as told:
        java_topic_states(spark, sasl_broker, options, ["digits"])
    assert "hunter2" not in str(told.value)
