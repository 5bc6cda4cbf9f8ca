"""Follow mode as a person runs it: submitted, stopped, killed, and side by side with ingest."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from deltalake import DeltaTable

from kbit_spark.events import Event
from kbit_spark.telemetry.report import read_events
from kbit_spark.training import checkpoint
from kbit_spark.training.champion import read_promoted
from kbit_spark.training.checkpoint import Checkpoint
from tests.fixtures.jobs import SMALL, TRAIN, Job, eventually, start
from tests.follow.stream import Stream

MASTER = ("--master", "local-cluster[1,2,1024]", *SMALL)
VERSIONS, ROWS, BATCH = 4, 300, 32
Submit = Callable[..., Job]


@dataclass(frozen=True)
class Whole:
    """A run, and what it said on the terminal."""

    folder: Path
    output: str


def config(folder: Path, follow: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "data": {"table": str(folder / "samples"), "shuffle_window_rows": 128},
        "model": "mlp",
        "world_size": 2,
        "global_batch_size": BATCH,
        "device": "cpu",
        "optimizer": {"warmup_steps": 3, "clip_norm": 5.0},
        "checkpoint": {"dir": str(folder / "checkpoints"), "every_steps": 3},
        "follow": {"enabled": True, "poll_s": 0.2, "max_rows_per_window": ROWS, **follow},
        "telemetry": {"run_dir": str(folder / "runs"), "metrics_table": str(folder / "metrics")},
        **changes,
    }


@pytest.fixture
def submit() -> Iterator[Submit]:
    jobs: list[Job] = []

    def run(folder: Path, data: Mapping[str, Any], **options: Any) -> Job:
        jobs.append(start(folder, data, options.pop("master", MASTER), script=TRAIN, **options))
        return jobs[-1]

    yield run
    for job in jobs:
        job.kill()


def fill(folder: Path, versions: int = VERSIONS) -> Stream:
    stream = Stream(folder / "samples")
    for _ in range(versions):
        stream.append(ROWS, validation=40)
    return stream


def windows(folder: Path) -> list[Event]:
    """Return the windows that all runs have told of, in order."""
    return [e for e in read_events(sorted((folder / "runs").glob("*/events.jsonl"))) if e.kind == "follow_window"]


def newest(folder: Path) -> Checkpoint:
    found = checkpoint.newest(folder / "checkpoints")
    assert found is not None
    return found


def in_mid_window(folder: Path, number: int) -> bool:
    """Tell whether the newest checkpoint lies inside window `number`."""
    found = checkpoint.newest(folder / "checkpoints")
    if found is None or found.manifest.window is None:
        return False
    return found.manifest.window.number == number and not found.manifest.position.finished


def slow(folder: Path) -> dict[str, Any]:
    """Return a model that takes its time from now on for as long as the file `folder`/slow is there."""
    (folder / "slow").touch()
    return patient(folder)


def patient(folder: Path) -> dict[str, Any]:
    """Return the same model, without the file."""
    options = {"marker": str(folder / "slow"), "pause_s": 0.3}
    return {"model": "tests.training.models:slow", "model_options": options}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A run over all versions that nobody disturbed, and a copy of its table in `folder`/../killed."""
    folder = tmp_path_factory.mktemp("follow") / "whole"
    fill(folder)
    shutil.copytree(folder, folder.with_name("killed"))  # the order of rows follows from the names of their files
    data = config(folder, {"stop_after_idle_s": 1}, **patient(folder))
    code, output = start(folder, data, MASTER, script=TRAIN, measured=True).wait()
    assert code == 0, output
    return Whole(folder, output)


