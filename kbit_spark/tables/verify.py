"""Checks a whole table against its history: what the ledger says of each batch, and what the rows say.

Pure arithmetic over entries and coordinates, then the reading of both without Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import ValidationError

from kbit_spark.schemas.ledger import LedgerEntry, OffsetRange, ReplayEntry
from kbit_spark.tables.log import newest_first
from kbit_spark.tables.scan import Kind, open_table, scan

Offsets = Mapping[tuple[str, int], NDArray[np.int64]]
"""Sorted offsets of the rows of each topic partition, repeats and all."""

_STREAM = "stream_id"


@dataclass(frozen=True)
class History:
    """The ledger of a table: entries with the version of their commit, in the order of the commits."""

    entries: tuple[tuple[int, LedgerEntry], ...]
    replays: tuple[ReplayEntry, ...] = ()
    faults: tuple[str, ...] = ()
    complete: bool = True
    """Whether the log holds all commits of the table."""


@dataclass(frozen=True)
class Verdict:
    """What was checked, and every place where it does not agree."""

    batches: int
    rows: int
    rejected: int | None
    replayed: int
    complete: bool
    faults: list[str] = field(default_factory=list)


def verify(samples: str, rejected: str | None = None) -> Verdict:
    """Check a table against its history.

    Args:
        samples: the samples table.
        rejected: the rejected table of the same stream, of whose letters those of streams into other tables are left
            out; None leaves it out.

    Raises:
        RunError: a table is none of its kind, or cannot be read.
    """
    open_table(samples, "samples", _coordinates("samples"))
    history = read_history(samples)
    rows = read_offsets(samples, "samples")
    letters = None if rejected is None else read_offsets(rejected, "rejected", _streams(history))
    faults = [*history.faults, *chain_faults(history), *row_faults(history, rows, letters)]
    return Verdict(
        batches=len(history.entries),
        rows=_count(rows),
        rejected=None if letters is None else _count(letters),
        replayed=sum(replay.good for replay in history.replays),
        complete=history.complete,
        faults=faults,
    )


def read_history(table: str) -> History:
    """Return the ledger of a table, without what a RESTORE undid.

    Raises:
        RunError: the log cannot be read.
    """
    entries: list[tuple[int, LedgerEntry]] = []
    replays: list[ReplayEntry] = []
    faults: list[str] = []
    oldest = 0
    for commit in newest_first(table):
        oldest = commit.version
        try:
            entry = LedgerEntry.from_metadata(commit.user_metadata)
            replay = ReplayEntry.from_metadata(commit.user_metadata)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Value error, ")
            faults.append(f"version {commit.version}: {reason}")
            continue
        entries += [(commit.version, entry)] if entry is not None else []
        replays += [replay] if replay is not None else []
    return History(tuple(entries[::-1]), tuple(replays[::-1]), tuple(faults[::-1]), complete=oldest == 0)


def read_offsets(table: str, kind: Kind, streams: Collection[str] | None = None) -> Offsets:
    """Return the offsets of a table.

    Args:
        table: path or URI.
        kind: which table it should be.
        streams: whose letters count, besides those from before letters named their stream; None: all rows count.

    Raises:
        RunError: the table is none of this kind, or cannot be read.
    """
    found: dict[tuple[str, int], list[NDArray[np.int64]]] = {}
    names = _coordinates(kind)
    for batch in scan(table, kind, names, late=() if streams is None else (_STREAM,)):
        rows = pa.Table.from_batches([batch])
        if streams is not None:
            rows = rows.filter(pc.field(_STREAM).is_null() | pc.field(_STREAM).isin(sorted(streams)))
        for place in rows.group_by(names[:2], use_threads=False).aggregate([(names[2], "list")]).to_batches():
            topics, partitions = place.column(names[0]).to_pylist(), place.column(names[1]).to_pylist()
            lists = place.column(f"{names[2]}_list")
            for row, key in enumerate(zip(topics, partitions, strict=True)):
                found.setdefault(key, []).append(lists[row].values.to_numpy())
    return {key: np.sort(np.concatenate(parts)) for key, parts in found.items()}


def _streams(history: History) -> frozenset[str] | None:
    """Return the streams that have written a table, None where no batch says so."""
    return frozenset(entry.stream_id for _, entry in history.entries) or None


def _coordinates(kind: Kind) -> list[str]:
    """Return the columns that say where a record stood in Kafka."""
    return [f"_{name}" if kind == "samples" else name for name in ("topic", "partition", "offset")]


def chain_faults(history: History) -> Iterator[str]:
    """Yield each place where batches do not follow each other, within and across epochs."""
    batch_ids: dict[tuple[str, str], int] = {}
    reached: dict[tuple[str, str, int], int] = {}
    for version, entry in history.entries:
        name, epoch = _name(version, entry), (entry.stream_id, entry.epoch)
        before = batch_ids.get(epoch, -1 if history.complete else entry.batch_id - 1)
        if entry.batch_id != before + 1:
            yield (
                f"{name}: follows batch {before} of its epoch" if before >= 0 else f"{name}: is the first of its epoch"
            )
        batch_ids[epoch] = entry.batch_id
        given_up = {(loss.topic, loss.partition): (loss.start, loss.end) for loss in entry.lost}
        for r in entry.ranges:
            place = (entry.stream_id, r.topic, r.partition)
            start = reached.get(place)
            lost_from, goes_on = given_up.get((r.topic, r.partition), (start, start))
            if start is not None and (lost_from, goes_on) != (start, r.start):
                kind = "a hole" if r.start > (goes_on or 0) else "an overlap"
                yield f"{name}: {kind} in {r.topic}[{r.partition}], {goes_on} was reached, it begins at {r.start}"
            reached[place] = r.end


def row_faults(history: History, rows: Offsets, letters: Offsets | None) -> Iterator[str]:
    """Yield each batch whose rows are not as many as its entry says, and rows that are twice or of no batch."""
    anew = {(loss.topic, loss.partition) for _, entry in history.entries for loss in entry.lost if loss.offsets is None}
    yield from _repeats("samples", rows, anew)
    if letters is not None:
        yield from _repeats("rejected", letters, anew)
    replayed = None if letters is None else _common(rows, letters)
    extra = sum(replay.good for replay in history.replays)
    both = extra if replayed is None or anew else _count(replayed)
    if both < extra or (history.complete and both > extra):  # the log forgets replays as it forgets batches
        yield f"samples: {both} rows stand in rejected as well, but replays brought in {extra}"
    for group in _groups(history.entries):
        ranges = [r for _, entry in group for r in entry.ranges]
        name = ", ".join(_name(version, entry) for version, entry in group)
        good, bad = sum(entry.good for _, entry in group), sum(entry.bad for _, entry in group)
        found = _within(rows, ranges)
        # offsets that a topic has had twice do not tell which of the two records was replayed
        if replayed is None or any((r.topic, r.partition) in anew for r in ranges):
            most = good + min(bad, extra)
            if not good <= found <= most:
                yield f"{name}: {good} good records, but {found} rows"
        elif found - _within(replayed, ranges) != good:
            yield f"{name}: {good} good records, but {found - _within(replayed, ranges)} rows"
        if letters is not None and (dead := _within(letters, ranges)) != bad:
            yield f"{name}: {bad} bad records, but {dead} rows in rejected"
    if history.complete:
        yield from _strays(history, rows, letters)


def _strays(history: History, rows: Offsets, letters: Offsets | None) -> Iterator[str]:
    ranges: dict[tuple[str, int], list[OffsetRange]] = {}
    for _, entry in history.entries:
        for r in entry.ranges:
            ranges.setdefault((r.topic, r.partition), []).append(r)
    for name, offsets in (("samples", rows), ("rejected", letters or {})):
        for (topic, partition), found in offsets.items():
            covered = np.zeros(len(found), dtype=np.bool_)
            for r in ranges.get((topic, partition), ()):
                covered[np.searchsorted(found, r.start) : np.searchsorted(found, r.end)] = True
            if not covered.all():
                first = found[~covered][0]
                yield f"{name}: {int((~covered).sum())} rows of no batch, the first at {topic}[{partition}]@{first}"


def _repeats(name: str, offsets: Offsets, anew: set[tuple[str, int]]) -> Iterator[str]:
    """Yield partitions with one offset twice; one made anew has its offsets twice by right."""
    for (topic, partition), found in offsets.items():
        twice = found[1:][found[1:] == found[:-1]]
        if len(twice) and (topic, partition) not in anew:
            yield f"{name}: {len(twice)} rows too many, the first at {topic}[{partition}]@{twice[0]}"


def _groups(entries: Sequence[tuple[int, LedgerEntry]]) -> Iterable[list[tuple[int, LedgerEntry]]]:
    """Return the entries one by one, those whose ranges overlap together: rows do not tell whose they are."""
    spans = sorted(
        (r.topic, r.partition, r.start, r.end, index)
        for index, (_, entry) in enumerate(entries)
        for r in entry.ranges
        if r.span
    )
    leader = list(range(len(entries)))

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    widest: tuple[str, int, int, int] | None = None
    for topic, partition, start, end, index in spans:
        if widest is not None and widest[:2] == (topic, partition) and start < widest[2]:
            leader[find(index)] = find(widest[3])
            end = max(end, widest[2])
        widest = (topic, partition, end, index)
    groups: dict[int, list[tuple[int, LedgerEntry]]] = {}
    for index, entry in enumerate(entries):
        groups.setdefault(find(index), []).append(entry)
    return groups.values()


def _within(offsets: Offsets, ranges: Iterable[OffsetRange]) -> int:
    """Return how many rows lie in the union of the ranges."""
    counted = 0
    reached: dict[tuple[str, int], int] = {}
    for r in sorted(ranges, key=lambda r: (r.topic, r.partition, r.start)):
        place = (r.topic, r.partition)
        start = max(r.start, reached.get(place, r.start))
        if (found := offsets.get(place)) is not None and start < r.end:
            counted += int(np.searchsorted(found, r.end) - np.searchsorted(found, start))
        reached[place] = max(r.end, reached.get(place, r.end))
    return counted


def _common(rows: Offsets, letters: Offsets) -> Offsets:
    return {place: found[np.isin(found, letters[place])] for place, found in rows.items() if place in letters}


def _count(offsets: Offsets) -> int:
    return sum(len(found) for found in offsets.values())


def _name(version: int, entry: LedgerEntry) -> str:
    return f"version {version} (batch {entry.batch_id} of {entry.stream_id})"
