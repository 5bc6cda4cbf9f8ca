"""Where records stood in Kafka, and what became of them: offset ranges, ledger entries, bad records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, model_validator

from kbit_spark.schemas.base import Frozen


class OffsetRange(Frozen):
    """Offsets `start` (inclusive) to `end` (exclusive) of one topic partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def span(self) -> int:
        """Number of offsets, whether or not a record stands at each of them."""
        return self.end - self.start


def merge_ranges(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return the same offsets as the fewest ranges, ordered by topic, partition and offset."""
    merged: list[OffsetRange] = []
    for found in sorted(ranges, key=lambda r: (r.topic, r.partition, r.start)):
        last = merged[-1] if merged else None
        if last is None or (last.topic, last.partition) != (found.topic, found.partition) or last.end < found.start:
            merged.append(found)
        elif found.end > last.end:
            merged[-1] = last.model_copy(update={"end": found.end})
    return tuple(r for r in merged if r.span)


class Rejection(Frozen):
    """One bad record, or the first of `count` records of a topic with the same code and reason."""

    topic: str
    partition: int
    offset: int
    code: str
    """The class of fault, e.g. ``truncated``."""

    reason: str
    """The fault in words."""

    position: int | None = None
    """Byte in the payload, None where unknown."""

    count: int = 1


class Loss(Frozen):
    """Records of one partition that nobody can read any more: the stream went on at `end` instead of `start`."""

    topic: str
    partition: int
    start: int
    """The offset that the stream had reached."""

    end: int
    """The offset where it went on; below `start` where the topic began anew."""

    reason: Literal["retention", "recreated", "truncated"]

    @property
    def offsets(self) -> int | None:
        """Number of offsets that were lost; None where the topic began anew, so that nobody knows."""
        return self.end - self.start if self.reason == "retention" else None


class LedgerEntry(Frozen):
    """What one batch read and where each of its records went; stored in the commit's userMetadata.

    Invariant: ``sum(range.span) == good + bad + tombstones + gaps``. Gaps are offsets without a record (transaction
    markers, compaction); tombstones are records with a null value.
    """

    stream_id: str
    epoch: str
    batch_id: int
    ranges: tuple[OffsetRange, ...]
    good: int
    bad: int
    tombstones: int
    gaps: int
    topic_ids: dict[str, str] = Field(default_factory=dict)
    """Kafka's own ids of the topics, which change when a topic is made anew; empty where Kafka was not asked."""

    lost: tuple[Loss, ...] = ()
    """What was given up before this batch, the first of its epoch."""

    @model_validator(mode="after")
    def _balanced(self) -> LedgerEntry:
        span = sum(r.span for r in self.ranges)
        told = self.good + self.bad + self.tombstones + self.gaps
        if span != told or min(self.good, self.bad, self.tombstones, self.gaps) < 0:
            msg = (
                f"batch {self.batch_id}: {span} offsets, but good={self.good} bad={self.bad} "
                f"tombstones={self.tombstones} gaps={self.gaps}"
            )
            raise ValueError(msg)
        return self

    def to_metadata(self) -> str:
        """Return the entry as the text that a commit's userMetadata holds."""
        return json.dumps({"kbit": self.model_dump(mode="json", exclude_defaults=True)}, separators=(",", ":"))

    @classmethod
    def from_metadata(cls, text: str | None) -> LedgerEntry | None:
        """Read `to_metadata` back; None for a commit that holds no ledger entry."""
        entry = _under("kbit", text)
        return cls.model_validate(entry) if isinstance(entry, dict) and "batch_id" in entry else None


class ReplayEntry(Frozen):
    """What one replay of dead letters brought into the table; stored in the commit's userMetadata."""

    stream_id: str
    number: int
    """Counts the replays of the stream from 0; the version of their Delta transaction."""

    where: str
    """Which letters were asked for, in SQL."""

    rejected_version: int
    """The version of the rejected table that they were read from."""

    good: int
    bad: int
    """Letters that are still bad."""

    def to_metadata(self) -> str:
        """Return the entry as the text that a commit's userMetadata holds."""
        return json.dumps({"kbit_replay": self.model_dump(mode="json")}, separators=(",", ":"))

    @classmethod
    def from_metadata(cls, text: str | None) -> ReplayEntry | None:
        """Read `to_metadata` back; None for a commit that is no replay."""
        entry = _under("kbit_replay", text)
        return None if entry is None else cls.model_validate(entry)


def _under(key: str, text: str | None) -> Any:
    """Return what a commit's userMetadata holds under a key; None where it is not ours."""
    try:
        document = json.loads(text or "null")
    except ValueError:
        return None
    return document.get(key) if isinstance(document, dict) else None


Places = dict[tuple[str, int], int]
"""(topic, partition) to an offset."""


@dataclass(frozen=True)
class LedgerState:
    """How far a stream has come, by the commits of its table."""

    last: LedgerEntry | None
    """The newest entry; None where there is none."""

    reached: Places
    """The next offset of each partition."""

    topic_ids: dict[str, str]
    """The newest id of each topic that is known."""

    complete: bool = True
    """Whether the table's log holds all its commits, so that a missing entry means that there never was one."""

    taken: Mapping[str, str] = field(default_factory=dict)
    """Topics that the stream has not read, but another one has into the same table: topic to stream id."""
