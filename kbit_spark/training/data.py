"""The rows of a run as batches of one rank."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing

from kbit_spark.datasets.batches import BLOCK_BYTES, Batch, Source, evaluation_batches, training_batches
from kbit_spark.datasets.device import on_device
from kbit_spark.datasets.resident import ResidentRows, resident_rows
from kbit_spark.datasets.row_groups import list_row_groups
from kbit_spark.datasets.rows import Columns
from kbit_spark.datasets.sharding import EpochPlan, plan_epoch, steps_of_epoch
from kbit_spark.schemas.fields import SPLITS, Split
from kbit_spark.training.job import TrainJob
from kbit_spark.training.world import World

EVALUATION_ROWS = 256
"""Where rows are small: without gradients larger batches cost little memory and save time."""

KEPT_SPLITS: tuple[Split, ...] = ("train", "validation")
"""What each epoch reads again, and so may stay on the device."""


class RunData:
    """All splits of the pinned snapshot.

    Raises:
        RunError: a file is missing or not as the table says.
    """

    def __init__(self, job: TrainJob, world: World) -> None:
        self._config, self._world = job.config, world
        data = job.config.data
        self._columns = Columns(
            data.input, data.target, job.snapshot.tensors[data.input], data.classes, job.snapshot.stored
        )
        self._groups = {split: list_row_groups(job.snapshot.of_split(split)) for split in SPLITS}
        passes = 1 if job.window is not None else job.config.epochs  # a window's rows soon make room for others
        self._resident: dict[Split, ResidentRows | None] = {}
        kept = 0
        for split in KEPT_SPLITS:
            rows = resident_rows(
                self._source(split), self.plan, world.device, data.resident, epochs=passes, kept_bytes=kept
            )
            self._resident[split] = rows
            kept += 0 if rows is None else rows.nbytes

    def close(self) -> None:
        """End what works ahead."""
        if (rows := self._resident["train"]) is not None:
            rows.close()

    def plan(self, epoch: int) -> EpochPlan:
        """Return the global batches of an epoch."""
        return plan_epoch(
            [group.rows for group in self._groups["train"]],
            seed=self._config.seed,
            epoch=epoch,
            global_batch=self._config.global_batch_size,
            window_rows=self._config.data.shuffle_window_rows,
        )

    def updates(self) -> int:
        """Return the optimizer steps of the whole run; every epoch ends with one."""
        rows = sum(group.rows for group in self._groups["train"])
        size, group = self._config.global_batch_size, self._config.optimizer.accumulate_steps
        return sum(-(-steps_of_epoch(rows, size, epoch) // group) for epoch in range(self._config.epochs))

    def training(
        self, plan: EpochPlan, first_step: int, arrived: Callable[[], None] = lambda: None
    ) -> Generator[Batch, None, None]:
        """Yield this rank's part of the global batches from `first_step` on, on its device; see `on_device`."""
        if (rows := self._resident["train"]) is not None:
            for batch in rows.batches(plan, first_step):
                arrived()
                yield batch
            return
        with closing(training_batches(self._source("train"), plan, first_step)) as batches:
            yield from on_device(batches, self._world.device, arrived)

    def evaluation(self, split: Split) -> Generator[Batch, None, None]:
        """Yield this rank's share of a split, on its device."""
        size = max(evaluation_rows(self._columns.tensor.nbytes), self._config.global_batch_size // self._world.size)
        if (rows := self._resident.get(split)) is not None:
            yield from rows.evaluation(size)
            return
        with closing(evaluation_batches(self._source(split), size)) as batches:
            yield from on_device(batches, self._world.device)

    def _source(self, split: Split) -> Source:
        return Source(
            groups=self._groups[split],
            columns=self._columns,
            rank=self._world.rank,
            world_size=self._world.size,
            prefetch_batches=self._config.data.prefetch_batches,
            pin=self._world.device.type == "cuda",
        )


def evaluation_rows(row_bytes: int) -> int:
    """Return how many rows of an evaluation a rank takes at a time where its batches of training are smaller."""
    return max(1, min(EVALUATION_ROWS, BLOCK_BYTES // row_bytes))
