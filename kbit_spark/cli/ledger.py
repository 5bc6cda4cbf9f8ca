"""`kbit ledger`: a table against its own history."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

ledger_app = typer.Typer(no_args_is_help=True, help="The offset ledger in a table's commits.")


@ledger_app.callback()
def _group() -> None:
    """Keep `verify` a command of its own, although it is the only one."""


@ledger_app.command("verify")
def verify(
    table: Annotated[str, typer.Argument(help="The samples table.")],
    rejected: Annotated[str | None, typer.Option(help="The rejected table; none: it is left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Check that nothing is missing and nothing is twice, by batch, offset and row; exit 1 with the places."""
    from kbit_spark.tables.verify import verify as check

    verdict = check(table, rejected)
    if as_json:
        typer.echo(json.dumps(asdict(verdict)))
    else:
        for fault in verdict.faults:
            typer.echo(f"fault: {fault}")
        if not verdict.complete:
            typer.echo("note: the log has lost its oldest commits; rows before them are not checked")
        letters = "not checked" if verdict.rejected is None else str(verdict.rejected)
        typer.echo(
            f"ledger: batches={verdict.batches} rows={verdict.rows} rejected={letters} replayed={verdict.replayed} "
            f"faults={len(verdict.faults)}"
        )
    if verdict.faults:
        raise typer.Exit(1)
