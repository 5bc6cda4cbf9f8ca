"""The live line of a terminal: how far the backlog of a stream, or the epoch of a training, has come.

It is drawn only when told to, by the thread that tells: no thread of its own can hang in a terminal that stands still.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from kbit_spark.events import Event

DRAW_INTERVAL_S = 0.1


class LiveLine:
    """Follows the batches of a stream and the step windows of all ranks."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("[cyan]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[status]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: TaskID | None = None
        self._drawn = 0.0
        self._rows = 0.0
        self._accuracy: float | None = None
        self._speeds: dict[int, float] = {}

    def follow(self, event: Event) -> bool:
        """Take what the event tells; return whether the line shows all of it."""
        if event.kind == "ingest_batch":
            self._batch(event)
            return True
        if event.kind == "train_window":
            self._window(event)
            return True
        if event.kind == "train_epoch":
            numbers = event.numbers
            self._accuracy = numbers.get("validation_accuracy", numbers.get("train_accuracy"))
        return False

    def draw(self) -> None:
        """Draw the line as it now is."""
        if self._task is not None:
            self._drawn = time.monotonic()
            self._progress.refresh()

    def close(self) -> None:
        """Take the line away."""
        self._progress.stop()

    def _batch(self, event: Event) -> None:
        n = event.numbers
        self._rows += n.get("rows", 0)
        lag = n.get("lag_rows")
        status = [
            f"{n.get('rows_per_s', 0):,.0f} rows/s",
            "" if lag is None else f"lag {lag:,.0f}",
            f"good {n.get('good', 0):,.0f}",
            f"bad {n.get('bad', 0):,.0f}",
            f"{n.get('duration_s', 0):.2f} s",
        ]
        total = None if lag is None else self._rows + lag
        self._show(f"batch {n.get('batch_id', 0):.0f}", self._rows, total, status)

    def _window(self, event: Event) -> None:
        n = event.numbers
        self._speeds[event.rank or 0] = n.get("samples_per_s", 0)
        if event.rank:
            return  # the first rank speaks for all; of the others only the speed is added
        epoch, steps = n.get("epoch", 0), n.get("epoch_steps")
        status = [
            f"loss {n.get('loss', 0):.4f}",
            "" if self._accuracy is None else f"accuracy {self._accuracy:.2%}",
            f"{sum(self._speeds.values()):,.0f} samples/s",
        ]
        self._show(f"epoch {epoch:.0f}", n.get("epoch_step", 0), steps, status)

    def _show(self, title: str, done: float, total: float | None, status: list[str]) -> None:
        text = "  ".join(filter(None, status))
        if self._task is None:
            self._task = self._progress.add_task(title, total=total, status=text)
            self._progress.start()
        self._progress.update(self._task, description=title, completed=done, total=total, status=text)
        if time.monotonic() - self._drawn >= DRAW_INTERVAL_S:
            self.draw()
