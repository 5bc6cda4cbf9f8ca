"""Goes on from the last checkpoint after a lost attempt, and says what was lost.

Spark never retries a barrier result stage, so the driver does.
"""

from __future__ import annotations

from collections.abc import Callable

from kbit_spark.errors import RunError, TrainingError
from kbit_spark.events import Event
from kbit_spark.training.control import Control, RankState
from kbit_spark.training.job import Emit, Outcome

Attempt = Callable[[int], Outcome | None]


def with_restarts(attempt: Attempt, control: Control, max_restarts: int, emit: Emit) -> Outcome:
    """Call ``attempt(n)`` until it brings an outcome, at most `max_restarts` times more.

    Raises:
        RunError: a fault of the input or the configuration, which no restart would mend.
        TrainingError: every attempt was lost; it names rank and step and holds the rank's last lines.
    """
    for number in range(max_restarts + 1):
        control.begin(number)
        if (outcome := attempt(number)) is not None:
            return outcome
        error = verdict(control)
        if not isinstance(error, TrainingError):
            raise error
        emit(_restart_event(number, control.ranks.get(-1 if error.rank is None else error.rank), error))
        if number == max_restarts:
            raise error
    raise AssertionError  # the loop returns or raises


def verdict(control: Control) -> RunError:
    """Return why an attempt was lost: a `TrainingError` where going on from the checkpoint may help.

    A rank that told of its failure told its step too. One that died may not have; DDP's ranks go in lockstep, so the
    newest step of all is its own. Under averaging it may be ahead of it, by less than the steps between two averagings.
    """
    culprit = find_culprit(control.faulty())
    step = control.last_step() if culprit is None or culprit.failure is None else culprit.step
    if culprit is not None and culprit.failure is not None and culprit.failure["kind"] in ("fatal", "echo"):
        return RunError(f"{culprit.failure['message']} (rank {culprit.rank}, step {step})", culprit.failure["hint"])
    return describe(culprit, control.stage_failure, step)


def find_culprit(faulty: list[RankState]) -> RankState | None:
    """Return the rank whose fault came first in cause: bad input, then a death, then an exception of its own."""

    def order(state: RankState) -> int:
        if state.failure is None:
            return 1
        return {"fatal": 0, "error": 2, "echo": 3}.get(state.failure["kind"], 4)

    return min(faulty, key=order, default=None)


def describe(culprit: RankState | None, stage_failure: str, step: int) -> TrainingError:
    """Return the error that names rank, `step` and last lines."""
    if culprit is None:
        return TrainingError(f"the training stage failed: {stage_failure or 'Spark gave no reason'}")
    why = "stopped answering" if culprit.silent else "died"
    if culprit.failure is not None:
        why = f"failed with {culprit.failure['message']}"
    lines = "\n    ".join(list(culprit.tail)[-10:])
    msg = f"rank {culprit.rank} {why} at step {step} (epoch {culprit.epoch})"
    return TrainingError(msg, f"its last lines:\n    {lines}" if lines else "", rank=culprit.rank, step=step)


def _restart_event(attempt: int, culprit: RankState | None, error: TrainingError) -> Event:
    tail = "\n".join(culprit.tail) if culprit is not None else ""
    numbers = {"attempt": float(attempt), "step": float(error.step or 0)}
    return Event("train_restart", numbers=numbers, labels={"reason": error.message, "tail": tail}, rank=error.rank)
