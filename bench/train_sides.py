"""One training run on either side: the product under Spark, or plain DDP under torchrun."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench import harness
from bench.harness import ROOT
from kbit_spark.events import Event
from kbit_spark.telemetry.report import read_events


@dataclass(frozen=True)
class Job:
    """A training run."""

    table: Path
    master: str
    ranks: int = 2
    epochs: int = 5
    global_batch: int = 128
    precision: str = "fp32"
    model: str = "cnn"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "auto"
    threads: int = 1
    """Torch threads of a rank on the CPU."""

    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the product's session."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to that of the started processes."""


@dataclass(frozen=True)
class Timing:
    """The rows of one epoch over all ranks, and the wall time of each."""

    rows: float
    epoch_s: Sequence[float]

    @property
    def samples_per_s(self) -> float:
        """The speed of all epochs after the first one, which warms up."""
        return self.rows * (len(self.epoch_s) - 1) / sum(self.epoch_s[1:])


def torchrun(job: Job, folder: Path, data: Sequence[str] | None = None) -> Timing:
    """Run plain DDP on the job's table, or on what the arguments `data` say.

    Raises:
        RuntimeError: it failed.
    """
    options = ["--table", str(job.table)] if data is None else list(data)
    options += ["--global-batch", str(job.global_batch), "--precision", job.precision, "--epochs", str(job.epochs)]
    options += ["--model", job.model, "--model-options", json.dumps(dict(job.model_options)), "--device", job.device]
    options += ["--threads", str(job.threads)]
    return Timing(**under_torchrun("torchrun_baseline.py", "rows", folder, job.ranks, options, job.environment))


def under_torchrun(
    script: str,
    first_key: str,
    folder: Path,
    ranks: int,
    options: Sequence[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Run a script of the benches as `ranks` processes; return the JSON that it prints, which begins with `first_key`.

    Raises:
        RuntimeError: it failed.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    log = folder / "torchrun.txt"
    harness.run([*command, str(ROOT / "bench" / script), *options], log, harness.environment(**environment))
    line = next(line for line in log.read_text().splitlines() if line.startswith(f'{{"{first_key}"'))
    found: dict[str, Any] = json.loads(line)
    return found


def product(job: Job, folder: Path, **changes: Any) -> list[Event]:
    """Run the product with the configuration's keys in `changes`; return its events.

    `checkpoint` in `changes` may name a folder to go on in.

    Raises:
        RuntimeError: it failed.
    """
    here = folder / "product"
    here.mkdir()
    config = {
        "data": {"table": str(job.table)},
        "model": job.model,
        "model_options": dict(job.model_options),
        "world_size": job.ranks,
        "epochs": job.epochs,
        "global_batch_size": job.global_batch,
        "precision": job.precision,
        "device": job.device,
        "spark": dict(job.spark),
        "checkpoint": {"dir": str(here / "checkpoints")},
        "telemetry": {"run_dir": str(here / "runs")},
        **changes,
    }
    (here / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    command = [str(ROOT / "spark-submit.sh"), "--master", job.master, "--driver-memory", "1g"]
    command += ["--conf", f"spark.task.cpus={job.threads}"]  # what a rank takes as its number of torch threads
    command += [str(ROOT / "jobs/train_barrier.py"), "--config", str(here / "config.yaml")]
    try:
        harness.run(command, here / "log.txt", harness.environment(**job.environment))
        return read_events((here / "runs").glob("*/events.jsonl"))
    finally:
        shutil.rmtree(here)


def timing(job: Job, events: Sequence[Event]) -> Timing:
    """Return the product's timing, measured from before the first batch is fetched until all ranks are done."""
    epochs = [event.numbers for event in events if event.kind == "train_epoch"]
    steps = epochs[0]["step"]  # so far, after the first epoch
    return Timing(steps * job.global_batch, [numbers["train_s"] for numbers in epochs])
