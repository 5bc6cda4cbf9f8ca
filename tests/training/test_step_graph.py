"""Steps as one CUDA graph: when they are, and on a GPU that they are the steps that they replace."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from kbit_spark.config.train import ProfileConfig, TrainConfig
from kbit_spark.datasets.batches import Batch
from kbit_spark.errors import RunError
from kbit_spark.training import step_graph
from kbit_spark.training.collectives import on_any_rank
from kbit_spark.training.metrics import Sums
from kbit_spark.training.profiler import PHASES, Profiler
from kbit_spark.training.saver import host_copy
from kbit_spark.training.step_graph import WARM_UP_STEPS, Result, StepGraph, captures
from kbit_spark.training.stepper import Stepper
from kbit_spark.training.world import World

BATCH = 64
CUDA = torch.device("cuda", 0)
on_a_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def config(**changes: Any) -> TrainConfig:
    base = {"data": {"table": "t"}, "checkpoint": {"dir": "c"}, "global_batch_size": BATCH}
    return TrainConfig.model_validate({**base, **changes})


@pytest.mark.parametrize(
    ("changes", "device", "ranks", "steps", "captured", "reason"),
    [
        ({}, "cuda", 1, 10_000, True, ""),
        ({}, "cuda", 1, 20, False, ""),
        ({}, "cuda", 2, 10_000, True, ""),
        ({}, "cuda", 2, 20, False, ""),
        ({}, "cpu", 1, 10_000, False, ""),
        ({"cuda_graph": False}, "cuda", 1, 10_000, False, ""),
        ({"cuda_graph": True}, "cuda", 1, 20, True, ""),
        ({"cuda_graph": True}, "cuda", 2, 10_000, True, ""),
        ({"cuda_graph": True}, "cpu", 1, 10_000, False, "the device is cpu"),
        ({"precision": "fp16"}, "cuda", 1, 10_000, False, "precision=fp16"),
        ({"optimizer": {"accumulate_steps": 2}}, "cuda", 1, 10_000, False, "accumulate_steps"),
    ],
)
def test_long_runs_on_a_gpu_are_captured_and_the_log_says_why_others_are_not(
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, Any],
    device: str,
    ranks: int,
    steps: int,
    *,
    captured: bool,
    reason: str,
) -> None:
    caplog.set_level(logging.INFO, logger="kbit_spark")
    world = World(0, ranks, "localhost", 1, torch.device(device))
    assert captures(config(**changes), world, steps) == captured
    assert reason in caplog.text
    assert bool(caplog.text) == bool(reason)


class Nothing:
    """Stands for CUDA's events and generators where there are none."""

    def __init__(self, **_: object) -> None:
        self.state: object = "before"

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def clone_state(self) -> object:
        return self.state

    def graphsafe_set_state(self, state: object) -> None:
        self.state = state


class Graph(Nothing):
    """Stands for a graph, and tells what was done with it last."""

    def replay(self) -> None:
        self.state = "replayed"

    def reset(self) -> None:
        self.state = "given back"


@pytest.fixture
def never_captured(monkeypatch: pytest.MonkeyPatch) -> Nothing:
    """Let no step be captured, and leave the generator unusable, as torch does."""
    generator = Nothing()

    def fails(self: StepGraph, step: object, batch: Batch, *, measured: bool) -> None:
        generator.state = "unusable"
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(torch.cuda, "Event", Nothing)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "default_generators", [generator])
    monkeypatch.setattr(StepGraph, "_captured", fails)
    return generator


BATCH_OF_NOTHING = Batch(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))
PROFILER = Profiler(ProfileConfig(), World(0, 1, "localhost", 1, torch.device("cpu")), Path(tempfile.gettempdir()))


def test_steps_that_cannot_be_captured_are_all_taken_once(
    never_captured: Nothing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="kbit_spark")
    numbers = iter(range(100))
    graph = StepGraph(lambda _: Result(torch.tensor(next(numbers)), torch.zeros(2)), PROFILER)
    assert [int(graph.take(BATCH_OF_NOTHING).loss) for _ in range(30)] == list(range(30))
    assert caplog.text.count("launched kernel by kernel") == 1
    assert "operation not permitted when stream is capturing" in caplog.text
    assert never_captured.state == "before"


