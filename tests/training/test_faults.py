"""Training jobs whose driver, executor or disk fails: what is said, what is left, how the next start goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kbit_spark.events import Event
from kbit_spark.telemetry.report import read_events
from kbit_spark.training import checkpoint
from tests.fixtures.disk import SmallDisk
from tests.fixtures.jobs import SMALL, TRAIN, Job, eventually, start
from tests.fixtures.samples import write_samples

MASTER = ("--master", "local-cluster[2,1,1024]", *SMALL)
EPOCHS, ROWS, BATCH = 6, 650, 32
STEPS = EPOCHS * ROWS // BATCH


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_samples(tmp_path_factory.mktemp("table") / "samples", train=ROWS, validation=64, test=64)


def config(table: str, folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a run that takes its time for as long as the file `folder`/slow is there."""
    base: dict[str, Any] = {
        "data": {"table": table, "shuffle_window_rows": 256},
        "model": "tests.training.models:slow",
        "model_options": {"marker": str(folder / "slow"), "pause_s": 0.1},
        "world_size": 2,
        "epochs": EPOCHS,
        "global_batch_size": BATCH,
        "checkpoint": {"dir": str(folder / "checkpoints"), "every_steps": 5},
        "log_every_steps": 1,
        "telemetry": {"run_dir": str(folder / "runs")},
    }
    return {**base, **changes}


@pytest.fixture
def submit(table: str, tmp_path: Path) -> Iterator[Callable[[], Job]]:
    jobs = []

    def run() -> Job:
        jobs.append(start(tmp_path, config(table, tmp_path), MASTER, script=TRAIN))
        return jobs[-1]

    (tmp_path / "slow").touch()
    yield run
    for job in jobs:
        job.kill()


def last_step(folder: Path) -> int:
    """Return the step of the newest checkpoint, 0 without one."""
    found = checkpoint.newest(folder / "checkpoints")
    return 0 if found is None else found.manifest.position.total_steps


def events(folder: Path, kind: str) -> list[Event]:
    """Return the events of the newest run."""
    return [e for e in read_events([max((folder / "runs").glob("*/events.jsonl"))]) if e.kind == kind]


def goes_on_from_the_checkpoint(submit: Callable[[], Job], folder: Path) -> None:
    reached = last_step(folder)
    assert 0 < reached < STEPS
    (folder / "slow").unlink()
    code, output = submit().wait()
    assert code == 0, output
    assert min(e.numbers["step"] for e in events(folder, "train_window")) == reached + 1
    assert last_step(folder) == STEPS
    assert "test  loss" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_ranks_and_the_next_start_goes_on(
    submit: Callable[[], Job], tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C reaches Python; SIGTERM reaches the process that was started, which is the JVM."""
    job = submit()
    eventually(lambda: last_step(tmp_path) > 0)
    driver = job.python_driver()
    (driver if number == signal.SIGINT else psutil.Process(job.process.pid)).send_signal(number)
    code, output = job.wait(15)
    assert code == 130, output
    assert [line for line in output.splitlines() if line.startswith("error: ")] == ["error: interrupted"]
    assert "Traceback" not in output
    assert not job.left_over()
    (end,) = [event for event in events(tmp_path, "run") if event.labels["phase"] == "end"]
    assert end.labels["outcome"].startswith("KeyboardInterrupt")
    if number == signal.SIGTERM:  # either leaves the same behind
        goes_on_from_the_checkpoint(submit, tmp_path)


@pytest.mark.parametrize("victim", ["jvm", "python"])
def test_a_killed_driver_leaves_no_process_and_the_next_start_goes_on(
    submit: Callable[[], Job], tmp_path: Path, victim: str
) -> None:
    job = submit()
    eventually(lambda: last_step(tmp_path) > 0)
    driver = job.python_driver()
    (driver if victim == "python" else psutil.Process(job.process.pid)).kill()
    _, output = job.wait(60)
    assert "Traceback" not in output
    assert not job.left_over(30)
    goes_on_from_the_checkpoint(submit, tmp_path)


def command_of(process: psutil.Process) -> str:
    """Return a process's command line, nothing for one that has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_a_killed_executor_is_named_and_the_run_goes_on_by_itself(submit: Callable[[], Job], tmp_path: Path) -> None:
    job = submit()
    eventually(lambda: last_step(tmp_path) > 0)
    executors = [p for p in job.remember().values() if "CoarseGrainedExecutorBackend" in command_of(p)]
    executors[0].kill()
    eventually(lambda: bool(events(tmp_path, "train_restart")), timeout_s=60)
    (tmp_path / "slow").unlink()
    code, output = job.wait()
    assert code == 0, output
    (restart,) = events(tmp_path, "train_restart")
    assert restart.rank in (0, 1)
    assert f"rank {restart.rank} died at step" in restart.labels["reason"]
    after = [e.numbers["step"] for e in events(tmp_path, "train_window") if e.time > restart.time]
    assert min(after) > 5 and min(after) % 5 == 1  # from a checkpoint, not from the start
    assert last_step(tmp_path) == STEPS
    assert "Traceback" not in output
    assert not job.left_over()


def test_a_full_disk_ends_the_run_and_the_next_start_goes_on(table: str, tmp_path: Path, small_disk: SmallDisk) -> None:
    data = config(table, tmp_path, model="mlp", model_options={})
    data["checkpoint"] = {"dir": str(small_disk.path / "checkpoints")}
    code, output = start(tmp_path, data, MASTER, script=TRAIN).wait()
    assert code == 1, output
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    assert "cannot write the checkpoint" in line
    assert "Traceback" not in output
    found = checkpoint.newest(small_disk.path / "checkpoints")
    assert found is not None
    assert {path.name for path in (small_disk.path / "checkpoints").iterdir()} == {".lock", found.path.name}
    small_disk.grow()
    code, output = start(tmp_path, data, MASTER, script=TRAIN).wait()
    assert code == 0, output
    assert min(e.numbers["step"] for e in events(tmp_path, "train_window")) > found.manifest.position.total_steps
