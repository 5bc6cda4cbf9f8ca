"""One payload, decoded as the stream would decode it."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from kbit_spark.cli.decode import avro_rows, hexdump
from kbit_spark.cli.decode.jvm import Decode
from kbit_spark.cli.decode.vectors import ddl_fields, through_registry
from kbit_spark.cli.lineage import Coordinates
from kbit_spark.codecs.descriptors import read_schema
from kbit_spark.codecs.framing import ConfluentSchemas, raw_plan, read_reader_schema, read_schemas, soe_plan
from kbit_spark.codecs.protobuf_fields import fields_of
from kbit_spark.codecs.registry import SchemaRegistry
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.kafka import KafkaConfig, TopicConfig
from kbit_spark.config.load import validate
from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas.fields import FieldSpec
from kbit_spark.tables.scan import scan

REGISTRY_WAIT_S = 5.0
"""A person waits: a registry that does not answer is not asked for as long as by a stream."""


@dataclass(frozen=True)
class Target:
    """What a payload is to become: how its topic is written, and the row."""

    kafka: KafkaConfig
    topic: TopicConfig
    fields: Sequence[FieldSpec]


def of_config(config: IngestConfig, topic: str | None) -> Target:
    """Return the target that a stream's configuration gives a topic; `topic` may be left out where there is one.

    Raises:
        UsageError: no such topic, or several to choose from.
    """
    known = {each.name: each for each in config.kafka.topics}
    if topic is None and len(known) == 1:
        topic = next(iter(known))
    if topic is None or topic not in known:
        msg = f"no topic {topic} in the configuration" if topic else "the configuration has several topics"
        raise UsageError(msg, f"choose with --topic: {', '.join(known)}")
    return Target(config.kafka, known[topic], config.fields)


def of_options(
    kind: str,
    framing: str,
    schemas: Sequence[Path],
    message: str | None,
    registry: str | None,
    ddl: str | None,
) -> Target:
    """Return the target that options of the command line give.

    Args:
        kind: the format.
        framing: the header.
        schemas: the schema file; for framing soe all of them.
        message: Protobuf: the message's full name.
        registry: URL of the Schema Registry.
        ddl: the columns; None takes all that the schema has.

    Raises:
        UsageError: an option is missing or wrong.
    """
    files = [str(file) for file in schemas]
    single = {"schema_file": files[0]} if files and framing != "soe" else {}
    listed = {"schema_files": files} if kind == "avro" and framing in ("soe", "auto") else {}
    topic = {"name": "payload", "format": kind, "framing": framing, "message": message, **single, **listed}
    data: dict[str, Any] = {"bootstrap_servers": "-", "topics": [topic]}
    if registry:
        data["registry"] = {"url": registry}
    kafka = validate(KafkaConfig, data, "the command line")
    return Target(kafka, kafka.topics[0], _columns(ddl) if ddl else _whole_row(kafka.topics[0], files))


def _columns(ddl: str) -> list[FieldSpec]:
    try:
        return ddl_fields(ddl)
    except ValueError as error:
        reason = " ".join(str(error).split())
        msg = f"--fields {ddl!r}: {reason}"
        raise UsageError(msg, "write it as in: label int not null, image array<int>") from error


def _whole_row(topic: TopicConfig, files: Sequence[str]) -> Sequence[FieldSpec]:
    if topic.format == "avro" and files:
        return avro_rows.avro_fields(_read_json(files[0]))
    if topic.format == "protobuf" and files and topic.message:
        return fields_of(read_schema(Path(files[0])).message(topic.message))
    msg = "nothing says what the row is"
    raise UsageError(msg, "give its columns with --fields, or a stream's configuration with --config")


def _read_json(file: str) -> dict[str, Any]:
    try:
        return dict(json.loads(Path(file).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        msg = f"cannot read the schema {file}: {error}"
        raise UsageError(msg) from error


def decode_payload(target: Target, payload: bytes, decode: Decode) -> tuple[str, dict[str, Any]]:
    """Return the framing that was taken, and ``{"value"}`` or ``{"error", "position", "reason"}``.

    Of several possible framings, that one counts under which the payload decodes, else the first with its header.

    Raises:
        UsageError: a schema that cannot be read, or can never give the fields.
        RunError: the registry does not answer.
    """
    try:
        tried = {framing: _under(framing, target, payload, decode) for framing in target.kafka.framings(target.topic)}
    except RecursionError as error:
        msg = "the schema nests too deeply to be read as a row"
        raise UsageError(msg, "name the columns that you want with --fields") from error
    rank = {framing: ("value" in found, found.get("error") != "bad_framing") for framing, found in tried.items()}
    best = max(rank, key=lambda framing: rank[framing])
    return best, tried[best]


def _under(framing: str, target: Target, payload: bytes, decode: Decode) -> dict[str, Any]:
    topic, fields = target.topic, target.fields
    if framing == "confluent":
        assert target.kafka.registry is not None
        registry = target.kafka.registry
        patience = min(registry.retry_for_s, REGISTRY_WAIT_S)
        client = SchemaRegistry(registry.model_copy(update={"retry_for_s": patience}))
        known = ConfluentSchemas(topic, fields, client)
        return through_registry(known, payload, decode)
    if framing == "soe":
        return decode(soe_plan(read_schemas(topic), fields, read_reader_schema(topic)), [payload])[0]
    return decode(raw_plan(topic, fields), [payload])[0]


def describe(found: dict[str, Any], payload: bytes) -> str:
    """Return a result as text: the value as JSON, or the error with the bytes around its place."""
    if "value" in found:
        return json.dumps(found["value"], indent=2, ensure_ascii=False)
    position = int(found["position"])
    head = f"{found['error']} at byte {position} of {len(payload)}: {found['reason']}"
    return f"{head}\n{hexdump.around(payload, position)}"


def read_letter(rejected: str, place: Coordinates) -> bytes:
    """Return the payload of a dead letter.

    Args:
        rejected: the rejected table.
        place: where the record stood in Kafka.

    Raises:
        RunError: the table cannot be read, or has no such letter.
    """
    names = ("topic", "partition", "offset")
    where = reduce(and_, (pc.field(name) == getattr(place, name) for name in names))
    for batch in scan(rejected, "rejected", [*names, "payload"], where):
        for payload in batch.column("payload").to_pylist():
            return payload or b""
    msg = f"{rejected} has no letter {place.topic}:{place.partition}:{place.offset}"
    raise RunError(msg, "`kbit rejected show` shows what it has")


def read_payload(hex_text: str | None, base64_text: str | None, file: Path | None) -> bytes:
    """Return the payload that exactly one of the options gives; hex may hold white space.

    Raises:
        UsageError: none or several are given, or the text is neither.
    """
    if sum(given is not None for given in (hex_text, base64_text, file)) != 1:
        msg = "give the payload with one of --hex, --base64, --file"
        raise UsageError(msg)
    try:
        if hex_text is not None:
            return bytes.fromhex(hex_text)
        if base64_text is not None:
            return base64.b64decode(base64_text, validate=True)
        assert file is not None
        return file.read_bytes()
    except OSError as error:
        msg = f"--file {file}: {error.strerror or error}"
        raise UsageError(msg, "name the file that holds the payload's bytes") from error
    except (ValueError, binascii.Error) as error:
        msg = f"{'--base64' if hex_text is None else '--hex'}: {error}"
        raise UsageError(msg) from error
