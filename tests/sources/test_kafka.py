"""Consumer options: what one client of Kafka does not know is no fault where the other does."""

from __future__ import annotations

import concurrent.futures
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from py4j.java_collections import JavaList
from pyspark.sql import SparkSession

from kbit_spark import ingest
from kbit_spark.config import kafka as kafka_config_module
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.kafka import KafkaConfig
from kbit_spark.config.load import validate
from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas.ledger import OffsetRange
from kbit_spark.sources import broker
from kbit_spark.sources.broker import Lag, check_topics, topic_states
from kbit_spark.sources.kafka import check_options, read_stream
from kbit_spark.sources.options import java_only
from tests.fixtures.jobs import coordinates, ingest_data, json_records
from tests.fixtures.kafka import Kafka

OWN = kafka_config_module._SPARKS_OWN
RANGES = [OffsetRange(topic="t", partition=0, start=0, end=1)]


def config(servers: str = "127.0.0.1:1", topic: str = "t", **options: str) -> KafkaConfig:
    topics = [{"name": topic, "format": "json"}]
    return KafkaConfig.model_validate({"bootstrap_servers": servers, "topics": topics, "options": options})


def java_defaults(spark: SparkSession) -> dict[str, str]:
    """Return every option of Java's consumer that has a default, as a configuration would give it."""
    assert spark.sparkContext._jvm is not None
    found = spark.sparkContext._jvm.org.apache.kafka.clients.consumer.ConsumerConfig.configDef().defaultValues()
    told = {}
    for name in found:
        value = found[name]
        if value is not None:
            items = list(value) if isinstance(value, JavaList) else [value]
            texts = [
                str(i).lower() if isinstance(i, bool) else i.getName() if hasattr(i, "getName") else str(i)
                for i in items
            ]
            told[str(name)] = ",".join(texts)
    return told


def test_every_option_of_java_with_its_own_default_is_let_through(spark: SparkSession) -> None:
    defaults = {name: value for name, value in java_defaults(spark).items() if name not in OWN}
    assert {"default.api.timeout.ms", "ssl.protocol", "ssl.enabled.protocols", "retry.backoff.ms"} <= defaults.keys()
    refused = {}
    for name, value in defaults.items():
        try:
            check_options(spark, config(**{name: value}), broker._client(config(**{name: value}))[1])
        except UsageError as error:
            refused[name] = error.message
    assert refused == {}
    client, unjudged = broker._client(
        config(**{name: value for name, value in defaults.items() if not java_only([name])})
    )
    assert client is not None
    assert {"default.api.timeout.ms", "ssl.protocol", "ssl.enabled.protocols"} <= set(unjudged)
    assert "security.protocol" not in unjudged


@pytest.mark.parametrize("prefix", ["", "kafka."])
@pytest.mark.parametrize("section", ["options", "options_from_env"])
@pytest.mark.parametrize("name", OWN)
def test_what_spark_sets_itself_is_refused_before_it_starts(
    name: str, section: str, prefix: str, tmp_path: Path
) -> None:
    data = ingest_data(tmp_path, "127.0.0.1:1", {"t": "json"})
    data["kafka"][section] = {prefix + name: "x"}
    with pytest.raises(UsageError, match=f"{prefix}{name} cannot be set") as caught:
        validate(IngestConfig, data, "here")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", [name for name in OWN if name != "bootstrap.servers"])
def test_spark_would_refuse_it_and_its_refusal_is_one_of_usage(spark: SparkSession, name: str) -> None:
    forced = config().model_copy(update={"options": {name: "earliest"}})
    with pytest.raises(UsageError, match=rf"^kafka.options: .*{name}"):
        read_stream(spark, forced)


@pytest.mark.parametrize(
    ("name", "value"),
    [("security.protocol", "SASL_SLS"), ("session.timeout.ms", "soon"), ("isolation.level", "read_some")],
)
def test_a_value_that_neither_client_takes_is_refused_early(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=rf"^kafka.options: Invalid value .*{name}"):
        check_topics(config(**{name: value, "default.api.timeout.ms": "9000"}))


