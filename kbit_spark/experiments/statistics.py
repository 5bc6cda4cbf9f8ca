"""Statistics of a few runs; docs/decisions/0018-experiments.md says why these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Summary:
    """How one metric varies among runs; the interval is that of the mean, at `CONFIDENCE` (Student's t).

    `std` (with n - 1), `low` and `high` are None for a single run.
    """

    n: int
    mean: float
    std: float | None
    low: float | None
    high: float | None
    minimum: float
    q1: float
    median: float
    q3: float
    maximum: float


def summarize(values: Sequence[float]) -> Summary | None:
    """Summarize finite values; None where there are none."""
    if not values:
        return None
    data = np.asarray(values, dtype=np.float64)
    minimum, q1, middle, q3, maximum = (float(q) for q in np.quantile(data, (0, 0.25, 0.5, 0.75, 1)))
    std = float(data.std(ddof=1)) if len(data) > 1 else None
    low, high = interval_of_mean(data)
    return Summary(len(data), float(data.mean()), std, low, high, minimum, q1, middle, q3, maximum)


def interval_of_mean(data: np.ndarray) -> tuple[float | None, float | None]:
    """Return the confidence interval of the mean of values of shape (n,); None, None for a single one."""
    if len(data) < 2:
        return None, None
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(data) - 1) * data.std(ddof=1) / math.sqrt(len(data)))
    return float(data.mean()) - half, float(data.mean()) + half


@dataclass(frozen=True)
class Comparison:
    """How the second configuration differs from the first in one metric, over pairs of runs with the same seed.

    Args:
        pairs: pairs in which both runs have the metric.
        differing: pairs whose values differ; only they tell the test anything.
        difference: mean of second - first.
        low: lower end of its confidence interval, None for a single pair.
        high: upper end.
        relative: `difference` as a share of the first configuration's mean, None where that is 0.
        tendency: which way the signed ranks point, 1 where the second configuration's values are the larger ones, else
            -1, or 0; one outlier can turn the mean, but not this.
        p_value: of the Wilcoxon signed-rank test, two-sided.
        adjusted_p_value: corrected for the number of metrics that were tested (Holm).
        pairs_needed: fewest differing pairs with which the corrected test could reach `SIGNIFICANCE`.
    """

    pairs: int
    differing: int
    difference: float
    low: float | None
    high: float | None
    relative: float | None
    tendency: int
    p_value: float
    adjusted_p_value: float
    pairs_needed: int

    @property
    def is_significant(self) -> bool:
        """Whether chance alone makes such a difference at most that rarely."""
        return self.adjusted_p_value <= SIGNIFICANCE

    @property
    def could_be_significant(self) -> bool:
        """Whether there are pairs enough for the test to find any difference."""
        return self.is_significant or self.differing >= self.pairs_needed


def compare(metrics: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> dict[str, Comparison]:
    """Compare two configurations in several metrics; those without a pair are left out.

    Args:
        metrics: for each metric the values of the first and of the second configuration, of which those at the same
            place belong to the same seed.
    """
    found = {name: _compare(np.asarray(a, float), np.asarray(b, float)) for name, (a, b) in metrics.items() if len(a)}
    adjusted = holm([comparison.p_value for comparison in found.values()])
    needed = pairs_needed(len(found))
    return {
        name: replace(comparison, adjusted_p_value=p_value, pairs_needed=needed)
        for (name, comparison), p_value in zip(found.items(), adjusted, strict=True)
    }


def _compare(first: np.ndarray, second: np.ndarray) -> Comparison:
    """Compare one metric, as if it were the only one."""
    differences = second - first
    low, high = interval_of_mean(differences)
    difference, mean = float(differences.mean()), float(first.mean())
    # equal differences of decimal fractions must be ties: 0.97 - 0.96 is not 0.96 - 0.95 in binary
    size = max(np.abs(first).max(), np.abs(second).max()) or 1.0
    told = np.round(differences / size, 12)
    p_value = signed_rank(told)
    return Comparison(
        pairs=len(differences),
        differing=int(np.count_nonzero(told)),
        difference=difference,
        low=low,
        high=high,
        relative=difference / mean if mean else None,
        tendency=int(np.sign(np.sign(told) @ stats.rankdata(np.abs(told)))),
        p_value=p_value,
        adjusted_p_value=p_value,
        pairs_needed=pairs_needed(1),
    )


def signed_rank(differences: np.ndarray) -> float:
    """Return the two-sided p-value of the Wilcoxon signed-rank test (Pratt's treatment of zeros).

    It is exact for up to 50 differences without ties and zeros, and for up to 13 with them, else asymptotic.
    """
    if not differences.any():
        return 1.0
    return float(stats.wilcoxon(differences, zero_method="pratt", method="auto").pvalue)


def pairs_needed(metrics: int) -> int:
    """Return the fewest pairs with which a test of `metrics` metrics can reach `SIGNIFICANCE` in any of them.

    The smallest p-value of n pairs is 2 ** (1 - n), and Holm multiplies the first one by the number of metrics.
    """
    return math.ceil(1 + math.log2(metrics / SIGNIFICANCE)) if metrics else 0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number: the family-wise error stays below the level (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    raised = np.asarray(p_values, float)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return [float(p_value) for p_value in corrected]
