"""Follow mode, top to bottom: train on what the stream adds, window by window, and promote what is better.

The newest checkpoint says which version is learnt, `promoted.json` which window was decided on: whatever ends the
process, the next start goes on from there, so no new row is left out and none is learnt twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession

from kbit_spark.config.load import dump
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.events import Event
from kbit_spark.models import registry
from kbit_spark.schemas.snapshot import Snapshot
from kbit_spark.session import spark_session
from kbit_spark.stopping import StopRequest
from kbit_spark.tables.snapshot import read_version, require_columns, with_shape
from kbit_spark.telemetry.hub import Telemetry
from kbit_spark.train import SETTINGS, Emits, check, checkpoint_dir, fit, worker_settings
from kbit_spark.training import checkpoint
from kbit_spark.training.champion import Promoted, adopt, decide, read_promoted
from kbit_spark.training.checkpoint import Checkpoint
from kbit_spark.training.job import Outcome
from kbit_spark.training.lock import alone_in
from kbit_spark.training.manifest import Identity
from kbit_spark.windows import Work, pending, plan_again, plan_next


def run(config: TrainConfig) -> None:
    """Follow the samples table until a limit of `config.follow` is reached or a signal asks to stop.

    Raises:
        KbitError: see `train.check`, `Windows` and `train.fit`.
        RunError: another job trains into the same folder.
    """
    check(config)
    with alone_in(checkpoint_dir(config), "checkpoint.dir"):
        windows = Windows(config)
        windows.look()  # what is wrong with table or checkpoint is told before anything is started
        spark = spark_session("kbit-follow", {**SETTINGS, **worker_settings(config), **config.spark})
        with (
            StopRequest("window") as stop,
            Telemetry.open(config.telemetry, "follow", spark, config_text=dump(config)) as telemetry,
        ):
            follow(spark, config, windows.until(stop, telemetry), telemetry)


def follow(spark: SparkSession, config: TrainConfig, windows: Iterator[Turn], telemetry: Emits) -> None:
    """Train on each window, hold its model against the one in use, and tell how it went.

    Raises:
        RunError: see `train.fit` and `champion.decide`.
        TrainingError: too many attempts were lost.
    """
    root = checkpoint_dir(config)
    for turn in windows:
        began, promoted, window = time.monotonic(), read_promoted(root), turn.work.window
        longer = config.model_copy(update={"epochs": window.first_epoch + config.follow.epochs})
        champion = None if promoted is None else promoted.path(root)
        outcome = fit(spark, longer, turn.work.snapshot, turn.resume, telemetry, window, champion)
        assert outcome.paired is not None
        candidate = checkpoint.folder(root, outcome.total_steps)
        promoted = decide(root, candidate, window, outcome.paired, config.follow.significance)
        telemetry.emit(window_event(turn.work, outcome, promoted, time.monotonic() - began))


@dataclass(frozen=True)
class Turn:
    """A window, and the checkpoint that it goes on from."""

    work: Work
    resume: Checkpoint | None


class Windows:
    """The windows of a table, beginning where the newest checkpoint ends."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._root = checkpoint_dir(config)

    def until(self, stop: StopRequest, telemetry: Emits) -> Iterator[Turn]:
        """Yield windows until a limit is reached or `stop` is set.

        Each must be decided on before the next one is asked for.

        Raises:
            RunError: see `look`, `plan_next` and `plan_again`.
        """
        count, limit = 0, self._config.follow.max_windows
        while not stop.is_set() and (limit is None or count < limit):
            last = self._last()
            work = self._unfinished(last) or self._wait(last, stop, telemetry)
            if work is None:
                return
            self._check(work.snapshot, last)
            yield Turn(work, last)
            count += 1

    def look(self) -> None:
        """Look at table and checkpoint as they are now, and begin nothing.

        Raises:
            RunError: the checkpoint is of a run that has not ended, of another table or configuration, or damaged, the
                model in use is, or the log cannot tell what is new.
        """
        last, data = self._last(), self._config.data
        pending(self._config, _learnt(last))
        if last is not None:
            self._check(with_shape(read_version(data.table)[1], data.input, data.input_shape), last)

    def _last(self) -> Checkpoint | None:
        """Return the newest checkpoint; the result of a run without follow mode becomes the first champion."""
        found = checkpoint.newest(self._root)
        if found is not None and found.manifest.window is None:
            if not found.manifest.position.finished:
                msg = f"the run in {self._root} has not ended"
                raise RunError(msg, "let it end without follow first, or choose another checkpoint.dir")
            if read_promoted(self._root) is None:
                best = checkpoint.intact_best_folder(self._root, found)
                adopt(self._root, best, found.manifest.identity.version)
        return found

    def _unfinished(self, last: Checkpoint | None) -> Work | None:
        """Return the window that was interrupted, in training or before it was decided on; None where none was."""
        if last is None or last.manifest.window is None:
            return None
        promoted = read_promoted(self._root)
        decided = promoted is not None and promoted.decided_window >= last.manifest.window.number
        if last.manifest.position.finished and decided:
            return None
        return plan_again(self._config, last.manifest)

    def _wait(self, last: Checkpoint | None, stop: StopRequest, telemetry: Emits) -> Work | None:
        """Return the next window once there are rows enough; None at the end."""
        follow, told = self._config.follow, False
        idle = Idle(follow.stop_after_idle_s)
        while not stop.is_set():
            found = pending(self._config, _learnt(last))
            rows = found.increment.rows if found is not None else 0
            is_over = idle.is_over(rows)
            if found is not None and rows and (rows >= follow.min_rows_per_window or is_over):
                work = plan_next(self._config, None if last is None else last.manifest, found)
                if work is not None:
                    return work
            if is_over:
                return None
            if not told:
                numbers = {"rows": rows, "wanted": follow.min_rows_per_window}
                telemetry.emit(Event("follow_wait", numbers=numbers, labels={"table": self._config.data.table}))
                told = True
            stop.wait(follow.poll_s)
        return None

    def _check(self, snapshot: Snapshot, last: Checkpoint | None) -> None:
        """Check that table, model, checkpoint and the model in use fit each other.

        Raises:
            KbitError: naming what does not.
        """
        data = self._config.data
        tensor = require_columns(snapshot, data.input, data.target)
        registry.build(self._config.model, tensor.shape, data.classes, self._config.model_options)
        wanted, promoted = Identity.of(self._config, snapshot), read_promoted(self._root)
        for found in (last, None if promoted is None else promoted.read(self._root)):
            if found is not None:
                version = found.manifest.identity.version  # the one that may differ
                checkpoint.check_identity(found, wanted.model_copy(update={"version": version}))


