"""The check of a table against its history: a right one passes, and each fault is found wherever it lies."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from kbit_spark.schemas.ledger import LedgerEntry, Loss, OffsetRange, ReplayEntry
from kbit_spark.tables.verify import History, Offsets, chain_faults, read_offsets, row_faults

PARTITIONS = 2
Place = tuple[str, int]
KINDS = ("good", "bad", "tombstone", "gap")


@dataclass(frozen=True)
class Stream:
    """A history and the rows that belong to it."""

    history: History
    rows: dict[Place, list[int]]
    letters: dict[Place, list[int]]

    def faults(self, *, letters: bool = True) -> list[str]:
        """Return all that the check finds."""
        rows, dead = offsets(self.rows), offsets(self.letters) if letters else None
        return [*chain_faults(self.history), *row_faults(self.history, rows, dead)]


def offsets(found: dict[Place, list[int]]) -> Offsets:
    return {place: np.sort(np.array(items, dtype=np.int64)) for place, items in found.items() if items}


def entry(batch_id: int, ranges: list[tuple[int, int]], kinds: dict[str, int], **more: Any) -> LedgerEntry:
    return LedgerEntry(
        stream_id="s",
        epoch=more.pop("epoch", "e"),
        batch_id=batch_id,
        ranges=tuple(OffsetRange(topic="t", partition=p, start=a, end=b) for p, (a, b) in enumerate(ranges)),
        good=kinds.get("good", 0),
        bad=kinds.get("bad", 0),
        tombstones=kinds.get("tombstone", 0),
        gaps=kinds.get("gap", 0),
        **more,
    )


@st.composite
def streams(draw: st.DrawFn, least: int = 1) -> Stream:
    """Make a stream of some batches that is right; epochs change, retention takes something now and then."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    entries: list[tuple[int, LedgerEntry]] = []
    rows: dict[Place, list[int]] = {("t", p): [] for p in range(PARTITIONS)}
    letters: dict[Place, list[int]] = {("t", p): [] for p in range(PARTITIONS)}
    reached, batch_id, epoch, version = [0] * PARTITIONS, 0, 0, 0
    for _ in range(draw(st.integers(least, 6))):
        lost: list[Loss] = []
        if entries and chance.random() < 0.3:
            epoch, batch_id = epoch + 1, 0
            if chance.random() < 0.5:
                lost = [Loss(topic="t", partition=0, start=reached[0], end=reached[0] + 4, reason="retention")]
                reached[0] += 4
        ranges = [(at, at + chance.randint(1, 6)) for at in reached]
        kinds: dict[str, int] = dict.fromkeys(KINDS, 0)
        for partition, (start, end) in enumerate(ranges):
            for offset in range(start, end):
                kind = chance.choice(KINDS)
                kinds[kind] += 1
                for table, home in ((rows, "good"), (letters, "bad")):
                    if kind == home:
                        table["t", partition].append(offset)
        version += chance.randint(1, 3)  # compactions lie between
        entries.append((version, entry(batch_id, ranges, kinds, epoch=f"e{epoch}", lost=tuple(lost))))
        reached, batch_id = [end for _, end in ranges], batch_id + 1
    return Stream(History(tuple(entries)), rows, letters)


def some_row(stream: Stream, data: st.DataObject) -> tuple[dict[Place, list[int]], Place, int] | None:
    """Return a table of the stream and a row of it."""
    all_rows = [(table, p, o) for table in (stream.rows, stream.letters) for p, items in table.items() for o in items]
    return data.draw(st.sampled_from(all_rows)) if all_rows else None


@given(stream=streams(), letters=st.booleans())
def test_a_stream_that_is_right(stream: Stream, letters: bool) -> None:
    assert stream.faults(letters=letters) == []
    cut = replace(stream.history, entries=stream.history.entries[1:], complete=False)  # the log lost its beginning
    assert replace(stream, history=cut).faults(letters=letters) == []


@given(stream=streams(), data=st.data())
def test_a_row_that_is_lost_twice_or_of_no_batch(stream: Stream, data: st.DataObject) -> None:
    if (found := some_row(stream, data)) is None:
        return
    table, place, offset = found
    name = "samples" if table is stream.rows else "rejected"
    table[place].remove(offset)
    (lost,) = stream.faults()
    assert ("good records, but" if name == "samples" else "bad records, but") in lost
    table[place] += [offset, offset]
    assert f"{name}: 1 rows too many, the first at t[{place[1]}]@{offset}" in stream.faults()
    table[place].remove(offset)
    table[place].append(1_000)
    assert stream.faults() == [f"{name}: 1 rows of no batch, the first at t[{place[1]}]@1000"]


