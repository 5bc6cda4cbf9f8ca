from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

from kbit_spark.events import Event
from kbit_spark.telemetry.console import Console, describe

ROOT = Path(__file__).parents[2]
BATCH = Event("ingest_batch", "batch=3", {"batch_id": 3, "rows_per_s": 1234.5, "lag_rows": 7, "good": 10, "bad": 1})
RUN = """
import sys, time
from pathlib import Path
from kbit_spark.config.telemetry import TelemetryConfig
from kbit_spark.entry import exit_with
from kbit_spark.events import Event
from kbit_spark.telemetry.hub import Telemetry

def main():
    with Telemetry.open(TelemetryConfig(run_dir="runs"), "train", run_id="r") as telemetry:
        for step in range(1, 401):
            numbers = {"epoch": step // 201, "step": step, "epoch_step": step % 201, "epoch_steps": 200}
            numbers |= {"loss": 0.5, "samples_per_s": 1000}
            for rank in (0, 1):
                telemetry.emit(Event("train_window", numbers=numbers, rank=rank))
            if step == 200:
                telemetry.emit(Event("train_epoch", numbers={"epoch": 0, "train_loss": 0.5, "train_accuracy": 0.75}))
            telemetry.emit(Event("train_restart", labels={"reason": "x" * 100}))
            time.sleep(0.002)
    Path("done").touch()

exit_with(main)
"""


def shown(terminal: bool, *events: Event) -> str:
    text = io.StringIO()
    sink = Console(RichConsole(file=text, force_terminal=terminal, width=200, highlight=False))
    for event in events:
        sink.write(event)
        sink.tick()
    sink.close()
    return text.getvalue()


def test_plain_lines_without_a_terminal() -> None:
    text = shown(False, BATCH, Event("spark_stage"), Event("train_window", numbers={"step": 9}, rank=1))
    assert text == "batch 3  1,234 rows/s  lag 7  good 10  bad 1  0.00 s\n"


def test_a_line_of_one_rank_says_so() -> None:
    numbers = {"epoch": 1, "step": 9, "loss": 0.5, "samples_per_s": 400, "data_wait_share": 0.05}
    window = describe(Event("train_window", numbers=numbers, rank=0))
    assert window == "epoch 1  step 9  loss 0.5000  400 samples/s on rank 0  data wait 5%"
    assert "800 samples/s  data" in describe(Event("train_epoch", numbers={**numbers, "samples_per_s": 800}))


def test_a_window_of_follow_mode_is_one_line() -> None:
    numbers = {
        "window": 3, "first_version": 8, "last_version": 9, "new_rows": 1200, "replayed_rows": 80, "rows_so_far": 5000,
        "accuracy": 0.93, "champion_accuracy": 0.912, "p_value": 0.0312, "promoted": 1, "freshness_s": 7.25,
        "duration_s": 4.5,
    }  # fmt: skip
    assert describe(Event("follow_window", numbers=numbers)) == (
        "window 3  versions 8-9  1,200 new rows + 80 replayed  5,000 so far  accuracy 93.00% / 91.20% in use  p 0.031"
        "  promoted  fresh 7.2 s  took 4.5 s"
    )
    first = {"window": 0, "new_rows": 10, "accuracy": 0.5, "champion_accuracy": 0.0, "promoted": 1}
    assert "accuracy 50.00%  promoted" in describe(Event("follow_window", numbers=first))


def test_a_wait_tells_the_new_rows() -> None:
    wait = Event("follow_wait", numbers={"rows": 1200, "wanted": 1500}, labels={"table": "t"})
    assert describe(wait) == "waiting for new rows in t: 1,200 of 1,500 yet"


def test_one_of_many_runs_is_not_called_the_whole() -> None:
    end = Event("run", labels={"phase": "end", "job": "experiment", "outcome": "ok"})
    assert describe(end) == "iteration ok"


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        ("ok", "ok"),
        ("RunError: no broker (start one)", "failed"),
        ("KeyboardInterrupt: ", "interrupted"),
        ("", "started"),
    ],
)
def test_a_run_ends_in_one_word_since_the_error_follows(outcome: str, word: str) -> None:
    labels = {"job": "ingest", **({"outcome": outcome} if outcome else {})}
    assert describe(Event("run", labels=labels)) == f"ingest {word}"


def test_table_care_is_shown_only_where_it_failed() -> None:
    labels = {"action": "optimize", "table": "t", "outcome": "failed", "reason": "no room"}
    text = shown(False, Event("table_care", labels={**labels, "outcome": "ok"}), Event("table_care", labels=labels))
    assert text == "optimize of t failed: no room\n"


def test_one_live_line_on_a_terminal() -> None:
    text = shown(True, BATCH)
    for part in ("batch 3", "1,234 rows/s", "lag 7", "good 10", "bad 1", "0.00 s"):
        assert part in text


def on_a_terminal(folder: Path, attend: Callable[[int], None]) -> tuple[float, str]:
    """Run a job of one second on a terminal that `attend` looks after; return when it ended and what else it said."""
    leader, follower = pty.openpty()
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", RUN],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "160"},
        cwd=folder, stdout=follower, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        os.close(follower)
        thread = threading.Thread(target=attend, args=(leader,), daemon=True)
        thread.start()
        try:
            _, errors = process.communicate(timeout=40)
        finally:
            process.kill()
    thread.join(10)
    assert process.returncode == 0, errors
    assert (folder / "done").exists()
    events = [json.loads(line)["kind"] for line in (folder / "runs/r/events.jsonl").read_text().splitlines()]
    assert len(events) == 2 + 3 * 400 + 1  # no other sink lost anything
    return time.monotonic() - began, errors


def test_a_terminal_shows_a_bar_for_the_epoch(tmp_path: Path) -> None:
    seen = b""

    def read(leader: int) -> None:
        nonlocal seen
        try:
            while block := os.read(leader, 65_536):
                seen += block
        except OSError:  # the job has closed its end
            return

    _, errors = on_a_terminal(tmp_path, read)
    text = seen.decode()
    for part in ("epoch 1", "━", "loss 0.5000", "accuracy 75.00%", "2,000 samples/s", "\x1b[", "train ok"):
        assert part in text
    assert errors == ""


def stands_still(leader: int) -> None:
    """Read nothing: a terminal's few kilobytes are full at once."""


@pytest.mark.parametrize("attend", [stands_still, os.close])
def test_a_terminal_that_stands_still_or_goes_away_stops_nothing(tmp_path: Path, attend: Callable[[int], None]) -> None:
    seconds, errors = on_a_terminal(tmp_path, attend)
    assert seconds < 20
    assert errors == ""
    log = (tmp_path / ".kbit/kbit.log").read_text()
    assert "sink console did not finish" in log or "sink console is off" in log
    assert "Traceback" not in log
