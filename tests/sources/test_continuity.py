"""The comparison of checkpoint, topics and ledger: what goes on is left alone, whatever differs is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbit_spark.schemas.ledger import LedgerEntry, LedgerState, OffsetRange, Places
from kbit_spark.sources.continuity import (
    EARLIEST,
    LATEST,
    CheckpointState,
    Topics,
    TopicState,
    checkpoint_fault,
    losses,
    needs_epoch,
    positions,
    resume_offsets,
)

PLACES = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)), st.integers(1, 1_000), min_size=1, max_size=6
)
TOPICS = ("a", "b")


def entry(reached: Places, batch_id: int, epoch: str = "e") -> LedgerEntry:
    """Return the entry of a batch of one offset in each partition."""
    ranges = [OffsetRange(topic=t, partition=p, start=end - 1, end=end) for (t, p), end in sorted(reached.items())]
    return LedgerEntry(
        stream_id="s",
        epoch=epoch,
        batch_id=batch_id,
        ranges=tuple(ranges),
        good=len(ranges),
        bad=0,
        tombstones=0,
        gaps=0,
    )


def state(reached: Places, batch_id: int) -> LedgerState:
    return LedgerState(entry(reached, batch_id), dict(reached), {"a": "id-a", "b": "id-b"})


def follows(reached: Places, batch_id: int, planned: int) -> CheckpointState:
    """Return a checkpoint that agrees with the ledger; `planned` of its batches are not in the table yet."""
    ends = {batch_id: dict(reached)}
    if planned:
        ends[batch_id + 1] = {place: offset + 5 for place, offset in reached.items()}
    begun = dict.fromkeys(reached, 0)
    return CheckpointState("checkpoint", "e", begun, batch_id + planned, batch_id, ends)


def broker(reached: Places, ahead: int = 3) -> Topics:
    """Return topics that hold all that was read, and `ahead` records more in each partition."""
    found = {}
    for topic in {topic for topic, _ in reached}:
        latest = {p: offset + ahead for (t, p), offset in reached.items() if t == topic}
        found[topic] = TopicState(f"id-{topic}", dict.fromkeys(latest, 0), latest)
    return found


@given(reached=PLACES, batch_id=st.integers(0, 50), planned=st.integers(0, 1))
def test_what_continues_goes_on(reached: Places, batch_id: int, planned: int) -> None:
    ledger = state(reached, batch_id)
    checkpoint = follows(reached, batch_id, planned)
    killed = replace(checkpoint, done=batch_id - 1 if batch_id and not planned else checkpoint.done)
    for there in (checkpoint, killed):  # killed between the table's commit and Spark's own
        assert checkpoint_fault(ledger, there, TOPICS, taken=batch_id) is None
    assert losses(ledger, broker(reached)) == ()
    assert resume_offsets(ledger, broker(reached), (), "latest") == reached


@given(reached=PLACES, batch_id=st.integers(2, 50), back=st.integers(1, 2), data=st.data())
def test_every_way_to_differ_is_named(reached: Places, batch_id: int, back: int, data: st.DataObject) -> None:
    ledger, good = state(reached, batch_id), follows(reached, batch_id, 0)
    place = data.draw(st.sampled_from(sorted(reached)))
    moved = {batch_id: {**reached, place: reached[place] + data.draw(st.integers(-1, 1).filter(bool))}}
    wrong = {
        "is not there or has not begun": replace(good, begun=None),
        "is not the one that wrote": replace(good, epoch="other"),
        "is older than the table": replace(good, batch_id=batch_id - back),
        "its newest batch is none": replace(good, batch_id=None, ends={}),
        "was restored to an older version": replace(good, batch_id=batch_id + 1 + back, done=None),
        f"has batch {batch_id + 1} as written": replace(good, batch_id=batch_id + 1, done=batch_id + 1),
        f"differ after batch {batch_id}: {place[0]}[{place[1]}] at": replace(good, ends=moved),
        f"differ after batch {batch_id}": replace(good, ends={}),
    }
    for words, checkpoint in wrong.items():
        assert words in str(checkpoint_fault(ledger, checkpoint, TOPICS))
    for there in (good, follows(reached, batch_id, 1)):
        fault = str(checkpoint_fault(ledger, there, TOPICS, taken=batch_id + 1))
        assert "was restored to an older version" in fault
        assert f"it has had batch {batch_id + 1} of the checkpoint" in fault


@given(reached=PLACES, batch_id=st.integers(0, 50))
def test_another_epoch_may_begin_exactly_where_the_table_ends(reached: Places, batch_id: int) -> None:
    ledger = state(reached, batch_id)
    begins = CheckpointState("checkpoint", "new", dict(reached), None)
    assert checkpoint_fault(ledger, begins, TOPICS) is None
    assert checkpoint_fault(ledger, replace(begins, batch_id=0), TOPICS) is None
    assert checkpoint_fault(ledger, replace(begins, batch_id=1), TOPICS) is not None
    for undone, taken in ((replace(begins, batch_id=0, done=0), -1), (replace(begins, batch_id=0), 0), (begins, 0)):
        assert "was restored to an older version" in str(checkpoint_fault(ledger, undone, TOPICS, taken))
    elsewhere = {place: offset + 1 for place, offset in reached.items()}
    assert checkpoint_fault(ledger, replace(begins, begun=elsewhere), TOPICS) is not None


def test_a_topic_that_is_read_no_more() -> None:
    reached = {("a", 0): 3, ("b", 0): 4}
    ledger = replace(state(reached, 1), reached={("a", 0): 3})
    assert "reads b, which kafka.topics names no more" in str(checkpoint_fault(ledger, follows(reached, 1, 0), ["a"]))


@pytest.mark.parametrize(
    ("complete", "batch_id", "done", "taken", "words"),
    [
        (True, None, None, -1, None),
        (True, 0, None, -1, None),
        (True, 0, 0, -1, "has batch 0 as written, but the table holds none of the stream"),
        (True, 0, None, 0, "has batch 0 as written, but the table holds none of the stream"),
        (True, 2, None, -1, "has batch 1 as written, but the table holds none of the stream"),
        (False, None, None, -1, "has lost its oldest commits"),
        (False, 2, 2, -1, None),
        (False, 2, 1, 2, None),
        (False, 3, 2, 2, None),
        (False, 2, 1, 3, "is older than the table: its newest batch is 2, the table's 3"),
        (False, 2, 2, 1, "the table is older than the checkpoint"),
    ],
)
def test_a_table_without_entries_of_the_stream(
    complete: bool, batch_id: int | None, done: int | None, taken: int, words: str | None
) -> None:
    ledger = LedgerState(None, {}, {}, complete=complete)
    fault = checkpoint_fault(ledger, CheckpointState("checkpoint", "e", {}, batch_id, done), TOPICS, taken)
    assert fault is None if words is None else words in str(fault)


def test_a_stream_without_a_transaction_is_new_to_a_table_whose_log_has_lost_commits() -> None:
    ledger = LedgerState(None, {}, {}, complete=False)
    assert checkpoint_fault(ledger, CheckpointState("checkpoint"), TOPICS, new=True) is None
    assert "has lost its oldest commits" in str(checkpoint_fault(ledger, CheckpointState("checkpoint"), TOPICS))


@given(reached=PLACES, data=st.data())
def test_every_loss_is_told_with_its_extent(reached: Places, data: st.DataObject) -> None:
    """Each partition in a state of its own: nobody's fault spoils what is said of another one."""
    ledger = state(reached, 1)
    topics = broker(reached)
    expected = {}
    for (topic, partition), offset in sorted(reached.items()):
        what = data.draw(st.sampled_from(["fine", "retention", "truncated", "gone"]))
        earliest, latest = dict(topics[topic].earliest), dict(topics[topic].latest)
        if what == "retention":
            earliest[partition] = offset + 2
            expected[topic, partition] = ("retention", offset, offset + 2)
        elif what == "truncated":
            latest[partition] = offset - 1
            expected[topic, partition] = ("truncated", offset, offset - 1)
        elif what == "gone":
            del latest[partition], earliest[partition]
            expected[topic, partition] = ("recreated", offset, 0)
        topics = {**topics, topic: replace(topics[topic], earliest=earliest, latest=latest)}
    lost = losses(ledger, topics)
    assert {(loss.topic, loss.partition): (loss.reason, loss.start, loss.end) for loss in lost} == expected
    starts = resume_offsets(ledger, topics, lost, "latest")
    assert starts.keys() == {(topic, p) for topic, found in topics.items() for p in found.latest}
    for place, start in starts.items():
        topic = topics[place[0]]
        assert topic.earliest[place[1]] <= start <= topic.latest[place[1]]
        if place not in expected and not any(r == "recreated" for (t, _), (r, *_) in expected.items() if t == place[0]):
            assert start == reached[place]


@given(reached=PLACES, known=st.booleans())
def test_a_topic_with_another_id_is_another_topic(reached: Places, known: bool) -> None:
    ledger = state(reached, 1)
    ledger = ledger if known else replace(ledger, topic_ids={})
    topics = {name: replace(topic, topic_id="new") for name, topic in broker(reached).items()}
    lost = losses(ledger, topics)
    assert [loss.reason for loss in lost] == ["recreated"] * (len(reached) if known else 0)
    assert set(resume_offsets(ledger, topics, lost, "latest").values()) <= ({0} if known else set(reached.values()))


@given(reached=PLACES, new=st.sampled_from(["earliest", "latest"]))
def test_what_is_new_begins_where_it_should(reached: Places, new: str) -> None:
    """A partition that was added to a topic has unread records; of a topic that was added the configuration decides."""
    topics = {
        **{n: replace(t, earliest={**t.earliest, 9: 0}, latest={**t.latest, 9: 7}) for n, t in broker(reached).items()},
        "c": TopicState("id-c", {0: 0}, {0: 5}),
    }
    ledger = state(reached, 1)
    assert losses(ledger, topics) == ()
    starts = resume_offsets(ledger, topics, (), new)  # type: ignore[arg-type]
    assert {starts[name, 9] for name in topics if name != "c"} == {EARLIEST}
    assert starts["c", 0] == (EARLIEST if new == "earliest" else LATEST)


