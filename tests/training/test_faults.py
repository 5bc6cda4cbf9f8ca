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
ONE = ("--master", "local-cluster[1,1,1024]", *SMALL)
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


def first_step(folder: Path) -> float:
    """Return the first step of the newest run."""
    return min(event.numbers["step"] for event in events(folder, "train_window"))


def kill_jvm(job: Job, _: Path) -> None:
    """Kill the process that was started."""
    is_killed(job, psutil.Process(job.process.pid))


def kill_python(job: Job, _: Path) -> None:
    """Kill the process that runs the job's code."""
    is_killed(job, job.python_driver())


def is_killed(job: Job, driver: psutil.Process) -> None:
    driver.kill()
    _, output = job.wait(60)
    assert "Traceback" not in output


def interrupt(job: Job, folder: Path) -> None:
    """Send what Ctrl-C sends, to Python."""
    is_interrupted(job, folder, job.python_driver(), signal.SIGINT)


def terminate(job: Job, folder: Path) -> None:
    """Send SIGTERM to the process that was started, which is the JVM."""
    is_interrupted(job, folder, psutil.Process(job.process.pid), signal.SIGTERM)


def is_interrupted(job: Job, folder: Path, driver: psutil.Process, number: signal.Signals) -> None:
    driver.send_signal(number)
    code, output = job.wait(15)
    assert code == 130, output
    assert [line for line in output.splitlines() if line.startswith("error: ")] == ["error: interrupted"]
    assert "Traceback" not in output
    (end,) = [event for event in events(folder, "run") if event.labels["phase"] == "end"]
    assert end.labels["outcome"].startswith("KeyboardInterrupt")


def test_whatever_ends_the_driver_no_process_is_left_and_the_next_start_goes_on(
    submit: Callable[[], Job], tmp_path: Path
) -> None:
    reached = 0
    for end in (kill_jvm, interrupt, kill_python, terminate):
        job = submit()
        eventually(lambda before=reached: last_step(tmp_path) > before)  # type: ignore[misc]
        job.remember()
        end(job, tmp_path)
        assert not job.left_over(30), end
        assert first_step(tmp_path) == reached + 1, end
        reached = last_step(tmp_path)
        assert reached < STEPS
    (tmp_path / "slow").unlink()
    code, output = submit().wait()
    assert code == 0, output
    assert first_step(tmp_path) == reached + 1
    assert last_step(tmp_path) == STEPS
    assert "test  loss" in output


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
    data = config(table, tmp_path, model="mlp", model_options={}, world_size=1)
    data["checkpoint"] = {"dir": str(small_disk.path / "checkpoints")}
    code, output = start(tmp_path, data, ONE, script=TRAIN).wait()
    assert code == 1, output
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    assert "cannot write the checkpoint" in line
    assert "Traceback" not in output
    found = checkpoint.newest(small_disk.path / "checkpoints")
    assert found is not None
    assert {path.name for path in (small_disk.path / "checkpoints").iterdir()} == {".lock", found.path.name}
    small_disk.grow()
    code, output = start(tmp_path, data, ONE, script=TRAIN).wait()
    assert code == 0, output
    assert min(e.numbers["step"] for e in events(tmp_path, "train_window")) > found.manifest.position.total_steps