@pytest.mark.usefixtures("never_captured")
def test_a_step_that_fails_after_its_capture_ends_the_run_with_the_way_out() -> None:
    def step(_: Batch) -> Result:
        if next(numbers) == WARM_UP_STEPS:
            raise RuntimeError("Expected to have finished reduction in the prior iteration")
        return Result(torch.zeros(()), torch.zeros(2))

    numbers = iter(range(100))
    graph = StepGraph(step, PROFILER)
    with pytest.raises(RunError, match="operation not permitted when stream is capturing") as raised:
        for _ in range(30):
            graph.take(BATCH_OF_NOTHING)
    assert "cuda_graph=false" in raised.value.hint
    assert next(numbers) == WARM_UP_STEPS + 1


@pytest.mark.usefixtures("never_captured")
def test_what_broke_a_capture_is_told_and_its_memory_given_back_before_the_step_is_taken(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[weakref.ref[torch.Tensor]] = []

    class Capture(AbstractContextManager[None]):
        def __exit__(self, *args: object) -> None:
            raise RuntimeError("operation failed due to a previous error during capture")

    def fails(self: StepGraph, step: object, batch: Batch, *, measured: bool) -> None:
        activations = torch.zeros(3)
        held.append(weakref.ref(activations))
        with Capture():
            raise RuntimeError("operation not permitted when stream is capturing")

    def step(_: Batch) -> Result:
        assert not any(reference() is not None for reference in held)
        return Result(torch.zeros(()), torch.zeros(2))

    monkeypatch.setattr(StepGraph, "_captured", fails)
    caplog.set_level(logging.INFO, logger="kbit_spark")
    graph = StepGraph(step, PROFILER)
    for _ in range(WARM_UP_STEPS + 2):
        graph.take(BATCH_OF_NOTHING)
    assert len(held) == 1
    assert "not permitted when stream is capturing; operation failed due to a previous error" in caplog.text


@pytest.mark.usefixtures("never_captured")
def test_no_rank_replays_what_another_rank_cannot_capture(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="kbit_spark")
    captured = []

    def succeeds(self: StepGraph, step: object, batch: Batch, *, measured: bool) -> SimpleNamespace:
        captured.append(Graph())
        return SimpleNamespace(graph=captured[-1])

    asked = []
    monkeypatch.setattr(StepGraph, "_captured", succeeds)
    monkeypatch.setattr(step_graph, "on_any_rank", lambda holds, _: asked.append(holds) or len(asked) == 2)
    numbers = iter(range(100))
    graph = StepGraph(lambda _: Result(torch.tensor(next(numbers)), torch.zeros(2)), PROFILER, lambda _: None)  # type: ignore[arg-type, return-value]
    assert [int(graph.take(BATCH_OF_NOTHING).loss) for _ in range(30)] == list(range(30))
    assert asked == [False, False]  # after the trial, and after the capture, which failed elsewhere
    assert [each.state for each in captured] == ["given back"] * 3
    assert "cannot be captured as a CUDA graph: it cannot be on another rank" in caplog.text


@pytest.mark.usefixtures("never_captured")
def test_a_rank_is_watched_while_its_steps_are_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, result = Graph(), Result(torch.tensor(1.0), torch.zeros(2))
    captured = SimpleNamespace(graph=graph, result=result, marks=None)
    monkeypatch.setattr(StepGraph, "_captured", lambda *_, **__: captured)
    monkeypatch.setattr(step_graph, "on_any_rank", lambda holds, _: holds)
    monkeypatch.setattr(Profiler, "replayed", lambda *_: None)

    def watches() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "kbit-hang-watch"]

    steps = StepGraph(lambda _: result, PROFILER)
    for _ in range(WARM_UP_STEPS):
        steps.take(BATCH_OF_NOTHING)
    assert watches() == []
    steps.take(BATCH_OF_NOTHING)
    assert graph.state == "replayed"
    assert watches() == ["kbit-hang-watch"]
    steps.close()
    assert watches() == []


