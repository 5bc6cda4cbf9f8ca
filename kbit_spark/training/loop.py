"""The training loop of one rank: epochs of steps, a validation and a checkpoint after each, a test at the end."""

from __future__ import annotations

import math
import time
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.models import registry
from kbit_spark.schemas.fields import Split
from kbit_spark.training import checkpoint
from kbit_spark.training.data import RunData
from kbit_spark.training.duel import compare
from kbit_spark.training.job import Outcome, TrainJob
from kbit_spark.training.keeper import Keeper
from kbit_spark.training.manifest import Position
from kbit_spark.training.metrics import Averages, Reading, Sums
from kbit_spark.training.profiler import Profiler
from kbit_spark.training.promotion import Paired
from kbit_spark.training.randomness import seed_rank
from kbit_spark.training.reporter import Reporter, Window
from kbit_spark.training.stepper import Stepper
from kbit_spark.training.world import World

NO_ROWS = Averages(math.nan, math.nan, 0)
WINDOW_LAG = {"cpu": 0, "cuda": 16}
"""Steps after which a window is told. A GPU's launches, of which some 1,024 may wait, run up to ten steps of a small
model ahead of it. To wait for its numbers sooner costs that lead, and with it a millisecond or more of an idle GPU."""

LAST_WINDOWS_S = 2.0
"""How long a run that fails waits for the windows before its fault: a GPU that hangs would keep them for ever."""


@dataclass(frozen=True)
class _Pending:
    """A window whose loss is still being computed."""

    window: Window
    reading: Reading


