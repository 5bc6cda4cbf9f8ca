"""Gradients that the ranks exchange at once: the means that DDP computes, of any layout and dtype."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from kbit_spark.config.train import TrainConfig
from kbit_spark.datasets.batches import Batch
from kbit_spark.errors import RunError
from kbit_spark.training.at_once import AtOnce
from kbit_spark.training.ddp import Ddp
from kbit_spark.training.gradients import FlatGradients
from kbit_spark.training.metrics import Sums
from kbit_spark.training.stepper import Stepper
from kbit_spark.training.strategy import Single, make_strategy
from kbit_spark.training.world import World

CPU = torch.device("cpu")


class Mixed(nn.Module):
    """Parameters of two dtypes, of odd sizes, with gaps and of another layout than rows of rows, one of them frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.frozen = nn.Parameter(torch.ones(7), requires_grad=False)
        self.wide = nn.Parameter(torch.randn(4, 5, dtype=torch.float64).t())
        self.scalar = nn.Parameter(torch.tensor(0.5))
        self.gaps = nn.Parameter(torch.randn(8)[::2])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        pooled = self.convolution(inputs).mean((2, 3)).double()
        return (pooled @ self.wide).float() * self.scalar * self.gaps + self.frozen[:4]


def config(**changes: object) -> TrainConfig:
    made = {"data": {"table": "t"}, "checkpoint": {"dir": "c"}, "world_size": 2, "global_batch_size": 8, **changes}
    return TrainConfig.model_validate(made)


def _means(rank: int, folder: str) -> None:
    """Leave the gradients of the same pass at once and by DDP."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(rank)  # the ranks make different models; the first one's counts
    model = Mixed()
    inputs = torch.randn(4, 3, 6, 6)
    found = {}
    for kind in (AtOnce, partial(Ddp, device=CPU)):
        made = kind(model)
        for parameter in model.parameters():
            parameter.grad = None
        made.network(inputs).sum().backward()
        made.exchange()
        found[type(made).__name__] = {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}
    torch.save(found, f"{folder}/rank-{rank}")
    dist.destroy_process_group()


def test_the_means_are_those_of_ddp(tmp_path: Path) -> None:
    spawn(_means, (str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    first, second = (torch.load(tmp_path / f"rank-{rank}") for rank in range(2))
    assert set(first["AtOnce"]) == {"convolution.weight", "convolution.bias", "wide", "scalar", "gaps"}
    for name, mean in first["AtOnce"].items():
        assert mean.abs().sum() > 0
        assert torch.equal(mean, second["AtOnce"][name])
        assert torch.equal(mean, first["Ddp"][name])
        assert mean.dtype == (torch.float64 if name == "wide" else torch.float32)


def _other_models(rank: int, folder: str) -> None:
    """Train other parameters on each rank, and leave what is said about it."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model = nn.Linear(3, 3)
    model.bias.requires_grad_(requires_grad=rank == 0)
    with pytest.raises(RunError) as raised:
        AtOnce(model)
    Path(f"{folder}/rank-{rank}").write_text(str(raised.value))
    dist.destroy_process_group()


def test_ranks_that_train_other_parameters_are_told_so(tmp_path: Path) -> None:
    spawn(_other_models, (str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    said = [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)]
    assert all("rank 1 has other parameters or buffers than that of rank 0" in each for each in said)


@pytest.fixture
def alone(tmp_path: Path) -> object:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_a_parameter_without_gradient_is_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    gradients = FlatGradients(list(model.named_parameters()))
    model[0](torch.ones(1, 2)).sum().backward()
    with pytest.raises(RunError, match=r"no gradient: 1\.weight, 1\.bias.*requires_grad=False"):
        gradients.average()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("all_reduce", "takes_ms", "captured_ranks", "expected"),
    [
        ("auto", 0.16, 2, AtOnce),
        ("auto", 0.17, 2, Ddp),  # four tensors may take 0.15 + 4 * 0.004
        ("auto", 0.05, 0, Ddp),
        ("auto", 0.05, 1, Single),
        ("overlapped", 0.05, 2, Ddp),
        ("at_once", 5.0, 2, AtOnce),
        ("at_once", 5.0, 0, Ddp),
    ],
)
def test_gradients_are_exchanged_at_once_where_that_takes_less(
    all_reduce: str, takes_ms: float, captured_ranks: int, expected: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FlatGradients, "all_reduce_ms", lambda _: takes_ms)
    world = World(0, captured_ranks or 2, "", 1, CPU)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    made = make_strategy(model, config(all_reduce=all_reduce), world, captured=captured_ranks > 0)
    assert type(made) is expected


