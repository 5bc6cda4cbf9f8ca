"""Shares of a step's time, traces of chosen steps, and their bar in the report."""

from __future__ import annotations

import gzip
import json
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from pydantic import ValidationError
from torch.nn.parallel import DistributedDataParallel

from kbit_spark.config.train import ProfileConfig
from kbit_spark.events import Event
from kbit_spark.telemetry.report import render
from kbit_spark.training.profiler import GPU_EVERY, PHASES, Profiler
from kbit_spark.training.world import World

WORLD = World(0, 1, "localhost", 1, torch.device("cpu"))


def one_step(profiler: Profiler, step: int) -> None:
    profiler.begin_step(step)
    time.sleep(0.01)
    profiler.mark("data_wait")
    time.sleep(0.03)
    profiler.mark("forward")
    torch.rand(10).sum()
    profiler.mark("backward")
    profiler.end_step(step)


def test_shares_of_the_time_add_up_and_begin_anew(tmp_path: Path) -> None:
    profiler = Profiler(ProfileConfig(), WORLD, tmp_path)
    for step in range(1, 6):
        one_step(profiler, step)
    shares = profiler.take()
    assert set(shares) == set(PHASES)
    assert sum(shares.values()) == pytest.approx(1)
    assert 0.5 < shares["forward"] < 0.9
    assert shares["all_reduce"] == shares["optimizer"] == 0
    assert profiler.take() == {}
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_measured_that_is_not_asked_for(tmp_path: Path) -> None:
    profiler = Profiler(ProfileConfig(phases=False), WORLD, tmp_path)
    one_step(profiler, 1)
    assert profiler.take() == {}


@pytest.mark.parametrize("steps", [(2, 3), (2, 9)])
def test_a_trace_of_the_chosen_steps_also_where_the_run_ends_before(tmp_path: Path, steps: tuple[int, int]) -> None:
    profiler = Profiler(ProfileConfig(trace_steps=steps), WORLD, tmp_path / "traces")
    for step in range(1, 5):
        one_step(profiler, step)
    profiler.close()
    (file,) = (tmp_path / "traces").iterdir()
    assert file.name == f"steps-{steps[0]}-{steps[1]}-rank-0.json.gz"
    found = [e for e in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"] if e.get("name") == "aten::rand"]
    assert len(found) == min(4, steps[1]) - steps[0] + 1


def test_steps_out_of_order_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"trace_steps=\[3, 2\] must be \[first, last\]"):
        ProfileConfig(trace_steps=(3, 2))


def test_the_report_shows_a_bar_for_each_rank() -> None:
    events = [
        Event("train_profile", numbers={"epoch": 0, "forward_share": 0.75, "all_reduce_share": 0.25}, rank=rank)
        for rank in (0, 1)
    ]
    html = render(events)
    assert "Where the time of a step goes" in html
    assert all(text in html for text in ("rank 0", "rank 1", "forward", "all reduce"))


def slow(inputs: torch.Tensor) -> torch.Tensor:
    """Return the same, whose gradient takes a while."""
    same = inputs * 1
    same.register_hook(lambda _: time.sleep(0.05))
    return same


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("delay_s", "least", "most"), [(0.02, 0.0, 0.1), (0.15, 0.5, 0.8)])
def test_the_all_reduce_counts_as_far_as_the_backward_pass_waits_for_it(
    tmp_path: Path, delay_s: float, least: float, most: float
) -> None:
    network = DistributedDataParallel(torch.nn.Linear(4, 4))

    def late(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        threading.Timer(delay_s, done.set_result, [bucket.buffer()]).start()
        return done

    late.__annotations__.clear()  # DDP refuses those that are text
    network.register_comm_hook(None, late)
    profiler = Profiler(ProfileConfig(), WORLD, tmp_path)
    for step in range(1, 6):
        profiler.begin_step(step)
        loss = network(slow(torch.rand(2, 4, requires_grad=True))).sum()
        profiler.mark("forward")
        profiler.mark_gradients(loss)
        loss.backward()
        profiler.mark("all_reduce")
        profiler.end_step(step)
    shares = profiler.take()
    assert least <= shares["all_reduce"] <= most
    assert shares["backward"] > 0.2


def test_all_ranks_measure_the_same_steps_however_far_their_gpus_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class CudaEvent:
        """Is done when somebody waits for it."""

        def __init__(self, **_: object) -> None:
            self.done = False

        def record(self) -> None:
            self.done = False

        def query(self) -> bool:
            return self.done

        def synchronize(self) -> None:
            self.done = True

        def elapsed_time(self, other: CudaEvent) -> float:
            assert other.done
            return 1.0

    monkeypatch.setattr(torch.cuda, "Event", CudaEvent)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    profiler = Profiler(ProfileConfig(), World(0, 2, "localhost", 1, torch.device("cuda", 0)), tmp_path)
    measured = []
    for step in range(1, 3 * GPU_EVERY + 1):
        profiler.begin_step(step)
        if profiler.measuring:
            measured.append(step)
        profiler.mark("forward")
    assert measured == [1, 1 + GPU_EVERY, 1 + 2 * GPU_EVERY]
    assert profiler.take() == {phase: float(phase == "forward") for phase in PHASES}
