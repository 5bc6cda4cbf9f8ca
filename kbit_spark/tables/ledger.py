"""How far a stream has come and which of its batches are whole, by the commits of its table."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kbit_spark.errors import RunError
from kbit_spark.schemas.ledger import LedgerEntry, LedgerState, OffsetRange, Places, merge_ranges
from kbit_spark.tables.append import batch_app_id
from kbit_spark.tables.log import Commit, commits, newest_first
from kbit_spark.tables.scan import open_table

BatchName = tuple[str, int]
"""A batch of a stream: its epoch, and its number there."""

_RETENTION = "delta.setTransactionRetentionDuration"


def read_ledger(table: str, stream_id: str, topics: Collection[str]) -> LedgerState:
    """Return how far a stream has come in some topics; the newest entry that names a topic decides.

    An entry names every partition of the topics that its query read, so the newest one is mostly all that is read.

    Raises:
        RunError: the table's log cannot be read.
    """
    last: LedgerEntry | None = None
    reached: Places = {}
    topic_ids: dict[str, str] = {}
    others: dict[str, str] = {}
    oldest, waiting = 0, set(topics)
    for commit in newest_first(table):
        oldest = commit.version
        entry = LedgerEntry.from_metadata(commit.user_metadata)
        if entry is None:
            continue
        if entry.stream_id != stream_id:
            others |= {r.topic: entry.stream_id for r in entry.ranges}
            continue
        last = last or entry
        named = waiting & {r.topic for r in entry.ranges}
        reached |= {(r.topic, r.partition): r.end for r in entry.ranges if r.topic in named}
        topic_ids |= {topic: entry.topic_ids[topic] for topic in named & entry.topic_ids.keys()}
        waiting -= named
        if not waiting:
            return LedgerState(last, reached, topic_ids)
    taken = {topic: others[topic] for topic in waiting & others.keys()}
    return LedgerState(last, reached, topic_ids, complete=oldest == 0, taken=taken)


def check_not_split(table: str, stream_id: str) -> None:
    """Make sure that the stream's newest batch begins where the one before it ends, or behind what was given up.

    A RESTORE between the writing of a batch and its commit leaves a hole in front of it, which no offset tells later.

    Raises:
        RunError: it begins later, or the table's log cannot be read.
    """
    found: list[tuple[int, LedgerEntry]] = []
    for commit in newest_first(table):
        entry = LedgerEntry.from_metadata(commit.user_metadata)
        if entry is not None and entry.stream_id == stream_id:
            found.append((commit.version, entry))
        if len(found) == 2:
            break
    else:
        return
    (version, newest), (_, before) = found
    reached = {(r.topic, r.partition): r.end for r in before.ranges}
    reached |= {(loss.topic, loss.partition): loss.end for loss in newest.lost}
    for r in newest.ranges:
        if (end := reached.get((r.topic, r.partition), r.start)) < r.start:
            msg = (
                f"batch {newest.batch_id} was written into {table} just after a RESTORE: {r.topic}[{r.partition}] from "
                f"offset {end} to {r.start - 1} is missing"
            )
            again = f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {version - 1}"
            raise RunError(msg, f"take the batch out too, by {again}; then start again: the guard tells how to go on")


def batch_ranges(table: str, stream_id: str) -> tuple[OffsetRange, ...]:
    """Return the offsets of all batches of a stream that the table still has, merged.

    Raises:
        RunError: the table's log cannot be read.
    """
    entries = (LedgerEntry.from_metadata(commit.user_metadata) for commit in newest_first(table))
    return merge_ranges(r for entry in entries if entry and entry.stream_id == stream_id for r in entry.ranges)


class WholeBatches:
    """Which batches of a stream were part of its table when this was made; those that a RESTORE undid are not.

    The log forgets commits after a while, but not which batch of each epoch was the last: that is a transaction's
    version, which the table keeps for good. Where it sets `delta.setTransactionRetentionDuration`, it may forget both;
    then a batch counts as whole of which it knows nothing: its letters may be all that is left of its records.
    """

    def __init__(self, table: str, stream_id: str) -> None:
        """Read the table's log once, twice where it was restored.

        Raises:
            RunError: it cannot be read, or a RESTORE does not name its version.
        """
        self._stream_id = stream_id
        committed, restored, oldest = set[BatchName](), False, None
        for commit in commits(table, 0):
            oldest = commit.version if oldest is None else oldest
            committed |= self._names([commit])
            restored = restored or commit.operation == "RESTORE"
        self._there = self._names(newest_first(table)) if restored else committed
        self._undone = committed - self._there
        self._table = open_table(table, "samples")
        self._forgets = oldest != 0 and _RETENTION in self._table.metadata().configuration
        self._last: dict[str, int | None] = {}

    def __contains__(self, batch: BatchName) -> bool:
        """Tell whether a batch is whole."""
        if batch in self._there or batch in self._undone:
            return batch in self._there
        epoch, batch_id = batch
        if epoch not in self._last:
            self._last[epoch] = self._table.transaction_version(batch_app_id(self._stream_id, epoch))
        last = self._last[epoch]
        return self._forgets if last is None else batch_id <= last

    def _names(self, found: Iterable[Commit]) -> set[BatchName]:
        entries = (LedgerEntry.from_metadata(commit.user_metadata) for commit in found)
        return {(e.epoch, e.batch_id) for e in entries if e is not None and e.stream_id == self._stream_id}
