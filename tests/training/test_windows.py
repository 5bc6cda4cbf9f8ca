"""Windows of steps, told at once on the CPU and some steps later on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from kbit_spark.config.train import TrainConfig
from kbit_spark.datasets.batches import Batch
from kbit_spark.errors import RunError
from kbit_spark.events import Event
from kbit_spark.train import plan
from kbit_spark.training import loop
from kbit_spark.training.channel import Client
from kbit_spark.training.data import RunData
from kbit_spark.training.job import TrainJob
from kbit_spark.training.loop import Trainer
from kbit_spark.training.metrics import Moment, ProcessLoad, Sums
from kbit_spark.training.reporter import Reporter
from kbit_spark.training.stepper import Stepper
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

    def told(self) -> list[int]:
        return [int(numbers["step"]) for _, numbers in self.windows()]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("table") / "samples"
    return write_samples(path, train=ROWS, validation=20, test=20, row_group=32)


def run(
    table: str,
    folder: Path,
    lag: int,
    monkeypatch: pytest.MonkeyPatch,
    recorder: Recorder | None = None,
    **changes: Any,
) -> Recorder:
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
    world, recorder = World(0, 1, "127.0.0.1", 1, torch.device("cpu")), recorder or Recorder()
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


def test_a_window_has_the_load_of_its_own_steps(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(ProcessLoad, "read", lambda self: {"cpu_percent": float(recorder.steps)})
    run(table, tmp_path, 100, monkeypatch, recorder)
    assert [numbers["cpu_percent"] for _, numbers in recorder.windows()] == recorder.told()


def test_a_window_lasts_until_the_device_is_done(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a GPU that ends each window two seconds after the one before, however fast its steps were launched
    monkeypatch.setattr(Moment, "seconds_since", lambda self, before: 2.0)
    recorder = run(table, tmp_path, 100, monkeypatch, epochs=1)
    rows = [step * BATCH for step in (EVERY, EVERY, EVERY, STEPS - 3 * EVERY)]
    assert [numbers["samples_per_s"] for _, numbers in recorder.windows()] == [count / 2 for count in rows]


Fault = Callable[[pytest.MonkeyPatch], None]


def unreadable_from_step_9(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file be damaged."""
    read = RunData.training

    def damaged(self: RunData, *arguments: Any) -> Iterator[Batch]:
        for step, batch in enumerate(read(self, *arguments), 1):
            if step == 9:
                raise RunError("cannot read part-1.parquet", "restore it")
            yield batch

    monkeypatch.setattr(RunData, "training", damaged)


def not_finite_from_step_8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the weights be NaN, which a GPU, unlike the CPU, finds only where it is looked at."""
    accumulate, passes = Stepper.accumulate, iter(range(1, 100))

    def broken(self: Stepper, *arguments: Any, **keywords: Any) -> None:
        if next(passes) == 8:
            with torch.no_grad():
                next(self.model.parameters()).fill_(float("nan"))
        accumulate(self, *arguments, **keywords)

    monkeypatch.setattr(Stepper, "_check_at_once", lambda self, sums: None)
    monkeypatch.setattr(Stepper, "accumulate", broken)


def both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the weights be NaN, and another fault be found before that."""
    not_finite_from_step_8(monkeypatch)
    unreadable_from_step_9(monkeypatch)


@pytest.mark.parametrize("every_steps", [None, 9])
@pytest.mark.parametrize(
    ("fault", "message", "last"),
    [
        (unreadable_from_step_9, "part-1.parquet", 8),
        (not_finite_from_step_8, "loss is not finite", 7),
        (both, "part-1.parquet", 7),
    ],
)
def test_what_led_to_a_fault_is_told(
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    message: str,
    last: int,
    every_steps: int | None,
) -> None:
    fault(monkeypatch)
    recorder = Recorder()
    checkpoints = {"dir": str(tmp_path), "every_steps": every_steps}
    with pytest.raises(RunError, match=message):
        run(table, tmp_path, 100, monkeypatch, recorder, log_every_steps=1, checkpoint=checkpoints)
    assert recorder.told() == list(range(1, last + 1))


def test_a_gpu_that_hangs_does_not_keep_a_fault(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unreadable_from_step_9(monkeypatch)
    waits: list[float] = []
    monkeypatch.setattr(Moment, "reached", lambda self, timeout_s: waits.append(timeout_s))
    recorder = Recorder()
    with pytest.raises(RunError, match=r"part-1\.parquet"):
        run(table, tmp_path, 100, monkeypatch, recorder)
    assert recorder.told() == []
    assert waits == [pytest.approx(loop.LAST_WINDOWS_S, abs=0.5)]


def test_a_fault_does_not_wait_to_learn_whose_loss_is_not_finite(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(monkeypatch)
    monkeypatch.setattr(Sums, "check_own", lambda self, error: pytest.fail("waits for all that the GPU has to do"))
    with pytest.raises(RunError, match=r"part-1\.parquet"):
        run(table, tmp_path, 100, monkeypatch, log_every_steps=1)
