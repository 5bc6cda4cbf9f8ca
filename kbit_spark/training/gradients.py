"""The gradients of a model in as few tensors as there are dtypes, so that the ranks exchange them at once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn

from kbit_spark.errors import RunError
from kbit_spark.training.collectives import largest

_ALIGNMENT = 128
"""Elements: kernels read and write whole vectors where each gradient begins at a multiple of it."""

_TRIALS = 6


def by_dtype(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Return those of one dtype together, in their order."""
    groups: dict[torch.dtype, list[nn.Parameter]] = defaultdict(list)
    for parameter in parameters:
        groups[parameter.dtype].append(parameter)
    return list(groups.values())


class FlatGradients:
    """Averages gradients over the ranks by one all-reduce per dtype, on the stream that computed them.

    Args:
        named: the parameters that are trained, with their names.
    """

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]]) -> None:
        self._named = named
        self._groups = [_Group(same) for same in by_dtype(parameter for _, parameter in named)]

    def average(self) -> None:
        """Give every parameter the mean of its gradients over all ranks, which call it together.

        Raises:
            RunError: a parameter has no gradient, so that the ranks would mix up what they exchange.
        """
        if without := [name for name, parameter in self._named if parameter.grad is None]:
            msg = f"the loss does not depend on these parameters, which have no gradient: {', '.join(without)}"
            raise RunError(msg, "use them in each forward pass, or set requires_grad=False in the model's factory")
        for group in self._groups:
            group.gather()
            group.reduce()

    def all_reduce_ms(self) -> float:
        """Return how long an exchange takes on GPUs, launch included, the fastest of a few: the same on all ranks.

        They ask together. Without parameters there is no such time, and it is infinite.
        """
        if not self._groups:
            return math.inf
        took = min(self._timed() for _ in range(_TRIALS))
        return largest(took, self._groups[0].flat.device)

    def _timed(self) -> float:
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        began.record()
        for group in self._groups:
            group.reduce()
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended))


class _Group:
    """Gradients of one dtype: views of `flat`, shape (elements,), each with the strides of its parameter."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        sizes = [-(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT for parameter in parameters]
        first = parameters[0]
        self.flat = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        parts = torch.split(self.flat, sizes)
        self._views = [_like(parameter, part) for parameter, part in zip(parameters, parts, strict=True)]
        self._means = dist.get_backend() == "nccl"  # gloo has sums only

    def gather(self) -> None:
        gradients = [parameter.grad for parameter in self._parameters]
        torch._foreach_copy_(self._views, gradients)  # type: ignore[arg-type]  # none is None
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view

    def reduce(self) -> None:
        if self._means:
            dist.all_reduce(self.flat, op=dist.ReduceOp.AVG)
        else:
            dist.all_reduce(self.flat)
            self.flat.div_(dist.get_world_size())


def _like(parameter: nn.Parameter, part: torch.Tensor) -> torch.Tensor:
    """Return `part` in the shape and, where it covers it all, the strides of `parameter`: those of its gradient."""
    wanted = torch.empty_like(parameter)  # a dense one, as autograd makes gradients
    return part.as_strided(wanted.shape, wanted.stride(), part.storage_offset())
