"""The same run by Spark's barrier stage, by TorchDistributor and by torchrun ends with the same weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import UsageError
from kbit_spark.telemetry.report import read_events
from kbit_spark.torchrun import for_all
from kbit_spark.training import checkpoint
from kbit_spark.training.environment import task_from
from tests.fixtures.samples import write_samples
from tests.training.conftest import Driver
from tests.training.test_barrier import config, events

ROOT = Path(__file__).parents[2]
STEPS = 2 * 200 // 32


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_samples(tmp_path_factory.mktemp("table") / "samples", train=200, validation=40, test=40)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found = checkpoint.newest(folder / "checkpoints")
    assert found is not None
    assert found.manifest.position.total_steps == STEPS
    model: dict[str, torch.Tensor] = found.load()["model"]
    return model


def equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def torchrun(folder: Path, data: dict[str, Any], *options: str) -> tuple[int, str]:
    folder.mkdir(exist_ok=True)
    (folder / "train.yaml").write_text(json.dumps({**data, "telemetry": {"run_dir": str(folder / "runs")}}))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *options]
    command += [str(ROOT / "jobs/train_torchrun.py"), "--config", str(folder / "train.yaml")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KBIT_LOG": str(folder / "kbit.log"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def by_barrier(driver: Driver, table: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    folder = tmp_path_factory.mktemp("barrier")
    assert "error" not in driver.train(config(table, folder))
    return weights(folder)


def test_torch_distributor_trains_the_same_also_after_a_killed_rank(
    driver: Driver, table: str, tmp_path: Path, by_barrier: dict[str, torch.Tensor]
) -> None:
    options = {"rank": 1, "step": 5, "marker": str(tmp_path / "died")}
    saves = {"dir": str(tmp_path / "checkpoints"), "every_steps": 2}
    data = config(table, tmp_path, launcher="torch_distributor", checkpoint=saves)
    answer = driver.train({**data, "model": "tests.training.models:deadly", "model_options": options})
    assert "error" not in answer, answer
    (restart,) = events(answer, "train_restart")
    assert "rank 1 died at step" in restart["labels"]["reason"]
    assert answer["outcome"]["total_steps"] == STEPS
    assert {event["rank"] for event in events(answer, "train_window")} == {0, 1}
    assert equal(weights(tmp_path), by_barrier)


def test_torchrun(table: str, tmp_path: Path, by_barrier: dict[str, torch.Tensor]) -> None:
    code, output = torchrun(tmp_path, config(table, tmp_path), "--standalone")
    assert code == 0, output
    assert output.count("test  loss") == 1
    assert equal(weights(tmp_path), by_barrier)
    found = read_events((tmp_path / "runs").glob("*/events.jsonl"))
    assert {event.rank for event in found if event.kind == "train_window"} == {0, 1}
    profiles = [event for event in found if event.kind == "train_profile"]
    assert sorted((event.numbers["epoch"], event.rank) for event in profiles) == [
        (e, r) for e in (0, 1) for r in (0, 1)
    ]
    for event in profiles:
        shares = {name: share for name, share in event.numbers.items() if name.endswith("_share")}
        assert len(shares) == 7
        assert sum(shares.values()) == pytest.approx(1)
        assert min(shares["forward_share"], shares["backward_share"], shares["all_reduce_share"]) > 0
    assert [event.labels["outcome"] for event in found if event.kind == "run" and "outcome" in event.labels] == ["ok"]


def test_torchrun_starts_again_from_the_checkpoint(
    table: str, tmp_path: Path, by_barrier: dict[str, torch.Tensor]
) -> None:
    options = {"rank": 1, "step": 5, "marker": str(tmp_path / "died")}
    saves = {"dir": str(tmp_path / "checkpoints"), "every_steps": 2}
    data = config(table, tmp_path, checkpoint=saves, model="tests.training.models:deadly", model_options=options)
    code, output = torchrun(tmp_path, data, "--standalone", "--max-restarts=1")
    assert code == 0, output
    assert "goes on from step" in output
    assert equal(weights(tmp_path), by_barrier)


@pytest.mark.parametrize("rank", [0, 1])
def test_torchrun_names_the_rank_that_fails(table: str, tmp_path: Path, rank: int) -> None:
    options = {"rank": rank, "step": 3, "how": "raise"}
    data = config(table, tmp_path, model="tests.training.models:deadly", model_options=options)
    began = time.monotonic()
    code, output = torchrun(tmp_path, data, "--standalone")
    assert code == 1
    assert f"error: rank {rank} failed with ZeroDivisionError: a fault of the model at step 2" in output
    assert time.monotonic() - began < 40
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]


def test_torchrun_tells_a_bad_configuration_once(tmp_path: Path) -> None:
    code, output = torchrun(tmp_path, config(str(tmp_path / "nothing"), tmp_path), "--standalone")
    assert code == 1
    assert output.count("is no Delta table") == 1


def test_one_process_needs_no_torchrun(table: str, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text(json.dumps(config(table, tmp_path, strategy="single", world_size=1)))
    command = [sys.executable, str(ROOT / "jobs/train_torchrun.py"), "--config", str(tmp_path / "train.yaml")]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    weights(tmp_path)


def test_the_place_of_a_rank() -> None:
    inner = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "h"}
    task = task_from({**inner, "CUDA_VISIBLE_DEVICES": "4,6", "OMP_NUM_THREADS": "3"})
    assert (task.rank, task.size, task.host, task.gpu, task.cpus) == (5, 8, "h", "6", 3)
    assert task_from(inner).gpu == "1"
    assert task_from({**inner, "CUDA_VISIBLE_DEVICES": ""}).gpu is None
    alone = task_from({})
    assert (alone.rank, alone.size, alone.gpu) == (0, 1, "0")


ENDED = """
import os, signal
from kbit_spark.torchrun import _ending_with_the_others
from kbit_spark.training.control import Control
with Control("127.0.0.1", print) as control, _ending_with_the_others(control, None):
    pass
os.kill(os.getpid(), signal.SIGTERM)
print("still here")
"""


def test_a_rank_that_torchrun_ends_behind_its_run_says_nothing_of_it() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", ENDED], env=environment, text=True, capture_output=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("still here\n", "", 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "single", "world_size": 1}, "torchrun with 2 processes: strategy=single is one process"),
        ({"global_batch_size": 1, "world_size": 1}, "torchrun with 2 processes: global_batch_size"),
        ({"follow": {"enabled": True}}, "follow.enabled: torchrun trains once"),
    ],
)
def test_torchrun_tells_what_does_not_fit_its_ranks(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    made = TrainConfig.model_validate({"data": {"table": "t"}, "checkpoint": {"dir": str(tmp_path)}, **changes})
    with pytest.raises(UsageError, match=message):
        for_all(made, 2)
