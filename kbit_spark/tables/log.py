"""A Delta table's commits, read from its log: who added and removed which file when, which Kafka offsets came in.

delta-rs numbers the entries of its `history` from the version that is loaded, wrongly while others commit; here a
commit's version is the name of its file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow.fs as pafs

from kbit_spark.errors import RunError
from kbit_spark.schemas.ledger import LedgerEntry, OffsetRange, merge_ranges
from kbit_spark.storage import filesystem

_REQUESTS = 16
"""Files read at a time: on an object store each is a request."""

_COMMIT = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True)
class LogFile:
    """A data file as the log names it: relative to the table, its partition values as text."""

    path: str
    rows: int | None
    """Rows that are part of the table; None without statistics."""

    partition: Mapping[str, str | None] = field(default_factory=dict)
    has_deleted_rows: bool = False


@dataclass(frozen=True)
class Commit:
    """One commit: files are named as in the log, relative to the table, `removed` with the time in s since 1970."""

    version: int
    time: float = 0.0
    """When it was made, in s since 1970; 0 where it does not tell."""

    user_metadata: str | None = None
    added: tuple[str, ...] = ()
    removed: dict[str, float] = field(default_factory=dict)
    written: tuple[LogFile, ...] = ()
    """Of the files added those that change the table's rows; a compaction's do not."""

    deleted: frozenset[str] = frozenset()
    """Of the files removed those that change the table's rows."""

    operation: str = ""
    restored: str | None = None
    """The version that a RESTORE went back to, as its parameters name it."""


def commits(table: str, first: int, last: int | None = None) -> Iterator[Commit]:
    """Yield the commits `first` to `last` (None: the newest) that the log still holds, in order.

    Raises:
        RunError: the log cannot be read.
    """
    with _readable(table) as (store, folder), ThreadPoolExecutor(max_workers=_REQUESTS) as pool:
        versions = [v for v in _versions(store, folder) if first <= v and (last is None or v <= last)]
        yield from pool.map(lambda version: _read(store, folder, version), versions)


def newest_first(table: str, last: int | None = None) -> Iterator[Commit]:
    """Yield the commits that made the version `last` (None: the newest) what it is; what a RESTORE undid is left out.

    Raises:
        RunError: the log cannot be read, or a RESTORE does not name its version.
    """
    with _readable(table) as (store, folder), ThreadPoolExecutor(max_workers=_REQUESTS) as pool:
        left, newest = _versions(store, folder)[::-1], last
        size = 1  # most callers want the newest one or two, some want all
        while left:
            block, left, size = left[:size], left[size:], min(4 * size, 256)
            for commit in pool.map(lambda version: _read(store, folder, version), block):
                if newest is not None and commit.version > newest:
                    continue
                yield commit
                newest = _restored_version(table, commit) if commit.operation == "RESTORE" else commit.version


def restored_among(table: str, versions: Iterable[int]) -> int | None:
    """Return the first of some versions whose commit is a RESTORE, None where none is; the log is not listed.

    Raises:
        RunError: the log cannot be read.
    """
    with _readable(table) as (store, folder):
        for version in versions:
            with suppress(FileNotFoundError):  # one that was cleaned up
                if _read(store, folder, version).operation == "RESTORE":
                    return version
    return None


@contextmanager
def _readable(table: str) -> Iterator[tuple[pafs.FileSystem, str]]:
    try:
        yield filesystem(f"{table.rstrip('/')}/_delta_log")
    except (OSError, ValueError) as error:
        msg = f"cannot read the log of {table}: {' '.join(str(error).split())}"
        raise RunError(msg, "check the table and the permissions on its _delta_log") from error


def _versions(store: pafs.FileSystem, folder: str) -> list[int]:
    names = [info.base_name for info in store.get_file_info(pafs.FileSelector(folder))]
    return sorted(int(match[1]) for match in map(_COMMIT.fullmatch, names) if match)


def _restored_version(table: str, commit: Commit) -> int:
    if commit.restored is None:
        msg = f"version {commit.version} of {table} restored a time, not a version, so nobody knows what it undid"
        raise RunError(msg, f"restore it once more: RESTORE TABLE delta.`{table}` TO VERSION AS OF ...")
    return int(commit.restored)


def kafka_ranges(table: str, version: int) -> tuple[tuple[OffsetRange, ...], bool]:
    """Return the offsets that the commits behind `version` brought in, and whether none of these commits is gone.

    What a RESTORE undid is left out; behind one that does not name its version, nothing is known.

    Raises:
        RunError: the log cannot be read.
    """
    complete, expected, ranges = True, version, list[OffsetRange]()
    for commit in newest_first(table, version):
        entry = LedgerEntry.from_metadata(commit.user_metadata)
        ranges += entry.ranges if entry is not None else ()
        complete = complete and commit.version == expected
        if commit.operation != "RESTORE":
            expected = commit.version - 1
        elif commit.restored is not None:
            expected = int(commit.restored)
        else:
            break
    return merge_ranges(ranges), complete and expected == -1


def removals(table: str, version: int, files: Iterable[str]) -> dict[str, float]:
    """Return which of the `files` of a version are no longer part of the table, and since when (s since 1970).

    Raises:
        RunError: the log cannot be read.
    """
    wanted, gone = set(files), dict[str, float]()
    for commit in commits(table, version + 1):
        gone |= {path: time for path, time in commit.removed.items() if path in wanted}
        for path in commit.added:  # the same commit removes and adds a file whose deletion vector it changes
            gone.pop(path, None)
    return gone


def _read(store: pafs.FileSystem, folder: str, version: int) -> Commit:
    with store.open_input_file(f"{folder}/{version:020d}.json") as stream:
        actions = [json.loads(line) for line in stream.read().splitlines() if line.strip()]

    def of_kind(kind: str) -> list[dict[str, Any]]:
        return [action[kind] for action in actions if kind in action]

    info: dict[str, Any] = next(iter(of_kind("commitInfo")), {})
    restored = (info.get("operationParameters") or {}).get("version")
    return Commit(
        version,
        time=info.get("timestamp", 0) / 1_000,
        user_metadata=info.get("userMetadata"),
        added=tuple(unquote(add["path"]) for add in of_kind("add")),
        removed={unquote(gone["path"]): gone.get("deletionTimestamp", 0) / 1_000 for gone in of_kind("remove")},
        written=tuple(_log_file(add) for add in of_kind("add") if add.get("dataChange", True)),
        deleted=frozenset(unquote(gone["path"]) for gone in of_kind("remove") if gone.get("dataChange", True)),
        operation=str(info.get("operation", "")),
        restored=None if restored is None else str(restored),
    )


def _log_file(add: Mapping[str, Any]) -> LogFile:
    rows = json.loads(add.get("stats") or "{}").get("numRecords")
    deleted = (add.get("deletionVector") or {}).get("cardinality", 0)
    return LogFile(
        path=unquote(add["path"]),
        rows=None if rows is None else rows - deleted,
        partition=add.get("partitionValues") or {},
        has_deleted_rows=deleted > 0,
    )
