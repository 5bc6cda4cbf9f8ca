"""Models by name."""

from __future__ import annotations

import pytest
import torch

from kbit_spark.errors import UsageError
from kbit_spark.models.registry import build


@pytest.mark.parametrize(("name", "shape"), [("cnn", (28, 28)), ("cnn", (3, 32, 32)), ("mlp", (28, 28))])
def test_models_return_logits(name: str, shape: tuple[int, ...]) -> None:
    assert build(name, shape, 10, {})(torch.zeros(4, *shape)).shape == (4, 10)


def test_a_model_of_the_users_own() -> None:
    model = build("kbit_spark.models.mlp:Mlp", (5,), 2, {"hidden": 3})
    assert model(torch.zeros(4, 5)).shape == (4, 2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet", {}, "unknown model 'resnet'; known: cnn, mlp"),
        ("nowhere.at_all:make", {}, "cannot import the model"),
        ("kbit_spark.models.mlp:Nothing", {}, "cannot import the model"),
        ("mlp", {"width": 3}, "unexpected keyword argument 'width'"),
        ("tests.training.models:no_module", {}, "not a torch.nn.Module"),
    ],
)
def test_wrong_models_are_refused(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(name, (28, 28), 10, options)


def test_a_shape_that_the_cnn_cannot_take() -> None:
    with pytest.raises(UsageError, match=r"not \[784\]"):
        build("cnn", (784,), 10, {})
