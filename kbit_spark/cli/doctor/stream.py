"""What a stream needs: its broker, topics, schemas and registry, its checkpoint and tables. No Spark session."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql.types import StructType

from kbit_spark.cli.doctor.findings import Check, Doubt
from kbit_spark.cli.doctor.machine import free_disk
from kbit_spark.codecs.decoder import value_type
from kbit_spark.codecs.framing import raw_plan, read_reader_schema, read_schemas, soe_plan
from kbit_spark.codecs.registry import SchemaRegistry
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.kafka import KafkaConfig, TopicConfig
from kbit_spark.config.registry import RegistryConfig
from kbit_spark.errors import RunError
from kbit_spark.schemas.fields import FieldSpec
from kbit_spark.schemas.ledger import LedgerEntry
from kbit_spark.sources.broker import check_topics
from kbit_spark.sources.options import java_only
from kbit_spark.storage import filesystem, is_uri
from kbit_spark.tables.dead_letters import REQUIRED
from kbit_spark.tables.delta import check_columns, lacking, with_columns
from kbit_spark.tables.samples import samples_schema

LEDGER_COMMITS = 200
"""Newest commits that are searched for a ledger entry."""

PROBE = ".kbit-doctor"
NO_SUCH_ID = 0
"""Registries number schemas from 1: the answer that there is no such schema proves that one answers."""


def checks(config: IngestConfig) -> Iterator[tuple[str, Check]]:
    """Yield the checks of a stream, from where records come in to where rows go."""
    yield "kafka", partial(topics, config.kafka)
    for topic in config.kafka.topics:
        yield f"schema {topic.name}", partial(schemas, config.kafka, topic, config.fields)
    if config.kafka.registry is not None:
        yield "registry", partial(registry, config.kafka.registry)
    yield "checkpoint", partial(checkpoint, config.checkpoint_dir)
    samples = samples_schema(value_type(config.fields))
    yield "table samples", partial(table, config.tables.samples, samples, config.stream_id, grows=config.tables.grows)
    yield "table rejected", partial(table, config.tables.rejected, REQUIRED, None)
    for place in dict.fromkeys((config.tables.samples, config.tables.rejected, config.checkpoint_dir)):
        if not is_uri(place):
            yield "disk", partial(free_disk, Path(place))


def topics(kafka: KafkaConfig) -> str:
    """Check that the broker answers and has every topic."""
    if java_only(kafka.consumer_options()):
        msg = f"{kafka.bootstrap_servers} was not asked: kafka.options hold credentials in Java's form"
        raise Doubt(msg, "only Spark's own client reads them: start the job with trigger.available_now=true")
    unjudged = check_topics(kafka)
    told = f"{kafka.bootstrap_servers} answers and has {', '.join(topic.name for topic in kafka.topics)}"
    if unjudged:
        msg = f"{told}, but only Spark's own client can judge {', '.join(unjudged)}"
        raise Doubt(msg, "start the job with trigger.available_now=true")
    return told


def schemas(kafka: KafkaConfig, topic: TopicConfig, fields: Sequence[FieldSpec]) -> str:
    """Check that the schemas in files can be read and give the fields."""
    framings = kafka.framings(topic)
    if "raw" in framings:
        raw_plan(topic, fields)
    if "soe" in framings:
        soe_plan(read_schemas(topic), fields, read_reader_schema(topic))
    if "confluent" in framings:
        read_reader_schema(topic)
    files = ", ".join(filter(None, (topic.schema_file, *topic.schema_files, topic.reader_schema_file)))
    from_where = files or ("the registry" if framings == ("confluent",) else "the fields themselves")
    return f"{topic.format}, framing {'/'.join(framings)}: {from_where}"


def registry(config: RegistryConfig) -> str:
    """Check that the registry answers, with these credentials and certificates; it is asked once."""
    SchemaRegistry(config.model_copy(update={"retry_for_s": 0.0})).schema(NO_SUCH_ID)
    return f"{config.url} answers"


def checkpoint(folder: str) -> str:
    """Check that the checkpoint can be read and written; one that is not there yet must be possible."""
    store, path = filesystem(folder)
    try:
        there = store.get_file_info(path).type
        if there is pafs.FileType.NotFound:
            return _possible(folder)
        if there is pafs.FileType.File:
            msg = f"the checkpoint {folder} is a file, not a folder"
            raise RunError(msg, "correct checkpoint_dir, or move the file away")
        _probe(store, f"{path.rstrip('/')}/{PROBE}")
        query = _query_id(store, f"{path.rstrip('/')}/metadata")
    except (OSError, ValueError, KeyError) as error:
        msg = f"cannot use the checkpoint {folder}: {' '.join(str(error).split())}"
        raise RunError(msg, "correct checkpoint_dir or its permissions, or restore it from a backup") from error
    return f"{folder} belongs to query {query}" if query else f"{folder} was never started"


def _possible(folder: str) -> str:
    if not is_uri(folder):
        parent = next(there for there in Path(folder).absolute().parents if there.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            msg = f"cannot make {folder}: {parent} is no folder that can be written"
            raise RunError(msg, "correct the path, or the permissions")
    return f"{folder} is not there yet; the first start makes it"


def _probe(store: pafs.FileSystem, path: str) -> None:
    with store.open_output_stream(path) as stream:
        stream.write(b"")
    store.delete_file(path)


def _query_id(store: pafs.FileSystem, path: str) -> str | None:
    if store.get_file_info(path).type is pafs.FileType.NotFound:
        return None
    with store.open_input_file(path) as stream:
        return str(json.loads(stream.read())["id"])


def table(path: str, wanted: StructType, stream_id: str | None, *, grows: bool = False) -> str:
    """Check that a table can take the stream's rows and, with `stream_id`, that this stream wrote it.

    Args:
        path: the table.
        wanted: the rows' columns.
        stream_id: the stream.
        grows: the stream may add columns that the table lacks.
    """
    try:
        if not DeltaTable.is_deltatable(path):
            return _empty(path)
        found = DeltaTable(path)
        there = StructType.fromJson(json.loads(found.schema().to_json()))
        further = lacking(wanted, there) if grows else []
        check_columns(path, wanted, with_columns(there, further))
        entries = map(LedgerEntry.from_metadata, (c.get("userMetadata") for c in found.history(LEDGER_COMMITS)))
    except (DeltaError, OSError, ValueError) as error:
        msg = f"cannot open the table {path}: {' '.join(str(error).split())}"
        raise RunError(msg, "choose a path that holds a Delta table of this stream, or nothing") from error
    newest = next(filter(None, entries), None)
    gains = f"; the next batch adds {', '.join(field.name for field in further)}" if further else ""
    told = f"{path} version {found.version()}{gains}"
    if stream_id is None or (newest is not None and newest.stream_id == stream_id):
        return told
    if newest is None:
        if not found.version():
            return f"{told}: no batch yet"
        msg = f"{told}: no ledger entry in its newest {LEDGER_COMMITS} commits"
        raise Doubt(msg, "make sure that it belongs to this stream")
    msg = f"{path} belongs to the stream {newest.stream_id}, not to {stream_id}"
    raise RunError(msg, "correct stream_id, or choose another table")


def _empty(path: str) -> str:
    """Return that the table will be made, unless something else lies there."""
    if not is_uri(path) and Path(path).exists() and (Path(path).is_file() or any(Path(path).iterdir())):
        msg = f"{path} is there, but is no Delta table"
        raise RunError(msg, "choose a path that holds a Delta table of this stream, or nothing")
    return _possible(path)
