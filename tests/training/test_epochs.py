"""What the end of an epoch decides: the best loss, and whether to stop early."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kbit_spark.config.train import TrainConfig
from kbit_spark.training.loop import after_epoch
from kbit_spark.training.manifest import Position


def epochs(losses: Sequence[float | None], begin: Position | None = None, **stopping: float) -> Position:
    """Return the position after epochs of ten steps with these losses, or after the one that ends the run."""
    made = {"data": {"table": "t"}, "checkpoint": {"dir": "c"}, "epochs": 50, "early_stopping": stopping}
    config, position = TrainConfig.model_validate(made), begin or Position()
    for loss in losses:
        position = position.model_copy(update={"total_steps": position.total_steps + 10, "step": 10})
        position = after_epoch(position, loss, config)
        if position.finished:
            break
    return position


@pytest.mark.parametrize(
    ("losses", "stopping", "last", "best_step", "stale"),
    [
        ([1.0, 0.9, 0.95, 0.8], {}, 4, 40, 0),
        ([1.0, 0.9, 0.95, 0.96, 0.8], {"patience_epochs": 2}, 4, 20, 2),
        # each epoch gains less than the least that counts, several together more
        ([1.0 - 0.009 * n for n in range(12)], {"patience_epochs": 5, "min_delta": 0.01}, 12, 120, 1),
        ([1.0 - 0.001 * n for n in range(12)], {"patience_epochs": 5, "min_delta": 0.01}, 6, 60, 5),
        ([1.0, 0.995, 0.985, 0.98], {"patience_epochs": 2, "min_delta": 0.01}, 4, 40, 1),
        ([None, None], {"patience_epochs": 1}, 2, None, 0),
    ],
)
def test_an_improvement_counts_from_the_last_one_that_did(
    losses: list[float | None], stopping: dict[str, float], last: int, best_step: int | None, stale: int
) -> None:
    position = epochs(losses, **stopping)
    assert (position.epoch, position.best_step, position.stale_epochs) == (last, best_step, stale)
    assert position.finished == (0 < stopping.get("patience_epochs", 0) <= stale)


def test_a_checkpoint_of_before_counts_from_its_best_loss() -> None:
    begin = Position(epoch=3, total_steps=30, best_loss=0.5, best_step=20, stale_epochs=1)
    assert epochs([0.495], begin, patience_epochs=3, min_delta=0.01).stale_epochs == 2
    assert epochs([0.48], begin, patience_epochs=3, min_delta=0.01).stale_epochs == 0
