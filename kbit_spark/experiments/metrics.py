"""What is measured of an iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from kbit_spark.events import Event

Unit = Literal["share", "loss", "s", "per_s"]


@dataclass(frozen=True)
class Metric:
    """A number of each iteration.

    Args:
        name: its key in files, with the unit.
        label: its name for people.
        unit: how it is written; a share as a percentage.
        more_is_better: whether a larger one is better.
    """

    name: str
    label: str
    unit: Unit
    more_is_better: bool

    @property
    def suffix(self) -> str:
        """The unit of the texts, behind a comma; nothing where the label says it."""
        return {"share": ", %", "s": ", s"}.get(self.unit, "")

    def text(self, value: float | None, *, signed: bool = False) -> str:
        """Return a value for people, without its unit."""
        if value is None:
            return "-"
        sign = "+" if signed else ""
        if self.unit == "share":
            return f"{100 * value:{sign}.2f}"
        return f"{value:{sign},.0f}" if self.unit == "per_s" else f"{value:{sign}.4g}"

    def interval(self, low: float | None, high: float | None, *, signed: bool = False) -> str:
        """Return an interval for people, without its unit."""
        if low is None or high is None:
            return "-"
        return f"[{self.text(low, signed=signed)}, {self.text(high, signed=signed)}]"


METRICS = (
    Metric("accuracy", "accuracy", "share", True),
    Metric("loss", "loss", "loss", False),
    Metric("best_validation_accuracy", "best validation accuracy", "share", True),
    Metric("epoch_s", "epoch time", "s", False),
    Metric("data_wait_s", "data wait", "s", False),
    Metric("samples_per_s", "samples/s", "per_s", True),
)
"""`accuracy` and `loss` are of the test split, or of the validation split where there are no test rows."""

CURVES = {
    "train_loss": "training loss",
    "validation_loss": "validation loss",
    "train_accuracy": "training accuracy",
    "validation_accuracy": "validation accuracy",
}
Epoch = dict[str, float]
"""The numbers of an event ``train_epoch``."""


def epochs_of(events: Sequence[Event]) -> list[Epoch]:
    """Return the epochs of a run in order; of one that was told twice, after an interruption, the last."""
    told = {int(event.numbers["epoch"]): dict(event.numbers) for event in events if event.kind == "train_epoch"}
    return [told[number] for number in sorted(told)]


def speeds(events: Sequence[Event]) -> dict[str, float]:
    """Return `epoch_s`, `data_wait_s` and `samples_per_s`: medians over the epochs that ran undisturbed.

    Not counted are the first epoch, in which processes warm up, unless it is the only one, and those in which the run
    was gone on with after an interruption. Nothing is returned where none is left.
    """
    epochs = epochs_of(events)
    resumed = {int(event.numbers["epoch"]) for event in events if event.kind == "train_resume"}
    warm = epochs[1:] if len(epochs) > 1 else epochs
    timed = [epoch for epoch in warm if int(epoch["epoch"]) not in resumed]
    if not timed:
        return {}
    return {
        "epoch_s": median(epoch["train_s"] for epoch in timed),
        "data_wait_s": median(epoch["train_s"] * epoch["data_wait_share"] for epoch in timed),
        "samples_per_s": median(epoch["samples_per_s"] for epoch in timed),
    }


def best_validation(epochs: Sequence[Epoch]) -> dict[str, float]:
    """Return the best validation accuracy; nothing without validation rows."""
    found = [epoch["validation_accuracy"] for epoch in epochs if "validation_accuracy" in epoch]
    return {"best_validation_accuracy": max(found)} if found else {}


def of_best_epoch(epochs: Sequence[Epoch]) -> Mapping[str, float]:
    """Return accuracy and loss on the validation split of the epoch with the lowest loss; nothing without rows.

    A loss that is not finite is not the lowest: NaN would compare with none.
    """
    found = [epoch for epoch in epochs if math.isfinite(epoch.get("validation_loss", math.nan))]
    if not found:
        return {}
    best = min(found, key=lambda epoch: epoch["validation_loss"])
    return {"accuracy": best["validation_accuracy"], "loss": best["validation_loss"]}
