"""What happens to a whole batch, on the device of the model."""

from __future__ import annotations

from functools import lru_cache

import torch


def normalize(inputs: torch.Tensor, scale: float, mean: float, std: float) -> torch.Tensor:
    """Return ``(inputs * scale - mean) / std`` as float32 of the same shape; `inputs` stays as it is."""
    if inputs.is_floating_point():
        inputs = inputs.to(torch.float32)
    scaled = inputs.mul(_factor(scale / std))  # integers become float32 in the same pass
    return scaled.sub_(mean / std) if mean else scaled


@lru_cache
def _factor(value: float) -> torch.Tensor:
    """Return `value` as float32 of shape (): by a plain number integers would become what torch's default dtype is."""
    return torch.tensor(value, dtype=torch.float32)
