"""ResNet for images of 32 x 32 as the CIFAR benchmarks take it: a 3 x 3 stem without pooling, then bottlenecks.

`bench.resnet:resnet50` is a factory as the configuration's `model` takes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

EXPANSION = 4


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions beside a shortcut; He et al., 2015, with the stride in the 3 x 3 one."""

    def __init__(self, planes_in: int, width: int, stride: int) -> None:
        super().__init__()
        planes_out = width * EXPANSION
        self.branch = nn.Sequential(
            _convolution(planes_in, width, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _convolution(width, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _convolution(width, planes_out, 1),
            nn.BatchNorm2d(planes_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or planes_in != planes_out:
            self.shortcut = nn.Sequential(_convolution(planes_in, planes_out, 1, stride), nn.BatchNorm2d(planes_out))
        self.activation = nn.ReLU(inplace=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images of shape (rows, 4 * width, height / stride, width / stride)."""
        activated: torch.Tensor = self.activation(self.branch(images) + self.shortcut(images))
        return activated


class ResNet(nn.Module):
    """Four stages of bottlenecks, the mean over all places, one dense layer.

    Args:
        input_shape: (height, width, channels): channels last, the layout that tensor cores work on.
        classes: size of the output.
        blocks: bottlenecks of each stage.
        width: channels of the stem and of the first stage's 3 x 3 convolutions.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, blocks: Sequence[int], width: int) -> None:
        super().__init__()
        if len(input_shape) != 3:
            msg = f"resnet needs inputs of shape (height, width, channels), not {list(input_shape)}"
            raise ValueError(msg)
        self.stem = nn.Sequential(_convolution(input_shape[2], width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        stages, planes = [], width
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(Bottleneck(planes, width << stage, stride))
                planes = (width << stage) * EXPANSION
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(planes, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (rows, classes) for float inputs of shape (rows, *input_shape)."""
        images = inputs.permute(0, 3, 1, 2)  # copies nothing: torch's memory format channels_last
        logits: torch.Tensor = self.head(self.stages(self.stem(images)).mean(dim=(2, 3)))
        return logits


def resnet50(input_shape: tuple[int, ...], classes: int, width: int = 64) -> ResNet:
    """Return a ResNet-50 (23.5 million parameters at the usual width)."""
    model = ResNet(input_shape, classes, (3, 4, 6, 3), width)
    return model.to(memory_format=torch.channels_last)


def _convolution(planes_in: int, planes_out: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(planes_in, planes_out, size, stride, padding=size // 2, bias=False)
