"""Which files the commits after a version brought in: what a model that has seen that version has still to learn.

Pure functions over commits. Files that a compaction wrote hold no new rows and are passed over; the files that it
replaced are on disk for as long as VACUUM leaves them there, so new rows are read from where they were written first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbit_spark.errors import RunError
from kbit_spark.schemas.fields import SPLIT_COLUMN
from kbit_spark.tables.log import Commit, LogFile

DELETES = ("DELETE", "TRUNCATE")
"""Operations whose commits take rows away and bring none: what they write are rows that stay."""

RESTORE = "RESTORE"
"""The operation that may bring old rows once more without taking any away."""


@dataclass(frozen=True)
class NewFile:
    """A file with new rows, and the version that brought it."""

    version: int
    file: LogFile
    rows: int
    """Rows that are part of the table, as the commit told."""


@dataclass(frozen=True)
class Increment:
    """What the versions after `after` up to `last` brought in.

    Args:
        after: the version before the first of them.
        last: the newest of them.
        files: files of one split with new rows, in the order of the commits.
        deletes: versions that deleted rows, old ones or new, or may have.
    """

    after: int
    last: int
    files: tuple[NewFile, ...] = ()
    deletes: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows that the commits brought in."""
        return sum(new.rows for new in self.files)

    def up_to(self, last: int) -> Increment:
        """Return what the versions up to `last` brought in; the deletes of all versions stay known."""
        return Increment(self.after, last, tuple(new for new in self.files if new.version <= last), self.deletes)

    def at_most(self, rows: int) -> Increment:
        """Return the longest beginning of at most `rows` rows; a version is never split, so the first one may be more.

        Versions without new rows behind it belong to it as well.
        """
        total = 0
        for new in self.files:
            total += new.rows
            if total > rows and new.version > self.files[0].version:
                return self.up_to(new.version - 1)
        return self


def increment(
    table: str,
    commits: Sequence[Commit],
    after: int,
    split: str = "train",
    split_column: str = SPLIT_COLUMN,
    skip_change_commits: bool = False,
) -> Increment:
    """Return what `commits` brought into one split.

    Args:
        table: the table, for errors.
        commits: all commits after the version `after` up to some version, at least one, in order.
        after: the last version that is known already.
        split: the split.
        split_column: what the log calls the column `_split`.
        skip_change_commits: pass over commits that change rows, with all that they write.

    Raises:
        RunError: the log has lost commits, a commit changes rows, or a file has no row count.
    """
    _refuse_gaps(table, commits, after)
    files: list[NewFile] = []
    deletes: list[int] = []
    for commit in commits:
        if not commit.deleted and not (commit.operation == RESTORE and commit.written):
            mine = (file for file in commit.written if file.partition.get(split_column) == split)
            files += [NewFile(commit.version, file, _rows(table, file)) for file in mine]
        elif skip_change_commits or commit.operation in DELETES:
            deletes.append(commit.version)  # a commit that is passed over may have taken rows away as well
        else:
            msg = f"version {commit.version} of {table} is a commit {commit.operation} that changes or replaces rows"
            raise RunError(
                msg,
                "follow.skip_change_commits=true goes on without what it wrote; to learn it, train anew on the "
                "newest version with another checkpoint.dir",
            )
    return Increment(after, commits[-1].version, tuple(new for new in files if new.rows), tuple(deletes))


def _refuse_gaps(table: str, commits: Sequence[Commit], after: int) -> None:
    expected = after + 1
    for commit in commits:
        if commit.version != expected:
            msg = f"the log of {table} holds no version {expected} any more, so nobody can tell what it brought in"
            raise RunError(msg, "train without follow into another checkpoint.dir; follow goes on from there")
        expected += 1


def _rows(table: str, file: LogFile) -> int:
    if file.rows is None:
        msg = f"{table}: no row count in the statistics of {file.path}"
        raise RunError(msg, "write the table with statistics (numRecords)")
    return file.rows