@pytest.mark.parametrize(
    ("name", "value"), [("default.api.timeout.ms", "9000"), ("max.poll.records", "-1"), ("check.crcs", "perhaps")]
)
def test_a_value_that_java_does_not_take_is_refused_before_the_stream(
    spark: SparkSession, name: str, value: str
) -> None:
    with pytest.raises(UsageError, match=rf"^kafka.options: .*{name}"):
        check_options(spark, config(**{name: value}), ())


def test_what_only_librdkafka_knows_is_told(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    given = config(
        **{"queued.min.messages": "7", "ssl.ca.location": "", "fetch.min.bytes": "1", "acme.region": "north"}
    )
    client, unjudged = broker._client(given)
    assert client is not None
    assert unjudged == ("acme.region",)
    check_options(spark, given, unjudged)
    (told,) = [record.getMessage() for record in caplog.records if record.name == "kbit.kafka_options"]
    assert "does not know queued.min.messages, ssl.ca.location;" in told


def test_a_wrong_value_from_the_environment_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBIT_TEST_SECRET", "hunter2")
    wrong = config().model_copy(update={"options_from_env": {"kafka.security.protocol": "KBIT_TEST_SECRET"}})
    with pytest.raises(UsageError, match=r"security\.protocol") as caught:
        check_topics(wrong)
    assert "***" in str(caught.value)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))  # as the log has it


def test_kerberos_without_a_library_of_ours_is_java_s(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"}

    def refuse(*_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "No provider for SASL mechanism GSSAPI: recompile"))

    asked: list[Any] = []
    monkeypatch.setattr(broker, "AdminClient", refuse)
    monkeypatch.setattr(broker, "java_topic_states", lambda *given: asked.append(given))
    assert check_topics(config(**options)) == tuple(options)
    assert topic_states(None, config(**options)) is None
    assert [given[2] for given in asked] == [options]
    assert Lag(config(**options)).behind(RANGES) is None


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("name", "nearest"),
    [("fetch.max.byts", "fetch.max.bytes"), ("securty.protocol", "security.protocol"), ("ssl.protocl", "ssl.protocol")],
)
def test_a_misspelt_option_is_refused_before_tables_are_made(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, name: str, nearest: str
) -> None:
    data = ingest_data(tmp_path, kafka.bootstrap_servers, {kafka.topic(): "json"})
    data["kafka"]["options"] = {name: "1"}
    with pytest.raises(UsageError, match=f"no client of Kafka knows {name}; did you mean {nearest}"):
        ingest.run(validate(IngestConfig, data, "here"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.kafka
def test_a_stream_runs_with_options_of_java_and_of_plugins(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("options")
    kafka.produce(topic, json_records(7))
    data = ingest_data(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    data["kafka"]["options"] = {
        "default.api.timeout.ms": 90_000, "kafka.ssl.protocol": "TLSv1.3", "metadata.max.age.ms": 0,
        "ssl.endpoint.identification.algorithm": "", "acme.region": "north", "fetch.max.bytes": 1 << 20,
    }  # fmt: skip
    ingest.run(validate(IngestConfig, data, "here"))
    assert coordinates(tmp_path) == [(topic, 0, offset) for offset in range(7)]


# --- a broker that is slow


class Late(Exception):  # noqa: N818 - its name then
    """`concurrent.futures.TimeoutError` as it is before Python 3.11: not the builtin one."""


@pytest.mark.parametrize("error", [TimeoutError(), Late(), KafkaException(KafkaError(KafkaError._TIMED_OUT))])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_slow_broker_ends_nothing_behind_a_batch(
    monkeypatch: pytest.MonkeyPatch, error: Exception, *, at_once: bool
) -> None:
    def late(*_: Any, **__: Any) -> Any:
        raise error

    answers = {place: SimpleNamespace(result=late) for place in ("p",)}
    asked = late if at_once else lambda *_, **__: answers
    monkeypatch.setattr(concurrent.futures, "TimeoutError", Late)
    monkeypatch.setattr(
        broker, "AdminClient", lambda *_, **__: SimpleNamespace(list_offsets=asked, describe_topics=asked)
    )
    assert Lag(config()).behind(RANGES) is None
    with pytest.raises(RunError, match="does not tell the offsets"):
        topic_states(None, config())
