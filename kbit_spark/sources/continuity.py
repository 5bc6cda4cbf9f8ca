"""Whether a checkpoint, the topics and the ledger of a table continue each other, and from where to go on if not.

Pure comparison. Delta skips a batch whose number went back without a word, and Spark takes whatever checkpoint it
finds: one that is not exactly where the table is would lose rows or write them twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kbit_spark.schemas.ledger import LedgerState, Loss, Places

LATEST, EARLIEST = -1, -2
"""What Spark calls the two ends of a partition in its starting offsets."""


@dataclass(frozen=True)
class CheckpointState:
    """What a streaming checkpoint knows."""

    path: str
    epoch: str | None = None
    """Spark's query id; None before the first start."""

    begun: Places | None = None
    """Where its first batch began; None while that is not written down."""

    batch_id: int | None = None
    """The newest batch that was planned, done or not."""

    done: int | None = None
    """The newest batch that Spark has noted as done."""

    ends: Mapping[int, Places] = field(default_factory=dict)
    """Where the newest two batches end."""

    damage: str | None = None
    """What cannot be read of it; then nothing else is known."""


@dataclass(frozen=True)
class TopicState:
    """A topic as the broker has it: partition to its first offset, and to the one behind its last."""

    topic_id: str | None
    earliest: Mapping[int, int]
    latest: Mapping[int, int]


Topics = Mapping[str, TopicState]


def topics_of(ids: Mapping[str, str | None], earliest: Places, latest: Places) -> dict[str, TopicState]:
    """Return the topics that `ids` names, each with its own partitions of `earliest` and `latest`."""

    def own(places: Places, name: str) -> dict[int, int]:
        return {partition: offset for (topic, partition), offset in places.items() if topic == name}

    return {name: TopicState(topic_id, own(earliest, name), own(latest, name)) for name, topic_id in ids.items()}


@dataclass(frozen=True)
class Start:
    """How a stream begins."""

    offsets: Places | None = None
    """Where a new epoch begins; None: where the checkpoint, or the configuration of a new stream, says."""

    lost: tuple[Loss, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)


def checkpoint_fault(
    ledger: LedgerState, checkpoint: CheckpointState, topics: Collection[str], taken: int = -1, *, new: bool = False
) -> str | None:
    """Return why the stream cannot go on with a checkpoint, None if it can.

    Args:
        ledger: the stream in the table, for these topics.
        checkpoint: the checkpoint.
        topics: the topics that the stream is to read.
        taken: the newest batch of the checkpoint's epoch that the table would not take once more, -1 for none. It is
            of the table's transactions, which a RESTORE does not undo: such a batch may be there without its rows.
        new: the table has no transaction of the stream at all, of whatever checkpoint.
    """
    if checkpoint.damage is not None:
        return checkpoint.damage
    place, last, batch_id = f"the checkpoint {checkpoint.path}", ledger.last, checkpoint.batch_id
    if last is None:
        return _fault_without_entries(ledger, checkpoint, taken, new=new)
    if checkpoint.begun is None:
        return f"{place} is not there or has not begun, but the table holds the stream up to batch {last.batch_id}"
    if checkpoint.epoch != last.epoch:
        if not batch_id and not _differences(checkpoint.begun, ledger.reached):  # it begins where the table ends
            return _restored(last.batch_id, checkpoint, taken, before=-1)
        return f"{place} is not the one that wrote batch {last.batch_id}, the newest of the stream in the table"
    if batch_id is None or batch_id < last.batch_id:
        older = "none" if batch_id is None else str(batch_id)
        return f"{place} is older than the table: its newest batch is {older}, the table's {last.batch_id}"
    if restored := _restored(last.batch_id, checkpoint, taken, before=last.batch_id):
        return restored
    if differences := _differences(checkpoint.ends.get(last.batch_id, {}), ledger.reached):
        return f"{place} and the table differ after batch {last.batch_id}: {differences[0]}"
    if unread := {topic for topic, _ in checkpoint.ends[batch_id]} - set(topics):
        return f"{place} reads {', '.join(sorted(unread))}, which kafka.topics names no more"
    return None


def positions(ledger: LedgerState, checkpoint: CheckpointState, taken: int = -1) -> Places:
    """Return the next offset of each partition that a stream reads, also of those that no ledger entry names yet.

    Args:
        ledger: the stream in the table.
        checkpoint: its checkpoint, which has no fault.
        taken: see `checkpoint_fault`.
    """
    newest = max(taken, -1 if checkpoint.done is None else checkpoint.done)
    return {**(checkpoint.ends.get(newest, {}) if newest >= 0 else checkpoint.begun or {}), **ledger.reached}


