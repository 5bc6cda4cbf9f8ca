"""Configuration of the training job."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from kbit_spark.config.options import Options
from kbit_spark.config.paths import DataPath
from kbit_spark.config.secrets import secrets_in_model
from kbit_spark.config.telemetry import TelemetryConfig
from kbit_spark.schemas.base import Frozen


class DataConfig(Frozen):
    """The samples table and how a row becomes an example."""

    table: DataPath
    version: int | None = Field(default=None, ge=0)
    """Table version to train on; none: the newest at the start, pinned for the whole run."""

    input: str = "image"
    """A tensor column, or a column of numeric arrays."""

    input_shape: tuple[int, ...] | None = None
    """Shape of one array of such a column; a tensor column tells its own."""

    target: str = "label"
    """An integer column with values in [0, classes)."""

    classes: int = Field(default=10, ge=2)
    scale: float = 1 / 255
    mean: float = 0.0
    std: float = Field(default=1.0, gt=0)
    """An input item x reaches the model as (x * scale - mean) / std."""

    shuffle_window_rows: int = Field(default=8_192, ge=1)
    """Rows that are shuffled together in memory; bounds a rank's memory."""

    prefetch_batches: int = Field(default=4, ge=1)
    resident: Literal["auto"] | bool = "auto"
    """Keep all training and validation rows in the memory of each rank's device, if they fit into half of what is free
    there. They are read before the first step. `auto`: on a GPU, up to 1 GiB, for several epochs."""

    longest_run_s: float = Field(default=86_400.0, gt=0)
    """Files must be safe from VACUUM for this long; a table version whose files may go earlier is refused."""


