"""What the driver hands to every rank, and what the first rank hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kbit_spark.config.train import TrainConfig
from kbit_spark.events import Event
from kbit_spark.schemas import Snapshot

Emit = Callable[[Event], None]


@dataclass(frozen=True)
class TrainJob:
    """One attempt at a run.

    Args:
        config: the configuration.
        snapshot: the pinned table version.
        checkpoint_dir: absolute folder of the checkpoints, on storage that driver and all ranks see.
        resume: the checkpoint folder to go on from, None for a fresh start.
        attempt: 0, then one more for each restart.
        address: host and port of the driver's control channel.
        token: what a rank must say first on it.
        code: version of the code, for the lineage.
        one_host: the master is local, so Spark knows no GPUs and all ranks share this machine.
    """

    config: TrainConfig
    snapshot: Snapshot
    checkpoint_dir: Path
    resume: Path | None
    attempt: int
    address: tuple[str, int]
    token: str
    code: str
    one_host: bool


@dataclass(frozen=True)
class Outcome:
    """How a run ended; losses and accuracies are means over all ranks, NaN where a split has no rows."""

    epochs: int
    total_steps: int
    stopped_early: bool
    validation_loss: float
    validation_accuracy: float
    test_loss: float
    test_accuracy: float
    test_rows: int
    checkpoint: str
