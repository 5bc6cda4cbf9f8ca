"""A run's checkpoints as all ranks see them: saved together, restored together."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from kbit_spark.datasets.sharding import rank_slice
from kbit_spark.errors import RunError
from kbit_spark.training import checkpoint
from kbit_spark.training.checkpoint import Keep
from kbit_spark.training.collectives import gather_at_first, value_of_first
from kbit_spark.training.job import TrainJob
from kbit_spark.training.manifest import Identity, Lineage, Manifest, Position
from kbit_spark.training.metrics import Sums
from kbit_spark.training.randomness import random_state, restore_random_state, seed_rank
from kbit_spark.training.saver import Saver, host_copy
from kbit_spark.training.stepper import Stepper
from kbit_spark.training.world import World

log = logging.getLogger(__name__)


class Keeper:
    """Saves and restores the state of all ranks; every method is for all ranks to call at the same place.

    The first rank writes, in the background. Its state holds weights and schedule, which are equal on all ranks, and of
    each rank the random numbers, the sums of the epoch so far, and the optimizer and scaler where ranks differ in them.
    """

    def __init__(self, job: TrainJob, world: World, stepper: Stepper) -> None:
        self._job, self._world, self._stepper = job, world, stepper
        keep = Keep(last=job.config.checkpoint.keep_last, best=job.config.checkpoint.keep_best)
        self._saver: Saver[tuple[dict[str, Any], Manifest]] = Saver(
            lambda item: checkpoint.save(job.checkpoint_dir, *item, keep)
        )

    def save(self, position: Position, sums: Sums) -> None:
        """Have a checkpoint written in mid-epoch; waits only for the copy.

        Raises:
            RunError: an earlier checkpoint could not be written; every rank raises it.
        """
        self._submit(position, sums.state(), None)

    def save_epoch(self, position: Position, validation_loss: float | None) -> None:
        """Have a checkpoint written at the end of an epoch; waits for the one before, so that none is left out.

        Raises:
            RunError: as for `save`.
        """
        self._saver.drain()
        self._submit(position, None, validation_loss)

    def finish(self) -> None:
        """Wait until everything is written.

        Raises:
            RunError: as for `save`.
        """
        self._saver.drain()
        self._agree_on_failure()

    def close(self) -> None:
        """Write what still waits; needs no other rank."""
        self._saver.close()

    def restore(self, path: Path) -> tuple[Position, Sums]:
        """Go on from the checkpoint at `path`; return where, and this rank's sums of the epoch so far.

        At another world size the ranks get new streams of random numbers; optimizers that differ are dealt in turn.

        Raises:
            RunError: this rank cannot read it.
        """
        try:
            found = checkpoint.read(path)
        except RunError as error:
            msg = f"rank {self._world.rank}: {error.message}"
            raise RunError(msg, "checkpoint.dir must be on storage that the driver and all executors share") from error
        state, position = found.load(), found.manifest.position
        config = self._job.config
        start, stop = rank_slice(self._world.rank, self._world.size, config.global_batch_size)
        self._stepper.settle(self._job.snapshot.tensors[config.data.input].shape, stop - start)
        ranks: list[dict[str, Any]] = state["ranks"]
        self._stepper.restore({**state, **ranks[self._world.rank % len(ranks)].get("local", {})})
        sums = Sums(self._world.device)
        for saved in _sums_for(ranks, self._world):
            sums.add_state(saved)
        seed_rank(config.seed, self._world.rank, position.total_steps)
        if len(ranks) == self._world.size:
            restore_random_state(ranks[self._world.rank]["random"], self._world.device)
        return position, sums

    def load_best(self, position: Position) -> None:
        """Take the weights with the lowest validation loss; without their checkpoint keep those of `position`."""
        if position.best == position.total_steps:
            return
        try:
            found = checkpoint.read(checkpoint.folder(self._job.checkpoint_dir, position.best))
        except RunError as error:
            log.warning("the test takes the last weights instead of the best: %s", error.message)
            return
        self._stepper.model.load_state_dict(found.load()["model"])

    def load_weights(self, path: Path) -> None:
        """Take the weights of the checkpoint at `path`, and nothing else of it.

        Raises:
            RunError: it is not there, or damaged.
        """
        self._stepper.model.load_state_dict(checkpoint.read(path).load()["model"])

    def _submit(self, position: Position, sums: Any, validation_loss: float | None) -> None:
        local = host_copy(self._stepper.local_state())
        ranks = gather_at_first({"random": random_state(self._world.device), "sums": sums, "local": local})
        if self._world.is_first:
            config, snapshot = self._job.config, self._job.snapshot
            manifest = Manifest(
                identity=Identity.of(config, snapshot),
                position=position,
                lineage=Lineage.of(config, snapshot, self._job.code),
                world_size=self._world.size,
                validation_loss=validation_loss,
                window=self._job.window,
            )
            self._saver.submit((host_copy({**self._stepper.state(), "ranks": ranks}), manifest))
        self._agree_on_failure()

    def _agree_on_failure(self) -> None:
        error = self._saver.failure()
        if error is not None and not isinstance(error, RunError):
            raise error
        failure = value_of_first(None if error is None else (error.message, error.hint), self._world.device)
        if failure is not None:
            raise RunError(*failure)


def _sums_for(ranks: list[dict[str, Any]], world: World) -> list[torch.Tensor]:
    """Return the saved sums that this rank goes on from; at another world size the first rank takes all of them."""
    if len(ranks) == world.size:
        ranks = [ranks[world.rank]]
    elif not world.is_first:
        ranks = []
    return [rank["sums"] for rank in ranks if rank["sums"] is not None]
