"""Asks a new model and the one in use about the same rows."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kbit_spark.schemas.fields import Split
from kbit_spark.training.collectives import add_up
from kbit_spark.training.metrics import Sums, classes
from kbit_spark.training.promotion import Paired
from kbit_spark.training.world import World

HOLDOUT: Split = "validation"
"""The test split is left for a judgement that no decision has ever used."""


class Marks(Sums):
    """Sums that also keep for each row, in the order of the rows, whether the model was right."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._device = device
        self._marks: list[torch.Tensor] = []

    def add(self, loss_sum: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Add one batch, see `Sums.add`."""
        super().add(loss_sum, logits, targets)
        self._marks.append(classes(logits) == targets)

    def marks(self) -> torch.Tensor:
        """Return this rank's marks, bool of shape (rows,)."""
        return torch.cat(self._marks) if self._marks else torch.zeros(0, dtype=torch.bool, device=self._device)


def compare(evaluate: Callable[[Split, Sums], object], world: World, load_champion: Callable[[], bool]) -> Paired:
    """Return what both models say about the hold-out, over all ranks; every rank must call it.

    Args:
        evaluate: adds this rank's rows of a split to the sums, in the same order each time.
        world: this rank.
        load_champion: puts the model in use in the place of the new one; false where there is none.
    """
    new = _marks(evaluate, world)
    old = _marks(evaluate, world) if load_champion() else torch.zeros_like(new)
    rows = torch.full((), len(new), device=world.device)
    counts = torch.stack([rows, (new & old).sum(), (new & ~old).sum(), (old & ~new).sum()])
    add_up(counts)
    return Paired(*(int(count) for count in counts.tolist()))


def _marks(evaluate: Callable[[Split, Sums], object], world: World) -> torch.Tensor:
    found = Marks(world.device)
    evaluate(HOLDOUT, found)
    return found.marks()
