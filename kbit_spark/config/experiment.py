"""Configuration of the experiment job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, model_validator

from kbit_spark.config.load import validate
from kbit_spark.config.paths import DataPath
from kbit_spark.config.train import TrainConfig
from kbit_spark.schemas.base import Frozen

SHARED = ("data.table", "data.version", "seed", "checkpoint.dir", "follow", "telemetry", "spark")
"""What both configurations of a comparison have in common: the rows, the seeds, the application."""


class ExperimentConfig(Frozen):
    """The experiment job: one training run repeated with different seeds, or two compared."""

    train: TrainConfig
    """The run; the job itself sets `seed` (the given one, then one more for each iteration) and `checkpoint.dir`."""

    iterations: int = Field(default=8, ge=1)
    """Runs of each configuration; with fewer than 8 no comparison of all metrics can be significant."""

    against: dict[str, Any] = Field(default_factory=dict)
    """What the second configuration has instead, e.g. ``{optimizer: {learning_rate: 0.01}}``; empty: no comparison."""

    dir: DataPath
    """Gets results and checkpoints; shared by driver and executors. A second start goes on with what is there."""

    @model_validator(mode="before")
    @classmethod
    def _own_checkpoints(cls, data: Any) -> Any:
        """Let `train.checkpoint.dir` be left out."""
        if not isinstance(data, Mapping) or not isinstance(data.get("train"), Mapping) or "dir" not in data:
            return data
        checkpoint = data["train"].get("checkpoint", {})
        if not isinstance(checkpoint, Mapping):
            return data
        return {**data, "train": {**data["train"], "checkpoint": {**checkpoint, "dir": data["dir"]}}}

    @model_validator(mode="after")
    def _comparable(self) -> ExperimentConfig:
        if self.train.follow.enabled:
            msg = "train.follow.enabled=true: an experiment repeats runs on one table version"
            raise ValueError(msg)
        if not self.against:
            return self
        changes = self.changes()
        if shared := sorted(key for key in changes if within(key, SHARED)):
            msg = f"against: both configurations share {', '.join(shared)}"
            raise ValueError(msg)
        if not changes:
            msg = "against: the second configuration is the same as the first"
            raise ValueError(msg)
        return self

    def variant(self) -> TrainConfig:
        """Return the second configuration.

        Raises:
            UsageError: an unknown key, or a value of the wrong type.
        """
        base = self.train.model_dump()
        if self.against.get("model", self.train.model) != self.train.model:
            base["model_options"] = {}  # they are another factory's
        return validate(TrainConfig, _merged(base, self.against), "against")

    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Return the keys (dotted) in which the second configuration differs, each with both values."""
        return differences(self.train, self.variant())


def differences(first: BaseModel, second: BaseModel) -> dict[str, tuple[Any, Any]]:
    """Return the keys (dotted) in which two configurations differ, each with both values, None where one has none."""
    one, other = flat(first.model_dump(mode="json")), flat(second.model_dump(mode="json"))
    return {
        key: (one.get(key), other.get(key)) for key in dict.fromkeys([*one, *other]) if one.get(key) != other.get(key)
    }


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested data by dotted keys."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def within(key: str, sections: tuple[str, ...]) -> bool:
    """Tell whether a dotted key is one of the sections, or in one."""
    return any(key == section or key.startswith(f"{section}.") for section in sections)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes`, which are merged key by key, as overrides on the command line are."""
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged
