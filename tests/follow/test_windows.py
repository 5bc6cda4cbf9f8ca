"""Windows over real Delta tables: every new row once, older rows replayed, whatever happens to the files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.schemas.ledger import OffsetRange
from kbit_spark.training.manifest import Identity, Lineage, Manifest, Position
from kbit_spark.windows import Work, pending, plan_again, plan_next
from tests.follow.stream import BEGAN, Stream, offsets_in

BATCH = 20


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path / "samples")


def config(stream: Stream, data: dict[str, Any] | None = None, **follow: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "data": {"table": str(stream.path), **(data or {})},
            "checkpoint": {"dir": str(stream.path.parent / "checkpoints")},
            "global_batch_size": BATCH,
            "follow": {"enabled": True, "replay_fraction": 0.25, **follow},
        }
    )


def manifest(config: TrainConfig, work: Work, finished: bool = True) -> Manifest:
    """Return what stands in a checkpoint of a window."""
    return Manifest(
        identity=Identity.of(config, work.snapshot),
        position=Position(epoch=work.window.first_epoch + 1, finished=finished),
        lineage=Lineage.of(config, work.snapshot, "test"),
        world_size=1,
        window=work.window,
    )


def next_window(config: TrainConfig, last: Manifest | None) -> Work | None:
    found = pending(config, -1 if last is None or last.window is None else last.window.last)
    return None if found is None else plan_next(config, last, found)


def all_windows(config: TrainConfig, last: Manifest | None = None) -> list[Work]:
    """Return the windows up to the newest version."""
    works = []
    while (work := next_window(config, last)) is not None:
        works.append(work)
        last = manifest(config, work)
    return works


def new_and_other(work: Work) -> tuple[list[int], list[int]]:
    """Return the offsets that a window trains on: its new rows, and all others."""
    files = [file for file in work.snapshot.files if file.split == "train"]
    offsets = offsets_in(files)
    return offsets[: work.window.new_rows], offsets[work.window.new_rows :]


def test_windows_cover_every_row_once_and_replay_only_older_ones(stream: Stream) -> None:
    appended: list[int] = []
    for train in (45, 30, 7, 64, 10, 10):
        appended += range(stream.offset, stream.offset + train)
        stream.append(train, validation=5)
    made = config(stream, max_rows_per_window=60)
    works = all_windows(made)
    assert [(w.window.number, w.window.after, w.window.last) for w in works] == [
        (0, -1, 0), (1, 0, 2), (2, 2, 3), (3, 3, 5),
    ]  # fmt: skip
    learnt: list[int] = []
    for work in works:
        new, other = new_and_other(work)
        assert (len(new) + len(other)) % BATCH == 0
        assert len(set(other)) == len(other)
        assert set(other) <= set(learnt if learnt else new)
        learnt += new
        assert work.window.rows_so_far == len(learnt)
        assert work.snapshot.rows("validation") == 30  # the newest hold-out, the same for every model
        assert work.snapshot.rows("test") == 0
        assert work.event_times == (BEGAN + min(new), BEGAN + max(new))
    assert learnt == appended
    assert works[0].window.repeated_rows == 15
    assert [w.window.replayed_rows for w in works[1:]] == [23, 36, 20]  # a quarter or more, up to whole batches


def test_lineage_covers_the_offsets_of_all_windows_so_far(stream: Stream) -> None:
    for _ in range(3):
        stream.append(20, validation=5)
    works = all_windows(config(stream, max_rows_per_window=1))
    assert [w.snapshot.version for w in works] == [0, 1, 2]
    for number, work in enumerate(works):
        assert work.snapshot.kafka == (OffsetRange(topic="digits", partition=0, start=0, end=25 * (number + 1)),)
        assert work.snapshot.kafka_complete


def test_compaction_brings_nothing_and_hides_nothing(stream: Stream) -> None:
    made = config(stream)
    stream.append(40)
    first = next_window(made, None)
    assert first is not None
    stream.append(20)
    stream.append(20)
    DeltaTable(str(stream.path)).optimize.compact()
    stream.append(10)
    work = next_window(made, manifest(made, first))
    assert work is not None
    new, other = new_and_other(work)
    assert new == list(range(40, 90))
    assert set(other) <= set(range(40))
    DeltaTable(str(stream.path)).optimize.compact()
    assert next_window(made, manifest(made, work)) is None


def delete_by_rewriting(stream: Stream, where: str) -> None:
    DeltaTable(str(stream.path)).delete(where)


@pytest.fixture
def delete_by_vectors(spark: SparkSession) -> Callable[[Stream, str], None]:
    def delete(stream: Stream, where: str) -> None:
        table = f"delta.`{stream.path}`"
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        spark.sql(f"DELETE FROM {table} WHERE {where}")

    return delete


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("how", ["rewriting", "vectors"])
def test_deleted_rows_are_neither_learnt_nor_replayed(
    stream: Stream, request: pytest.FixtureRequest, how: str, compacts: bool
) -> None:
    delete = delete_by_rewriting if how == "rewriting" else request.getfixturevalue("delete_by_vectors")
    made = config(stream, replay_fraction=0.6)
    stream.append(40)
    stream.append(40)
    first = next_window(made, None)
    assert first is not None
    stream.append(30)
    if compacts:
        DeltaTable(str(stream.path)).optimize.compact()  # old and new rows come into one file
    delete(stream, "_offset % 10 = 5")
    stream.append(10)
    work = next_window(made, manifest(made, first))
    assert work is not None
    new, other = new_and_other(work)
    assert new == [offset for offset in range(80, 110) if offset % 10 != 5] + list(range(110, 120))
    assert not {offset for offset in other if offset < 80} & set(range(5, 80, 10))
    assert work.window.as_of == DeltaTable(str(stream.path)).version()


def test_rows_that_are_all_deleted_again_make_no_window(stream: Stream) -> None:
    made = config(stream)
    stream.append(40)
    first = next_window(made, None)
    assert first is not None
    stream.append(40)
    DeltaTable(str(stream.path)).delete("_offset >= 40")
    assert next_window(made, manifest(made, first)) is None
    stream.append(40)
    work = next_window(made, manifest(made, first))
    assert work is not None
    assert new_and_other(work)[0] == list(range(80, 120))


def test_an_update_is_refused_with_the_way_on(stream: Stream) -> None:
    stream.append(40)
    DeltaTable(str(stream.path)).update(predicate="_offset = 3", updates={"label": "0"})
    with pytest.raises(RunError, match=r"version 1 of .* is a commit UPDATE"):
        next_window(config(stream), None)
    stream.append(40)
    work = next_window(config(stream, skip_change_commits=True), None)
    assert work is not None
    assert new_and_other(work)[0] == list(range(80))


def test_too_few_rows_for_a_batch_wait(stream: Stream) -> None:
    made = config(stream)
    assert pending(made, -1) is None  # no table yet
    stream.append(BATCH - 1, validation=50)
    assert next_window(made, None) is None
    stream.append(1)
    first = next_window(made, None)
    assert first is not None
    assert first.window.last == 1
    stream.append(1)  # older rows fill the batch
    assert [w.window.replayed_rows for w in all_windows(made, manifest(made, first))] == [BATCH - 1]


def test_a_limit_below_a_batch_or_deleted_rows_never_hold_a_window_up(stream: Stream) -> None:
    made = config(stream, max_rows_per_window=1)
    for _ in range(5):
        stream.append(8)
    first = next_window(made, None)
    assert first is not None
    assert (first.window.last, first.window.new_rows) == (3, 32)
    DeltaTable(str(stream.path)).delete("_offset >= 32")
    stream.append(8)
    (work,) = all_windows(made, manifest(made, first))
    assert new_and_other(work)[0] == list(range(40, 48))
    assert (work.window.after, work.window.last) == (3, 6)


def test_an_interrupted_window_is_planned_again_as_it_was(stream: Stream) -> None:
    made = config(stream, max_rows_per_window=30)
    for _ in range(4):
        stream.append(30, validation=3)
    work = all_windows(made)[2]
    stream.append(30, validation=3)
    DeltaTable(str(stream.path)).optimize.compact()
    DeltaTable(str(stream.path)).update(
        predicate="_offset = 3", updates={"label": "0"}
    )  # not seen: the window was planned before
    assert plan_again(made, manifest(made, work, finished=False)) == work
    with pytest.raises(RunError, match=r"window 2 was begun with 30 new .*set follow\.replay_fraction"):
        plan_again(config(stream, replay_fraction=0.9), manifest(made, work, finished=False))


def test_a_table_that_was_set_back_is_refused(stream: Stream, tmp_path: Path) -> None:
    made = config(stream)
    stream.append(40)
    stream.append(40)
    work = next_window(made, None)
    assert work is not None
    DeltaTable(str(stream.path)).restore(0)
    with pytest.raises(RunError, match=r"version 2 of .* is a commit RESTORE"):
        next_window(made, manifest(made, work))
    other = Stream(tmp_path / "other")
    other.append(40)
    with pytest.raises(RunError, match=r"does not reach version 1"):
        plan_again(config(other), manifest(made, work))


def test_a_table_that_was_made_anew_is_refused(stream: Stream) -> None:
    made = config(stream)
    stream.append(40)
    stream.append(40)
    work = next_window(made, None)
    assert work is not None
    assert pending(made, work.window.last) is None
    shutil.rmtree(stream.path)
    stream.append(40)
    with pytest.raises(RunError, match=r"does not reach version 1, which is learnt already.*another checkpoint\.dir"):
        pending(made, work.window.last)


def test_rows_that_a_restore_brings_back_are_not_learnt_twice(stream: Stream) -> None:
    made, going_on = config(stream), config(stream, skip_change_commits=True)
    stream.append(40)
    first = next_window(made, None)
    assert first is not None
    DeltaTable(str(stream.path)).delete("_offset >= 10")
    DeltaTable(str(stream.path)).restore(0)  # adds files, and removes one that the delete wrote
    stream.append(40)
    DeltaTable(str(stream.path)).delete("_offset >= 0")
    DeltaTable(str(stream.path)).restore(3)  # adds files only
    with pytest.raises(RunError, match=r"version 2 of .* is a commit RESTORE"):
        next_window(made, manifest(made, first))
    stream.append(40)
    (work,) = all_windows(going_on, manifest(going_on, first))
    assert new_and_other(work)[0] == list(range(40, 120))


def test_rows_that_a_commit_took_away_are_not_learnt_where_it_is_passed_over(stream: Stream) -> None:
    stream.append(40)
    stream.append(40)
    DeltaTable(str(stream.path)).restore(0)
    stream.append(10)
    (work,) = all_windows(config(stream, skip_change_commits=True))
    assert new_and_other(work)[0] == [*range(40), *range(80, 90)]


def test_new_rows_that_vacuum_could_take_are_refused(stream: Stream) -> None:
    stream.append(40)
    stream.append(40)
    DeltaTable(str(stream.path)).optimize.compact()
    with pytest.raises(RunError, match="VACUUM could delete"):
        next_window(config(stream, data={"longest_run_s": 10 * 86_400}), None)


def test_a_log_that_has_lost_its_beginning_is_refused(stream: Stream) -> None:
    for _ in range(3):
        stream.append(40)
    DeltaTable(str(stream.path)).create_checkpoint()
    (stream.path / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(RunError, match="holds no version 0 any more"):
        next_window(config(stream), None)
