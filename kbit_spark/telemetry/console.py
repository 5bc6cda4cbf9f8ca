"""The console: one live line with a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console as RichConsole
from rich.text import Text

from kbit_spark.events import Event
from kbit_spark.telemetry.progress import LiveLine

_YELLOW = ("table_care", "train_restart", "spark_task_failure", "decode_fallback", "decode_difference")


def describe(event: Event) -> str:
    """Return the event as one line for a person; empty for kinds that the console leaves to the files."""
    n, labels = event.numbers, event.labels
    if event.kind == "ingest_batch":
        return (
            f"batch {n.get('batch_id', 0):.0f}  {n.get('rows_per_s', 0):,.0f} rows/s  lag {n.get('lag_rows', 0):,.0f}  "
            f"good {n.get('good', 0):,.0f}  bad {n.get('bad', 0):,.0f}  {n.get('duration_s', 0):.2f} s"
        )
    if event.kind == "train_window":
        return f"epoch {n.get('epoch', 0):.0f}  step {n.get('step', 0):.0f}  loss {n.get('loss', 0):.4f}" + _speed(
            n, " on rank 0"
        )
    if event.kind == "train_epoch":
        return (
            f"epoch {n.get('epoch', 0):.0f}  loss {n.get('train_loss', 0):.4f}"
            + (f" / {n['validation_loss']:.4f} validation" if "validation_loss" in n else "")
            + f"  accuracy {n.get('train_accuracy', 0):.2%}"
            + (f" / {n['validation_accuracy']:.2%} validation" if "validation_accuracy" in n else "")
            + _speed(n)
        )
    if event.kind == "train_test":
        of = f"  weights of {labels['checkpoint']}" if labels.get("checkpoint") else ""
        return (
            f"test  loss {n.get('loss', 0):.4f}  accuracy {n.get('accuracy', 0):.2%}  {n.get('rows', 0):,.0f} rows{of}"
        )
    if event.kind == "train_restart":
        return f"restart {n.get('attempt', 0):.0f} from step {n.get('step', 0):.0f}: {labels.get('reason', '')}"
    if event.kind == "train_resume":
        place = f"goes on from step {n.get('step', 0):.0f} (epoch {n.get('epoch', 0):.0f})"
        return "; ".join(filter(None, [place, *map(labels.get, ("damaged", "changed", "nothing_left"))]))
    if event.kind == "table_evolved":
        return f"the table gained {labels.get('columns')}"
    if event.kind == "follow_wait":
        wanted = f" of {n['wanted']:,.0f}" if "wanted" in n else ""
        return f"waiting for new rows in {labels.get('table')}: {n.get('rows', 0):,.0f}{wanted} yet"
    if event.kind == "follow_window":
        return _window(n)
    if event.kind == "experiment_iteration":
        return _iteration(event)
    if event.kind == "table_care" and labels.get("outcome") == "failed":
        return f"{labels.get('action')} of {labels.get('table')} failed: {labels.get('reason')}"
    if event.kind == "decode_placement":
        return f"decoding on the {labels.get('engine')}: {labels.get('reason')}"
    if event.kind == "decode_fallback":
        return f"the GPU failed {event.scope}, the CPU decoded it: {labels.get('reason')}"
    if event.kind == "decode_difference":
        return f"{n.get('differences', 0):.0f} records differ between the engines: {labels.get('places')}"
    if event.kind == "spark_task_failure":
        return f"task failed in stage {n.get('stage_id', 0):.0f}: {labels.get('reason', '')}"
    if event.kind == "run":
        job = labels.get("job", "run")
        return f"{_EACH.get(job, job)} {_outcome(labels.get('outcome', ''))}"
    return ""


_EACH = {"experiment": "iteration"}
"""What a run of a job is called where the job has many."""


def _outcome(outcome: str) -> str:
    """Return how a run ended, in one word: what went wrong stands in the error that follows."""
    if outcome.startswith(KeyboardInterrupt.__name__):
        return "interrupted"
    return {"": "started", "ok": "ok"}.get(outcome, "failed")


def _window(n: Mapping[str, float]) -> str:
    """Return a window of follow mode as text; the champion's accuracy stands behind the new model's."""
    first, last = n.get("first_version", 0), n.get("last_version", 0)
    fresh = f"  fresh {n['freshness_s']:,.1f} s" if "freshness_s" in n else ""
    accuracy = f"  accuracy {n['accuracy']:.2%}" if "accuracy" in n else ""
    before = (
        f" / {n['champion_accuracy']:.2%} in use  p {n.get('p_value', 1):.2g}" if n.get("champion_accuracy") else ""
    )
    promoted = "promoted" if n.get("promoted") else "not promoted"
    return (
        f"window {n.get('window', 0):.0f}  versions {first:.0f}-{last:.0f}  {n.get('new_rows', 0):,.0f} new rows"
        f" + {n.get('replayed_rows', 0):,.0f} replayed  {n.get('rows_so_far', 0):,.0f} so far"
        f"{accuracy}{before}  {promoted}{fresh}  took {n.get('duration_s', 0):.1f} s"
    )


def _iteration(event: Event) -> str:
    """Return a finished iteration of an experiment as text."""
    n, labels = event.numbers, event.labels
    return (
        f"iteration {n.get('iteration', 0) + 1:.0f}  {labels.get('configuration')}  seed {n.get('seed', 0):.0f}"
        + (f"  {labels.get('split')} accuracy {n['accuracy']:.2%}" if "accuracy" in n else "")
        + (f"  epoch {n['epoch_s']:.3f} s" if "epoch_s" in n else "")
        + (f"  data wait {n['data_wait_s']:.3f} s" if "data_wait_s" in n else "")
        + (f"  {n['samples_per_s']:,.0f} samples/s" if "samples_per_s" in n else "")
    )


def _speed(n: Mapping[str, float], whose: str = "") -> str:
    """Return a speed as text, that of all ranks together unless `whose` says otherwise."""
    return f"  {n.get('samples_per_s', 0):,.0f} samples/s{whose}  data wait {n.get('data_wait_share', 0):.0%}"


class Console:
    """Shows batches and windows in one live line; epochs, failures and the outcome stay on the screen.

    Args:
        console: where to; None: this process's standard output.
    """

    name = "console"

    def __init__(self, console: RichConsole | None = None) -> None:
        self._console = console or RichConsole(file=own_stdout(), highlight=False, soft_wrap=True)
        self._live = LiveLine(self._console) if self._console.is_terminal else None

    def write(self, event: Event) -> None:
        """Show one event."""
        if self._live is not None and self._live.follow(event):
            return
        line = describe(event)
        if line and not (event.kind == "train_window" and event.rank):
            self._console.print(Text(line, style=_style(event)))

    def tick(self) -> None:
        """Draw what came since the last drawing, and the time."""
        if self._live is not None:
            self._live.draw()

    def close(self) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.close()


def own_stdout() -> TextIO:
    """Return standard output through a descriptor of its own, without a buffer.

    A terminal that stands still (Ctrl-S, a dead connection) then blocks nobody but who writes here. In `sys.stdout` the
    blocked thread would hold the buffer's lock, which the interpreter needs to end.
    """
    original = sys.__stdout__
    if original is None or sys.stdout is not original:
        return sys.stdout  # a notebook's or a test's
    raw = io.FileIO(os.dup(original.fileno()), "w")
    return io.TextIOWrapper(raw, encoding=original.encoding, errors="replace", write_through=True)


def _style(event: Event) -> str:
    if event.kind in _YELLOW or event.labels.get("damaged"):
        return "yellow"
    return "bold" if event.kind in ("train_epoch", "train_test", "follow_window", "experiment_iteration", "run") else ""
