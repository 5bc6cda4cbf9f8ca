"""The whole way on two executors: happy path, faults, restarts."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from kbit_spark.training import checkpoint
from tests.fixtures.jobs import eventually
from tests.fixtures.samples import write_samples
from tests.training.conftest import RUN, Driver


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_samples(tmp_path_factory.mktemp("table") / "samples", train=1_300)


def config(table: str, tmp_path: Path, **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "data": {"table": table, "shuffle_window_rows": 256},
        "model": "mlp",
        "world_size": 2,
        "epochs": 2,
        "global_batch_size": 32,
        "checkpoint": {"dir": str(tmp_path / "checkpoints")},
        "log_every_steps": 10,
    }
    return {**base, **changes}


def trainers() -> list[int]:
    """Return these tests' trainers that are left: Python workers of Spark that have torch loaded."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        try:
            if (
                "pyspark.daemon" in (process.info["cmdline"] or [])
                and process.environ().items() >= RUN.items()
                and any("libtorch" in mapped.path for mapped in process.memory_maps())
            ):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def events(answer: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in answer["events"] if event["kind"] == kind]


def test_two_ranks_learn_and_report(driver: Driver, table: str, tmp_path: Path) -> None:
    answer = driver.train(config(table, tmp_path, epochs=4, optimizer={"warmup_steps": 5, "clip_norm": 5.0}))
    assert "error" not in answer
    outcome = answer["outcome"]
    assert outcome["test_accuracy"] > 0.95
    assert outcome["test_rows"] == 200
    assert outcome["total_steps"] == 4 * 1_300 // 32
    epochs = events(answer, "train_epoch")
    assert [event["numbers"]["epoch"] for event in epochs] == [0, 1, 2, 3]
    assert epochs[-1]["numbers"]["validation_accuracy"] > 0.95
    assert {event["rank"] for event in events(answer, "train_window")} == {0, 1}
    assert len(events(answer, "train_test")) == 1
    lineage = checkpoint.read(Path(outcome["checkpoint"])).manifest.lineage
    assert (lineage.table, lineage.versions) == (table, (0,))
    assert lineage.config["optimizer"]["warmup_steps"] == 5
    assert re.fullmatch(r"\S+ (commit [0-9a-f]{12} )?sources [0-9a-f]{12}", lineage.code)
    assert trainers() == []


def test_a_finished_run_only_tests_again(driver: Driver, table: str, tmp_path: Path) -> None:
    first = driver.train(config(table, tmp_path, epochs=1))
    again = driver.train(config(table, tmp_path, epochs=1))
    assert events(again, "train_epoch") == []
    assert again["outcome"]["test_loss"] == pytest.approx(first["outcome"]["test_loss"])


def test_a_killed_rank_is_named_and_the_run_goes_on_from_the_checkpoint(
    driver: Driver, table: str, tmp_path: Path
) -> None:
    options = {"rank": 1, "step": 25, "marker": str(tmp_path / "died")}
    answer = driver.train(
        config(
            table,
            tmp_path,
            model="tests.training.models:deadly",
            model_options=options,
            checkpoint={"dir": str(tmp_path / "checkpoints"), "every_steps": 10},
        )
    )
    (restart,) = events(answer, "train_restart")
    assert restart["rank"] == 1
    assert "rank 1 died at step" in restart["labels"]["reason"]
    assert 15 <= restart["numbers"]["step"] <= 24
    assert "rank 1 of 2" in restart["labels"]["tail"]
    assert answer["outcome"]["total_steps"] == 2 * 1_300 // 32
    first_window = min(e["numbers"]["step"] for e in events(answer, "train_window") if e["time"] > restart["time"])
    assert first_window > 20  # it went on from step 20, not from 0
    assert trainers() == []


def test_an_exception_of_a_rank_ends_the_run_after_the_restarts(driver: Driver, table: str, tmp_path: Path) -> None:
    options = {"rank": 0, "step": 3, "how": "raise"}
    answer = driver.train(
        config(table, tmp_path, model="tests.training.models:deadly", model_options=options, max_restarts=0)
    )
    assert answer["error"]["type"] == "TrainingError"
    assert "rank 0 failed with ZeroDivisionError" in answer["error"]["message"]
    assert "a fault of the model" in answer["error"]["hint"]
    assert answer["seconds"] < 40
    assert trainers() == []


