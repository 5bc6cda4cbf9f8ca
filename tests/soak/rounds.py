"""The soak: jobs are killed at random while records come; in the end all must be as if nothing had happened.

Of ingest, every record must be in the tables once. Of training, the weights must be those of a run left in peace.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kbit_spark.telemetry.report import read_events
from kbit_spark.training import checkpoint
from tests.fixtures.jobs import TRAIN, ingest_data, start
from tests.fixtures.kafka import Kafka
from tests.fixtures.samples import write_samples
from tests.soak.traffic import Traffic
from tests.soak.verdict import Verdict, judge
from tests.soak.victims import DRAIN_S, EXECUTORS, MASTER, Ingest, Training, Victim


@dataclass(frozen=True)
class Soak:
    """What is done; the same seed gives the same kills, as far as the machine is as fast."""

    kills: int = 50
    seed: int = 0
    rate: float = 25.0
    """Records per second."""

    batch_rows: int = 200


@dataclass(frozen=True)
class TrainSoak:
    """What is done to one training run; as in `Soak`."""

    kills: int = 20
    seed: int = 0
    rows: int = 650
    epochs: int = 60
    """So many that the run does not end before the kills have come."""


@dataclass(frozen=True)
class TrainVerdict:
    """What became of a training run."""

    steps: int
    differences: int
    """Weights (tensors) that differ from those of the run left in peace."""

    restarts: int
    """How often the driver went on from a checkpoint by itself, in all of its lives."""


def run(soak: Soak, kafka: Kafka, folder: Path) -> Verdict:
    """Strike `soak.kills` times, then let everything come to its end, and judge.

    Raises:
        AssertionError: a job ended by itself or got nowhere, or left processes behind.
    """
    topics = {kafka.topic("soak-json", 2): "json", kafka.topic("soak-avro", 2): "avro"}
    data = ingest_data(folder, kafka.bootstrap_servers, topics, maintenance={"optimize_every_batches": 7})
    data["kafka"]["max_offsets_per_trigger"] = soak.batch_rows
    victim = Ingest(folder, data, soak.seed)
    try:
        with Traffic(kafka.bootstrap_servers, topics, soak.rate, soak.seed) as traffic:
            _strike(victim, soak.kills)
            traffic.stop()
            victim.finish()
    finally:
        victim.close()
    return judge(folder, traffic.landed)


def train(soak: TrainSoak, folder: Path) -> TrainVerdict:
    """Strike a training run `soak.kills` times, let it come to its end, and hold it against one left in peace.

    Raises:
        AssertionError: as `run`.
    """
    marker, (struck, peaceful) = folder / "slow", (folder / "struck", folder / "peaceful")
    for name in (struck, peaceful):
        name.mkdir(parents=True)
    data: dict[str, Any] = {
        "data": {"table": write_samples(folder / "table", soak.rows, 64, 64), "shuffle_window_rows": 256},
        "model": "tests.training.models:slow",
        "model_options": {"marker": str(marker), "pause_s": 0.1},
        "world_size": EXECUTORS,
        "epochs": soak.epochs,
        "global_batch_size": 32,
        "max_restarts": soak.kills,
    }
    marker.touch()
    victim = Training(struck, _into(struck, data), soak.seed, marker)
    try:
        _strike(victim, soak.kills)
        victim.finish()
    finally:
        victim.close()
    code, output = start(peaceful, _into(peaceful, data), MASTER, script=TRAIN).wait(DRAIN_S)
    assert code == 0, output
    return _compare(struck, peaceful)


def _into(folder: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    saving = {"dir": str(folder / "checkpoints"), "every_steps": 3}
    return {**data, "checkpoint": saving, "telemetry": {"run_dir": str(folder / "runs")}}


def _compare(struck: Path, peaceful: Path) -> TrainVerdict:
    found, wanted = (checkpoint.newest(folder / "checkpoints") for folder in (struck, peaceful))
    assert found is not None and wanted is not None
    assert found.manifest.position == wanted.manifest.position
    ours, theirs = found.load()["model"], wanted.load()["model"]
    differences = sum(not torch.equal(ours[name], theirs[name]) for name in theirs)
    events = read_events(sorted((struck / "runs").glob("*/events.jsonl")))
    restarts = sum(event.kind == "train_restart" for event in events)
    return TrainVerdict(found.manifest.position.total_steps, differences, restarts)


def _strike(victim: Victim, kills: int) -> None:
    begin = time.monotonic()
    for number in range(1, kills + 1):
        struck = victim.strike()
        _say(f"round {number}/{kills}: {victim.name} {struck} ({time.monotonic() - begin:.0f} s)")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