class Trainer:
    """One rank's run; the process group must be there.

    Raises:
        RunError: files that do not fit the table, fewer rows than a batch, a checkpoint that cannot be read.
    """

    def __init__(self, job: TrainJob, world: World, reporter: Reporter) -> None:
        self._job, self._config, self._world, self._reporter = job, job.config, world, reporter
        self._data = RunData(job, world)
        self._profiler = Profiler(job.config.profile, world, job.checkpoint_dir / "traces")
        self._stepper = self._make_stepper()
        self._keeper = Keeper(job, world, self._stepper)
        self._position, self._sums, self._save_due = Position(), Sums(world.device), False
        self._pending: deque[_Pending] = deque()
        seed_rank(self._config.seed, world.rank, 0)
        if job.resume is not None:
            self._resume(job.resume)

    def fit(self) -> Outcome:
        """Train to the end and test the best weights.

        Raises:
            RunError: bad data, a loss that is not finite, a checkpoint that cannot be written.
        """
        with closing(self._keeper), closing(self._profiler), closing(self._data), closing(self._stepper):
            return self._fit()

    def _fit(self) -> Outcome:
        validation = NO_ROWS
        while not self._position.finished:
            self._reporter.begin_epoch()
            try:
                train = self._train_epoch(self._position.epoch)
            except Exception:
                self._tell_last_windows()
                raise
            speeds = self._reporter.end_of_training()
            self._reporter.profile(self._position.epoch, self._position.total_steps, self._profiler.take())
            validation = self._evaluate("validation")
            self._reporter.epoch(self._position.epoch, self._position.total_steps, train, validation, speeds)
            loss = validation.loss if validation.rows else None
            self._position = after_epoch(self._position, loss, self._config)
            self._keeper.save_epoch(self._position, loss)
            self._save_due = False
        self._keeper.finish()
        saved_at = time.time()
        if self._job.window is not None:
            paired = compare(self._evaluate, self._world, self._load_champion)
            return self._outcome(validation, NO_ROWS, saved_at, paired)
        self._keeper.load_best(self._position)
        test = self._evaluate("test")
        self._reporter.test(self._position.epoch, self._position.total_steps, test, self._best.name)
        return self._outcome(validation, test, saved_at)

    def _train_epoch(self, epoch: int) -> Averages:
        plan, sums, size = self._data.plan(epoch), self._sums, self._config.optimizer.accumulate_steps
        self._stepper.model.train()
        self._reporter.planned(plan.steps, self._position.total_steps - self._position.step)
        arrived = partial(self._profiler.mark, "data_wait")
        with closing(self._data.training(plan, self._position.step, arrived)) as batches:
            for step in range(self._position.step, plan.steps):
                self._profiler.begin_step(self._position.total_steps + 1)
                began = time.perf_counter()
                batch = next(batches)
                self._profiler.mark("host_to_device")
                waited = time.perf_counter() - began
                group = min(size, plan.steps - step // size * size)
                last = step % size == group - 1
                self._stepper.accumulate(batch, sums, group=group, last=last)
                seconds = time.perf_counter() - began
                self._count_step(step + 1)
                self._profiler.end_step(self._position.total_steps)
                self._reporter.step(
                    epoch, self._position.total_steps, seconds=seconds, waited=waited, rows=len(batch.targets)
                )
                self._between_steps(sums, at_update=last, at_end=step + 1 == plan.steps)
        averages, self._sums = sums.reduced(), Sums(self._world.device)
        if not math.isfinite(averages.loss):
            msg = f"epoch {epoch}: the training loss is not finite"
            raise RunError(msg, "lower optimizer.learning_rate, or use precision=bf16 or fp32")
        return averages

    def _count_step(self, step: int) -> None:
        total = self._position.total_steps + 1
        self._position = self._position.model_copy(update={"step": step, "total_steps": total})

    def _between_steps(self, sums: Sums, *, at_update: bool, at_end: bool) -> None:
        total, every = self._position.total_steps, self._config.checkpoint.every_steps
        if total % self._config.log_every_steps == 0 or at_end:
            window = self._reporter.end_of_window(total, self._stepper.learning_rate)
            self._pending.append(_Pending(window, self._stepper.reading(sums)))
        self._tell_windows(sums, total if at_end else total - WINDOW_LAG[self._world.device.type])
        self._save_due = self._save_due or (every is not None and total % every == 0)
        if self._save_due and at_update and self._stepper.agreed and not at_end:
            self._tell_windows(sums, total)  # or they would be told by nobody if the run went on from here
            # skipped updates must be in no checkpoint, nor gradients of a part of a group
            self._stepper.check_finite(sums)
            self._keeper.save(self._position, sums)
            self._save_due = False

    def _tell_windows(self, sums: Sums, until: int) -> None:
        """Tell the windows that ended with step `until` or before; all ranks do so at the same step.

        Raises:
            RunError: as for `Stepper.window_loss`.
        """
        while self._pending and self._pending[0].window.step <= until:
            self._tell_window(self._pending.popleft(), sums)

    def _tell_window(self, pending: _Pending, sums: Sums) -> None:
        loss = self._stepper.window_loss(pending.reading, sums)
        self._reporter.window(self._position.epoch, pending.window, loss, pending.reading.at)

    def _tell_last_windows(self) -> None:
        """Tell what the device has done of the windows that are still to be told: it is what led to the fault."""
        end = time.perf_counter() + LAST_WINDOWS_S
        with suppress(Exception):  # the fault is being raised, and another one must not hide it
            while self._pending and self._pending[0].reading.at.reached(end - time.perf_counter()):
                pending = self._pending.popleft()
                if not self._stepper.is_finite(pending.reading):
                    return  # to find out whose fault it was would wait for all that the GPU has to do
                self._tell_window(pending, self._sums)

    @torch.no_grad()
    def _evaluate(self, split: Split, sums: Sums | None = None) -> Averages:
        sums = sums or Sums(self._world.device)
        self._stepper.agree()
        self._stepper.model.eval()
        with closing(self._data.evaluation(split)) as batches:
            for batch in batches:
                self._stepper.evaluate(batch, sums)
        averages = sums.reduced()
        return averages if averages.rows else NO_ROWS

    def _resume(self, path: Path) -> None:
        self._position, self._sums = self._keeper.restore(path)
        if self._position.finished and self._position.epoch < self._config.epochs and not self._stopped_early():
            self._position = self._position.model_copy(update={"finished": False})  # more epochs were asked for

    def _stopped_early(self) -> bool:
        return 0 < self._config.early_stopping.patience_epochs <= self._position.stale_epochs

    def _make_stepper(self) -> Stepper:
        config, snapshot = self._config, self._job.snapshot
        torch.manual_seed(config.seed)
        shape = snapshot.tensors[config.data.input].shape
        model = registry.build(config.model, shape, config.data.classes, config.model_options)
        return Stepper(model.to(self._world.device), config, self._world, self._data.updates(), self._profiler)

    def _load_champion(self) -> bool:
        """Take the weights of the model in use, if there is one."""
        if self._job.champion is not None:
            self._keeper.load_weights(self._job.champion)
        return self._job.champion is not None

    @property
    def _best(self) -> Path:
        """The checkpoint with the lowest validation loss, the last one without such."""
        return checkpoint.folder(self._job.checkpoint_dir, self._position.best)

    def _outcome(self, validation: Averages, test: Averages, saved_at: float, paired: Paired | None = None) -> Outcome:
        position = self._position
        return Outcome(
            epochs=position.epoch,
            total_steps=position.total_steps,
            stopped_early=self._stopped_early(),
            validation_loss=validation.loss,
            validation_accuracy=validation.accuracy,
            test_loss=test.loss,
            test_accuracy=test.accuracy,
            test_rows=test.rows,
            checkpoint=str(self._best),
            saved_at=saved_at,
            paired=paired,
        )


def after_epoch(position: Position, validation_loss: float | None, config: TrainConfig) -> Position:
    """Return the position at the start of the epoch behind that of `position`; no loss: there is no validation."""
    stopping, best = config.early_stopping, math.inf if position.best_loss is None else position.best_loss
    counted = best if position.counted_loss is None else position.counted_loss
    improved = validation_loss is None or validation_loss < counted - stopping.min_delta
    stale = 0 if improved else position.stale_epochs + 1
    stop = 0 < stopping.patience_epochs <= stale
    changes: dict[str, object] = {"epoch": position.epoch + 1, "step": 0, "stale_epochs": stale}
    changes["finished"] = stop or position.epoch + 1 >= config.epochs
    if validation_loss is not None and improved:
        changes["counted_loss"] = validation_loss
    if validation_loss is not None and validation_loss < best:
        changes |= {"best_loss": validation_loss, "best_step": position.total_steps}
    return position.model_copy(update=changes)
