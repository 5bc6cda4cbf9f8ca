"""The training job, top to bottom."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession

from kbit_spark.config.load import dump
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError, UsageError
from kbit_spark.events import Event
from kbit_spark.models import registry
from kbit_spark.schemas.snapshot import Snapshot
from kbit_spark.session import spark_session
from kbit_spark.storage import is_uri
from kbit_spark.tables.snapshot import require_columns, resolve, with_shape
from kbit_spark.telemetry.hub import Telemetry
from kbit_spark.training import checkpoint
from kbit_spark.training.barrier import launch
from kbit_spark.training.changes import changed, nothing_left
from kbit_spark.training.checkpoint import Checkpoint
from kbit_spark.training.control import Control
from kbit_spark.training.interrupts import sigterm_interrupts
from kbit_spark.training.job import Outcome, TrainJob
from kbit_spark.training.lock import alone_in
from kbit_spark.training.manifest import Identity, Window
from kbit_spark.training.restarts import with_restarts
from kbit_spark.training.slots import is_local
from kbit_spark.version import code_version

SETTINGS = {
    "spark.python.worker.reuse": "false",  # an idle trainer would keep its memory and its CUDA context
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "2s",
}


def worker_settings(*configs: TrainConfig) -> dict[str, str]:
    """Let ranks on CPUs keep torch loaded between runs; a rank that has used a GPU could not change to another."""
    return {"spark.python.worker.reuse": "true"} if all(config.device == "cpu" for config in configs) else {}


class Emits(Protocol):
    """What training needs of telemetry."""

    def emit(self, event: Event) -> None:
        """Take an event; never blocks, never raises."""


def run(config: TrainConfig) -> Outcome:
    """Train on one pinned version of the samples table.

    Raises:
        KbitError: see `plan` and `fit`.
        RunError: another job trains into the same folder.
    """
    check(config)
    with alone_in(checkpoint_dir(config), "checkpoint.dir"):
        snapshot, resume = plan(config)
        spark = spark_session("kbit-train", {**SETTINGS, **config.spark})
        with (
            Telemetry.open(config.telemetry, "train", spark, config_text=dump(config)) as telemetry,
            sigterm_interrupts(),
        ):
            return fit(spark, config, snapshot, resume, telemetry)


def plan(config: TrainConfig) -> tuple[Snapshot, Checkpoint | None]:
    """Pin the table version and find the checkpoint to go on from, before anything is started.

    A run without `data.version` that was interrupted goes on with the version it began with.

    Raises:
        UsageError: the model cannot be made, or the precision does not fit the device.
        RunError: the table or the checkpoint is not fit for the run, or the checkpoint is one of follow mode.
    """
    check(config)
    found = checkpoint.newest(checkpoint_dir(config))
    if found is not None and found.manifest.window is not None:  # its steps are those of other epochs
        msg = f"the checkpoint {found.path} is of a window of follow mode"
        raise RunError(msg, "start with --follow, or choose another checkpoint.dir")
    version = config.data.version
    longest = config.data.longest_run_s
    snapshot = resolve(config.data.table, version, longest)
    if found is not None and version is None and not found.manifest.position.finished:
        began = found.manifest.identity
        if began.table_id == snapshot.table_id and began.version != snapshot.version:
            snapshot = resolve(config.data.table, began.version, longest)
    return fitting(config, snapshot, found), found


def fitting(config: TrainConfig, snapshot: Snapshot, found: Checkpoint | None) -> Snapshot:
    """Check that table, model and checkpoint fit each other; return the snapshot with the input's shape.

    Raises:
        UsageError: the model cannot be made.
        RunError: the table or the checkpoint is not fit for the run.
    """
    snapshot = with_shape(snapshot, config.data.input, config.data.input_shape)
    tensor = require_columns(snapshot, config.data.input, config.data.target)
    registry.build(config.model, tensor.shape, config.data.classes, config.model_options)
    if found is not None:
        checkpoint.check_identity(found, Identity.of(config, snapshot))
    _enough_rows(snapshot, config)
    return snapshot


def check(config: TrainConfig) -> None:
    """Refuse what no table can make right.

    Raises:
        UsageError: the precision does not fit the device, or the checkpoints have no folder.
    """
    if config.precision == "fp16" and config.device == "cpu":
        msg = "precision=fp16 needs a GPU"
        raise UsageError(msg, "use precision=bf16 or fp32 on the CPU")
    if is_uri(config.checkpoint.dir):
        msg = f"checkpoint.dir={config.checkpoint.dir} is no folder"
        raise UsageError(msg, "name a folder that driver and executors share, e.g. a mounted bucket or volume")


def fit(
    spark: SparkSession,
    config: TrainConfig,
    snapshot: Snapshot,
    resume: Checkpoint | None,
    telemetry: Emits,
    window: Window | None = None,
    champion: Path | None = None,
) -> Outcome:
    """Run the barrier stage, going on from the last checkpoint after a lost rank, at most `max_restarts` times.

    In follow mode the run is one `window`, and its model is compared with that of the checkpoint folder `champion`.

    Raises:
        RunError: too few slots, bad data, a checkpoint that cannot be written.
        TrainingError: too many attempts were lost.
    """
    sc, root = spark.sparkContext, checkpoint_dir(config)
    local = is_local(sc.master)
    code = code_version()
    host = "127.0.0.1" if local else str(sc.getConf().get("spark.driver.host", "127.0.0.1"))
    bind = "127.0.0.1" if local else ""
    with Control(bind, telemetry.emit, config.heartbeat_timeout_s) as control:

        def attempt(number: int) -> Outcome | None:
            start = resume if number == 0 else checkpoint.newest(root)
            if start is not None and (window is None or start.manifest.window == window or start.damaged):
                telemetry.emit(resume_event(start, config))
            path = None if start is None else start.path
            address = (host, control.port)
            job = TrainJob(config, snapshot, root, path, number, address, control.token, code, local, window, champion)
            return launch(sc, job, control)

        return with_restarts(attempt, control, config.max_restarts, telemetry.emit)


def resume_event(start: Checkpoint, config: TrainConfig) -> Event:
    """Return the event that tells where a run goes on, which newer checkpoints it passed over, and what has changed."""
    position = start.manifest.position
    labels = {
        "checkpoint": str(start.path),
        "damaged": "; ".join(start.damaged),
        "changed": "; ".join(changed(start.manifest, config)),
        "nothing_left": nothing_left(start.manifest, config),
    }
    return Event("train_resume", numbers={"epoch": position.epoch, "step": position.total_steps}, labels=labels)


def checkpoint_dir(config: TrainConfig) -> Path:
    """Return the absolute folder of the checkpoints; executors have other working folders."""
    return Path(config.checkpoint.dir).absolute()


def _enough_rows(snapshot: Snapshot, config: TrainConfig) -> None:
    rows = snapshot.rows("train")
    if rows < config.global_batch_size:
        msg = (
            f"{snapshot.table} holds {rows} training rows at version {snapshot.version}, fewer than one global batch "
            f"of {config.global_batch_size} over {config.world_size} ranks"
        )
        raise RunError(msg, "lower global_batch_size (at least world_size), or ingest more")