@pytest.mark.usefixtures("alone")
def test_a_model_without_anything_to_train_is_left_to_ddp_which_says_so() -> None:
    model = nn.Linear(2, 2).requires_grad_(requires_grad=False)
    with pytest.raises(RuntimeError, match=r"requires? a gradient"):
        make_strategy(model, config(), World(0, 2, "", 1, CPU), captured=True)


@pytest.mark.usefixtures("alone")
def test_buffers_that_training_reads_are_left_to_ddp(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kbit_spark")
    model = nn.Linear(2, 2)
    model.register_buffer("offset", torch.zeros(2))
    made = make_strategy(model, config(all_reduce="at_once"), World(0, 2, "", 1, CPU), captured=True)
    assert type(made) is Ddp
    assert "all_reduce=at_once is not heeded: training may read buffers" in caplog.text
    normed = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    made = make_strategy(normed, config(all_reduce="at_once"), World(0, 2, "", 1, CPU), captured=True)
    assert type(made) is AtOnce


@pytest.mark.usefixtures("alone")
def test_a_model_that_ddp_is_told_to_leave_parts_of_alone_is_left_to_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kbit_spark")
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["1.weight", "1.bias"])
    made = make_strategy(model, config(all_reduce="at_once"), World(0, 2, "", 1, CPU), captured=True)
    assert type(made) is Ddp
    assert "all_reduce=at_once is not heeded: the model has DDP leave some of its parameters alone" in caplog.text


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("changes", "ranks", "captured", "reasons"),
    [
        ({}, 2, False, "steps are not CUDA graphs"),
        ({"world_size": 1}, 1, True, "there is one rank"),
        ({"strategy": "averaging"}, 2, True, "strategy=averaging exchanges no gradients"),
        ({"strategy": "single", "world_size": 1}, 1, True, "strategy=single exchanges no gradients; there is one rank"),
    ],
)
def test_the_log_says_why_gradients_are_not_exchanged_at_once_where_it_is_asked_for(
    caplog: pytest.LogCaptureFixture, changes: dict[str, object], ranks: int, reasons: str, *, captured: bool
) -> None:
    caplog.set_level(logging.INFO, logger="kbit_spark")
    model, world = nn.Linear(2, 2), World(0, ranks, "", 1, CPU)
    make_strategy(model, config(**changes), world, captured=captured)
    assert not caplog.messages
    make_strategy(model, config(all_reduce="at_once", **changes), world, captured=captured)
    assert caplog.messages == [f"all_reduce=at_once is not heeded: {reasons}"]


@pytest.mark.usefixtures("alone")
def test_the_log_says_when_ddp_takes_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kbit_spark")
    model = nn.Linear(2, 2)
    stepper = Stepper(model, config(world_size=1), World(0, 1, "", 1, CPU), 200)
    stepper._overlap()
    assert not caplog.messages
    stepper._strategy = AtOnce(model)
    stepper._overlap()
    assert "in buckets, beside the backward pass, from here on" in caplog.text


def _steps(rank: int, folder: str) -> None:
    """Take eight steps by DDP, and four at once followed by four of DDP; leave weights and running statistics."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found = []
    for at_once in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 10))
        stepper = Stepper(model, config(), World(rank, 2, "", 1, CPU), 200)
        if at_once:
            stepper._strategy = AtOnce(model)
        torch.manual_seed(1 + rank)
        for step in range(8):
            if step == 4:
                stepper._overlap()
                assert type(stepper._strategy) is Ddp
            batch = Batch(torch.randn(4, 4, 4), torch.randint(10, (4,)))
            stepper.accumulate(batch, Sums(CPU), group=1, last=True)
        found.append([tensor.clone() for tensor in model.state_dict().values()])
        stepper.agree()
        found.append([tensor.clone() for tensor in model.state_dict().values()])
    torch.save(found, f"{folder}/rank-{rank}")
    dist.destroy_process_group()


def test_steps_at_once_and_those_of_ddp_after_them_are_steps_of_ddp(tmp_path: Path) -> None:
    spawn(_steps, (str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    ranks = [torch.load(tmp_path / f"rank-{rank}") for rank in range(2)]
    for by_ddp, agreed_by_ddp, at_once, agreed in ranks:
        assert all(torch.equal(a, b) for a, b in zip(by_ddp, at_once, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(agreed_by_ddp, agreed, strict=True))
    statistics = 2 + 2  # weights and biases of the first layer and of the norm come before its running mean
    assert not torch.equal(ranks[0][2][statistics], ranks[1][2][statistics]), "the ranks saw the same rows"
    assert all(torch.equal(a, b) for a, b in zip(ranks[0][3], ranks[1][3], strict=True))
