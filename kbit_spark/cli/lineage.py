"""Where weights come from, and which weights have seen a record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas.ledger import OffsetRange
from kbit_spark.training import checkpoint
from kbit_spark.training.checkpoint import MANIFEST
from kbit_spark.training.manifest import Manifest


@dataclass(frozen=True)
class Coordinates:
    """Where a record stands in Kafka."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Coordinates:
        """Read ``topic:partition:offset``.

        Raises:
            UsageError: it is something else.
        """
        topic, *numbers = text.rsplit(":", 2)
        if not topic or len(numbers) != 2 or not all(n.isascii() and n.isdigit() and int(n) < 1 << 63 for n in numbers):
            msg = f"{text!r} names no record"
            raise UsageError(msg, "write it as topic:partition:offset, e.g. digits-json:0:91")
        return cls(topic, int(numbers[0]), int(numbers[1]))

    def within(self, ranges: tuple[OffsetRange, ...]) -> bool:
        """Tell whether one of the ranges covers the record."""
        return any(
            (r.topic, r.partition) == (self.topic, self.partition) and r.start <= self.offset < r.end for r in ranges
        )


@dataclass(frozen=True)
class Finding:
    """A checkpoint that has seen a record, or of which nobody can tell, and why."""

    checkpoint: str
    seen: Literal["yes", "unknown"]
    reason: str


def find(path: Path) -> tuple[Path, Manifest]:
    """Return the checkpoint at `path`, or the newest one in a folder of checkpoints, with its manifest.

    Raises:
        RunError: there is none, or its manifest cannot be read.
    """
    if not path.is_dir():
        msg = f"{path} is a file, not a folder" if path.exists() else f"there is no {path}"
        raise RunError(msg, "name a checkpoint, or a folder that holds some, e.g. checkpoint.dir")
    if not (path / MANIFEST).exists() and (inside := sorted(path.glob("step-*"))):
        path = inside[-1]
    return path, checkpoint.read_manifest(path)


def describe(path: Path, manifest: Manifest) -> str:
    """Return a checkpoint's lineage as text for a person."""
    lineage, position = manifest.lineage, manifest.position
    ranges = [f"{r.topic}[{r.partition}] {r.start} to {r.end - 1}" for r in lineage.kafka] or ["none"]
    if not lineage.kafka_complete:
        ranges.append("and more: the table's log had lost its oldest commits")
    batch = manifest.identity.global_batch_size
    entries = {
        "checkpoint": path,
        "table": f"{lineage.table} (id {lineage.table_id})",
        "versions": ", ".join(map(str, lineage.versions)),
        "kafka offsets": ("\n" + " " * 15).join(ranges),
        **_window(manifest),
        "position": f"epoch {position.epoch}, {position.total_steps} batches of {batch} rows in all",
        "code": lineage.code,
    }
    lines = [f"{name:<15}{value}" for name, value in entries.items()]
    config = yaml.safe_dump(lineage.config, sort_keys=False)
    return "\n".join([*lines, "config", *(f"  {line}" for line in config.splitlines())])


def _window(manifest: Manifest) -> dict[str, str]:
    """Return what follow mode adds."""
    if (window := manifest.window) is None:
        return {}
    state = "learnt" if manifest.position.finished else "under way"
    rows = f"{window.new_rows:,} new rows, {window.replayed_rows:,} replayed, {window.rows_so_far:,} new ones so far"
    return {"window": f"{window.number}, {state}: versions {window.after + 1} to {window.last}, {rows}"}


def document(path: Path, manifest: Manifest) -> dict[str, Any]:
    """Return the same as JSON-ready data."""
    return {"checkpoint": str(path), **manifest.model_dump(mode="json")}


def seen_by(record: Coordinates, root: Path) -> list[Finding]:
    """Return the checkpoints anywhere under `root` that have seen a record, and those of which nobody can tell.

    A checkpoint has seen what had been read into its table version: of a record that was rejected, or that belongs to
    another split, it knows nothing or little, but a request for deletion must not overlook it.

    Raises:
        RunError: there is no checkpoint under `root`.
    """
    paths = sorted(path for path in [root, *root.rglob("step-*")] if path.name.startswith("step-") and path.is_dir())
    if not paths:
        msg = f"no checkpoints under {root}"
        raise RunError(msg, "name a folder that holds some, e.g. checkpoint.dir")
    return [finding for path in paths if (finding := _finding(record, path)) is not None]


def _finding(record: Coordinates, path: Path) -> Finding | None:
    try:
        manifest = checkpoint.read_manifest(path)
    except RunError as error:
        return Finding(str(path), "unknown", error.message)
    lineage = manifest.lineage
    versions = ("up to " if manifest.window is not None else "") + ", ".join(map(str, lineage.versions))
    if record.within(lineage.kafka):
        return Finding(str(path), "yes", f"in {lineage.table} version {versions}")
    if not lineage.kafka_complete:
        return Finding(str(path), "unknown", f"the log of {lineage.table} had lost its oldest commits")
    return None
