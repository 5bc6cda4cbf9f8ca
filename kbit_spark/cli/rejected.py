"""`kbit rejected`: dead letters, by what is wrong with them, and their way back into the table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

rejected_app = typer.Typer(no_args_is_help=True, help="Dead letters: look at them, decode them again.")


@rejected_app.command("show")
def show(
    rejected: Annotated[str, typer.Option(help="The rejected table.")],
    samples: Annotated[int, typer.Option(min=0, help="Letters to show of each group.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Group the dead letters by code, format and schema id, the most frequent first, with samples."""
    from kbit_spark.tables.rejections import group_letters

    groups = group_letters(rejected, samples)
    if as_json:
        typer.echo(json.dumps([asdict(group) for group in groups]))
        return
    for group in groups:
        schema = "" if group.schema_id is None else f" schema {group.schema_id}"
        typer.echo(f"{group.count:>9,}  {group.code}  {group.format}{schema}")
        for letter in group.samples:
            place = f"{letter['topic']}:{letter['partition']}:{letter['offset']}"
            byte = "" if letter["position"] is None else f" at byte {letter['position']}"
            typer.echo(
                f"           {place}: {letter['reason']}{byte}; {letter['payload_bytes']} bytes {letter['payload']}"
            )
    typer.echo(f"rejected: letters={sum(group.count for group in groups)} groups={len(groups)}")


@rejected_app.command("replay")
def replay(
    config: Annotated[Path, typer.Option(help="The stream's configuration, put right.")],
    where: Annotated[str, typer.Option(help="SQL over the columns of the rejected table.")] = "true",
    overrides: Annotated[list[str] | None, typer.Argument(metavar="section.key=value")] = None,
) -> None:
    """Decode dead letters again with today's schemas into the samples table, exactly once."""
    from kbit_spark.config.ingest import IngestConfig
    from kbit_spark.config.load import load
    from kbit_spark.replay import replay as decode_again

    done = decode_again(load(IngestConfig, config, overrides or []), where)
    for why, count in done.left_out.items():
        typer.echo(f"left out: {count} {why}")
    typer.echo(f"replay: good={done.good} still_bad={done.bad} replayed_before={done.before}")
