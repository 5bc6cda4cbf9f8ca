"""The data files behind an increment: new rows from where the stream wrote them, older rows to replay.

Rows that were deleted since are left out of both, and a file that VACUUM could take during the run is never read.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.schema import PrimitiveType

from kbit_spark.schemas.fields import SPLIT_COLUMN, Split
from kbit_spark.schemas.snapshot import DataFile, Snapshot, pack_rows
from kbit_spark.tables.increments import Increment, NewFile
from kbit_spark.tables.log import Commit
from kbit_spark.tables.retention import refuse_short_lived, retention_s
from kbit_spark.tables.snapshot import full_path, read_version
from kbit_spark.tables.survivors import deleted_rows

_INTEGERS = ("byte", "short", "integer", "long")


@dataclass(frozen=True)
class Additions:
    """What an increment brought in, and what the table held before it.

    Args:
        snapshot: the version that everything is seen as of, without Kafka's offsets.
        new: files of the split with rows of the increment.
        older: files of the split with rows from before the increment.
    """

    snapshot: Snapshot
    new: tuple[DataFile, ...]
    older: tuple[DataFile, ...]


def resolve_additions(
    table: str, increment: Increment, commits: Sequence[Commit], longest_run_s: float, split: Split = "train"
) -> Additions:
    """Return the data files of an increment, seen as of the last of `commits`.

    Args:
        table: path or URI.
        increment: of some or all of the commits.
        commits: all commits after `increment.after`, the last one decides which rows are deleted.
        longest_run_s: how long the files must be safe from VACUUM.
        split: the split that the increment is about.

    Raises:
        RunError: as `read_version`; files with new rows that VACUUM may take too early, or whose rows nobody can tell.
    """
    delta, snapshot = read_version(table, commits[-1].version)
    kept_s = retention_s(delta.metadata().configuration)
    removed = _removed(snapshot, commits)
    current = {file.path: file for file in snapshot.files}
    new = tuple(
        current.get(full_path(snapshot.table, file.file.path))
        or _replaced_file(delta, snapshot, increment, file, split)
        for file in increment.files
    )
    leaving = {file.path: removed[file.path] for file in new if file.path in removed}
    refuse_short_lived(snapshot.table, increment.last, kept_s, leaving, longest_run_s)
    too_early = time.time() - kept_s + longest_run_s
    older = (file for file in _older(snapshot, increment.after, commits, split) if file.rows)
    return Additions(
        snapshot,
        tuple(file for file in new if file.rows),
        tuple(file for file in older if removed.get(file.path, too_early) >= too_early),
    )


def _removed(snapshot: Snapshot, commits: Sequence[Commit]) -> dict[str, float]:
    """Return the files that are no longer part of the table, and since when."""
    gone: dict[str, float] = {}
    for commit in commits:
        gone |= {full_path(snapshot.table, path): since for path, since in commit.removed.items()}
    current = {file.path for file in snapshot.files}
    return {path: since for path, since in gone.items() if path not in current}


def _replaced_file(delta: DeltaTable, snapshot: Snapshot, increment: Increment, new: NewFile, split: Split) -> DataFile:
    """Return a file that has left the table since; those of its rows that are deleted are marked."""
    path = full_path(snapshot.table, new.file.path)
    file = DataFile(path=path, rows=new.rows, split=split, constants=_constants(delta, snapshot, new))
    if not new.file.has_deleted_rows and all(version <= new.version for version in increment.deletes):
        return file  # compacted at most: all its rows are in the table still
    gone = deleted_rows(file, snapshot)
    return file.model_copy(update={"rows": len(gone) - int(gone.sum()), "deleted": pack_rows(gone)})


def _constants(delta: DeltaTable, snapshot: Snapshot, new: NewFile) -> dict[str, int]:
    """Return the values of integer partition columns."""
    found: dict[str, int] = {}
    for field in delta.schema().fields:
        integer = isinstance(field.type, PrimitiveType) and field.type.type in _INTEGERS
        if integer and field.name in delta.metadata().partition_columns:
            value = new.file.partition.get(stored_name(snapshot, field.name))
            found |= {} if value is None else {field.name: int(value)}
    return found


def stored_name(snapshot: Snapshot, column: str = SPLIT_COLUMN) -> str:
    """Return what log and files call a column."""
    return snapshot.stored[column].name if column in snapshot.stored else column


def _older(snapshot: Snapshot, after: int, commits: Sequence[Commit], split: Split) -> tuple[DataFile, ...]:
    """Return the files of version `after`; where rows were changed since, only files that are still in the table."""
    if after < 0:
        return ()
    before = read_version(snapshot.table, after)[1].of_split(split)
    if not any(commit.deleted for commit in commits):
        return before
    current = {file.path: file for file in snapshot.files}
    return tuple(current[file.path] for file in before if file.path in current)
