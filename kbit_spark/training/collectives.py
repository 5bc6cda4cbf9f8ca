"""What the ranks exchange besides gradients; a process without a process group is alone and exchanges nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import torch
import torch.distributed as dist

Value = TypeVar("Value")


def add_up(values: torch.Tensor) -> None:
    """Put into `values` their sums over all ranks."""
    if dist.is_initialized():
        dist.all_reduce(values)


def take_largest(values: torch.Tensor) -> None:
    """Put into `values` their maxima over all ranks."""
    if dist.is_initialized():
        dist.all_reduce(values, op=dist.ReduceOp.MAX)


def largest(value: float, device: torch.device) -> float:
    """Return the largest of the ranks' values, as float32; all ranks ask together, and wait for each other."""
    values = torch.tensor(value, device=device)
    take_largest(values)
    return float(values.item())


def on_any_rank(holds: bool, device: torch.device) -> bool:
    """Return whether it holds on some rank; all ranks ask together, and wait for each other."""
    return bool(largest(float(holds), device))


def copy_from_first(tensors: Iterable[torch.Tensor]) -> None:
    """Put into parameters or buffers, of any layout, those of the first rank."""
    if not dist.is_initialized():
        return
    for tensor in tensors:
        values = tensor.detach()
        dense = values.contiguous()  # gloo sends memory as it lies, gaps included, and NCCL refuses it
        dist.broadcast(dense, src=0)
        if dense is not values:
            values.copy_(dense)


def gather_at_first(value: Value) -> list[Value]:
    """Return the values of all ranks in their order on the first rank, nothing on the others."""
    if not dist.is_initialized():
        return [value]
    is_first = dist.get_rank() == 0
    gathered: list[Value | None] = [None] * dist.get_world_size() if is_first else []
    dist.gather_object(value, gathered if is_first else None, dst=0)
    return [item for item in gathered if item is not None]


def value_of_first(value: Value, device: torch.device) -> Value:
    """Return the first rank's value."""
    if not dist.is_initialized():
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0, device=device)
    return values[0]
