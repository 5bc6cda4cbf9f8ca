"""What an experiment leaves behind for people: a table on the terminal, JSON, CSV, one HTML report."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import yaml
from rich.console import Console
from rich.table import Table

from kbit_spark.experiments.findings import Findings, notes, verdict
from kbit_spark.experiments.metrics import CURVES, METRICS, Metric
from kbit_spark.experiments.plan import write_atomically
from kbit_spark.telemetry import charts
from kbit_spark.telemetry.pages import render_page

WIDTH = 200
"""More than the tables need: on a narrower terminal their lines go on below, but nothing is cut off."""
SUMMARY_HEAD = ("metric", "configuration", "n", "mean", "std", "95 % interval", "min", "q1", "median", "q3", "max")
COMPARISON_HEAD = ("metric", "pairs", "difference", "95 % interval", "relative", "p", "p corrected", "verdict")


def publish(root: Path, findings: Findings) -> None:
    """Write experiment.json, iterations.csv and report.html into `root`.

    Raises:
        RunError: a file cannot be written.
    """
    write_atomically(root / "experiment.json", json.dumps(findings.document(), indent=2, allow_nan=False) + "\n")
    write_atomically(root / "iterations.csv", iterations(findings).to_csv(index=False))
    write_atomically(root / "report.html", report(findings))


def show(findings: Findings) -> None:
    """Print the statistics."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.width = WIDTH
    console.print(_table(SUMMARY_HEAD, summary_rows(findings)))
    if findings.changes:
        for key, (before, after) in findings.changes.items():
            console.print(f"variant: {key}={after} (baseline {before})")
        console.print(_table(COMPARISON_HEAD, comparison_rows(findings)))
    for note in notes(findings):
        console.print(f"note: {note}")


def iterations(findings: Findings) -> pd.DataFrame:
    """Return one row a run: what it is and what it came to, in the order of the runs."""
    names = [metric.name for metric in METRICS]
    rows = [
        {
            **result.model_dump(
                include={"configuration", "iteration", "seed", "version", "split", "resumed", "stopped_early"}
            ),
            **{name: result.metrics.get(name) for name in names},
            "epochs": len(result.epochs),
            "finished_at": result.finished_at.isoformat(),
            "checkpoint": result.checkpoint,
        }
        for result in findings.results
    ]
    return pd.DataFrame(rows)


def summary_rows(findings: Findings) -> list[list[str]]:
    """Return the summaries as text, the configurations of a metric below each other."""
    rows = []
    for metric in METRICS:
        for name, summaries in findings.summaries.items():
            if (summary := summaries.get(metric.name)) is None:
                continue
            spread = (summary.minimum, summary.q1, summary.median, summary.q3, summary.maximum)
            middle = [metric.text(summary.mean), metric.text(summary.std), metric.interval(summary.low, summary.high)]
            rows.append([findings.label(metric), name, str(summary.n), *middle, *map(metric.text, spread)])
    return rows


def comparison_rows(findings: Findings) -> list[list[str]]:
    """Return the comparisons as text."""
    rows = []
    for metric in METRICS:
        if (found := findings.comparisons.get(metric.name)) is None:
            continue
        relative = "-" if found.relative is None else f"{100 * found.relative:+.1f} %"
        difference = metric.text(found.difference, signed=True)
        interval = metric.interval(found.low, found.high, signed=True)
        p_values = [f"{found.p_value:.3g}", f"{found.adjusted_p_value:.3g}"]
        rows.append(
            [
                findings.label(metric),
                str(found.pairs),
                difference,
                interval,
                relative,
                *p_values,
                verdict(metric, found),
            ]
        )
    return rows


def report(findings: Findings) -> str:
    """Return the report as HTML that refers to nothing outside."""
    boxes = [(findings.label(metric), _boxes(findings, metric)) for metric in METRICS]
    curves = [(f"{label[0].upper()}{label[1:]} by epoch", _curves(findings, key)) for key, label in CURVES.items()]
    configurations = {r.configuration: yaml.safe_dump(r.config, sort_keys=False) for r in findings.results[::-1]}
    frame = iterations(findings)
    times = [result.finished_at for result in findings.results]
    return render_page(
        "experiment.html.j2",
        title="Experiment",
        plan=findings.plan,
        ended=max(times, default=None),
        tiles=_tiles(findings),
        changes=findings.changes,
        notes=notes(findings),
        summary=(SUMMARY_HEAD, summary_rows(findings)),
        comparison=(COMPARISON_HEAD, comparison_rows(findings)),
        boxes=[(f"{label[0].upper()}{label[1:]}", svg) for label, svg in boxes if svg],
        curves=[(label, svg) for label, svg in curves if svg],
        iterations=(list(frame.columns), frame.astype(object).where(frame.notna(), "").values.tolist()),
        configurations=configurations,
    )


def _tiles(findings: Findings) -> list[tuple[str, str]]:
    tiles = [("iterations", str(len({result.seed for result in findings.results})))]
    for metric in (METRICS[0], METRICS[3]):
        for name, summaries in findings.summaries.items():
            if summary := summaries.get(metric.name):
                prefix = f"{name}, " if findings.changes else ""
                tiles.append((f"{prefix}mean {findings.label(metric)}", metric.text(summary.mean)))
    return tiles


def _boxes(findings: Findings, metric: Metric) -> str:
    values = {name: findings.values(name, metric.name) for name in findings.summaries}
    return charts.boxes(values, percent=metric.unit == "share")


def _curves(findings: Findings, key: str) -> str:
    groups: dict[str, list[tuple[list[float], list[float]]]] = {name: [] for name in findings.summaries}
    for result in findings.results:
        points = [(epoch["epoch"], epoch[key]) for epoch in result.epochs if key in epoch]
        groups[result.configuration].append(([x for x, _ in points], [y for _, y in points]))
    return charts.curves(groups, "epoch", percent=key.endswith("accuracy"))


def _table(head: tuple[str, ...], rows: list[list[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        text = name in ("metric", "configuration", "verdict")
        table.add_column(name, justify="left" if text else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
