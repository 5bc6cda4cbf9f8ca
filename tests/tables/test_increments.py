"""Which files are new between two versions, proven over made-up commits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbit_spark.errors import RunError
from kbit_spark.tables.increments import Increment, increment
from kbit_spark.tables.log import Commit, LogFile


def file(name: str, rows: int | None = 10, split: str = "train") -> LogFile:
    return LogFile(name, rows, {"_split": split})


def append(version: int, *files: LogFile) -> Commit:
    return Commit(version, written=files, added=tuple(f.path for f in files), operation="STREAMING UPDATE")


def compaction(version: int, gone: str, come: str) -> Commit:
    return Commit(version, added=(come,), removed={gone: 1.0}, operation="OPTIMIZE")


def names(found: Increment) -> list[str]:
    return [new.file.path for new in found.files]


histories = st.lists(st.lists(st.integers(0, 40), max_size=3), min_size=1, max_size=12)
"""For each version the rows of its files; an empty one is a compaction."""


def commits(history: list[list[int]]) -> list[Commit]:
    return [
        append(version, *(file(f"{version}-{place}", rows) for place, rows in enumerate(files)))
        if files
        else compaction(version, "old", f"{version}-compacted")
        for version, files in enumerate(history)
    ]


@given(histories, st.integers(1, 100))
def test_windows_take_every_file_once_and_in_order(history: list[list[int]], most: int) -> None:
    all_of_them, after, taken = commits(history), -1, list[str]()
    while after < len(history) - 1:
        window = increment("t", all_of_them[after + 1 :], after).at_most(most)
        versions = {new.version for new in window.files}
        assert window.after == after < window.last
        assert window.rows <= most or len(versions) == 1
        assert all(after < version <= window.last for version in versions)
        taken += names(window)
        after = window.last
    assert taken == [f"{v}-{place}" for v, files in enumerate(history) for place, rows in enumerate(files) if rows]


@given(histories, st.integers(1, 100), st.data())
def test_a_window_that_is_planned_again_is_the_same(history: list[list[int]], most: int, data: st.DataObject) -> None:
    as_of = data.draw(st.integers(0, len(history) - 1))
    first = increment("t", commits(history)[: as_of + 1], -1).at_most(most)
    assert increment("t", commits(history)[: as_of + 1], -1).up_to(first.last) == first
    assert names(increment("t", commits(history), -1).up_to(first.last)) == names(first)


def test_only_the_files_of_the_split_count() -> None:
    found = increment("t", [append(4, file("a"), file("b", split="test")), append(5, file("c", 0))], 3)
    assert (found.after, found.last, found.rows, names(found)) == (3, 5, 10, ["a"])
    mapped = LogFile("d", 7, {"col-1": "train"})
    assert increment("t", [append(0, mapped)], -1, split_column="col-1").rows == 7


@pytest.mark.parametrize("operation", ["DELETE", "TRUNCATE"])
def test_what_a_delete_writes_is_not_new(operation: str) -> None:
    delete = Commit(1, written=(file("rest", 9),), deleted=frozenset({"a"}), operation=operation)
    found = increment("t", [append(0, file("a")), delete, append(2, file("b"))], -1)
    assert (names(found), found.deletes) == (["a", "b"], (1,))
    assert found.up_to(0).deletes == (1,)  # a deletion is known at once, whatever the window takes


def test_changes_of_rows_are_refused_or_passed_over() -> None:
    update = Commit(1, written=(file("changed"),), deleted=frozenset({"a"}), operation="UPDATE")
    history = [append(0, file("a")), update, append(2, file("b"))]
    with pytest.raises(RunError, match=r"version 1 of t is a commit UPDATE.*skip_change_commits"):
        increment("t", history, -1)
    assert names(increment("t", history, -1, skip_change_commits=True)) == ["a", "b"]


@pytest.mark.parametrize("history", [[append(1)], [append(0), append(2)]])
def test_a_log_that_has_lost_commits_is_refused(history: list[Commit]) -> None:
    with pytest.raises(RunError, match=r"holds no version [01] any more.*train without follow"):
        increment("t", history, -1)


def test_a_file_without_a_row_count_is_refused() -> None:
    with pytest.raises(RunError, match="no row count in the statistics of a"):
        increment("t", [append(0, file("a", None))], -1)