@given(stream=streams(least=2), data=st.data())
def test_a_batch_that_is_missing_or_there_twice(stream: Stream, data: st.DataObject) -> None:
    entries = list(stream.history.entries)
    index = data.draw(st.integers(0, len(entries) - 2))
    without = replace(stream, history=replace(stream.history, entries=tuple(entries[:index] + entries[index + 1 :])))
    faults = without.faults()
    follower = entries[index + 1][1]
    if index and not any(entry.lost for entry in (entries[index][1], follower)):
        assert any("a hole in t[0]" in fault for fault in faults)
    if follower.epoch == entries[index][1].epoch:
        before = "is the first of its epoch" if follower.batch_id == 1 else f"follows batch {follower.batch_id - 2}"
        assert any(before in fault for fault in faults)
    twice = entries[: index + 1] + entries[index:]
    assert any("an overlap in t[0]" in fault for fault in replace(
        stream, history=replace(stream.history, entries=tuple(twice))
    ).faults())  # fmt: skip


@given(stream=streams(), data=st.data(), shift=st.integers(-2, 2).filter(bool))
def test_ranges_that_do_not_meet(stream: Stream, data: st.DataObject, shift: int) -> None:
    version, last = stream.history.entries[-1]
    moved = [
        OffsetRange(topic="t", partition=r.partition, start=r.end + shift, end=r.end + shift + 1) for r in last.ranges
    ]
    kinds = {"gap": PARTITIONS}
    after = entry(last.batch_id + 1, [(r.start, r.end) for r in moved], kinds, epoch=last.epoch)
    history = replace(stream.history, entries=(*stream.history.entries, (version + 1, after)))
    kind = "a hole" if shift > 0 else "an overlap"
    found = list(chain_faults(history))
    assert found == [
        f"version {version + 1} (batch {after.batch_id} of s): {kind} in t[{r.partition}], "
        f"{r.end} was reached, it begins at {r.end + shift}"
        for r in last.ranges
    ]


@given(stream=streams(), data=st.data())
def test_a_loss_that_is_not_where_the_stream_was(stream: Stream, data: st.DataObject) -> None:
    version, last = stream.history.entries[-1]
    end = last.ranges[0].end
    lost = Loss(topic="t", partition=0, start=end + data.draw(st.integers(1, 3)), end=end + 5, reason="retention")
    ranges = [(end + 5, end + 6), (last.ranges[1].end, last.ranges[1].end + 1)]
    after = entry(0, ranges, {"gap": 2}, epoch="after", lost=(lost,))
    history = replace(stream.history, entries=(*stream.history.entries, (version + 1, after)))
    (fault,) = chain_faults(history)
    assert "in t[0]" in fault


@given(stream=streams(), data=st.data())
def test_replayed_letters_stand_in_both_tables(stream: Stream, data: st.DataObject) -> None:
    dead = [(place, offset) for place, items in stream.letters.items() for offset in items]
    chosen = data.draw(st.lists(st.sampled_from(dead), unique=True)) if dead else []
    for place, offset in chosen:
        stream.rows[place].append(offset)
    replayed = ReplayEntry(stream_id="s", number=0, where="true", rejected_version=1, good=len(chosen), bad=0)
    told = replace(stream, history=replace(stream.history, replays=(replayed,)))
    assert told.faults() == told.faults(letters=False) == []
    forgotten = replace(stream, history=replace(stream.history, complete=False))  # the log has lost the replays
    assert forgotten.faults() == []
    if chosen:
        assert stream.faults() == [f"samples: {len(chosen)} rows stand in rejected as well, but replays brought in 0"]
        assert stream.faults(letters=False) != []


@given(stream=streams(), anew=st.integers(1, 5))
@settings(max_examples=50)
def test_a_topic_made_anew_has_its_offsets_twice_by_right(stream: Stream, anew: int) -> None:
    version, last = stream.history.entries[-1]
    lost = tuple(Loss(topic="t", partition=r.partition, start=r.end, end=0, reason="recreated") for r in last.ranges)
    after = entry(0, [(0, anew)] * PARTITIONS, {"good": anew * PARTITIONS}, epoch="anew", lost=lost)
    for partition in range(PARTITIONS):
        stream.rows["t", partition] += range(anew)
    again = replace(stream, history=replace(stream.history, entries=(*stream.history.entries, (version + 1, after))))
    assert again.faults() == []
    again.rows["t", 0].remove(0)
    assert any("good records, but" in fault for fault in again.faults())


@pytest.mark.parametrize("named", [(False, True), (True, False), (False, False)])
def test_letters_of_other_streams_are_left_out_whichever_file_names_its_stream(
    tmp_path: Path, named: tuple[bool, bool]
) -> None:
    path = str(tmp_path / "rejected")
    for number, names in enumerate(named):
        streams = {"stream_id": ["s", "other", None]} if names else {}
        place = {"topic": ["t"] * 3, "partition": [0] * 3, "offset": [10 * number + i for i in range(3)]}
        write_deltalake(path, pa.table({**place, **streams}), mode="append", schema_mode="merge")
    unnamed = [10 * number + i for number, names in enumerate(named) for i in range(3) if not (names and i == 1)]
    (found,) = read_offsets(path, "rejected", {"s"}).values()
    assert found.tolist() == unnamed
    (everything,) = read_offsets(path, "rejected").values()
    assert everything.tolist() == [0, 1, 2, 10, 11, 12]
