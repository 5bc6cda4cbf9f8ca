"""Windows of steps, told at once on the CPU and some steps later on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.events import Event
from kbit_spark.train import plan
from kbit_spark.training import loop
from kbit_spark.training.channel import Client
from kbit_spark.training.job import TrainJob
from kbit_spark.training.loop import Trainer
from kbit_spark.training.reporter import Reporter
from kbit_spark.training.world import World
from tests.fixtures.samples import write_samples

ROWS, BATCH, EPOCHS, EVERY = 200, 20, 2, 3
STEPS = ROWS // BATCH


class Recorder:
    """Stands where the connection to the driver is: keeps each event with the step in which it was sent."""

    def __init__(self) -> None:
        self.steps = 0
        self.sent: list[tuple[int, Event]] = []

    def emit(self, event: Event) -> None:
        self.sent.append((self.steps, event))

    def log(self, text: str) -> None:
        pass

    def step(self, epoch: int, total_steps: int) -> None:
        self.steps = total_steps

    def windows(self) -> list[tuple[int, dict[str, float]]]:
        return [(at, dict(event.numbers)) for at, event in self.sent if event.kind == "train_window"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("table") / "samples"
    return write_samples(path, train=ROWS, validation=20, test=20, row_group=32)


def run(table: str, folder: Path, lag: int, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Recorder:
    monkeypatch.setitem(loop.WINDOW_LAG, "cpu", lag)
    data = {
        "data": {"table": table},
        "model": "mlp",
        "strategy": "single",
        "world_size": 1,
        "epochs": EPOCHS,
        "global_batch_size": BATCH,
        "device": "cpu",
        "checkpoint": {"dir": str(folder)},
        "log_every_steps": EVERY,
        **changes,
    }
    config = TrainConfig.model_validate(data)
    snapshot, _ = plan(config)
    job = TrainJob(config, snapshot, folder, None, 0, ("127.0.0.1", 1), "", code="test", one_host=True)
    world, recorder = World(0, 1, "127.0.0.1", 1, torch.device("cpu")), Recorder()
    Trainer(job, world, Reporter(cast("Client", recorder), world)).fit()
    return recorder


def test_a_lag_delays_windows_and_changes_nothing_in_them(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = run(table, tmp_path / "0", 0, monkeypatch).windows()
    ends = [*range(EVERY, STEPS, EVERY), STEPS, *range(STEPS + 2, 2 * STEPS, EVERY), 2 * STEPS]
    assert [(at, int(numbers["step"])) for at, numbers in at_once] == [(end, end) for end in ends]
    for lag in (1, 4, 100):
        later = run(table, tmp_path / str(lag), lag, monkeypatch).windows()
        last = [STEPS * -(-end // STEPS) for end in ends]
        assert [at for at, _ in later] == [min(end + lag, stop) for end, stop in zip(ends, last, strict=True)]
        for name in ("step", "loss", "learning_rate", "epoch_step"):
            assert [numbers[name] for _, numbers in later] == [numbers[name] for _, numbers in at_once]
        assert all(numbers["samples_per_s"] > 0 and numbers["step_p50_s"] > 0 for _, numbers in later)


def test_a_checkpoint_leaves_no_window_untold(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = run(table, tmp_path, 100, monkeypatch, epochs=1, checkpoint={"dir": str(tmp_path), "every_steps": 4})
    assert [(at, int(n["step"])) for at, n in recorder.windows()] == [(4, 3), (8, 6), (10, 9), (10, 10)]


def test_what_is_not_finite_is_found_however_late(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="not finite"):
        run(table, tmp_path, 100, monkeypatch, optimizer={"name": "sgd", "learning_rate": 1e30})
