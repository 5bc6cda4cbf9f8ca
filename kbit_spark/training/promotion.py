"""Whether a new model is better than the one in use: a paired test on what both say about the same rows.

Two accuracies on the same rows are not independent, so they are not compared as such. Rows on which both models are
right, or both wrong, tell nothing; of the others, each is a fair coin if the models are equally good (McNemar 1947, in
its exact form).
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy.special import bdtrc  # not scipy.stats, whose import takes every rank half a second


@dataclass(frozen=True)
class Paired:
    """What two models say about the same rows; without a model in use, nothing is `kept` or `lost`.

    Args:
        rows: rows in all.
        kept: rows that both get right.
        gained: rows that only the new model gets right.
        lost: rows that only the model in use gets right.
    """

    rows: int
    kept: int
    gained: int
    lost: int

    @property
    def new_accuracy(self) -> float:
        """Share of the rows that the new model gets right; NaN without rows."""
        return (self.kept + self.gained) / self.rows if self.rows else float("nan")

    @property
    def old_accuracy(self) -> float:
        """Share of the rows that the model in use gets right; NaN without rows."""
        return (self.kept + self.lost) / self.rows if self.rows else float("nan")

    @property
    def p_value(self) -> float:
        """How likely so many gains among gains and losses are if the new model is no better (one-sided)."""
        told = self.gained + self.lost
        return float(bdtrc(self.gained - 1, told, 0.5)) if told else 1.0

    def is_better(self, significance: float) -> bool:
        """Tell whether the new model is better at this level of significance."""
        return self.p_value <= significance