class OptimizerConfig(Frozen):
    """How weights are updated."""

    name: Literal["sgd", "adam"] = "adam"
    learning_rate: float = Field(default=1e-3, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """SGD only."""

    weight_decay: float = Field(default=0.0, ge=0)
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps over which the learning rate grows linearly from 0."""

    decay: Literal["constant", "cosine"] = "constant"
    """What the learning rate does after the warm-up; cosine goes to 0 at the last step."""

    clip_norm: float | None = Field(default=None, gt=0)
    accumulate_steps: int = Field(default=1, ge=1)
    """Global batches whose gradients are averaged into one optimizer step, as if they were one larger batch."""


class EarlyStoppingConfig(Frozen):
    """Stop when the validation loss has not improved by `min_delta` for `patience_epochs` epochs (0: never stop)."""

    patience_epochs: int = Field(default=0, ge=0)
    min_delta: float = Field(default=0.0, ge=0)


class AveragingConfig(Frozen):
    """Strategy `averaging`."""

    every_steps: int = Field(default=8, ge=1)
    """Optimizer steps between two averagings of the weights; the end of an epoch averages them too."""


class ProfileConfig(Frozen):
    """What is measured of single steps."""

    phases: bool = True
    """Shares of the time by phase, for each rank and epoch."""

    trace_steps: tuple[int, int] | None = None
    """First and last step of a torch.profiler trace; one file a rank in the folder `traces` of the checkpoints."""

    @model_validator(mode="after")
    def _in_order(self) -> ProfileConfig:
        if self.trace_steps is not None and not 1 <= self.trace_steps[0] <= self.trace_steps[1]:
            msg = f"trace_steps={list(self.trace_steps)} must be [first, last], counted from 1"
            raise ValueError(msg)
        return self


class CheckpointConfig(Frozen):
    """Where and how often the state is saved."""

    dir: DataPath
    every_steps: int | None = Field(default=None, ge=1)
    """Besides the end of each epoch, also every so many steps."""

    keep_last: int = Field(default=2, ge=1)
    keep_best: int = Field(default=1, ge=1)
    """Besides the last ones, those with the lowest validation loss."""


class FollowConfig(Frozen):
    """Train on what the stream adds to the table, window by window, for as long as it comes.

    A window is what the versions since the last one brought in.
    """

    enabled: bool = False
    replay_fraction: float = Field(default=0.5, ge=0, lt=1)
    """Share of replayed older rows in a window; besides them, older rows fill its last batch."""

    epochs: int = Field(default=1, ge=1)
    """Passes over the rows of a window, in place of `epochs`."""

    max_rows_per_window: int = Field(default=100_000, ge=1)
    """New rows; a version is never split, so one large version may bring more."""

    min_rows_per_window: int = Field(default=1, ge=1)
    """New rows to wait for; at the end, when nothing more comes, fewer will do."""

    poll_s: float = Field(default=1.0, gt=0)
    stop_after_idle_s: float | None = Field(default=None, gt=0)
    """End when no new row has come for so long; none: never."""

    max_windows: int | None = Field(default=None, ge=1)
    """End after so many windows; none: never."""

    significance: float = Field(default=0.05, gt=0, le=1)
    """A new model is promoted if chance alone would make it look so much better at most this often."""

    skip_change_commits: bool = False
    """Go on past commits that change or replace rows (UPDATE, MERGE, overwrite), without learning what they wrote."""


class TrainConfig(Frozen):
    """The training job."""

    data: DataConfig
    model: str = "cnn"
    """`cnn`, `mlp`, or `module:factory` of your own; the factory gets (input_shape, classes, **model_options)."""

    model_options: dict[str, Any] = Field(default_factory=dict)
    """Never a secret: each checkpoint keeps them, because the model is made from them again."""

    world_size: int = Field(default=1, ge=1)
    """Ranks: one barrier task, one GPU (if there are any) each."""

    cpus_per_rank: int | None = Field(default=None, ge=1)
    """Cores that the training stage asks for, whatever the application's other tasks do; None: `spark.task.cpus`."""

    launcher: Literal["barrier", "torch_distributor"] = "barrier"
    """Who starts the ranks: Spark's barrier stage in its own processes, or TorchDistributor."""

    strategy: Literal["ddp", "averaging", "single"] = "ddp"
    """Gradients averaged in every step, weights averaged every few steps, or one process alone."""

    averaging: AveragingConfig = AveragingConfig()
    all_reduce: Literal["auto", "overlapped", "at_once"] = "auto"
    """How DDP's gradients are exchanged where steps are CUDA graphs: in buckets beside the backward pass, or all at
    once after it. `auto`: at once where that takes less than what the buckets cost, measured at the start."""

    epochs: int = Field(default=5, ge=1)
    global_batch_size: int = Field(default=128, ge=1)
    """Rows in a batch over all ranks; the sequence of global batches does not depend on the world size."""

    seed: int = Field(default=0, ge=0)
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    cuda_graph: Literal["auto"] | bool = "auto"
    """Launch a step on a GPU as one CUDA graph, captured after the first steps: its launches may take longer
    than its work. `auto`: in runs of 200 steps or more. Precision fp16 and accumulated batches prevent it."""

    optimizer: OptimizerConfig = OptimizerConfig()
    early_stopping: EarlyStoppingConfig = EarlyStoppingConfig()
    checkpoint: CheckpointConfig
    follow: FollowConfig = FollowConfig()
    max_restarts: int = Field(default=2, ge=0)
    rendezvous_timeout_s: float = Field(default=120.0, gt=0)
    heartbeat_timeout_s: float = Field(default=8.0, ge=3)
    """A rank that has not been heard of for so long is given up: it was stopped, or its host is gone."""

    log_every_steps: int = Field(default=50, ge=1)
    profile: ProfileConfig = ProfileConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    spark: Options = Field(default_factory=dict)
    """Spark settings that win over the defaults file; what the run keeps of them has *** for secrets."""

    @field_validator("model_options")
    @classmethod
    def _no_secrets(cls, options: dict[str, Any]) -> dict[str, Any]:
        if found := secrets_in_model(options):
            msg = f"{', '.join(found)} would hold a secret in clear text; let the factory take it from the environment"
            raise ValueError(msg)
        return options

    @model_validator(mode="after")
    def _batch_for_each_rank(self) -> TrainConfig:
        if self.global_batch_size < self.world_size:
            msg = f"global_batch_size={self.global_batch_size} is smaller than world_size={self.world_size}"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _single_is_one(self) -> TrainConfig:
        if self.strategy == "single" and self.world_size > 1:
            msg = f"strategy=single is one process, but world_size={self.world_size}; use strategy=ddp or averaging"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _fit_to_follow(self) -> TrainConfig:
        without_end = {
            "data.version": self.data.version is not None,
            "early_stopping.patience_epochs": self.early_stopping.patience_epochs > 0,
            "optimizer.decay": self.optimizer.decay != "constant",
        }
        if self.follow.enabled and (wrong := [key for key, is_set in without_end.items() if is_set]):
            msg = f"{', '.join(wrong)} cannot be set with follow.enabled=true: it trains on every version, without end"
            raise ValueError(msg)
        return self
