"""From a model's name to the model."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from kbit_spark.errors import UsageError
from kbit_spark.models.cnn import Cnn
from kbit_spark.models.mlp import Mlp

Factory = Callable[..., Any]

MODELS: Mapping[str, Factory] = {"cnn": Cnn, "mlp": Mlp}


def build(name: str, input_shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> nn.Module:
    """Make the model `name`: one of `MODELS`, or ``module:factory`` of the user's own.

    The factory is called as ``factory(input_shape, classes, **options)``: the shape of one input without the batch, the
    number of logits to return, and the configuration's `model_options`.

    Raises:
        UsageError: no such model, or it refuses shape or options.
    """
    factory = MODELS.get(name) or _imported(name)
    try:
        model = factory(input_shape, classes, **options)
    except (TypeError, ValueError) as error:
        msg = f"model {name!r} cannot be made: {error}"
        raise UsageError(msg, "check model_options and the shape of data.input") from error
    if not isinstance(model, nn.Module):
        msg = f"model {name!r} made a {type(model).__name__}, not a torch.nn.Module"
        raise UsageError(msg)
    return model


def _imported(name: str) -> Factory:
    module, separator, attribute = name.partition(":")
    if not separator:
        msg = f"unknown model {name!r}; known: {', '.join(MODELS)}, or module:factory of your own"
        raise UsageError(msg)
    try:
        factory: Factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        msg = f"cannot import the model {name!r}: {error}"
        raise UsageError(msg, "driver and executors must be able to import it (--py-files)") from error
    return factory
