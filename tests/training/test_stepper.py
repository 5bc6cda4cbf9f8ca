"""One step: gradients of unequal ranks, accumulation, and a loss that is not finite."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kbit_spark.config.train import TrainConfig
from kbit_spark.datasets.batches import Batch
from kbit_spark.datasets.sharding import rank_slice
from kbit_spark.datasets.transforms import normalize
from kbit_spark.errors import RunError
from kbit_spark.training.gradient_check import _checkable
from kbit_spark.training.metrics import HELD_BATCHES, Sums
from kbit_spark.training.stepper import Stepper
from kbit_spark.training.world import World
from tests.fixtures.operations import Operations

INPUTS = torch.rand(7, 4, generator=torch.Generator().manual_seed(3))
TARGETS = torch.tensor([0, 1, 2, 0, 1, 2, 0])
CPU = torch.device("cpu")


def config(**changes: object) -> TrainConfig:
    base = {"data": {"table": "t", "scale": 1.0, "classes": 3}, "checkpoint": {"dir": "c"}, "global_batch_size": 7}
    return TrainConfig.model_validate({**base, **changes})


def stepper(rank: int, size: int, config: TrainConfig) -> Stepper:
    torch.manual_seed(0)
    world = World(rank, size, "localhost", 1, CPU)
    return Stepper(nn.Linear(4, 3), config, world, total_steps=10)


def one_step(rank: int, size: int, path: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    start, stop = rank_slice(rank, size, 7)
    made = stepper(rank, size, config(optimizer={"name": "sgd", "learning_rate": 0.5}))
    sums = Sums(CPU)
    made.accumulate(Batch(INPUTS[start:stop], TARGETS[start:stop]), sums, group=1, last=True)
    averages = sums.reduced()
    if rank == 0:
        torch.save({"weight": made.model.weight.detach(), "loss": averages.loss, "rows": averages.rows}, path + ".pt")
    dist.destroy_process_group()


def reference() -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    nn.functional.cross_entropy(model(INPUTS), TARGETS).backward()
    return (model.weight - 0.5 * model.weight.grad).detach()


def test_unequal_ranks_take_the_step_of_the_whole_batch() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")  # noqa: PTH118 - a text for file://
        mp.spawn(one_step, (2, path), nprocs=2)
        found = torch.load(path + ".pt", weights_only=True)
    assert found["rows"] == 7
    assert torch.allclose(found["weight"], reference(), atol=1e-6)


@pytest.mark.usefixtures("alone")
def test_accumulated_batches_are_one_larger_batch() -> None:
    made = stepper(0, 1, config(optimizer={"name": "sgd", "learning_rate": 0.5}))
    sums = Sums(CPU)
    for last in (False, True):
        made.accumulate(Batch(INPUTS, TARGETS), sums, group=2, last=last)
    assert torch.allclose(made.model.weight, reference(), atol=1e-6)  # type: ignore[arg-type]


@pytest.mark.usefixtures("alone")
def test_a_loss_that_is_not_finite_changes_no_weight() -> None:
    made = stepper(0, 1, config())
    before = {name: value.clone() for name, value in made.model.state_dict().items()}
    with pytest.raises(RunError, match="the loss is not finite"):
        made.accumulate(Batch(INPUTS * float("nan"), TARGETS), Sums(CPU), group=1, last=True)
    assert all(torch.equal(value, before[name]) for name, value in made.model.state_dict().items())


@pytest.mark.usefixtures("alone")
def test_bf16_trains_and_state_comes_back() -> None:
    made = stepper(0, 1, config(precision="bf16"))
    made.accumulate(Batch(INPUTS, TARGETS), Sums(CPU), group=1, last=True)
    other = stepper(0, 1, config(precision="bf16"))
    other.restore(made.state())
    assert torch.equal(other.model.weight, made.model.weight)  # type: ignore[arg-type]
    assert other.schedule.last_epoch == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_on_the_gpu_a_loss_that_is_not_finite_changes_no_weight_until_it_is_told(name: str) -> None:
    gpu = torch.device("cuda", 0)
    settings = config(strategy="single", optimizer={"name": name})
    made = Stepper(nn.Linear(4, 3).to(gpu), settings, World(0, 1, "localhost", 1, gpu), total_steps=10)
    sums, good = Sums(gpu), Batch(INPUTS, TARGETS).to(gpu)
    made.accumulate(good, sums, group=1, last=True)
    made.window_loss(made.reading(sums), sums)
    before = {name: value.clone() for name, value in made.model.state_dict().items()}
    made.accumulate(Batch(good.inputs * float("nan"), good.targets), sums, group=1, last=True)
    made.accumulate(good, sums, group=1, last=True)
    assert all(torch.equal(value, before[name]) for name, value in made.model.state_dict().items())
    with pytest.raises(RunError, match="the loss is not finite"):
        made.window_loss(made.reading(sums), sums)


def test_complex_gradients_are_looked_at_too() -> None:
    number = nn.Parameter(torch.tensor([1 + 1j]))
    made = Stepper(Rotated(number), config(strategy="single"), World(0, 1, "localhost", 1, CPU), total_steps=10)
    made.accumulate(Batch(INPUTS, TARGETS), Sums(CPU), group=1, last=True)
    with pytest.raises(RunError, match="the loss is not finite"):
        made.accumulate(Batch(INPUTS * float("inf"), TARGETS), Sums(CPU), group=1, last=True)


def test_gradients_of_bfloat16_are_looked_at_by_their_norms() -> None:
    """No kernel of a GPU looks at them as they are."""
    good, bad = torch.tensor([3.0, 4.0]).bfloat16(), torch.tensor([1.0, float("nan")]).bfloat16()
    (norms,) = _checkable([good, bad])
    assert norms.dtype == torch.float32
    assert (norms[0].item(), bool(norms[1].isnan())) == (5.0, True)
    whole = [good.float(), bad.float()]
    assert _checkable(whole) is whole


class Rotated(nn.Module):
    """Has a complex parameter."""

    def __init__(self, number: nn.Parameter) -> None:
        super().__init__()
        self.number = number

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs[:, :3] * self.number).real


@pytest.mark.usefixtures("alone")
def test_a_step_costs_few_operations_beyond_those_of_the_barest_loop() -> None:
    made, sums, steps = stepper(0, 1, config(optimizer={"name": "sgd"})), Sums(CPU), HELD_BATCHES
    network = DistributedDataParallel(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)

    def barest() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(network(INPUTS), TARGETS).backward()
        optimizer.step()

    counts = []
    for step in (lambda: made.accumulate(Batch(INPUTS, TARGETS), sums, group=1, last=True), barest):
        step()  # the first one makes the optimizer's state
        step()
        with Operations() as operations:
            for _ in range(steps):
                step()
        counts.append(operations.count / steps)
    # normalize, argmax, one look for all gradients, which a CPU reads, less the barest loop's mean and its gradient
    assert counts[0] <= counts[1] + 2


@pytest.mark.usefixtures("alone")
def test_a_norm_too_large_for_float32_is_not_finite_where_it_is_asked_for() -> None:
    made = stepper(0, 1, config(optimizer={"name": "sgd", "clip_norm": 1.0}))
    with pytest.raises(RunError, match="the loss is not finite"):
        made.accumulate(Batch(INPUTS * 1e30, TARGETS), Sums(CPU), group=1, last=True)


def test_sums_do_not_depend_on_when_they_are_folded_and_go_on_from_their_state() -> None:
    cpu, random = CPU, torch.Generator().manual_seed(1)
    batches = [(torch.randn(5, 3, generator=random), torch.randint(3, (5,), generator=random)) for _ in range(70)]
    whole, first, second = Sums(cpu), Sums(cpu), Sums(cpu)
    for number, (logits, targets) in enumerate(batches):
        loss = nn.functional.cross_entropy(logits, targets, reduction="sum")
        whole.add(loss, logits, targets)
        if number == 40:
            whole.state()
            second.add_state(first.state())
        (first if number < 40 else second).add(loss, logits, targets)
    correct = sum(int((logits.argmax(dim=1) == targets).sum()) for logits, targets in batches)
    found, gone_on = whole.reduced(), second.reduced()
    assert found.rows == 350
    assert found.accuracy == correct / 350
    assert found.loss == pytest.approx(gone_on.loss, rel=1e-12)
    assert found.accuracy == gone_on.accuracy


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_those_of_batches_whose_memory_may_be_written_again(dtype: torch.dtype) -> None:
    random, sums, correct, losses = torch.Generator().manual_seed(1), Sums(CPU), 0, []
    for number in range(2 * HELD_BATCHES + 9):
        rows = 1 + number % 7
        logits = torch.randint(4, (rows, 6), generator=random).to(dtype)  # of few values, so that many are equal
        targets = torch.randint(6, (rows,), generator=random)
        losses.append(nn.functional.cross_entropy(logits.float(), targets, reduction="sum"))
        correct += int((logits.argmax(dim=1) == targets).sum())
        sums.add(losses[-1], logits, targets)
        logits.zero_()  # as the next pass of a model that was compiled with CUDA graphs
    total = torch.zeros((), dtype=torch.float64)
    for first in range(0, len(losses), HELD_BATCHES):
        total += torch.stack(losses[first : first + HELD_BATCHES]).double().sum()
    assert sums.state().tolist() == [total.item(), correct, sum(1 + n % 7 for n in range(len(losses)))]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("mean", [0.0, 0.3])
def test_normalized_inputs_are_float32_and_the_batch_stays(dtype: torch.dtype, mean: float) -> None:
    inputs = torch.arange(200).to(dtype)
    found = normalize(inputs, 1 / 255, mean, 0.5)
    assert found.dtype == torch.float32
    assert torch.equal(inputs, torch.arange(200).to(dtype))
    assert torch.allclose(found, (torch.arange(200) / 255 - mean) / 0.5)


class Returns(nn.Module):
    def __init__(self, make: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.weight, self._make = nn.Parameter(torch.ones(1)), make

    def forward(self, inputs: torch.Tensor) -> Any:
        return self._make(inputs.flatten(1).mean(1, keepdim=True) * self.weight)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda x: (x.expand(-1, 10), x), "tuple"),
        (lambda x: {"logits": x.expand(-1, 10)}, "dict"),
        (lambda x: x.expand(-1, 3), r"a tensor of shape \(4, 3\)"),
        (lambda x: x.expand(-1, 11), r"a tensor of shape \(4, 11\)"),
        (lambda x: x[:, 0], r"a tensor of shape \(4,\)"),
        (lambda x: x.expand(-1, 10)[:3], r"a tensor of shape \(3, 10\)"),
    ],
)
def test_what_a_model_returns_is_named_where_it_is_no_logits(make: Callable[[torch.Tensor], Any], found: str) -> None:
    wanted = config(model="m:f", strategy="single", global_batch_size=4, data={"table": "t"})
    made = Stepper(Returns(make), wanted, World(0, 1, "", 1, CPU), 10)
    batch, sums = Batch(torch.ones(4, 2, 2), torch.zeros(4, dtype=torch.int64)), Sums(CPU)
    message = rf"model=m:f returned {found}, not logits of shape \(4, 10\) for 4 inputs"
    with pytest.raises(RunError, match=message):
        made.accumulate(batch, sums, group=1, last=True)
    with pytest.raises(RunError, match=message):
        made.evaluate(batch, sums)