def test_a_stopped_rank_is_given_up_and_the_run_goes_on(driver: Driver, table: str, tmp_path: Path) -> None:
    """SIGSTOP: the process is there, its connections too, and the others wait for it in vain."""
    options = {"rank": 1, "step": 15, "how": "stop", "marker": str(tmp_path / "stopped")}
    answer = driver.train(
        config(
            table,
            tmp_path,
            epochs=1,
            model="tests.training.models:deadly",
            model_options=options,
            checkpoint={"dir": str(tmp_path / "checkpoints"), "every_steps": 10},
            heartbeat_timeout_s=5,
        )
    )
    (restart,) = events(answer, "train_restart")
    assert restart["labels"]["reason"].startswith("rank 1 stopped answering at step 14 ")
    assert answer["outcome"]["total_steps"] == 1_300 // 32
    (resumed,) = events(answer, "train_resume")
    assert resumed["numbers"]["step"] == 10
    last = max(e["time"] for e in events(answer, "train_window") if e["time"] < restart["time"])
    taken = datetime.fromisoformat(resumed["time"]) - datetime.fromisoformat(last)
    assert taken.total_seconds() < 15
    assert trainers() == []


@pytest.mark.parametrize("strategy", ["ddp", "averaging"])
def test_a_loss_that_is_nan_on_one_rank_ends_the_run_and_names_that_rank(
    driver: Driver, table: str, tmp_path: Path, strategy: str
) -> None:
    options = {"rank": 1, "step": 12, "how": "nan"}
    answer = driver.train(
        config(table, tmp_path, model="tests.training.models:deadly", model_options=options, strategy=strategy)
    )
    assert answer["error"]["type"] == "RunError"
    assert answer["error"]["message"] == "the loss is not finite (rank 1, step 11)"
    assert events(answer, "train_restart") == []
    last = max(event["time"] for event in events(answer, "train_window"))
    assert answer["ended"] - datetime.fromisoformat(last).timestamp() < 15
    assert trainers() == []


def test_trainers_are_seen_while_they_train(driver: Driver, table: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(driver.train, config(table, tmp_path))
        eventually(lambda: len(trainers()) == 2, timeout_s=60)
        assert "error" not in answer.result()
    assert trainers() == []


def test_a_cancelled_job_ends_at_once_and_the_next_start_goes_on(driver: Driver, table: str, tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    slow = {"model": "tests.training.models:slow", "model_options": {"marker": str(tmp_path / "slow")}}
    saves = {"dir": str(tmp_path / "checkpoints"), "every_steps": 5}
    data = config(table, tmp_path, checkpoint=saves, **slow)
    answer = driver.train({**data, "cancel": True})
    assert answer["error"] == {
        "type": "RunError",
        "message": "the training job was cancelled",
        "hint": "start it again to go on from the last checkpoint",
    }
    assert events(answer, "train_restart") == []
    (first, *_) = events(answer, "train_window")
    assert answer["ended"] - datetime.fromisoformat(first["time"]).timestamp() < 15
    assert trainers() == []
    (tmp_path / "slow").unlink()
    again = driver.train(data)
    assert again["outcome"]["total_steps"] == 2 * 1_300 // 32
    assert len(events(again, "train_resume")) == 1


def test_too_few_slots_are_refused_at_once(driver: Driver, table: str, tmp_path: Path) -> None:
    answer = driver.train(config(table, tmp_path, world_size=3))
    assert answer["error"]["type"] == "RunError"
    assert "world_size=3 needs 3 slots" in answer["error"]["message"]
    assert "there are 2" in answer["error"]["message"]
    assert answer["seconds"] < 5


def test_a_label_out_of_range_names_file_and_row_and_is_not_tried_again(driver: Driver, tmp_path: Path) -> None:
    labels = np.zeros(300, dtype=np.int32)
    labels[117] = 10
    table = write_samples(tmp_path / "samples", train=300, validation=0, test=0, labels=labels)
    answer = driver.train(config(table, tmp_path))
    assert answer["error"]["type"] == "RunError"
    assert "label, row 117: label 10 is out of range [0, 10)" in answer["error"]["message"]
    assert ".parquet" in answer["error"]["message"]
    assert events(answer, "train_restart") == []


def test_a_checkpoint_of_another_model_is_refused(driver: Driver, table: str, tmp_path: Path) -> None:
    driver.train(config(table, tmp_path, epochs=1))
    answer = driver.train(config(table, tmp_path, epochs=1, model="cnn"))
    assert answer["error"]["type"] == "RunError"
    assert "model is 'mlp', not 'cnn'" in answer["error"]["message"]
    assert "checkpoint.dir" in answer["error"]["hint"]
