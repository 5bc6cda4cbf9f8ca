"""What happens to a whole batch, on the device of the model."""

from __future__ import annotations

import torch


def normalize(inputs: torch.Tensor, scale: float, mean: float, std: float) -> torch.Tensor:
    """Return ``(inputs * scale - mean) / std`` as float32 of the same shape; `inputs` stays as it is."""
    if inputs.is_floating_point():
        inputs = inputs.to(torch.float32)
    scaled = inputs.mul(torch.tensor(scale / std, dtype=torch.float32))  # integers become float32 in the same pass
    return scaled.sub_(mean / std) if mean else scaled
