"""DDP, averaging and one process alone: what the weights are, and that each goes on exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from pydantic import ValidationError
from torch import nn
from torch.multiprocessing.spawn import spawn

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.training.averaging import Averaging
from kbit_spark.training.ddp import trains_on_buffers
from kbit_spark.training.stepper import Stepper
from kbit_spark.training.world import World
from tests.fixtures.samples import write_samples
from tests.training.ranks import train
from tests.training.test_resume import config as run_config
from tests.training.test_resume import equal, killed_at

SGD = {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_samples(tmp_path_factory.mktemp("table") / "samples", train=100, validation=20, test=20, row_group=32)


def config(table: str, folder: Path, every_steps: int = 3, **changes: Any) -> dict[str, Any]:
    return run_config(table, folder, strategy="averaging", averaging={"every_steps": every_steps}, **changes)


def _averages(rank: int, path: str) -> None:
    """Take five updates apart with a mean after every second one, and note what each rank had before and after."""
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    torch.manual_seed(rank)  # the ranks make different models; the first one's counts
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    strategy = Averaging(model, every_steps=2)
    seen = [(strategy.agreed, _copy(model), _copy(model))]
    for update in range(1, 6):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.rand(parameter.shape))
        model(torch.rand(8, 3))
        before = _copy(model)
        strategy.after_update(update)
        seen.append((strategy.agreed, before, _copy(model)))
    before = _copy(model)
    strategy.agree()
    once = _copy(model)
    strategy.agree()
    assert _equal(once, _copy(model))
    seen.append((strategy.agreed, before, once))
    torch.save(seen, f"{path}-{rank}.pt")
    dist.destroy_process_group()


def _copy(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


def test_weights_are_exactly_the_mean_every_k_updates(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    spawn(_averages, (path,), nprocs=2)  # type: ignore[no-untyped-call]
    first, second = (torch.load(f"{path}-{rank}.pt", weights_only=True) for rank in range(2))
    assert _equal(first[0][1], second[0][1])
    assert [agreed for agreed, _, _ in first] == [True, False, True, False, True, False, True]
    for (agreed, before, after), (_, other_before, other_after) in zip(first[1:], second[1:], strict=True):
        assert not _equal(before, other_before)
        if agreed:
            mean = {name: (before[name] + other_before[name]) / 2 for name in before}
            assert all(torch.equal(after[name], mean[name].to(after[name].dtype)) for name in mean)
            assert _equal(after, other_after)
        else:
            assert _equal(after, before)
            assert _equal(other_after, other_before)


def test_averaging_after_every_step_of_sgd_is_ddp(table: str, tmp_path: Path) -> None:
    """The mean of the ranks' steps is the step along the mean of their gradients, momentum included."""
    options: dict[str, Any] = {"noise": False, "die": ""}
    averaged = train(config(table, tmp_path / "averaging", 1, options=options, optimizer=SGD))
    ddp = train(run_config(table, tmp_path / "ddp", options, optimizer=SGD))
    assert averaged is not None
    assert ddp is not None
    assert all(torch.allclose(averaged[name], ddp[name], atol=1e-6) for name in ddp)


@pytest.mark.parametrize("step", [0, 2, 5, 9])
def test_averaging_goes_on_exactly(table: str, tmp_path: Path, step: int) -> None:
    """Adam's moments differ among the ranks; checkpoints fall on averagings."""
    whole = train(config(table, tmp_path / "whole"))
    (tmp_path / "killed").mkdir()
    assert equal(killed_at(step, config(table, tmp_path / "killed"), tmp_path / "killed"), whole)


def test_averaging_goes_on_at_another_world_size_but_not_as_ddp(table: str, tmp_path: Path) -> None:
    assert train(config(table, tmp_path, epochs=1)) is not None
    assert train(config(table, tmp_path, epochs=2, world_size=3)) is not None
    with pytest.raises(RunError, match="averaging_every_steps is 3, not None"):
        train(run_config(table, tmp_path))


def test_one_process_alone_trains_as_ddp_of_one_and_goes_on_exactly(table: str, tmp_path: Path) -> None:
    ddp = train(run_config(table, tmp_path / "ddp", world_size=1))
    alone = train(run_config(table, tmp_path / "alone", world_size=1, strategy="single"))
    assert equal(alone, ddp)
    (tmp_path / "killed").mkdir()
    killed = run_config(table, tmp_path / "killed", world_size=1, strategy="single")
    assert equal(killed_at(5, killed, tmp_path / "killed"), alone)


def test_one_process_is_one() -> None:
    data = {"data": {"table": "t"}, "checkpoint": {"dir": "c"}, "strategy": "single", "world_size": 2}
    with pytest.raises(ValidationError, match="strategy=single is one process, but world_size=2"):
        TrainConfig.model_validate(data)


def test_one_process_needs_no_process_group() -> None:
    data = {"data": {"table": "t"}, "checkpoint": {"dir": "c"}, "strategy": "single"}
    world = World(0, 1, "localhost", 1, torch.device("cpu"))
    stepper = Stepper(nn.Linear(4, 3), TrainConfig.model_validate(data), world, total_steps=1)
    assert stepper.agreed
    assert not dist.is_initialized()


class Counting(nn.Linear):
    """Has a buffer of its own."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_buffer("calls", torch.zeros(()))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (nn.Linear(2, 2), False),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), False),
        (nn.Sequential(Counting(), nn.BatchNorm1d(2)), True),
    ],
)
def test_only_running_statistics_are_not_read_in_training(model: nn.Module, expected: bool) -> None:
    assert trains_on_buffers(model) is expected


def _averages_the_trained(rank: int, path: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=3)
    model = nn.Module()
    model.counts = nn.Parameter(torch.tensor([16_777_217, -(2**53) - 1]), requires_grad=False)
    model.frozen = nn.Parameter(torch.rand(1_000, generator=torch.Generator().manual_seed(1)), requires_grad=False)
    model.teacher = nn.Parameter(torch.zeros(2), requires_grad=False)
    model.trained = nn.Parameter(torch.zeros(2))
    strategy, before = Averaging(model, every_steps=1), _copy(model)
    with torch.no_grad():
        model.trained.fill_(float(rank))
        model.teacher.fill_(float(rank + 5))  # the model's own doing
    strategy.after_update(1)
    for name in ("counts", "frozen"):
        assert torch.equal(before[name], model.state_dict()[name])
    assert model.trained.tolist() == [1.0, 1.0]
    assert model.teacher.tolist() == [5.0, 5.0]
    dist.destroy_process_group()


def test_what_is_not_trained_is_not_averaged(tmp_path: Path) -> None:
    spawn(_averages_the_trained, (str(tmp_path / "store"),), nprocs=3)  # type: ignore[no-untyped-call]
