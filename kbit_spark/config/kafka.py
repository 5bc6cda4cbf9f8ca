"""Configuration of what is read from Kafka: the broker, its topics, and how their payloads are written."""

from __future__ import annotations

import os
import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from kbit_spark.config.options import Options
from kbit_spark.config.registry import RegistryConfig
from kbit_spark.config.secrets import secrets_in
from kbit_spark.errors import UsageError
from kbit_spark.schemas.base import Frozen

_SPARKS_OWN = (
    "auto.offset.reset", "bootstrap.servers", "enable.auto.commit", "interceptor.classes", "key.deserializer",
    "value.deserializer",
)  # fmt: skip
"""Consumer options that Spark sets itself, and refuses, or that other keys say."""


class TopicConfig(Frozen):
    """One topic and how its payloads are written."""

    name: str
    format: Literal["json", "mongo", "avro", "protobuf"]
    """Mongo is MongoDB Extended JSON v2, relaxed or canonical."""

    framing: Literal["raw", "confluent", "soe", "auto"] = "raw"
    """The header: none, a Schema Registry id (kafka.registry), Avro single-object, or as the first records show."""

    schema_file: str | None = None
    """The writer's schema. Avro: .avsc; Protobuf: .proto, or a descriptor set (.desc)."""

    schema_files: tuple[str, ...] = ()
    """Avro, framing soe: the schemas (.avsc) of all writers, found by fingerprint."""

    reader_schema_file: str | None = None
    """Avro: a schema (.avsc) whose aliases, defaults and enum symbols are used; `fields` alone say what a row is."""

    message: str | None = None
    """Protobuf: full name of the message. Framing confluent: none takes whichever message has the fields."""

    @model_validator(mode="after")
    def _schema_given(self) -> TopicConfig:
        raw = self.framing == "raw"
        if self.format == "avro" and raw and not self.schema_file:
            msg = f"topic {self.name!r}: format avro with raw framing needs schema_file"
            raise ValueError(msg)
        if self.format == "protobuf" and (raw or self.schema_file) and not (self.schema_file and self.message):
            msg = f"topic {self.name!r}: format protobuf with raw framing needs schema_file and message"
            raise ValueError(msg)
        if self.reader_schema_file and self.format != "avro":
            msg = f"topic {self.name!r}: reader_schema_file is for format avro"
            raise ValueError(msg)
        if self.framing == "soe" and not (self.format == "avro" and self.schema_files):
            msg = f"topic {self.name!r}: framing soe is for format avro and needs schema_files"
            raise ValueError(msg)
        return self


class KafkaConfig(Frozen):
    """The broker and what to read from it."""

    bootstrap_servers: str
    topics: tuple[TopicConfig, ...] = Field(min_length=1)
    registry: RegistryConfig | None = None
    """The Schema Registry, for framing confluent."""

    starting_offsets: Literal["earliest", "latest"] = "earliest"
    """Where a stream without a checkpoint begins."""

    max_offsets_per_trigger: int | None = Field(default=50_000, ge=1)
    min_partitions: int | None = Field(default=None, ge=1)
    """Tasks that read a batch, at least: for topics with fewer partitions than cores; none: one for each partition."""

    options: Options = Field(default_factory=dict)
    """Consumer options passed through, e.g. security.protocol: SASL_SSL; never a secret."""

    options_from_env: Options = Field(default_factory=dict)
    """Consumer options whose value is a secret: option name to the environment variable that holds it."""

    @field_validator("options")
    @classmethod
    def _no_secrets(cls, options: dict[str, str]) -> dict[str, str]:
        if found := secrets_in(options):
            msg = f"{', '.join(found)} would hold a secret in clear text; name its variable in options_from_env"
            raise ValueError(msg)
        return options

    @field_validator("options", "options_from_env")
    @classmethod
    def _not_sparks_own(cls, options: dict[str, str]) -> dict[str, str]:
        if found := [name for name in options if name.lower().removeprefix("kafka.") in _SPARKS_OWN]:
            msg = (
                f"{', '.join(found)} cannot be set: Spark does it itself, from kafka.bootstrap_servers, "
                "kafka.starting_offsets and the checkpoint"
            )
            raise ValueError(msg)
        return options

    @field_validator("options_from_env")
    @classmethod
    def _variables(cls, options: dict[str, str]) -> dict[str, str]:
        if wrong := [name for name, variable in options.items() if not re.fullmatch(r"[A-Za-z_]\w*", variable)]:
            msg = f"{', '.join(wrong)} must name an environment variable, not hold the value itself"
            raise ValueError(msg)
        return options

    @field_validator("bootstrap_servers")
    @classmethod
    def _no_credentials(cls, servers: str) -> str:
        if "@" in servers:
            msg = "an address would hold a secret in clear text, and Kafka takes none there; see options_from_env"
            raise ValueError(msg)
        return servers

    @field_validator("topics")
    @classmethod
    def _unique(cls, topics: tuple[TopicConfig, ...]) -> tuple[TopicConfig, ...]:
        names = [topic.name for topic in topics]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            msg = f"listed twice: {', '.join(twice)}"
            raise ValueError(msg)
        return topics

    @model_validator(mode="after")
    def _registry_given(self) -> KafkaConfig:
        for topic in self.topics:
            if topic.framing == "confluent" and self.registry is None:
                msg = f"topic {topic.name!r}: framing confluent needs kafka.registry"
                raise ValueError(msg)
            if topic.framing == "auto" and not self.framings(topic):
                msg = f"topic {topic.name!r}: framing auto needs kafka.registry or schema files to choose from"
                raise ValueError(msg)
        return self

    def framings(self, topic: TopicConfig) -> tuple[str, ...]:
        """Return the framings that a topic may have; more than one only for `auto`, the most telling header first."""
        if topic.framing != "auto":
            return (topic.framing,)
        possible = {
            "confluent": self.registry is not None,
            "soe": bool(topic.schema_files),
            "raw": topic.format in ("json", "mongo") or topic.schema_file is not None,
        }
        return tuple(name for name, there in possible.items() if there)

    def consumer_options(self) -> dict[str, str]:
        """Return all consumer options, secrets included. Never log the result.

        Raises:
            UsageError: an environment variable that `options_from_env` names is not set.
        """
        missing = [name for name in self.options_from_env.values() if name not in os.environ]
        if missing:
            msg = f"kafka.options_from_env: {', '.join(missing)} not set in the environment"
            raise UsageError(msg, "export it before the start")
        return {**self.options, **{option: os.environ[name] for option, name in self.options_from_env.items()}}