def test_windows_are_learnt_promoted_and_told(whole: Whole) -> None:
    folder = whole.folder
    told = [dict(event.numbers) for event in windows(folder)]
    assert [(n["window"], n["first_version"], n["last_version"]) for n in told] == [(i, i, i) for i in range(VERSIONS)]
    assert [n["rows_so_far"] for n in told] == [ROWS * (i + 1) for i in range(VERSIONS)]
    assert told[0]["promoted"] == 1
    assert all(n["holdout_rows"] == 40 * VERSIONS for n in told)
    assert all(n["freshness_s"] > 1e6 for n in told)  # the records are of 2023
    assert all(0 < n["commit_to_model_s"] < 600 for n in told)
    assert max(n["accuracy"] for n in told) > 0.9
    assert whole.output.count("new rows + ") == VERSIONS

    promoted = read_promoted(folder / "checkpoints")
    assert promoted is not None
    assert promoted.decided_window == VERSIONS - 1
    assert promoted.champion.window == max(n["window"] for n in told if n["promoted"])
    checkpoint.read(promoted.path(folder / "checkpoints"))
    stored = DeltaTable(str(folder / "metrics")).to_pyarrow_table().to_pylist()
    rows = [dict(row["numbers"]) for row in stored if row["kind"] == "follow_window"]
    assert len(rows) == VERSIONS
    assert all("freshness_s" in numbers for numbers in rows)


def test_killed_drivers_lose_and_repeat_nothing(submit: Submit, whole: Whole) -> None:
    killed, ends = whole.folder.with_name("killed"), {"stop_after_idle_s": 1}
    model = slow(whole.folder)  # the marker's path is part of the model's identity, so both runs share it
    for number in (0, 2):
        job = submit(killed, config(killed, ends, **model))
        eventually(lambda: in_mid_window(killed, number))  # noqa: B023
        job.remember()
        job.kill()
        assert not job.left_over(30)
        assert in_mid_window(killed, number)
    (whole.folder / "slow").unlink()
    code, output = submit(killed, config(killed, ends, **model)).wait()
    assert code == 0, output
    assert is_same(killed, whole.folder)
    told = [e.numbers for e in windows(killed)]
    assert [numbers["window"] for numbers in told] == list(range(VERSIONS))
    assert [numbers["new_rows"] for numbers in told] == [e.numbers["new_rows"] for e in windows(whole.folder)]

    (killed / "checkpoints/promoted.json").unlink()  # as if killed before the last window was decided on
    code, output = submit(killed, config(killed, ends, **model)).wait()
    assert code == 0, output
    again = windows(killed)[-1].numbers
    steps = newest(whole.folder).manifest.position.total_steps
    assert (again["window"], again["step"], again["promoted"]) == (VERSIONS - 1, steps, 1)
    assert is_same(killed, whole.folder)


def is_same(folder: Path, other: Path) -> bool:
    """Tell whether the newest checkpoints are of the same window, position and weights."""
    one, two = newest(folder), newest(other)
    weights, others = one.load()["model"], two.load()["model"]
    same = all(torch.equal(weights[name], others[name]) for name in others)
    return same and (one.manifest.window, one.manifest.position) == (two.manifest.window, two.manifest.position)


def test_sigterm_finishes_the_window(submit: Submit, tmp_path: Path) -> None:
    fill(tmp_path)
    job = submit(tmp_path, config(tmp_path, {}, **slow(tmp_path)))
    eventually(lambda: in_mid_window(tmp_path, 0))
    job.remember()
    job.process.send_signal(signal.SIGTERM)
    code, output = job.wait(60)
    assert code == 0, output
    assert "error" not in output
    assert not job.left_over()
    assert [e.numbers["window"] for e in windows(tmp_path)] == [0]
    assert newest(tmp_path).manifest.position.finished


def test_follow_goes_on_from_a_run_on_one_version(submit: Submit, tmp_path: Path) -> None:
    stream = fill(tmp_path, 2)
    code, output = submit(tmp_path, config(tmp_path, {"enabled": False}, epochs=1)).wait()
    assert code == 0, output
    stream.append(ROWS, validation=40)
    code, output = submit(tmp_path, config(tmp_path, {"max_windows": 1}, epochs=1)).wait()
    assert code == 0, output
    (window,) = (event.numbers for event in windows(tmp_path))
    assert (window["first_version"], window["last_version"], window["new_rows"]) == (2, 2, ROWS)
    assert window["champion_accuracy"] > 0  # the run's model was the one to beat
    assert json.loads((tmp_path / "checkpoints/promoted.json").read_text())["decided_window"] == 0
