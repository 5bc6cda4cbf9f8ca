"""Weights averaged every few steps, between which every rank trains for itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters

from kbit_spark.training.collectives import copy_from_first


class Averaging:
    """Lets every rank train for itself and replaces the weights by their mean after every `every_steps` updates.

    Which updates those are follows from their number alone, so a resumed run averages where it would have. Running
    means are averaged with the weights. What is not trained becomes that of the first rank: a mean of equal values may
    differ from them in the last bit, and a model may change it by itself.
    """

    same_optimizer = False

    def __init__(self, model: nn.Module, every_steps: int) -> None:
        self.network, self._every_steps = model, every_steps
        copy_from_first([*model.parameters(), *model.buffers()])  # ranks may have made their models differently
        self.agreed = True

    def gathering(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        return nullcontext()

    def exchange(self) -> None:
        """See `Strategy`."""

    def after_update(self, updates: int) -> None:
        """See `Strategy`."""
        self.agreed = False
        if updates % self._every_steps == 0:
            self.agree()

    def agree(self) -> None:
        """See `Strategy`."""
        if self.agreed:  # the mean of equal weights may differ from them in the last bit
            return
        buffers = list(self.network.buffers())
        parameters = list(self.network.parameters())
        averaged = [
            *(parameter for parameter in parameters if parameter.requires_grad),
            *(buffer for buffer in buffers if buffer.is_floating_point()),
        ]
        group = dist.group.WORLD
        if group is None:
            msg = "the averaging strategy needs a process group"
            raise RuntimeError(msg)
        # It gives what it averages new memory; a step that was captured goes on with the memory of the parameters.
        means = [tensor.detach() for tensor in averaged]
        average_parameters(cast("Iterator[nn.Parameter]", iter(means)), group)
        for tensor, mean in zip(averaged, means, strict=True):
            tensor.detach().copy_(mean)
        copy_from_first(parameter for parameter in parameters if not parameter.requires_grad)
        copy_from_first(buffer for buffer in buffers if not buffer.is_floating_point())
        self.agreed = True
