"""The command `kbit`: a broker and data for a laptop, samples of configurations, reports, the demo, the benches."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from kbit_spark.cli.decode.command import decode
from kbit_spark.cli.ledger import ledger_app
from kbit_spark.cli.rejected import rejected_app
from kbit_spark.entry import exit_with
from kbit_spark.errors import RunError, UsageError

SAMPLES = Path(__file__).parent / "samples"
ROOT = Path(__file__).parents[2]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Kafka to Delta to PyTorch DDP, on Spark.")
broker_app = typer.Typer(no_args_is_help=True, help="An embedded Kafka broker, for a laptop and the tests.")
config_app = typer.Typer(no_args_is_help=True, help="Configuration files.")
app.add_typer(broker_app, name="broker")
app.add_typer(config_app, name="config")
app.add_typer(ledger_app, name="ledger")
app.add_typer(rejected_app, name="rejected")
app.command()(decode)

Folder = Annotated[Path, typer.Option(help="Folder of the broker's data, log and state.")]


class Job(str, Enum):
    """A job that has a configuration."""

    ingest = "ingest"
    train = "train"
    experiment = "experiment"


class Dataset(str, Enum):
    """Where digits come from."""

    digits = "digits"
    idx = "idx"


class PayloadFormat(str, Enum):
    """How they are written."""

    json = "json"
    avro = "avro"
    mongo = "mongo"
    mongo_canonical = "mongo-canonical"


@broker_app.command("start")
def broker_start(
    folder: Folder = Path(".kbit/broker"),
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="Port of the listener; none: a free one.")] = None,
) -> None:
    """Start the broker, or say that it runs already."""
    from kbit_spark.local import broker

    before = broker.status(folder)
    running = broker.start(folder, port)
    typer.echo(f"broker {'runs already' if before else 'started'}: {running.bootstrap_servers} (pid {running.pid})")


@broker_app.command("stop")
def broker_stop(folder: Folder = Path(".kbit/broker")) -> None:
    """Stop the broker; its data stays."""
    from kbit_spark.local import broker

    typer.echo("broker stopped" if broker.stop(folder) else "no broker runs")


@broker_app.command("status")
def broker_status(folder: Folder = Path(".kbit/broker")) -> None:
    """Say where the broker listens; exit 1 where none runs."""
    from kbit_spark.local import broker

    running = broker.status(folder)
    if running is None:
        msg = f"no broker runs in {folder}"
        raise RunError(msg, "`kbit broker start` starts one")
    typer.echo(f"broker runs: {running.bootstrap_servers} (pid {running.pid})")


@app.command()
def produce(
    topic: Annotated[str, typer.Option(help="Topic; made if it is not there.")],
    dataset: Annotated[Dataset, typer.Option(help="scikit-learn's digits, or MNIST's own idx files.")] = Dataset.digits,
    payload: Annotated[PayloadFormat, typer.Option("--format", help="Payload format.")] = PayloadFormat.json,
    rows: Annotated[int, typer.Option(min=1, help="How many records.")] = 1_797,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Records per second; none: at full speed.")] = None,
    broken: Annotated[int, typer.Option(min=0, help="How many of them are broken on purpose.")] = 0,
    seed: Annotated[int, typer.Option(help="Of order, alterations and the places of broken ones.")] = 0,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of a new topic.")] = 2,
    folder: Annotated[Path, typer.Option(help="Folder of MNIST's files, for idx.")] = Path(),
    bootstrap_servers: Annotated[str | None, typer.Option(help="Broker; none: the embedded one.")] = None,
) -> None:
    """Write handwritten digits into a Kafka topic."""
    from kbit_spark.local import digits, produce

    if broken > rows:
        msg = f"--broken {broken} is more than --rows {rows}"
        raise UsageError(msg)
    servers = bootstrap_servers or _embedded()
    source = digits.digits(rows, seed) if dataset is Dataset.digits else digits.idx_digits(folder, rows, seed)
    produce.ensure_topic(servers, topic, partitions)
    messages = produce.records(source, payload.value, rows, broken, seed)
    count = produce.produce(servers, topic, messages, rate)
    typer.echo(f"{topic}: {count} records, {broken} of them broken")


@config_app.command("init")
def config_init(
    job: Job,
    output: Annotated[Path | None, typer.Option(help="File to write; none: to the terminal.")] = None,
) -> None:
    """Write a commented sample configuration."""
    sample = (SAMPLES / f"{job.value}.yaml").read_text(encoding="utf-8")
    if output is None:
        typer.echo(sample, nl=False)
    elif output.exists():
        msg = f"{output} is there already"
        raise UsageError(msg, "choose another name, or remove it")
    else:
        output.write_text(sample, encoding="utf-8")
        typer.echo(f"wrote {output}")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or a folder of run folders.")],
    output: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
) -> None:
    """Make one self-contained report of some runs: curves, stages, where the bad records are and why."""
    from kbit_spark.cli.report import make_report

    made = make_report(output, runs)
    for reason in made.unread:
        typer.echo(f"without some bad records: {reason}", err=True)
    typer.echo(f"wrote {made.path}")


@app.command()
def lineage(
    path: Annotated[Path, typer.Argument(help="A checkpoint, or a folder of checkpoints.")],
    offset: Annotated[str | None, typer.Option(help="Find who has seen the record topic:partition:offset.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print where weights come from; with --offset, name every checkpoint under PATH that has seen a record.

    With --offset the exit code is 0 if some checkpoint has seen the record or may have, 1 if none has.
    """
    from kbit_spark.cli import lineage as found

    if offset is None:
        folder, manifest = found.find(path)
        typer.echo(json.dumps(found.document(folder, manifest)) if as_json else found.describe(folder, manifest))
        return
    findings = found.seen_by(found.Coordinates.parse(offset), path)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        lines = [f"{f.checkpoint}  {'' if f.seen == 'yes' else 'unknown: '}{f.reason}" for f in findings]
        typer.echo("\n".join(lines) or f"no checkpoint under {path} has seen {offset}")
    if not findings:
        raise typer.Exit(1)


