"""Saving in the background: what waits, what is dropped, what is told."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kbit_spark.errors import RunError
from kbit_spark.training.saver import Saver, host_copy


def test_a_step_does_not_wait_and_the_newest_waiting_item_wins() -> None:
    go, written = threading.Event(), []

    def write(item: int) -> None:
        go.wait(10)
        written.append(item)

    with closing(Saver(write)) as saver:
        began = time.monotonic()
        for item in (1, 2, 3):
            saver.submit(item)
        assert time.monotonic() - began < 1
        assert written == []
        go.set()
        saver.drain()
        assert written == [1, 3]
        saver.submit(4)
    assert written == [1, 3, 4]


def test_a_failure_is_told_once() -> None:
    def write(item: int) -> None:
        if item == 1:
            msg = "disk full"
            raise RunError(msg)

    with closing(Saver(write)) as saver:
        saver.submit(1)
        saver.drain()
        saver.submit(2)
        saver.drain()
        error = saver.failure()
        assert isinstance(error, RunError)
        assert saver.failure() is None


def test_a_copy_shares_no_memory() -> None:
    state: dict[str, Any] = {"a": torch.ones(2), "b": [{"c": torch.zeros(1)}, (1, "x")], "d": torch.tensor(3)}
    copied = host_copy(state)
    state["a"].zero_()
    assert copied["a"].tolist() == [1, 1]
    assert copied["b"][1] == (1, "x")
    assert copied["d"].item() == 3


def test_a_copy_keeps_the_memory_format() -> None:
    weight = torch.rand(4, 3, 2, 2).to(memory_format=torch.channels_last)
    copied = host_copy(weight)
    assert torch.equal(copied, weight)
    assert copied.stride() == weight.stride()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_copy_from_the_gpu_is_complete() -> None:
    source = torch.arange(1_000_000, device="cuda")
    copied = host_copy({"a": source * 2})["a"]
    assert copied.device.type == "cpu"
    assert torch.equal(copied, torch.arange(1_000_000) * 2)


class Renamed(nn.Module):
    """Takes a state of version 2 only, as modules do whose parameters were once called otherwise."""

    _version = 2

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: dict[str, Any], *others: Any) -> None:
        assert metadata.get("version") == 2
        super()._load_from_state_dict(state, prefix, metadata, *others)


def test_a_model_is_told_the_version_of_the_state_that_it_takes_again(tmp_path: Path) -> None:
    model = nn.Sequential(Renamed(), nn.BatchNorm1d(2))
    torch.save(host_copy({"model": model.state_dict(), "more": [model.state_dict()]}), tmp_path / "state.pt")
    loaded = torch.load(tmp_path / "state.pt", weights_only=True)
    for state in (loaded["model"], loaded["more"][0]):
        assert state.keys() == model.state_dict().keys()
        model.load_state_dict(state)
