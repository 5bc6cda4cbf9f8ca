"""A small convolutional network for images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class Cnn(nn.Module):
    """Two convolutions with pooling, two dense layers with dropout.

    Args:
        input_shape: (height, width) or (channels, height, width).
        classes: size of the output.
        channels: output channels of the two convolutions.
        hidden: units of the first dense layer.
        dropout: share of units dropped before each dense layer.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        channels: Sequence[int] = (32, 64),
        hidden: int = 128,
        dropout: float = 0.25,
    ) -> None:
        super().__init__()
        if len(input_shape) not in (2, 3) or min(input_shape[-2:]) < 4:
            msg = f"cnn needs inputs of shape (height, width) or (channels, height, width), not {list(input_shape)}"
            raise ValueError(msg)
        self._planes = 1 if len(input_shape) == 2 else input_shape[0]
        height, width = input_shape[-2:]
        first, second = channels
        self.features = nn.Sequential(
            nn.Conv2d(self._planes, first, kernel_size=3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),  # after the pooling: the same result on a quarter of the items
            nn.Conv2d(first, second, kernel_size=3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(second * (height // 4) * (width // 4), hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (rows, classes) for float inputs of shape (rows, *input_shape)."""
        images = inputs.unsqueeze(1) if inputs.dim() == 3 else inputs
        logits: torch.Tensor = self.head(self.features(images))
        return logits
