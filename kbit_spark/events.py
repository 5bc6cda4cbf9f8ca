"""Events: what happened, as one flat record that every sink (console, JSON lines, CSV, Delta) writes alike.

A stage makes events and hands them up; only roots know the telemetry that stores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal

Kind = Literal[
    "run",  # one per run: start (config) and end (outcome)
    "ingest_batch",  # one per micro-batch
    "ingest_loss",  # records given up before a stream went on (--accept-loss)
    "decode_placement",  # once per decision which engine decodes batches of a size, with the reason
    "decode_fallback",  # one per batch that the GPU failed and the CPU decoded, with the reason
    "decode_difference",  # one per batch in which the shadow check found the engines to differ, with the coordinates
    "stream_progress",  # one per trigger, what foreachBatch cannot know: planning, offsets, write-ahead log
    "table_evolved",  # one per batch that brought new columns
    "table_care",  # one per compaction or vacuum of a table, also where it failed
    "spark_stage",  # one per completed stage, from the SparkListener
    "spark_task_failure",  # one per failed task, with the reason
    "train_window",  # one per rank and window of steps
    "train_profile",  # one per rank and epoch, the share of each phase in the time of its steps
    "train_epoch",  # one per epoch, reduced over ranks
    "train_test",  # the final test
    "train_resume",  # one per attempt that goes on from a checkpoint
    "train_restart",  # a lost attempt: which rank, at which step, why
    "follow_wait",  # nothing to train on yet
    "follow_window",  # one per window of follow mode, trained and decided on
    "experiment_iteration",  # one per finished iteration of an experiment
]


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    Args:
        kind: what kind of thing.
        scope: the batch or epoch that caused it, e.g. ``batch=12`` or ``epoch=3``; empty for the whole run.
        numbers: measurements, the unit in the name (``duration_s``, ``shuffle_read_bytes``, ``rows_per_s``).
        labels: text (``reason``, ``stage_name``).
        rank: the rank that it concerns, None for all.
        time: when, in UTC.
    """

    kind: Kind
    scope: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    time: datetime = field(default_factory=_now)

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON-ready data; the time in ISO 8601."""
        return {**asdict(self), "time": self.time.isoformat()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Event:
        """Read `to_dict` back."""
        return cls(**{**data, "time": datetime.fromisoformat(data["time"])})
