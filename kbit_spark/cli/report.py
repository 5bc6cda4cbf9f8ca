"""Reports of runs: their events, and the bad records that the rejected tables of their configurations hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kbit_spark.errors import RunError, UsageError
from kbit_spark.events import Event
from kbit_spark.schemas.ledger import Rejection
from kbit_spark.tables.rejections import read_rejections
from kbit_spark.telemetry.report import MAX_BAD, read_events, write_report


@dataclass(frozen=True)
class Report:
    """What a report was made of; `unread` tells of the tables that could not be read."""

    path: Path
    bad: tuple[Rejection, ...]
    unread: tuple[str, ...]


def make_report(path: Path, runs: Sequence[Path], title: str = "Run report") -> Report:
    """Write one report of some runs; a rejected table that cannot be read is left out.

    Args:
        path: the HTML file.
        runs: their folders, each with its events.jsonl, or folders of such folders.
        title: the headline.

    Raises:
        UsageError: a folder is no run's and holds none.
    """
    found = {run: _event_files(run) for run in runs}
    if missing := [str(run) for run, inside in found.items() if not inside]:
        msg = f"no events in {', '.join(missing)}"
        raise UsageError(msg, "run folders lie under telemetry.run_dir, .kbit/runs by default")
    files = list(dict.fromkeys(file for inside in found.values() for file in inside))
    bad: dict[tuple[str, int, int], Rejection] = {}  # runs of one stream share a table
    unread = []
    for file in files:
        try:
            records = bad_records(read_events([file]))
        except RunError as error:
            unread.append(error.message)
            continue
        bad |= {(record.topic, record.partition, record.offset): record for record in records}
    return Report(write_report(path, files, list(bad.values()), title), tuple(bad.values()), tuple(unread))


def _event_files(folder: Path) -> list[Path]:
    """Return the events of a run's folder, or of all run folders in a folder."""
    own = folder / "events.jsonl"
    return [own] if own.is_file() else sorted(folder.glob("*/events.jsonl"))


def bad_records(events: Sequence[Event]) -> list[Rejection]:
    """Return the bad records of the batches that one run wrote, from the table that its configuration names.

    Raises:
        RunError: the table cannot be read.
    """
    found = [e for e in events if e.kind == "ingest_batch" and e.numbers.get("bad")]
    batches = [(e.labels.get("epoch"), int(e.numbers["batch_id"])) for e in found]
    config = _config(events)
    if not batches or not isinstance(config.get("tables"), dict):
        return []
    topics = [topic["name"] for topic in config["kafka"]["topics"]]
    return read_rejections(config["tables"]["rejected"], config["stream_id"], topics, batches, MAX_BAD)


def _config(events: Sequence[Event]) -> dict[str, Any]:
    texts = [e.labels.get("config") for e in events if e.kind == "run" and e.labels.get("phase") == "start"]
    config = yaml.safe_load(texts[0] or "") if texts else None
    return config if isinstance(config, dict) else {}