class Idle:
    """Whether nothing new has come for `limit_s` seconds (None: for ever)."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._rows = 0
        self._since = time.monotonic()

    def is_over(self, rows: int) -> bool:
        """Take the number of new rows that are there now."""
        if rows != self._rows:
            self._rows, self._since = rows, time.monotonic()
        return self._limit_s is not None and time.monotonic() - self._since >= self._limit_s


def _learnt(last: Checkpoint | None) -> int:
    """Return the version up to which all new rows are in the weights, -1 for none."""
    if last is None:
        return -1
    window = last.manifest.window
    if window is None:
        return last.manifest.identity.version
    return window.last if last.manifest.position.finished else window.after


def window_event(work: Work, outcome: Outcome, promoted: Promoted, duration_s: float) -> Event:
    """Return the event that tells of a window: what it learnt, how fresh that is, and how its model compares."""
    window, paired, champion = work.window, outcome.paired, promoted.champion
    assert paired is not None
    numbers: dict[str, float] = {
        "window": window.number,
        "first_version": window.after + 1,
        "last_version": window.last,
        "new_rows": window.new_rows,
        "replayed_rows": window.replayed_rows,
        "repeated_rows": window.repeated_rows,
        "rows_so_far": window.rows_so_far,
        "step": outcome.total_steps,
        "duration_s": duration_s,
        "holdout_rows": paired.rows,
        "gained": paired.gained,
        "lost": paired.lost,
        "p_value": paired.p_value,
        "promoted": float(champion.window == window.number),
    }
    if work.committed:
        numbers["commit_to_model_s"] = outcome.saved_at - work.committed
    if paired.rows:
        numbers |= {"accuracy": paired.new_accuracy, "champion_accuracy": paired.old_accuracy}
    if work.event_times is not None:
        oldest, newest = work.event_times
        numbers |= {"freshness_s": outcome.saved_at - newest, "oldest_freshness_s": outcome.saved_at - oldest}
    labels = {"champion": champion.checkpoint}
    return Event("follow_window", f"window={window.number}", numbers, labels)