@given(reached=PLACES, first=st.integers(0, 5))
def test_a_partition_that_was_added_is_lost_up_to_its_first_record(reached: Places, first: int) -> None:
    ledger = state(reached, 1)
    topics = {
        name: replace(topic, earliest={**topic.earliest, 9: first}, latest={**topic.latest, 9: 7})
        for name, topic in broker(reached).items()
    }
    lost = losses(ledger, topics)
    expected = [(name, 9, 0, first, "retention") for name in sorted(topics) if first]
    assert [(loss.topic, loss.partition, loss.start, loss.end, loss.reason) for loss in lost] == expected
    assert {resume_offsets(ledger, topics, lost, "latest")[name, 9] for name in topics} == {first or EARLIEST}


@given(reached=PLACES, new=st.sampled_from(["earliest", "latest"]), first=st.integers(0, 5))
def test_a_topic_that_was_added_loses_nothing_and_begins_where_the_configuration_says(
    reached: Places, new: str, first: int
) -> None:
    ledger, topics = state(reached, 1), {**broker(reached), "c": TopicState("id-c", {0: 0, 1: first}, {0: 5, 1: 9})}
    assert losses(ledger, topics) == ()
    assert needs_epoch(ledger, topics, new) == (new == "latest" or first > 0)  # type: ignore[arg-type]
    assert not needs_epoch(ledger, broker(reached), new)  # type: ignore[arg-type]
    starts = resume_offsets(ledger, topics, (), new)  # type: ignore[arg-type]
    assert starts == {**reached, **dict.fromkeys([("c", 0), ("c", 1)], EARLIEST if new == "earliest" else LATEST)}


def test_positions_are_those_of_the_newest_source_that_knows() -> None:
    place, other, nothing = ("a", 0), ("b", 0), LedgerState(None, {}, {})
    begun = CheckpointState("checkpoint", "e", {place: 3}, 0, None, {0: {place: 8}})
    assert positions(nothing, begun) == {place: 3}  # the first batch failed
    assert positions(nothing, begun, taken=0) == {place: 8}
    later = replace(begun, batch_id=2, done=1, ends={1: {place: 8}, 2: {place: 9, other: 4}})
    assert positions(nothing, later) == {place: 8}  # the log was cleaned; batch 2 is planned only
    assert positions(nothing, later, taken=2) == {place: 9, other: 4}
    assert positions(LedgerState(None, {place: 7}, {}), later) == {place: 7}
    assert positions(LedgerState(None, {place: 7}, {}), CheckpointState("checkpoint")) == {place: 7}


def test_a_topic_that_the_broker_does_not_tell_of_is_no_loss() -> None:
    assert losses(state({("a", 0): 3}, 0), {}) == ()
