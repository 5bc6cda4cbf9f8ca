"""Optimizer and learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from kbit_spark.config.train import OptimizerConfig


def make_optimizer(model: nn.Module, config: OptimizerConfig, device: torch.device) -> Optimizer:
    """Return the configured optimizer; fused on a GPU, where it can then skip a step without asking the CPU."""
    fused = device.type == "cuda"
    rate, decay = config.learning_rate, config.weight_decay
    if config.name == "sgd":
        return SGD(model.parameters(), lr=rate, momentum=config.momentum, weight_decay=decay, fused=fused)
    return Adam(model.parameters(), lr=rate, weight_decay=decay, fused=fused)


def load_optimizer(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Take moments back from the `state_dict` of an optimizer that may have been on another kind of device.

    The settings stay the optimizer's own: the configuration is what counts, also where it has changed since.
    """
    groups = [
        {**own, "params": saved["params"]}
        for saved, own in zip(state["param_groups"], optimizer.param_groups, strict=True)
    ]
    optimizer.load_state_dict({**state, "param_groups": groups})


def load_schedule(schedule: LambdaLR, state: Mapping[str, Any]) -> None:
    """Take the number of steps back from the `state_dict` of a schedule; the rates are those of the own one by then."""
    step = state["last_epoch"]
    rates = [base * factor(step) for base, factor in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)]
    schedule.load_state_dict({**state, "base_lrs": schedule.base_lrs, "_last_lr": rates})
    for group, rate in zip(schedule.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


@contextmanager
def rate_from(optimizer: Optimizer, rate: torch.Tensor) -> Iterator[None]:
    """Have the optimizer read its learning rate from `rate`, of shape () on its device.

    A step that is captured meanwhile reads what `rate` holds when it is replayed.
    """
    capturing = rate.is_cuda and torch.cuda.is_current_stream_capturing()
    before = [dict(group) for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = rate
        if "capturable" in group:  # else Adam refuses to be captured; set at other times, it warns
            group["capturable"] = capturing
    try:
        yield
    finally:
        for group, own in zip(optimizer.param_groups, before, strict=True):
            group.update(own)


def make_schedule(optimizer: Optimizer, config: OptimizerConfig, total_steps: int) -> LambdaLR:
    """Return the schedule over `total_steps` optimizer steps."""
    return LambdaLR(optimizer, partial(rate_factor, config=config, total_steps=total_steps))


def rate_factor(step: int, config: OptimizerConfig, total_steps: int) -> float:
    """Return the learning rate of an optimizer step as a share of the configured one.

    Grows linearly over `warmup_steps` (from 0, which no step uses, to 1), then stays, or falls to 0 at the last step.
    """
    if step < config.warmup_steps:
        return (step + 1) / (config.warmup_steps + 1)
    if config.decay == "constant":
        return 1.0
    last = total_steps - 1 - config.warmup_steps
    progress = min(1.0, (step - config.warmup_steps) / last) if last > 0 else 0.0
    return 0.5 * (1 + math.cos(math.pi * progress))
