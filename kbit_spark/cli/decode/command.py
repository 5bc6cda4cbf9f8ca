"""The command `kbit decode`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbit_spark.errors import UsageError

if TYPE_CHECKING:
    from kbit_spark.cli.decode.payload import Target


class WireFormat(str, Enum):
    """How a payload is written."""

    json = "json"
    mongo = "mongo"
    avro = "avro"
    protobuf = "protobuf"


class Framing(str, Enum):
    """The header in front of it."""

    raw = "raw"
    confluent = "confluent"
    soe = "soe"
    auto = "auto"


def decode(
    files: Annotated[list[Path] | None, typer.Argument(help="Vector files, behind --vectors.")] = None,
    kind: Annotated[WireFormat | None, typer.Option("--format", help="Format of the payload.")] = None,
    schema: Annotated[list[Path] | None, typer.Option(help="Schema file; framing soe: one for each writer.")] = None,
    fields: Annotated[str | None, typer.Option(help="Columns in Spark's DDL; none: all that the schema has.")] = None,
    framing: Annotated[Framing | None, typer.Option(help="Header of the payload; none: raw.")] = None,
    message: Annotated[str | None, typer.Option(help="Protobuf: full name of the message.")] = None,
    registry: Annotated[str | None, typer.Option(help="URL of the Schema Registry, for framing confluent.")] = None,
    config: Annotated[Path | None, typer.Option(help="An ingest configuration, instead of all these.")] = None,
    topic: Annotated[str | None, typer.Option(help="With --config: the topic that the payload is from.")] = None,
    hex_text: Annotated[str | None, typer.Option("--hex", help="The payload in hex.")] = None,
    base64_text: Annotated[str | None, typer.Option("--base64", help="The payload in base64.")] = None,
    file: Annotated[Path | None, typer.Option(help="File that holds the payload.")] = None,
    letter: Annotated[str | None, typer.Option(help="topic:partition:offset of a dead letter, with --config.")] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="Run vector files instead.")] = False,
) -> None:
    """Decode a payload as the stream would, and say what is wrong with it; or run vector files.

    Exit code 0: the payload is a row, all vectors agree; 1: it is bad, a vector does not; 2: bad usage or schema.
    """
    from kbit_spark.cli.decode.payload import of_config, of_options, read_letter, read_payload
    from kbit_spark.cli.lineage import Coordinates
    from kbit_spark.config.ingest import IngestConfig
    from kbit_spark.config.load import load

    if vectors or files:
        _run_vectors(files or (), vectors)
        return
    if letter is not None:
        if config is None or topic or hex_text or base64_text or file:
            msg = (
                f"--letter {letter} is read from the rejected table of a configuration, and is all that --config needs"
            )
            raise UsageError(msg, "write --config FILE --letter topic:partition:offset")
        loaded = load(IngestConfig, config)
        place = Coordinates.parse(letter)
        _decode_one(of_config(loaded, place.topic), read_letter(loaded.tables.rejected, place))
        return
    payload = read_payload(hex_text, base64_text, file)
    if topic is not None and config is None:
        msg = f"--topic {topic} is of no configuration"
        raise UsageError(msg, "name it with --config")
    if config is not None:
        if kind or schema or fields or framing or message or registry:
            msg = "--config says how payloads are written"
            raise UsageError(msg, "leave --format, --schema, --fields, --framing, --message and --registry out")
        _decode_one(of_config(load(IngestConfig, config), topic), payload)
    elif kind is not None:
        header = (framing or Framing.raw).value
        _decode_one(of_options(kind.value, header, schema or (), message, registry, fields), payload)
    else:
        msg = "nothing says how the payload is written"
        raise UsageError(msg, "give --format and --schema, or a stream's configuration with --config")


def _decode_one(target: Target, payload: bytes) -> None:
    from kbit_spark.cli.decode.jvm import decoders
    from kbit_spark.cli.decode.payload import decode_payload, describe

    with decoders() as run:
        framing, found = decode_payload(target, payload, run)
    if target.topic.framing == "auto":
        typer.echo(f"framing: {framing}", err=True)
    typer.echo(describe(found, payload))
    if "value" not in found:
        raise typer.Exit(1)


def _run_vectors(files: Sequence[Path], asked: bool) -> None:
    from kbit_spark.cli.decode import vectors
    from kbit_spark.cli.decode.jvm import decoders

    if not (files and asked):
        msg = "vector files stand behind --vectors" if asked else f"{files[0]} is no option"
        raise UsageError(msg, "write --vectors FILE..., or --file FILE for one payload")
    cases = [case for file in files for case in vectors.read(file)]
    with decoders() as run:
        outcome = vectors.run(cases, run)
    typer.echo("\n".join([*outcome.mismatches, outcome.summary()]))
    if outcome.mismatches:
        raise typer.Exit(1)