class Averages(nn.Module):
    """Keeps a running mean, in place or in a new tensor each time."""

    mean: torch.Tensor

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self._in_place, self.layer = in_place, nn.Linear(3, 10)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self._in_place:
            self.mean.lerp_(inputs.mean(), 0.1)
        else:
            self.mean = self.mean.lerp(inputs.mean(), 0.1)
        logits: torch.Tensor = self.layer(inputs - self.mean)
        return logits


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("in_place", [False, True])
def test_a_trial_finds_buffers_that_are_replaced_and_puts_them_back(*, in_place: bool) -> None:
    model, world = Averages(in_place=in_place), World(0, 1, "localhost", 1, torch.device("cpu"))
    stepper, before = Stepper(model, config(), world, 200), model.mean
    with nullcontext() if in_place else pytest.raises(RuntimeError, match="place of the buffer mean"):
        stepper._trial_step(BATCH_OF_NOTHING)
    assert model.mean is before


class Scaled(nn.Module):
    """Has a buffer that training reads, and parameters that share their memory or that a pass goes through twice."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm, self.last = nn.BatchNorm1d(4), nn.Linear(4, 10)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(nn.functional.dropout(inputs.flatten(1), 0.2))
        again = checkpoint(lambda given: self.second(self.second(given)).relu(), hidden, use_reentrant=False)
        logits: torch.Tensor = self.last(self.norm(again)) * self.scale
        return logits


def _steps_of_two(rank: int, folder: str) -> None:
    """Take steps without and with trials in between, by the second rank alone, and leave the weights."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=20)
    )
    found = []
    for trials in (False, True):
        torch.manual_seed(0)
        stepper = Stepper(Scaled(), config(global_batch_size=8), World(rank, 2, "", 1, torch.device("cpu")), 200)
        torch.manual_seed(rank)
        for step in range(6):
            stepper.model.scale.fill_(1 + rank + step)  # type: ignore[operator, union-attr]  # those of rank 0 count
            batch = Batch(torch.randn(4, 4), torch.randint(10, (4,)))
            if trials and rank == 1 and step in (0, 3, 4):
                _try(stepper, batch)
            stepper.accumulate(batch, Sums(torch.device("cpu")), group=1, last=True)
        found.append([tensor.clone() for tensor in stepper.model.state_dict().values()])
    told = [on_any_rank(rank == 1, torch.device("cpu")), on_any_rank(False, torch.device("cpu"))]
    torch.save((*found, told), f"{folder}/rank-{rank}")
    dist.destroy_process_group()


def _try(stepper: Stepper, batch: Batch) -> None:
    """Do what a trial does; buffers and random numbers are put back, since what is captured is not executed."""
    buffers = [(buffer, buffer.clone()) for buffer in stepper.model.buffers()]
    with torch.random.fork_rng(devices=[]):
        stepper._trial_step(batch)
    for buffer, before in buffers:
        buffer.copy_(before)


