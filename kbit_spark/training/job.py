"""What the driver hands to every rank, and what the first rank hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kbit_spark.config.train import TrainConfig
from kbit_spark.events import Event
from kbit_spark.schemas.snapshot import Snapshot
from kbit_spark.training.manifest import Window
from kbit_spark.training.promotion import Paired

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
        window: the window of follow mode, None for a run on one version.
        champion: the checkpoint folder of the model in use, which a window is compared with; None without one.
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
    window: Window | None = None
    champion: Path | None = None


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
    saved_at: float
    """When the last checkpoint was safe, in s since 1970."""

    paired: Paired | None = None
    """How a window's model compares with the one in use; None for a run on one version."""
