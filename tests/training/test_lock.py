"""Two jobs in one folder: the second one is refused, until the first one has ended, however that happens."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kbit_spark import experiment, follow, train
from kbit_spark.config.experiment import ExperimentConfig
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.experiments.plan import Plan, keep_plan
from kbit_spark.schemas.snapshot import Snapshot
from kbit_spark.training import lock
from kbit_spark.training.lock import alone_in
from tests.fixtures.jobs import ROOT
from tests.fixtures.samples import write_samples

HOLDER = """
import sys
from pathlib import Path
from kbit_spark.training.lock import alone_in
with alone_in(Path(sys.argv[1]), "dir"):
    print("locked", flush=True)
    sys.stdin.read()
"""


def data(folder: Path, **changes: Any) -> dict[str, Any]:
    table = folder / "samples"
    if not table.exists():
        write_samples(table, train=64, validation=8)
    checkpoints = {"dir": str(folder / "work")}
    return {"data": {"table": str(table)}, "model": "mlp", "device": "cpu", "checkpoint": checkpoints, **changes}


def run_training(folder: Path) -> None:
    train.run(TrainConfig.model_validate(data(folder)))


def run_follower(folder: Path) -> None:
    follow.run(TrainConfig.model_validate(data(folder, follow={"enabled": True})))


def run_experiment(folder: Path) -> None:
    config = {"train": data(folder, global_batch_size=8), "dir": str(folder / "work"), "iterations": 1}
    experiment.run(ExperimentConfig.model_validate(config))


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE_S", 0.3)


def test_what_is_left_of_a_killed_job_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE_S", 30.0)
    leftover = ExitStack()
    leftover.enter_context(alone_in(tmp_path, "dir"))
    threading.Timer(1.0, leftover.close).start()
    with alone_in(tmp_path, "dir"):
        pass


def test_a_killed_process_lets_go_of_its_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "new")]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "."},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with (
            pytest.raises(RunError, match=rf"works in .*/new: process {holder.pid} on .*choose another dir"),
            alone_in(tmp_path / "new", "dir"),
        ):
            raise AssertionError
        holder.kill()
    with alone_in(tmp_path / "new", "dir"):
        pass


@pytest.mark.parametrize("run", [run_training, run_follower, run_experiment])
def test_a_second_job_is_refused_and_changes_nothing(run: Callable[[Path], None], tmp_path: Path) -> None:
    with alone_in(tmp_path / "work", "dir"), pytest.raises(RunError, match=f"process {os.getpid()} on"):
        run(tmp_path)
    assert [path.name for path in (tmp_path / "work").iterdir()] == [".lock"]


def test_storage_without_locks_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with alone_in(tmp_path, "dir"), alone_in(tmp_path, "dir"):
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(RunError, match=r"cannot write into .*/file/x: Not a directory"),
        alone_in(tmp_path / "file/x", "dir"),
    ):
        raise AssertionError


def test_an_experiment_that_another_job_has_begun_meanwhile_is_not_begun_again(tmp_path: Path) -> None:
    config = ExperimentConfig.model_validate({"train": data(tmp_path), "dir": str(tmp_path / "work")})
    snapshot = Snapshot(table="/t", table_id="1", version=7, files=(), tensors={})
    first, second = (Plan.of(config, snapshot, name) for name in ("first", "second"))
    keep_plan(tmp_path, first)
    keep_plan(tmp_path, first)
    with pytest.raises(RunError, match="has begun the experiment first"):
        keep_plan(tmp_path, second)
