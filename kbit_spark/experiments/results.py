"""Results of single runs: one file each, written once the run has ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from pydantic import Field, ValidationError

from kbit_spark.config.secrets import masked
from kbit_spark.errors import RunError
from kbit_spark.events import Event
from kbit_spark.experiments.metrics import Epoch, best_validation, epochs_of, of_best_epoch, speeds
from kbit_spark.experiments.plan import Plan, Run, write_atomically
from kbit_spark.schemas.base import Frozen
from kbit_spark.training.job import Outcome

FILE = "result.json"


class Result(Frozen):
    """What a run has come to."""

    experiment: str
    """The plan's id."""

    configuration: str
    iteration: int
    seed: int
    version: int
    """Table version."""

    split: str
    """Where `accuracy` and `loss` were measured: test, or validation."""

    metrics: dict[str, float]
    """See `METRICS`; what could not be measured is left out."""

    epochs: tuple[Epoch, ...]
    resumed: bool
    """Whether the run was interrupted and gone on with."""

    stopped_early: bool
    checkpoint: str
    """The weights that were tested."""

    finished_at: datetime = Field(default_factory=lambda: datetime.now(timezone.utc))
    config: dict[str, Any]

    @classmethod
    def of(cls, run: Run, plan: Plan, outcome: Outcome, events: Sequence[Event]) -> Result:
        """Return the result of a run that has ended.

        Args:
            run: the run.
            plan: the experiment's.
            outcome: how the run ended.
            events: all events of the run, also those from before it was interrupted.
        """
        epochs = epochs_of(events)
        if outcome.test_rows:
            split, judged = "test", {"accuracy": outcome.test_accuracy, "loss": outcome.test_loss}
        else:
            split, judged = "validation", dict(of_best_epoch(epochs))
        metrics = {**judged, **best_validation(epochs), **speeds(events)}
        return cls(
            experiment=plan.id,
            configuration=run.configuration,
            iteration=run.iteration,
            seed=run.config.seed,
            version=plan.version,
            split=split,
            metrics=_finite(metrics),
            epochs=tuple(_finite(epoch) for epoch in epochs),
            resumed=any(event.kind == "train_resume" for event in events),
            stopped_early=outcome.stopped_early,
            checkpoint=outcome.checkpoint,
            config=masked(run.config.model_dump(mode="json")),
        )

    def event(self) -> Event:
        """Return the event that tells of the run."""
        numbers = {"iteration": float(self.iteration), "seed": float(self.seed), **self.metrics}
        labels = {"configuration": self.configuration, "split": self.split, "experiment": self.experiment}
        return Event("experiment_iteration", f"iteration={self.iteration}", numbers, labels)


def _finite(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def write_result(run: Run, result: Result) -> None:
    """Keep a result; from then on the run is not run again.

    Raises:
        RunError: it cannot be written.
    """
    write_atomically(run.folder / FILE, result.model_dump_json(indent=2) + "\n")


def read_result(run: Run, plan: Plan) -> Result | None:
    """Return the result of a run, None where it has not ended.

    Raises:
        RunError: it cannot be read, or is another experiment's.
    """
    file = run.folder / FILE
    try:
        result = Result.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        msg = f"cannot read {file}: {' '.join(str(error).split())}"
        raise RunError(msg, "restore it, or remove it: the run is then tested once more") from error
    if result.experiment != plan.id:
        msg = f"{file} is of another experiment: {result.experiment}, not {plan.id}"
        raise RunError(msg, "remove it, or choose another dir")
    return result