def losses(ledger: LedgerState, topics: Topics) -> tuple[Loss, ...]:
    """Return what the stream has not read and cannot read any more, one item for each partition concerned.

    A partition that was added to a topic which the stream reads is to be read from 0 on.
    """
    known = {topic for topic, _ in ledger.reached}
    added = {
        (name, partition): first
        for name, topic in topics.items()
        for partition, first in topic.earliest.items()
        if name in known and (name, partition) not in ledger.reached
    }
    lost = [loss for place, offset in ledger.reached.items() for loss in _loss(ledger, topics, place, offset)]
    lost += [Loss(topic=t, partition=p, start=0, end=end, reason="retention") for (t, p), end in added.items() if end]
    return tuple(sorted(lost, key=lambda loss: (loss.topic, loss.partition)))


def needs_epoch(ledger: LedgerState, topics: Topics, new: Literal["earliest", "latest"]) -> bool:
    """Tell whether a checkpoint cannot take up the topics that it does not know: Spark would read them from 0 on.

    Args:
        ledger: the stream, with its `positions`.
        topics: those to read.
        new: where a topic begins that the stream has not read.
    """
    known = {topic for topic, _ in ledger.reached}
    added = [state for name, state in topics.items() if name not in known]
    return any(new == "latest" or any(state.earliest.values()) for state in added)


def resume_offsets(
    ledger: LedgerState, topics: Topics, lost: Collection[Loss], new: Literal["earliest", "latest"]
) -> Places:
    """Return where a new epoch begins: exactly where the table ends, behind what is lost, `new` for a new topic."""
    known = {topic for topic, _ in ledger.reached}
    anew = {loss.topic for loss in lost if loss.reason == "recreated"}
    offsets: Places = {}
    for topic, state in topics.items():
        for partition in state.latest:
            added = EARLIEST if topic in known or new == "earliest" else LATEST
            offsets[topic, partition] = (
                state.earliest[partition] if topic in anew else ledger.reached.get((topic, partition), added)
            )
    behind = {(loss.topic, loss.partition): loss.end for loss in lost}
    return {place: behind.get(place, offset) for place, offset in offsets.items()}


def _restored(newest: int, checkpoint: CheckpointState, taken: int, *, before: int) -> str | None:
    """Return the fault of a table that lacks batches of the checkpoint's epoch behind `before`, None if it has all.

    Whoever takes a batch that the checkpoint has as done for one that a crash left unfinished loses its rows.
    """
    start = f"the table was restored to an older version: its newest batch of the stream is {newest}, but "
    if (written := _written(checkpoint)) > before:
        return f"{start}the checkpoint {checkpoint.path} has batch {written} as written"
    return f"{start}it has had batch {taken} of the checkpoint {checkpoint.path}" if taken > before else None


def _written(checkpoint: CheckpointState) -> int:
    """Return the newest batch that a checkpoint has as written, -1 for none: each plan means that the one before is."""
    planned = -1 if checkpoint.batch_id is None else checkpoint.batch_id - 1
    return planned if checkpoint.done is None else max(planned, checkpoint.done)


def _fault_without_entries(ledger: LedgerState, checkpoint: CheckpointState, taken: int, *, new: bool) -> str | None:
    place, written = f"the checkpoint {checkpoint.path}", _written(checkpoint)
    if ledger.complete:
        if max(written, taken) < 0:
            return None
        return f"{place} has batch {max(written, taken)} as written, but the table holds none of the stream"
    if checkpoint.batch_id is None and new:
        return None
    if checkpoint.batch_id is None:
        return "the table's log has lost its oldest commits, so nobody knows whether the stream was there before"
    if taken > checkpoint.batch_id:
        return f"{place} is older than the table: its newest batch is {checkpoint.batch_id}, the table's {taken}"
    if 0 <= taken < written:
        return f"the table is older than {place}: its newest batch is {taken}, the checkpoint has {written} as written"
    return None


def _differences(found: Places, reached: Places) -> list[str]:
    return [
        f"{topic}[{partition}] at {found.get((topic, partition), 'no offset')}, the table at {offset}"
        for (topic, partition), offset in sorted(reached.items())
        if found.get((topic, partition)) != offset
    ]


def _loss(ledger: LedgerState, topics: Topics, place: tuple[str, int], reached: int) -> Iterator[Loss]:
    topic, partition = place
    if topic not in topics:
        return
    state = topics[topic]
    before = ledger.topic_ids.get(topic)
    known = before is not None and state.topic_id is not None
    ends_before = state.latest.get(partition, -1) < reached
    if (known and before != state.topic_id) or partition not in state.latest or (ends_before and not known):
        yield Loss(
            topic=topic, partition=partition, start=reached, end=state.earliest.get(partition, 0), reason="recreated"
        )
    elif ends_before:
        yield Loss(topic=topic, partition=partition, start=reached, end=state.latest[partition], reason="truncated")
    elif state.earliest[partition] > reached:
        yield Loss(topic=topic, partition=partition, start=reached, end=state.earliest[partition], reason="retention")