@app.command()
def doctor(
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value, as for the ingest job.")] = None,
    config: Annotated[Path | None, typer.Option(help="The ingest job's configuration; none: the machine only.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Check the machine and, with --config, all that the stream needs: one line each, with the way out.

    Exit code 0: nothing fails; 1: something does; 2: the configuration itself is wrong.
    """
    from kbit_spark.cli.doctor import machine, stream
    from kbit_spark.cli.doctor.findings import examine
    from kbit_spark.config.ingest import IngestConfig
    from kbit_spark.config.load import load
    from kbit_spark.config.secrets import masked_argument

    if overrides and config is None:
        msg = f"{masked_argument(overrides[0])} overrides nothing"
        raise UsageError(msg, "name the configuration with --config")
    loaded = load(IngestConfig, config, overrides or ()) if config is not None else None
    findings = examine([*machine.checks(), *(stream.checks(loaded) if loaded else [("disk", machine.disk_here)])])
    lines = [json.dumps([asdict(f) for f in findings])] if as_json else [f.line() for f in findings]
    typer.echo("\n".join(lines))
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(1)


@app.command()
def demo(
    rows: Annotated[int, typer.Option(min=2_000, help="Records, half JSON and half Avro.")] = 20_000,
    folder: Annotated[Path, typer.Option(help="Everything of the demo; wiped at its start.")] = Path(".kbit/demo"),
) -> None:
    """Run the whole chain on this machine: broker, records, ingest, training on two ranks, report."""
    from kbit_spark.cli.demo import run_demo

    run_demo(folder, rows)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(context: typer.Context, name: Annotated[str, typer.Argument(help="ingest, train, decode or loader")]) -> None:
    """Measure against peers, side by side: prints a markdown table and keeps it under bench/results/."""
    script = ROOT / "bench" / f"{name}.py"
    known = sorted(file.stem for file in (ROOT / "bench").glob("*.py") if "def main(" in file.read_text())
    if name not in known:
        msg = f"no bench {name!r}"
        raise UsageError(msg, f"known: {', '.join(known) or 'none; benches are part of a checkout'}")
    sys.argv = [str(script), *context.args]
    sys.path.insert(0, str(ROOT))
    runpy.run_path(str(script), run_name="__main__")


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    typer.echo(installed("kbit-spark"))


def main() -> None:
    """Run `kbit`; see `entry.exit_with` for exit codes."""
    exit_with(app)


def _embedded() -> str:
    from kbit_spark.local import broker

    running = broker.status()
    if running is None:
        msg = "no embedded broker runs"
        raise UsageError(msg, "`kbit broker start`, or name one with --bootstrap-servers")
    return running.bootstrap_servers


if __name__ == "__main__":
    main()
