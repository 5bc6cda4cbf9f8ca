"""A GPU that ends no step any more ends its rank; one that works, however slowly, or has nothing to do, does not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Hashable, Iterator
from itertools import count, repeat

import pytest

from kbit_spark.training.hang_watch import HangWatch

POLL_S = 0.01
TIMEOUT_S = 5 * POLL_S


def ended_after(answers: Iterator[Hashable | None], seconds: float) -> bool:
    """Watch a GPU that gives these answers for so long; return whether the rank was ended."""
    ended: list[float] = []
    watch = HangWatch(lambda: next(answers), TIMEOUT_S, POLL_S, ended.append)
    deadline = time.monotonic() + seconds
    while not ended and time.monotonic() < deadline:
        time.sleep(POLL_S)
    watch.close()
    assert ended in ([], [TIMEOUT_S])
    return bool(ended)


def test_a_gpu_that_stays_where_it_is_ends_the_rank() -> None:
    assert ended_after(repeat((20, 16)), 10)


def test_a_step_at_a_time_is_enough() -> None:
    assert not ended_after(((20 + n // 4, 16) for n in count()), 50 * POLL_S)


def test_steps_that_end_without_new_ones_count() -> None:
    assert not ended_after(((20, 1000 - n // 4) for n in count()), 50 * POLL_S)


def test_a_gpu_with_nothing_to_do_is_waited_for() -> None:
    assert not ended_after(repeat(None), 50 * POLL_S)


def test_time_in_which_nobody_asked_does_not_count() -> None:
    answers = iter([(1, 1), (1, 1), *repeat(None, 1000)])

    def slow() -> Iterator[Hashable | None]:
        for answer in answers:
            time.sleep(TIMEOUT_S)  # as if the process had been stopped
            yield answer

    assert not ended_after(slow(), 10 * TIMEOUT_S)


@pytest.mark.parametrize("hangs", [True, False])
def test_the_process_ends_with_the_reason_while_its_main_thread_waits(*, hangs: bool) -> None:
    script = f"""
import logging, time
from kbit_spark.training.hang_watch import HangWatch
logging.basicConfig()
HangWatch(lambda: {(3, 1) if hangs else None}, 0.2, 0.05)
time.sleep(30 if {hangs} else 1)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (1 if hangs else 0), done.stderr
    assert ("the GPU has ended no step for 0 s" in done.stderr) == hangs
