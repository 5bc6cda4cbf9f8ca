"""A perceptron with one hidden layer."""

from __future__ import annotations

import math

import torch
from torch import nn


class Mlp(nn.Module):
    """Inputs flattened - `hidden` units - classes (784-128-10 for digits)."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, hidden: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(math.prod(input_shape), hidden), nn.ReLU(inplace=True), nn.Linear(hidden, classes)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (rows, classes) for float inputs of shape (rows, *input_shape)."""
        logits: torch.Tensor = self.layers(inputs)
        return logits
