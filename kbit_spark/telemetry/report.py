"""The report of one or more runs: one HTML file without external references."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kbit_spark.events import Event
from kbit_spark.schemas.ledger import Rejection
from kbit_spark.telemetry import charts
from kbit_spark.telemetry.pages import render_page

MAX_BAD = 200
MAX_STAGES = 15


def read_events(paths: Iterable[Path]) -> list[Event]:
    """Read events.jsonl files, ordered by time; a half-written last line (a killed run) is left out."""
    events = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                events.append(Event.from_dict(json.loads(line)))
            except (ValueError, KeyError, TypeError):
                continue
    return sorted(events, key=lambda event: event.time)


def write_report(
    path: Path, events_files: Sequence[Path], bad: Sequence[Rejection] = (), title: str = "Run report"
) -> Path:
    """Write the report of the runs whose events.jsonl are given and return `path`."""
    path.write_text(render(read_events(events_files), bad, title), encoding="utf-8")
    return path


def render(events: Sequence[Event], bad: Sequence[Rejection] = (), title: str = "Run report") -> str:
    """Return the report as HTML."""
    kinds: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        kinds[event.kind].append(event)
    stages = _stages(kinds["spark_stage"])
    return render_page(
        "report.html.j2",
        title=title,
        span=(events[0].time, events[-1].time) if events else None,
        tiles=_tiles(kinds),
        charts=[(name, svg) for name, svg in _charts(kinds, stages) if svg],
        epochs=[e.numbers for e in kinds["train_epoch"]],
        stages=stages[:MAX_STAGES],
        hidden_stages=max(0, len(stages) - MAX_STAGES),
        failures=[*kinds["spark_task_failure"], *kinds["train_restart"]][:50],
        bad=sorted(bad, key=lambda b: -b.count)[:MAX_BAD],
        bad_total=sum(b.count for b in bad),
        runs=[e.labels for e in kinds["run"] if e.labels.get("phase") == "start"],
    )


def _tiles(kinds: dict[str, list[Event]]) -> list[tuple[str, str]]:
    tiles: list[tuple[str, str]] = []
    batches = kinds["ingest_batch"]
    if batches:
        good, bad, seconds = (sum(e.numbers.get(k, 0) for e in batches) for k in ("good", "bad", "duration_s"))
        rows = sum(e.numbers.get("rows", 0) for e in batches)
        rate = f"{rows / seconds:,.0f}" if seconds else "-"
        tiles += [("good records", f"{good:,.0f}"), ("bad records", f"{bad:,.0f}"), ("ingested rows/s", rate)]
    if kinds["train_epoch"]:
        last = kinds["train_epoch"][-1].numbers
        if "validation_accuracy" in last:
            tiles.append(("validation accuracy", f"{last['validation_accuracy']:.2%}"))
        tiles.append(("samples/s", f"{last.get('samples_per_s', 0):,.0f}"))
        tiles.append(("data wait", f"{last.get('data_wait_share', 0):.1%}"))
    if kinds["train_test"]:
        tiles.append(("test accuracy", f"{kinds['train_test'][-1].numbers.get('accuracy', 0):.2%}"))
    if kinds["train_restart"]:
        tiles.append(("restarts", str(len(kinds["train_restart"]))))
    return tiles


def _charts(kinds: dict[str, list[Event]], stages: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    epochs, batches, windows = kinds["train_epoch"], kinds["ingest_batch"], kinds["train_window"]
    loss = {"train": _xy(epochs, "epoch", "train_loss"), "validation": _xy(epochs, "epoch", "validation_loss")}
    accuracy = {
        "train": _xy(epochs, "epoch", "train_accuracy"),
        "validation": _xy(epochs, "epoch", "validation_accuracy"),
    }
    ranks = sorted({e.rank or 0 for e in windows})
    wait = {f"rank {r}": _xy([e for e in windows if (e.rank or 0) == r], "step", "data_wait_share") for r in ranks[:5]}
    rate = {"rows/s": _xy(batches, "batch_id", "rows_per_s")}
    follow = kinds["follow_window"]
    learnt = {
        "new model": _xy(follow, "rows_so_far", "accuracy"),
        "in use before": _xy(follow[1:], "rows_so_far", "champion_accuracy"),
    }
    fresh = {
        "newest row": _xy(follow, "window", "freshness_s"),
        "oldest row": _xy(follow, "window", "oldest_freshness_s"),
    }
    return [
        ("Loss", charts.lines(loss, "epoch", integers=True)),
        ("Accuracy", charts.lines(accuracy, "epoch", percent=True, integers=True)),
        ("Accuracy on the hold-out by rows learnt", charts.lines(learnt, "rows learnt", percent=True, integers=True)),
        ("From event to model, seconds", charts.lines(fresh, "window", integers=True, zero=True)),
        ("Ingest rate, rows/s", charts.lines(rate, "batch", integers=True, zero=True)),
        ("Share of time waiting for data", charts.lines(wait, "step", percent=True, zero=True)),
        ("Where the time of a step goes, last epoch", charts.stacked(_profiles(kinds["train_profile"]))),
        ("Spark stages by time", charts.bars([(s["name"], s["duration_s"]) for s in stages[:10]], "seconds")),
    ]


def _profiles(events: Sequence[Event]) -> dict[str, dict[str, float]]:
    """Return the shares of the phases by rank, of each rank's last epoch."""
    last = {event.rank or 0: event.numbers for event in events}
    suffix = "_share"
    return {
        f"rank {rank}": {
            name.removesuffix(suffix).replace("_", " "): n for name, n in last[rank].items() if suffix in name
        }
        for rank in sorted(last)[:16]
    }


def _xy(events: Sequence[Event], x: str, y: str) -> tuple[list[float], list[float]]:
    points = [(e.numbers[x], e.numbers[y]) for e in events if x in e.numbers and y in e.numbers]
    return [p[0] for p in points], [p[1] for p in points]


def _stages(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Sum the stages by name, the longest first."""
    sums: dict[str, dict[str, Any]] = {}
    for event in events:
        name = event.labels.get("stage_name", "")
        total = sums.setdefault(name, defaultdict(float, name=name))
        total["runs"] += 1
        for number, value in event.numbers.items():
            if number in ("task_max_s", "peak_memory_bytes"):
                total[number] = max(total[number], value)
            else:
                total[number] += value
    return sorted(sums.values(), key=lambda s: -s["duration_s"])