def test_a_trial_tells_other_ranks_nothing_and_leaves_ddp_as_it_was(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_steps_of_two, (str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    for rank in range(2):
        plain, tried, told = torch.load(tmp_path / f"rank-{rank}")
        assert all(torch.equal(a, b) for a, b in zip(plain, tried, strict=True))
        assert told == [True, False]


class Model(nn.Module):
    """Has what changes from step to step beside weights: random numbers and running statistics.

    It may wait for the GPU, which no graph can hold, in the `forward` or in the `backward` pass, or have a buffer that
    `drifts` with the rows of a rank, and that training reads.
    """

    _drift: torch.Tensor

    def __init__(self, oddity: str = "") -> None:
        super().__init__()
        self._oddity = oddity
        if oddity == "drifts":
            self.register_buffer("_drift", torch.zeros(()))
        self._last = nn.Linear(10, 10)
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self._oddity == "forward" and float(inputs.sum()) < 0:
            inputs = -inputs
        hidden: torch.Tensor = self.layers(inputs)
        if self._oddity == "backward":
            hidden.register_hook(lambda gradient: gradient if float(gradient.sum()) != 1.5 else -gradient)
        if self._oddity == "drifts":
            hidden = hidden * (1 + self._drift.add_(inputs.mean() - 0.5))
        logits: torch.Tensor = self._last(hidden)
        return logits


class Run:
    """Some steps of a stepper on the GPU."""

    def __init__(self, changes: dict[str, Any], oddity: str = "", world: World | None = None) -> None:
        made = config(**changes)
        torch.manual_seed(0)
        self.world = world or World(0, 1, "localhost", 1, CUDA)
        device = self.world.device
        self.profiler = Profiler(made.profile, self.world, Path(tempfile.gettempdir()))
        self.stepper = Stepper(Model(oddity).to(device), made, self.world, 200, self.profiler)
        self.sums, self.steps = Sums(device), 0

    def take(self, steps: int, batch: Batch | None = None) -> None:
        for _ in range(steps):
            device = self.world.device
            random = torch.Generator(device).manual_seed(self.steps * self.world.size + self.world.rank)
            images = torch.randint(256, (BATCH, 8, 8), generator=random, device=device, dtype=torch.uint8)
            drawn = Batch(images, torch.randint(10, (BATCH,), generator=random, device=device))
            self.steps += 1
            self.profiler.begin_step(self.steps)
            self.profiler.mark("data_wait")
            self.stepper.accumulate(batch or drawn, self.sums, group=1, last=True)
            self.profiler.end_step(self.steps)

    def tensors(self) -> list[torch.Tensor]:
        return [tensor.detach().clone() for tensor in self.stepper.model.state_dict().values()]


@pytest.fixture
def alone_on_gpu() -> Iterator[None]:
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch.cuda.set_device(CUDA)
    with tempfile.TemporaryDirectory() as folder, torch.cuda.stream(torch.cuda.Stream(CUDA)):
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1, device_id=CUDA)
        yield
        dist.destroy_process_group()


SETTINGS = [
    {},
    {"precision": "bf16"},
    {"optimizer": {"name": "sgd", "momentum": 0.9, "decay": "cosine", "warmup_steps": 5, "clip_norm": 1.0}},
    {"strategy": "averaging", "averaging": {"every_steps": 3}},
]


@pytest.mark.usefixtures("alone_on_gpu")
class TestOnGpu:
    pytestmark = on_a_gpu

    @pytest.mark.parametrize("changes", SETTINGS)
    def test_a_graph_takes_the_steps_that_it_replaces_and_draws_the_same_numbers(self, changes: dict[str, Any]) -> None:
        found = []
        for graph in (False, True):
            torch.manual_seed(7)
            run = Run({**changes, "cuda_graph": graph})
            torch.manual_seed(8)
            run.take(100)
            shares = run.profiler.take()
            found.append((run.tensors(), run.sums.state(), torch.cuda.get_rng_state(CUDA)))
            assert set(shares) == set(PHASES)
            assert sum(shares.values()) == pytest.approx(1)
            assert min(shares["forward"], shares["backward"], shares["optimizer"]) > 0
            run.stepper.close()
        (plain, plain_sums, plain_random), (graphed, sums, random) = found
        assert all(torch.equal(a, b) for a, b in zip(plain, graphed, strict=True))
        assert torch.allclose(plain_sums, sums, rtol=1e-12)
        assert torch.equal(plain_random, random)

    def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_not_ended(self) -> None:
        whole = Run({"cuda_graph": True})
        whole.take(50)
        state, random = host_copy(whole.stepper.state()), torch.cuda.get_rng_state(CUDA)
        whole.take(50)
        again = Run({"cuda_graph": True})
        again.stepper.restore(state)
        torch.cuda.set_rng_state(random, CUDA)
        again.steps = 50
        again.take(50)
        assert all(torch.equal(a, b) for a, b in zip(whole.tensors(), again.tensors(), strict=True))
        whole.stepper.close()
        again.stepper.close()

    @pytest.mark.parametrize("waits", ["forward", "backward"])
    def test_a_model_that_waits_for_the_gpu_is_launched_kernel_by_kernel(
        self, caplog: pytest.LogCaptureFixture, waits: str
    ) -> None:
        caplog.set_level(logging.INFO, logger="kbit_spark")
        found = []
        for graph in (False, True):
            torch.manual_seed(7)
            run = Run({"cuda_graph": graph}, waits)
            torch.manual_seed(8)
            run.take(40)
            found.append(run.tensors())
            run.stepper.close()
        assert "cannot be captured as a CUDA graph" in caplog.text
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

    def test_a_loss_that_is_not_finite_leaves_the_weights_and_is_told(self) -> None:
        run = Run({"cuda_graph": True, "data": {"table": "t", "scale": 1.0}})
        run.take(WARM_UP_STEPS + 5)
        before = [parameter.detach().clone() for parameter in run.stepper.model.parameters()]
        weight = next(run.stepper.model.parameters())
        with torch.no_grad():
            weight[0, 0] = torch.nan
        run.take(2)
        with torch.no_grad():
            weight[0, 0] = before[0][0, 0]
        assert all(torch.equal(a, b) for a, b in zip(before, run.stepper.model.parameters(), strict=True))
        with pytest.raises(RunError, match="the loss is not finite"):
            run.stepper.check_finite(run.sums)
        run.stepper.close()

    def test_a_batch_of_another_size_is_launched_kernel_by_kernel(self) -> None:
        run = Run({"cuda_graph": True})
        run.take(WARM_UP_STEPS + 5)
        small = Batch(
            torch.zeros((5, 8, 8), device=CUDA, dtype=torch.uint8), torch.zeros(5, device=CUDA, dtype=torch.int64)
        )
        run.take(1, small)
        run.take(3)
        assert run.sums.state()[2] == BATCH * (WARM_UP_STEPS + 8) + 5
        run.stepper.close()


def _rank_of_two(rank: int, folder: str, changes: dict[str, Any], oddity: str) -> None:
    """Train without and with a graph, and leave what came of it; only the second rank's model waits for the GPU."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=2, device_id=device)
    found = []
    for graph in (False, True):
        torch.manual_seed(7)
        made = {"global_batch_size": 2 * BATCH, **changes, "cuda_graph": graph}
        run = Run(made, oddity if rank == 1 or oddity == "drifts" else "", World(rank, 2, "", 1, device))
        torch.manual_seed(8 + rank)
        run.take(60)
        small = Batch(torch.ones((5, 8, 8), device=device, dtype=torch.uint8), torch.ones(5, device=device).long())
        run.take(1, small)
        run.take(40)
        shares = run.profiler.take()
        found.append((graph, [tensor.cpu() for tensor in run.tensors()], run.sums.state().cpu(), shares))
        run.stepper.close()
    torch.save(found, f"{folder}/rank-{rank}")
    dist.destroy_process_group()


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")
@pytest.mark.parametrize(
    ("changes", "oddity"),
    [
        *((changes, "") for changes in SETTINGS),
        *(({"all_reduce": how}, oddity) for how in ("at_once", "overlapped") for oddity in ("forward", "backward")),
        ({"all_reduce": "overlapped"}, ""),
        ({"all_reduce": "at_once", "optimizer": {"name": "sgd", "learning_rate": 0.1, "clip_norm": 0.5}}, ""),
        ({"all_reduce": "at_once"}, "drifts"),
    ],
)
def test_a_graph_of_several_ranks_takes_the_steps_that_it_replaces(
    changes: dict[str, Any], oddity: str, tmp_path: Path
) -> None:
    arguments = (str(tmp_path), changes, oddity)
    torch.multiprocessing.spawn(_rank_of_two, arguments, nprocs=2)  # type: ignore[no-untyped-call]
    ranks = [torch.load(tmp_path / f"rank-{rank}") for rank in range(2)]
    for found in ranks:
        (_, plain, plain_sums, _), (_, graphed, sums, shares) = found
        assert all(torch.equal(a, b) for a, b in zip(plain, graphed, strict=True))
        assert torch.allclose(plain_sums, sums, rtol=1e-12)
        assert set(shares) == set(PHASES)
    weights = [dict(zip(Model(oddity).state_dict(), found[1][1], strict=True)) for found in ranks]
    assert ranks[0][0][2][0] != ranks[1][0][2][0], "the ranks saw the same rows"
    if changes.get("strategy") != "averaging":
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in dict(Model().named_parameters()))


def _rank_of_two_that_waits(rank: int, folder: str) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=2, device_id=device)
    step_graph.COLLECTIVE_TIMEOUT = timedelta(seconds=10)
    run = Run({"global_batch_size": 2 * BATCH}, "", World(rank, 2, "", 1, device))
    run.take(30)
    torch.cuda.synchronize()
    Path(folder, f"captured-{rank}").touch()
    if rank == 1:
        time.sleep(600)
    run.take(1)
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")
def test_a_rank_ends_where_another_one_lives_and_does_not_come(tmp_path: Path) -> None:
    spawn = torch.multiprocessing.get_context("spawn")
    waits, other = (spawn.Process(target=_rank_of_two_that_waits, args=(rank, str(tmp_path))) for rank in range(2))
    waits.start()
    other.start()
    try:
        waits.join(120)
        assert all((tmp_path / f"captured-{rank}").exists() for rank in range(2))
        assert waits.exitcode == RunError.exit_code
        assert other.is_alive()
    finally:
        waits.kill()
        other.kill()
