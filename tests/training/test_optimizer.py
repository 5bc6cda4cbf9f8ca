"""The learning rate over a run, where it is read from, and optimizers that come from other devices."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from kbit_spark.config.train import OptimizerConfig
from kbit_spark.training.optimizer import load_optimizer, rate_factor, rate_from


@given(st.integers(0, 50), st.integers(1, 200), st.sampled_from(["constant", "cosine"]))
def test_the_rate_grows_then_never_grows_again(warmup: int, total: int, decay: str) -> None:
    config = OptimizerConfig.model_validate({"warmup_steps": warmup, "decay": decay})
    factors = [rate_factor(step, config, total) for step in range(total)]
    rising, falling = factors[:warmup], factors[warmup:]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    assert all(0 <= factor <= 1 for factor in factors)
    assert all(factor > 0 for factor in rising)


def test_cosine_ends_at_zero() -> None:
    config = OptimizerConfig(warmup_steps=2, decay="cosine")
    assert rate_factor(2, config, 10) == 1.0
    assert rate_factor(9, config, 10) == pytest.approx(0.0)


def steps(optimizer: Optimizer, model: nn.Module, count: int, rate: torch.Tensor | None = None) -> None:
    random = torch.Generator().manual_seed(1)
    for _ in range(count):
        model(torch.rand(8, 4, generator=random)).square().sum().backward()
        if rate is None:
            optimizer.step()
        else:
            with rate_from(optimizer, rate):
                optimizer.step()
        optimizer.zero_grad()


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


@pytest.mark.parametrize(("kind", "options"), [(Adam, {}), (SGD, {"momentum": 0.9})])
def test_a_rate_on_the_device_takes_the_same_steps_and_leaves_the_optimizer_as_it_was(
    kind: Any, options: dict[str, float]
) -> None:
    rate = 2.0**-7  # a float32
    models = linear(), linear()
    plain, there = (
        kind(model.parameters(), lr=lr, fused=True, **options) for model, lr in zip(models, (rate, 1.0), strict=True)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps(plain, models[0], 5)
        steps(there, models[1], 5, torch.tensor(rate))
    assert torch.equal(models[0].weight, models[1].weight)
    assert there.param_groups[0]["lr"] == 1.0
    assert {**there.state_dict()["param_groups"][0], "lr": rate} == plain.state_dict()["param_groups"][0]


@pytest.mark.parametrize("kind", [Adam, SGD])
@pytest.mark.parametrize("fused", [True, False])
def test_a_saved_optimizer_goes_on_as_the_device_computes(kind: Any, *, fused: bool) -> None:
    models = linear(), linear()
    saved = kind(models[0].parameters(), lr=0.25, fused=not fused)
    own = kind(models[1].parameters(), lr=0.25, fused=fused)
    steps(saved, models[0], 3)
    load_optimizer(own, copy.deepcopy(saved.state_dict()))
    (group,) = own.param_groups
    assert group["fused"] == fused
    models[1].load_state_dict(models[0].state_dict())
    steps(saved, models[0], 3)
    steps(own, models[1], 3)
    assert torch.allclose(models[0].weight, models[1].weight, atol=1e-6)
