"""A run that goes on with another configuration: what counts, and what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kbit_spark.config.train import TrainConfig
from kbit_spark.telemetry.console import describe
from kbit_spark.train import resume_event
from kbit_spark.training.checkpoint import Checkpoint
from kbit_spark.training.manifest import Identity, Lineage, Manifest, Position
from kbit_spark.training.stepper import Stepper
from kbit_spark.training.world import World


def config(**changes: Any) -> TrainConfig:
    base = {"data": {"table": "t"}, "checkpoint": {"dir": "c"}, "strategy": "single", "epochs": 4}
    return TrainConfig.model_validate({**base, **changes})


def stepper(made: TrainConfig, total_steps: int) -> Stepper:
    torch.manual_seed(0)
    return Stepper(nn.Linear(4, 3), made, World(0, 1, "localhost", 1, torch.device("cpu")), total_steps)


def step(one: Stepper) -> None:
    one.model(torch.ones(2, 4)).square().sum().backward()
    one.optimizer.step()
    one.optimizer.zero_grad()
    one.schedule.step()


@pytest.mark.parametrize("name", ["adam", "sgd"])
@pytest.mark.parametrize(
    ("settings", "later", "total_steps"),
    [
        ({}, {"learning_rate": 0.05}, 20),
        ({}, {"weight_decay": 0.1, "momentum": 0.5}, 20),
        ({"warmup_steps": 10}, {"warmup_steps": 2}, 20),
        ({"decay": "cosine"}, {"decay": "constant"}, 20),
        ({"decay": "cosine"}, {}, 80),
    ],
)
def test_settings_are_those_of_the_configuration_and_moments_those_of_the_checkpoint(
    name: str, settings: dict[str, Any], later: dict[str, Any], total_steps: int
) -> None:
    before = stepper(config(optimizer={"name": name, **settings}), 20)
    for _ in range(5):
        step(before)
    state = before.state()
    made = config(optimizer={"name": name, **settings, **later})
    resumed, whole = stepper(made, total_steps), stepper(made, total_steps)
    resumed.restore(state)
    for _ in range(5):
        step(whole)
    assert resumed.learning_rate == whole.learning_rate
    own = [{key: value for key, value in group.items() if key != "params"} for group in whole.optimizer.param_groups]
    assert [{key: group[key] for key in own[0]} for group in resumed.optimizer.param_groups] == own
    (weight, _) = resumed.model.parameters()
    (old, _) = before.model.parameters()
    for key, value in before.optimizer.state[old].items():
        assert torch.equal(torch.as_tensor(resumed.optimizer.state[weight][key]), torch.as_tensor(value))
    step(resumed)
    step(whole)
    assert resumed.learning_rate == whole.learning_rate


def checkpoint(made: TrainConfig, **position: Any) -> Checkpoint:
    identity = Identity.model_construct()
    lineage = Lineage.model_construct(config=made.model_dump(mode="json"))
    where = Position(**position)
    return Checkpoint(
        Path("c/step-1"), Manifest.model_construct(identity=identity, lineage=lineage, position=where, window=None)
    )


@pytest.mark.parametrize(
    ("then", "now", "position", "said"),
    [
        ({}, {}, {"epoch": 1, "total_steps": 9}, "goes on from step 9 (epoch 1)"),
        (
            {},
            {"optimizer": {"learning_rate": 0.05}},
            {"epoch": 1, "total_steps": 9},
            "goes on from step 9 (epoch 1); optimizer.learning_rate is 0.05 now, was 0.001",
        ),
        (
            {},
            {"log_every_steps": 7, "telemetry": {"run_dir": "r"}},
            {"total_steps": 9},
            "goes on from step 9 (epoch 0)",
        ),
        (
            {},
            {},
            {"epoch": 4, "total_steps": 9, "finished": True},
            "goes on from step 9 (epoch 4); all 4 epochs are done, so only the test follows: raise epochs, or "
            "choose another checkpoint.dir",
        ),
        (
            {},
            {"epochs": 5},
            {"epoch": 4, "total_steps": 9, "finished": True},
            "goes on from step 9 (epoch 4); epochs is 5 now, was 4",
        ),
        (
            {"early_stopping": {"patience_epochs": 1}},
            {"early_stopping": {"patience_epochs": 1}},
            {"epoch": 2, "total_steps": 9, "finished": True, "stale_epochs": 1},
            "goes on from step 9 (epoch 2); training stopped early in epoch 2, so only the test follows: raise "
            "early_stopping.patience_epochs, or choose another checkpoint.dir",
        ),
    ],
)
def test_the_terminal_says_what_is_new_and_whether_anything_is_left(
    then: dict[str, Any], now: dict[str, Any], position: dict[str, Any], said: str
) -> None:
    assert describe(resume_event(checkpoint(config(**then), **position), config(**now))) == said
