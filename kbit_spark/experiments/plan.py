"""What an experiment consists of: pinned before the first run, and the same at every later start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kbit_spark.config.experiment import ExperimentConfig, flat, within
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.schemas.base import Frozen
from kbit_spark.schemas.snapshot import Snapshot
from kbit_spark.training.checkpoint import sync

FILE = "plan.json"
BASELINE, VARIANT = "baseline", "variant"
_NOT_COMPARED = (
    "data.longest_run_s", "data.version", "checkpoint.dir", "follow", "max_restarts", "rendezvous_timeout_s",
    "heartbeat_timeout_s", "log_every_steps", "telemetry", "spark",
)  # fmt: skip
"""Keys that may change between two starts; the version is pinned by the plan."""


class Plan(Frozen):
    """The identity of an experiment; the number of iterations is no part of it and may grow."""

    id: str
    """Names the runs of the experiment."""

    table: str
    table_id: str
    version: int
    train: dict[str, Any]
    """The first configuration, by dotted keys."""

    against: dict[str, Any]
    """What the second one has instead, by dotted keys; empty without one."""

    @classmethod
    def of(cls, config: ExperimentConfig, snapshot: Snapshot, name: str) -> Plan:
        """Return the plan of a new experiment on the table version of `snapshot`."""
        return cls(
            id=name,
            table=snapshot.table,
            table_id=snapshot.table_id,
            version=snapshot.version,
            train=_identity(config),
            against=_changes(config),
        )

    def check(self, config: ExperimentConfig) -> None:
        """Refuse a configuration that is another experiment's.

        Raises:
            RunError: naming each difference.
        """
        version = config.train.data.version
        wanted: dict[str, Any] = {"data.version": self.version if version is None else version, **_identity(config)}
        wanted |= {f"against.{key}": value for key, value in _changes(config).items()}
        found = {"data.version": self.version, **self.train}
        found |= {f"against.{key}": value for key, value in self.against.items()}
        if different := [key for key in dict.fromkeys([*found, *wanted]) if found.get(key) != wanted.get(key)]:
            texts = [f"{key} is {found.get(key)!r}, not {wanted.get(key)!r}" for key in different]
            msg = f"{config.dir} holds another experiment: {'; '.join(texts)}"
            raise RunError(msg, "choose another dir, or set these values back to go on with it")

    def check_table(self, snapshot: Snapshot) -> None:
        """Refuse a table that was made anew in the same place.

        Raises:
            RunError: it is another table.
        """
        if snapshot.table_id != self.table_id:
            msg = f"{self.table} is another table than the one the experiment began with"
            raise RunError(msg, "choose another dir to begin anew")


@dataclass(frozen=True)
class Run:
    """One iteration of one configuration."""

    configuration: str
    iteration: int
    config: TrainConfig
    """With the run's own seed, table version and checkpoint folder."""

    folder: Path

    @property
    def name(self) -> str:
        """What the run is called on the terminal and in files."""
        return f"{self.configuration}-seed-{self.config.seed}"


def read_plan(root: Path) -> Plan | None:
    """Return the plan of the experiment in `root`, None where none has begun.

    Raises:
        RunError: it cannot be read.
    """
    try:
        return Plan.model_validate_json((root / FILE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        msg = f"cannot read {root / FILE}: {' '.join(str(error).split())}"
        raise RunError(msg, "restore it, or choose another dir to begin anew") from error


def keep_plan(root: Path, plan: Plan) -> None:
    """Make sure that the experiment in `root` is this one; nobody else may begin one there meanwhile.

    Raises:
        RunError: another one was begun there since this one was planned, or the plan cannot be written.
    """
    found = read_plan(root)
    if found is None:
        write_atomically(root / FILE, plan.model_dump_json(indent=2) + "\n")
    elif found.id != plan.id:
        msg = f"another job has begun the experiment {found.id} in {root} just now"
        raise RunError(msg, "start again to go on with it, or choose another dir")


def runs(config: ExperimentConfig, plan: Plan) -> Iterator[Run]:
    """Yield the runs in the order in which they take place.

    Two configurations take turns, and the one that goes first changes from seed to seed (A B, B A, A B, …): a machine
    that becomes slower in the course is no advantage to either.
    """
    configurations = {BASELINE: config.train}
    if config.against:
        configurations[VARIANT] = config.variant()
    for iteration in range(config.iterations):
        names = list(configurations) if iteration % 2 == 0 else list(configurations)[::-1]
        for name in names:
            seed = config.train.seed + iteration
            folder = Path(config.dir) / name / f"seed-{seed}"
            yield Run(name, iteration, _own(configurations[name], plan.version, seed, folder), folder)


def write_atomically(file: Path, text: str) -> None:
    """Write a file that is there in whole or not at all.

    Raises:
        RunError: it cannot be written.
    """
    temporary = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        sync(temporary)
        temporary.replace(file)
        sync(file.parent)
    except OSError as error:
        msg = f"cannot write {file}: {error.strerror or error}"
        raise RunError(msg, "free space or choose another dir; what is written goes on from here") from error


def _own(config: TrainConfig, version: int, seed: int, folder: Path) -> TrainConfig:
    data = config.data.model_copy(update={"version": version})
    checkpoint = config.checkpoint.model_copy(update={"dir": str(folder / "checkpoints")})
    return config.model_copy(update={"data": data, "seed": seed, "checkpoint": checkpoint})


def _identity(config: ExperimentConfig) -> dict[str, Any]:
    return _compared(flat(config.train.model_dump(mode="json")))


def _changes(config: ExperimentConfig) -> dict[str, Any]:
    changes = config.changes() if config.against else {}
    return _compared({key: value for key, (_, value) in changes.items()})


def _compared(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not within(key, _NOT_COMPARED)}
