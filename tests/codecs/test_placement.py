"""Placement against engines of made-up speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbit_spark.codecs.placement import MOST_CHANGES, MOST_FAILURES, Placement, Work
from kbit_spark.schemas.base import Engine

SPEEDS = st.floats(1e2, 1e7)
NOISE = 0.02


LOOK = "measuring again"
Seconds = Callable[[Engine, int], float]
"""What a batch takes an engine that has run so many before."""


def stream(seconds: Seconds, batches: int, rows: int = 100_000) -> list[tuple[Engine, str, float]]:
    """Return engine, reason and seconds of each batch."""
    placement, ran, done = Placement("auto"), Counter[Engine](), []
    for _ in range(batches):
        work = Work("plan", rows)
        choice = placement.choose(work)
        took = seconds(choice.engine, ran[choice.engine])
        placement.ran(work, choice.engine, took)
        ran[choice.engine] += 1
        done.append((choice.engine, choice.reason, took))
    return done


@given(
    cpu=SPEEDS,
    gpu=SPEEDS,
    sizes=st.lists(st.integers(1 << 16, (1 << 17) - 1), min_size=60, max_size=60),
    noise=st.lists(st.floats(1 - NOISE, 1 + NOISE), min_size=60, max_size=60),
    warm_up=st.floats(1, 200),
)
def test_after_ten_batches_it_is_never_below_095_of_the_better_engine(
    cpu: float, gpu: float, sizes: list[int], noise: list[float], warm_up: float
) -> None:
    speeds: dict[Engine, float] = {"cpu": cpu, "gpu": gpu}
    placement, ran, looks = Placement("auto"), Counter[Engine](), 0
    spent = best = 0.0
    for batch, (rows, jitter) in enumerate(zip(sizes, noise, strict=True)):
        work = Work("plan", rows)
        choice = placement.choose(work)
        engine = choice.engine
        if batch >= 10:
            looks += choice.reason == LOOK
            spent, best = spent + rows / speeds[engine], best + rows / max(cpu, gpu)
            assert choice.reason == LOOK or speeds[engine] >= 0.95 * max(cpu, gpu)
        first = warm_up if not ran[engine] else 1.0
        placement.ran(work, engine, rows / speeds[engine] * jitter * first)
        ran[engine] += 1
    assert best / spent >= 0.95  # with the looks at the slower one
    assert min(ran.values()) <= 5 + looks  # it is explored, but not for long
    if max(cpu, gpu) > 4.2 * min(cpu, gpu):
        assert min(ran.values()) <= 2 + looks  # a hopeless one even less


@given(
    steady=st.floats(0.3, 0.85),
    slower=st.sampled_from(["cpu", "gpu"]),
    extra=st.floats(0, 2),
    half_life=st.floats(0.3, 1.5),
    noise=st.lists(st.floats(1 - NOISE, 1 + NOISE), min_size=200, max_size=200),
)
def test_an_engine_that_needs_longer_to_become_the_better_one_is_found(
    steady: float, slower: Engine, extra: float, half_life: float, noise: list[float]
) -> None:
    jitter = iter(noise)

    def seconds(engine: Engine, ran: int) -> float:
        if engine == slower:
            return next(jitter)
        return (steady + extra * 0.5 ** (ran / half_life)) * next(jitter)

    late = stream(seconds, 200)[150:]
    held = sum(engine == slower and reason != LOOK for engine, reason, _ in late)
    assert held == 0


@given(st.data())
def test_each_size_is_decided_by_itself(data: st.DataObject) -> None:
    """The GPU has a fixed cost: it loses small batches and wins large ones."""
    placement = Placement("auto")
    seconds: dict[Engine, tuple[float, float]] = {"cpu": (0.1, 1 / 50_000), "gpu": (1.0, 1 / 400_000)}
    rounds: Counter[int] = Counter()
    for _ in range(60):
        rows = data.draw(st.sampled_from([2_000, 400_000]))
        rounds[rows] += 1
        work = Work("plan", rows)
        engine = placement.choose(work).engine
        if rounds[rows] > 10:
            assert engine == ("cpu" if rows == 2_000 else "gpu")
        fixed, each = seconds[engine]
        placement.ran(work, engine, fixed + each * rows)


def run(placement: Placement, work: Work, speeds: dict[Engine, float], batches: int) -> list[tuple[Engine, bool]]:
    done = []
    for _ in range(batches):
        choice = placement.choose(work)
        done.append((choice.engine, choice.news))
        placement.ran(work, choice.engine, work.rows / speeds[choice.engine])
    return done


def test_a_decision_is_told_once_with_both_speeds() -> None:
    placement, work = Placement("auto"), Work("plan", 100_000)
    told = [news for _, news in run(placement, work, {"cpu": 50_000, "gpu": 200_000}, 20)]
    assert sum(told) == 1
    reason = placement.choose(work).reason
    assert reason == "gpu: 200,000 rows/s, cpu: 50,000 rows/s in batches of 65,536 to 131,071 rows"


def test_an_engine_that_becomes_slow_is_left_but_not_for_ever_back_and_forth() -> None:
    placement, work = Placement("auto"), Work("plan", 100_000)
    run(placement, work, {"cpu": 50_000, "gpu": 200_000}, 10)
    slow = [engine for engine, _ in run(placement, work, {"cpu": 50_000, "gpu": 10_000}, 10)]
    assert slow == ["gpu"] * 2 + ["cpu"] * 8
    told = 0
    for batch in range(400):  # whichever runs collapses, so the other always looks better
        choice = placement.choose(work)
        placement.ran(work, choice.engine, 2.0**batch)
        told += choice.news
    assert told == MOST_CHANGES - 1


def test_a_refusal_is_told_once_whatever_the_size() -> None:
    placement = Placement("auto")
    choices = [placement.choose(Work("plan", rows, "topic a: no kernel reads it")) for rows in (1, 10, 100)]
    assert [(c.engine, c.news) for c in choices] == [("cpu", True), ("cpu", False), ("cpu", False)]


@pytest.mark.parametrize("mode", ["auto", "gpu"])
def test_after_some_failures_the_stream_stays_on_the_cpu(mode: str) -> None:
    placement, work = Placement(mode), Work("plan", 1_000)  # type: ignore[arg-type]
    for _ in range(MOST_FAILURES):
        assert placement.choose(work).engine == "gpu"
        placement.failed("out of memory")
    choice = placement.choose(work)
    assert (choice.engine, choice.news) == ("cpu", True)
    assert "out of memory" in choice.reason
    assert run(placement, work, {"cpu": 1.0, "gpu": 1e9}, 20) == [("cpu", False)] * 20


def test_the_user_is_taken_at_their_word() -> None:
    assert [engine for engine, _ in run(Placement("cpu"), Work("p", 9), {"cpu": 1, "gpu": 9}, 20)] == ["cpu"] * 20
    assert [engine for engine, _ in run(Placement("gpu"), Work("p", 9), {"cpu": 9, "gpu": 1}, 20)] == ["gpu"] * 20
