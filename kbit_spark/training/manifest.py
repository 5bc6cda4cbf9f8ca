"""What a checkpoint says about itself: what was trained on what, how far, and which files belong to it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from kbit_spark.config.secrets import masked
from kbit_spark.config.train import TrainConfig
from kbit_spark.schemas.base import Frozen
from kbit_spark.schemas.ledger import OffsetRange
from kbit_spark.schemas.snapshot import Snapshot

FORMAT = 2


class Identity(Frozen):
    """What must be equal for a run to go on from a checkpoint."""

    model: str
    model_options: dict[str, Any]
    input: str
    target: str
    classes: int
    scale: float
    mean: float
    std: float
    table_id: str
    version: int
    seed: int
    global_batch_size: int
    shuffle_window_rows: int
    optimizer: str
    accumulate_steps: int
    averaging_every_steps: int | None = None
    """None where gradients are averaged in every step; one process alone computes the same."""

    @classmethod
    def of(cls, config: TrainConfig, snapshot: Snapshot) -> Identity:
        """Return the identity of a run."""
        data = config.data
        return cls(
            model=config.model,
            model_options=config.model_options,
            input=data.input,
            target=data.target,
            classes=data.classes,
            scale=data.scale,
            mean=data.mean,
            std=data.std,
            table_id=snapshot.table_id,
            version=snapshot.version,
            seed=config.seed,
            global_batch_size=config.global_batch_size,
            shuffle_window_rows=data.shuffle_window_rows,
            optimizer=config.optimizer.name,
            accumulate_steps=config.optimizer.accumulate_steps,
            averaging_every_steps=config.averaging.every_steps if config.strategy == "averaging" else None,
        )


class Position(Frozen):
    """How far a run is: `step` batches of `epoch` and `total_steps` batches in all are in the weights.

    With the identity's table version and seed it fixes the consumed prefix of the sequence of global batches.
    """

    epoch: int = 0
    step: int = 0
    total_steps: int = 0
    best_loss: float | None = None
    """Lowest validation loss so far, and the `total_steps` of its checkpoint."""
    best_step: int | None = None
    stale_epochs: int = 0
    """Epochs since the validation loss last improved by `early_stopping.min_delta`."""
    counted_loss: float | None = None
    """The validation loss then, from which the next improvement counts."""
    finished: bool = False

    @property
    def best(self) -> int:
        """The `total_steps` of the checkpoint with the lowest validation loss, the last one's without such."""
        return self.total_steps if self.best_step is None else self.best_step


class Lineage(Frozen):
    """Where weights come from."""

    table: str
    table_id: str
    versions: tuple[int, ...]
    """Every table version that went into the weights."""

    kafka: tuple[OffsetRange, ...]
    """Offsets that had been read into the table by the newest of these versions."""

    kafka_complete: bool
    """Whether `kafka` covers all rows; without old commits of the table's log it may lack some."""

    config: dict[str, Any]
    code: str
    input_shape: tuple[int, ...] | None = None
    """Of one input, without the batch; none in checkpoints of before 2026-11-29."""

    @classmethod
    def of(cls, config: TrainConfig, snapshot: Snapshot, code: str) -> Lineage:
        """Return the lineage of a run on one snapshot."""
        tensor = snapshot.tensors.get(config.data.input)
        return cls(
            table=snapshot.table,
            table_id=snapshot.table_id,
            versions=(snapshot.version,),
            kafka=snapshot.kafka,
            kafka_complete=snapshot.kafka_complete,
            config=masked(config.model_dump(mode="json")),
            code=code,
            input_shape=None if tensor is None else tensor.shape,
        )


class Window(Frozen):
    """What one window of follow mode trains on: the rows that the versions behind `after` up to `last` brought in.

    With the identity's seed it fixes the rows and their order, so a window that was interrupted is gone on with.
    """

    number: int
    """Counts from 0."""

    after: int
    last: int
    as_of: int
    """The newest version that was known: rows that it has deleted are left out, and its hold-out is asked."""

    first_epoch: int
    new_rows: int
    replayed_rows: int
    repeated_rows: int
    """New rows that are trained on once more where older ones cannot fill the last batch."""

    rows_so_far: int
    """New rows of this window and all before it."""


class FileDigest(Frozen):
    """What a file of a checkpoint must be."""

    bytes: int
    sha256: str


class Manifest(Frozen):
    """What stands in a checkpoint folder."""

    format: int = FORMAT
    identity: Identity
    position: Position
    lineage: Lineage
    world_size: int
    validation_loss: float | None = None
    """Of the epoch that ends here; none in mid-epoch, or without validation rows."""

    window: Window | None = None
    """The window of follow mode that this is in, or at the end of; none for a run on one version."""

    files: dict[str, FileDigest] = Field(default_factory=dict)
