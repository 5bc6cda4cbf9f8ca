"""Plans the windows of follow mode: which rows one trains on, resolved once on the driver.

A window's plan follows from its manifest entry, the configuration and the table's log, so an interrupted one is planned
again as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from deltalake import DeltaTable

from kbit_spark.config.train import TrainConfig
from kbit_spark.datasets.replay import Mix, compose, draw
from kbit_spark.errors import RunError
from kbit_spark.schemas.fields import SPLIT_COLUMN
from kbit_spark.schemas.ledger import LedgerEntry, OffsetRange, merge_ranges
from kbit_spark.schemas.snapshot import DataFile, Snapshot, pack_rows
from kbit_spark.tables.additions import Additions, resolve_additions, stored_name
from kbit_spark.tables.event_times import event_times
from kbit_spark.tables.increments import Increment, increment
from kbit_spark.tables.log import Commit, commits
from kbit_spark.tables.snapshot import read_version, root_of, with_shape
from kbit_spark.training.duel import HOLDOUT
from kbit_spark.training.manifest import Manifest, Window


@dataclass(frozen=True)
class Work:
    """A window ready to be trained.

    Args:
        window: what stands in its checkpoints.
        snapshot: what the ranks read: the rows to train on, the hold-out, Kafka's offsets up to the window's end.
        committed: when its last version was committed, in s since 1970.
        event_times: of its oldest and its newest new row, in s since 1970; None where the table does not tell.
    """

    window: Window
    snapshot: Snapshot
    committed: float
    event_times: tuple[float, float] | None


@dataclass(frozen=True)
class Pending:
    """What was committed since the last window."""

    commits: Sequence[Commit]
    increment: Increment


def pending(config: TrainConfig, after: int, as_of: int | None = None) -> Pending | None:
    """Return what was committed after a version, up to `as_of`; None where nothing was, or where there is no table yet.

    Raises:
        RunError: the table does not reach that version; see `increments.increment`.
    """
    root = root_of(config.data.table)
    if after < 0 and not DeltaTable.is_deltatable(root):
        return None
    known = list(commits(root, after, as_of))
    if not known and DeltaTable(root).version() < after:
        msg = f"{root} does not reach version {after}, which is learnt already"
        raise RunError(msg, "was the table made anew? Then train with another checkpoint.dir")
    new = [commit for commit in known if commit.version > after]
    if not new:
        return None
    split = stored_name(read_version(root, new[-1].version)[1]) if _maps_columns(new) else SPLIT_COLUMN
    skip = config.follow.skip_change_commits
    return Pending(new, increment(root, new, after, split_column=split, skip_change_commits=skip))


def plan_next(config: TrainConfig, last: Manifest | None, found: Pending) -> Work | None:
    """Return the window that comes after the one of the manifest `last` (None: the first one).

    None where there are too few rows for one batch, or all of them are deleted again.

    Raises:
        RunError: see `resolve_additions`.
    """
    most = config.follow.max_rows_per_window
    while True:
        taken = found.increment.at_most(most)
        additions = _resolve(config, found, taken)
        mix = _mix(config, additions)
        if mix is not None:
            break
        if taken.last == found.increment.last:
            return None
        most *= 2  # so few rows, or so many of them deleted, that they fill no batch: take more versions
    before = last.window if last is not None else None
    window = Window(
        number=0 if before is None else before.number + 1,
        after=taken.after,
        last=taken.last,
        as_of=found.commits[-1].version,
        first_epoch=0 if last is None else last.position.epoch,
        new_rows=mix.new,
        replayed_rows=mix.replayed,
        repeated_rows=mix.repeated,
        rows_so_far=mix.new + (0 if before is None else before.rows_so_far),
    )
    kafka = last.lineage.kafka if last is not None else ()
    complete = last is None or last.lineage.kafka_complete
    return _work(config, window, found, additions, merge_ranges([*kafka, *_ranges(found, taken.last)]), complete)


def plan_again(config: TrainConfig, manifest: Manifest) -> Work:
    """Return the window that a checkpoint is in, as it was planned first.

    Raises:
        RunError: the table or the configuration has changed so that it cannot be planned as it was.
    """
    window = manifest.window
    assert window is not None
    found = pending(config, window.after, window.as_of)
    if found is None or found.commits[-1].version != window.as_of:
        msg = f"{config.data.table} does not reach version {window.as_of}, as of which a window was planned"
        raise RunError(msg, "was the table restored? Then train anew with another checkpoint.dir")
    taken = found.increment.up_to(window.last)
    additions = _resolve(config, found, taken)
    mix = _mix(config, additions)
    if mix != Mix(window.new_rows, window.replayed_rows, window.repeated_rows):
        msg = f"window {window.number} was begun with {window.new_rows} new and {window.replayed_rows} replayed rows"
        msg += f", now it would be {mix}"
        raise RunError(msg, "set follow.replay_fraction and global_batch_size as they were")
    return _work(config, window, found, additions, manifest.lineage.kafka, manifest.lineage.kafka_complete)


def _resolve(config: TrainConfig, found: Pending, taken: Increment) -> Additions:
    return resolve_additions(config.data.table, taken, found.commits, config.data.longest_run_s)


def _mix(config: TrainConfig, additions: Additions) -> Mix | None:
    new, older = (sum(file.rows for file in files) for files in (additions.new, additions.older))
    return compose(new, older, config.global_batch_size, config.follow.replay_fraction)


def _work(
    config: TrainConfig,
    window: Window,
    found: Pending,
    additions: Additions,
    kafka: tuple[OffsetRange, ...],
    kafka_complete: bool,
) -> Work:
    seed = (config.seed, window.number)
    files = (
        *additions.new,
        *drawn(additions.older, window.replayed_rows, seed),
        *drawn(additions.new, window.repeated_rows, seed),
        *additions.snapshot.of_split(HOLDOUT),
    )
    changes = {"version": window.last, "files": files, "kafka": kafka, "kafka_complete": kafka_complete}
    snapshot = additions.snapshot.model_copy(update=changes)
    return Work(
        window,
        with_shape(snapshot, config.data.input, config.data.input_shape),
        next(commit.time for commit in found.commits if commit.version == window.last),
        event_times(additions.new, stored_name(snapshot, "_timestamp")),
    )


def drawn(files: Sequence[DataFile], rows: int, seed: Sequence[int]) -> list[DataFile]:
    """Return files with `rows` of the rows of `files`, drawn at random; the others are marked as deleted."""
    chosen: dict[int, list[slice]] = {}
    for run in draw([file.rows for file in files], rows, seed):
        chosen.setdefault(run.group, []).append(slice(run.first, run.first + run.rows))
    return [_only(files[place], runs) for place, runs in sorted(chosen.items())]


def _only(file: DataFile, runs: Sequence[slice]) -> DataFile:
    """Return a file of which only these runs of its rows are left."""
    deleted = file.deleted_rows()
    there = np.arange(file.rows) if deleted is None else np.flatnonzero(~deleted)
    mask = np.ones(file.rows if deleted is None else len(deleted), dtype=np.bool_)
    for run in runs:
        mask[there[run]] = False
    return file.model_copy(update={"rows": int((~mask).sum()), "deleted": pack_rows(mask)})


def _ranges(found: Pending, last: int) -> list[OffsetRange]:
    """Return the offsets that the commits up to `last` brought in."""
    entries = (LedgerEntry.from_metadata(c.user_metadata) for c in found.commits if c.version <= last)
    return [r for entry in entries if entry is not None for r in entry.ranges]


def _maps_columns(new: Sequence[Commit]) -> bool:
    """Tell whether the log may call `_split` by another name."""
    return any(SPLIT_COLUMN not in file.partition for commit in new for file in commit.written)
