"""Statistics against values worked out by hand, against SciPy's own, and as properties."""

from __future__ import annotations

import itertools
import math
from random import Random
from statistics import stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kbit_spark.experiments.statistics import (
    SIGNIFICANCE,
    compare,
    holm,
    interval_of_mean,
    pairs_needed,
    signed_rank,
    summarize,
)

numbers = st.integers(-10_000, 10_000).map(lambda value: value / 8)


def test_a_summary_worked_out_by_hand() -> None:
    found = summarize([2.0, 4.0, 4.0, 5.0, 10.0])
    assert found is not None
    assert (found.n, found.mean, found.minimum, found.q1, found.median, found.q3, found.maximum) == (
        5,
        5,
        2,
        4,
        4,
        5,
        10,
    )
    assert found.std == 3.0  # squares 9 + 1 + 1 + 0 + 25 over n - 1
    half = 2.776445 * 3.0 / math.sqrt(5)  # the table's t for 4 degrees of freedom
    assert (found.low, found.high) == pytest.approx((5 - half, 5 + half), rel=1e-6)


def test_a_single_run_has_no_spread_and_none_no_summary() -> None:
    found = summarize([3.0])
    assert found is not None
    assert (found.mean, found.std, found.low, found.high, found.q1) == (3.0, None, None, None, 3.0)
    assert summarize([]) is None


@given(st.lists(numbers, min_size=2, max_size=30))
def test_summaries_are_scipys_and_in_order(values: list[float]) -> None:
    found = summarize(values)
    assert found is not None
    assert found.minimum <= found.q1 <= found.median <= found.q3 <= found.maximum
    assert found.std == pytest.approx(stdev(values), abs=1e-9)
    assert found.low is not None and found.high is not None
    error = stats.sem(values)
    if error:
        wanted = stats.t.interval(0.95, len(values) - 1, np.mean(values), error)
        assert (found.low, found.high) == pytest.approx(wanted, rel=1e-9, abs=1e-6)
    assert found.low <= found.mean <= found.high


def every_sign(differences: list[float]) -> float:
    """Return the p-value of the signed-rank test by counting all ways in which the signs could have fallen."""
    ranks = stats.rankdata(np.abs(differences))
    statistic = sum(rank for rank, d in zip(ranks, differences, strict=True) if d > 0)
    places = [i for i, d in enumerate(differences) if d]
    sums = np.array(
        [sum(ranks[i] for i in chosen) for n in range(len(places) + 1) for chosen in itertools.combinations(places, n)]
    )
    return min(1.0, 2 * float(min((sums >= statistic - 1e-9).mean(), (sums <= statistic + 1e-9).mean())))


@settings(deadline=None)  # up to 512 sums of ranks take a busy machine a while
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_the_test_is_exact_with_ties_and_zeros(differences: list[int]) -> None:
    wanted = every_sign([float(d) for d in differences]) if any(differences) else 1.0
    assert signed_rank(np.asarray(differences, float)) == pytest.approx(wanted)


@given(st.lists(st.floats(0.001, 1e3), min_size=2, max_size=12, unique=True), st.randoms())
def test_the_test_does_not_care_which_configuration_comes_first(sizes: list[float], random: Random) -> None:
    differences = np.array([size * random.choice((-1, 1)) for size in sizes])
    assert signed_rank(differences) == pytest.approx(signed_rank(-differences))
    assert signed_rank(np.abs(differences)) == pytest.approx(2.0 ** (1 - len(sizes)))  # the smallest there is


def test_holm_worked_out_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_raises_keeps_the_order_and_never_passes_bonferroni(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(p <= c <= min(1.0, len(p_values) * p) for p, c in zip(p_values, corrected, strict=True))
    assert [corrected[i] for i in np.argsort(p_values, kind="stable")] == sorted(corrected)
    assert min(corrected) == pytest.approx(min(1.0, len(p_values) * min(p_values)))


@pytest.mark.parametrize(("metrics", "pairs"), [(1, 6), (2, 7), (6, 8), (0, 0)])
def test_the_pairs_that_are_needed_are_the_fewest_that_can_do(metrics: int, pairs: int) -> None:
    assert pairs_needed(metrics) == pairs
    if metrics:
        assert metrics * 2.0 ** (1 - pairs) <= SIGNIFICANCE < metrics * 2.0 ** (2 - pairs)


def test_a_comparison_pairs_runs_by_seed() -> None:
    first = [0.95, 0.96, 0.97, 0.90, 0.91, 0.92, 0.93, 0.94]
    second = [value + 0.01 for value in first]
    found = compare({"accuracy": (first, second), "loss": (first, first), "epoch_s": ([], [])})
    assert list(found) == ["accuracy", "loss"]
    better = found["accuracy"]
    assert (better.pairs, better.differing, better.pairs_needed) == (8, 8, 7)
    assert better.p_value == 2 / 2**8  # the differences are ties, though not in binary
    assert better.adjusted_p_value == 2 * better.p_value
    assert better.is_significant
    assert better.difference == pytest.approx(0.01)
    assert better.relative == pytest.approx(0.01 / np.mean(first))
    equal = found["loss"]
    assert (equal.differing, equal.p_value, equal.adjusted_p_value, equal.is_significant) == (0, 1.0, 1.0, False)


def test_one_outlier_turns_the_mean_but_not_the_verdict() -> None:
    slower = [1.0 + i / 100 for i in range(11)]
    found = compare({"epoch_s": ([1.0] * 12, [*[1 + s / 10 for s in slower], 0.0001])})["epoch_s"]
    assert (found.tendency, found.is_significant) == (1, True)
    found = compare({"epoch_s": ([9.0] * 12, [*[9 + s / 10 for s in slower], 0.0001])})["epoch_s"]
    assert (found.tendency, found.is_significant, found.difference < 0) == (1, True, True)


@given(st.integers(1, 7))
def test_too_few_pairs_are_never_significant(pairs: int) -> None:
    values = list(range(pairs))
    found = compare({f"m{i}": (values, [v + 1000 + v / 7 for v in values]) for i in range(6)})
    assert not any(c.is_significant or c.could_be_significant for c in found.values())


def test_the_interval_of_a_difference_is_that_of_the_paired_t_test() -> None:
    first, second = [1.0, 1.2, 0.9, 1.4, 1.1], [1.3, 1.2, 1.1, 1.9, 1.2]
    found = compare({"epoch_s": (first, second)})["epoch_s"]
    wanted = stats.ttest_rel(second, first).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    assert interval_of_mean(np.array([1.0])) == (None, None)
