"""Shares of a step's time, traces of chosen steps, and their bar in the report."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import cast

import pytest
import torch
from pydantic import ValidationError
from torch.nn.parallel import DistributedDataParallel

from kbit_spark.config.train import ProfileConfig
from kbit_spark.events import Event
from kbit_spark.telemetry.report import render
from kbit_spark.training import profiler as profiler_module
from kbit_spark.training.profiler import PHASES, Profiler
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
    profiler.end_step(step, updated=True)


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


@pytest.mark.usefixtures("alone")
def test_all_reduce_is_sampled_more_and_more_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = DistributedDataParallel(torch.nn.Linear(4, 4))
    monkeypatch.setitem(profiler_module.DDP_EVERY, "cpu", 70)
    samples: list[int] = []
    add = profiler_module._Share.add
    monkeypatch.setattr(
        profiler_module._Share, "add", lambda self, sample: (samples.append(sample["iteration"]), add(self, sample))
    )
    profiler = Profiler(ProfileConfig(), WORLD, tmp_path)
    profiler.watch(network)
    for step in range(1, 300):
        profiler.begin_step(step)
        network(torch.rand(2, 4)).sum().backward()
        profiler.mark("backward")
        profiler.end_step(step, updated=True)
    assert samples == [*range(1, 11), 20, 40, 70, 140, 210, 280]
    assert 0 < profiler.take()["all_reduce"] < 1


class Timers:
    """Answers as DDP's timers do: warming up, all of the pass is waiting; later a quarter of it."""

    def __init__(self) -> None:
        self.iteration, self.rate = 0, 1

    def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None:
        self.rate = rate

    def _get_ddp_logging_data(self) -> dict[str, int]:
        waited, computed = (1_000, 0) if self.iteration <= 10 else (1, 3)
        return {
            "iteration": self.iteration,
            "backward_comm_time": waited,
            "backward_compute_comm_overlap_time": 0,
            "backward_compute_time": computed,
        }


@pytest.mark.parametrize("epoch", [5, 25, 60])
def test_the_first_steps_count_for_the_all_reduce_only_until_there_are_others(epoch: int) -> None:
    timers = Timers()
    times = profiler_module._AllReduceTimes(cast("DistributedDataParallel", timers), 200)
    shares = []
    for step in range(121):  # a sample is told from the step after it on
        if step % epoch == 0 and step:
            shares.append(times.take())
        if step <= 10 or step % timers.rate == 0:
            timers.iteration = step
        times.look()
    first = 20 // epoch  # epochs that end before the first sample after the first steps is told
    assert shares == [1.0] * first + [0.25] * (len(shares) - first)
