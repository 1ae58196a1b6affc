"""The models of `tensorbow.models` in PyTorch, with the same layers; stride 2 pads both sides alike here.

That costs the same; `resnet_against_torch.py`, which compares values, pads as TensorBow does.
"""

from __future__ import annotations

from typing import Any

import torch
from convnets_torch import CONVNETS, convnet
from torch import nn, relu
from torch.nn import functional

CLASSES = 10


def torch_network(model: str) -> nn.Module:
    """Logits [batch, 10] of NCHW images: `logreg`, `lenet`, `fast_resnet`, `resnet<6n+2>` or a `convnet`."""
    if model in CONVNETS:
        return convnet(model)
    if model == "logreg":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, CLASSES))
    if model == "lenet":
        return nn.Sequential(
            *(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, CLASSES)),
        )
    if model == "fast_resnet":
        return _FastResNet()
    layers, inputs = [_normalized(3, 16, 3, 1), nn.ReLU()], 16
    for outputs in (16, 32, 64):
        for number in range((int(model.removeprefix("resnet")) - 2) // 6):
            layers.append(_Block(inputs, outputs, 2 if outputs > 16 and number == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def _normalized(inputs: int, outputs: int, size: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class _Block(nn.Module):
    """Two convolutions and a shortcut (He et al., 2015)."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = _normalized(inputs, outputs, 3, stride)
        self.second = _normalized(outputs, outputs, 3, 1)
        self.shortcut = nn.Identity() if inputs == outputs else _normalized(inputs, outputs, 1, stride)

    def forward(self, x: Any) -> Any:
        return relu(self.second(relu(self.first(x))) + self.shortcut(x))


class _FastResNet(nn.Module):
    """Fixed filters of 2x2 pixels; three stages of a convolution, pooling and a residual branch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filters", torch.randn(24, 3, 2, 2))
        self.bias = nn.Parameter(torch.zeros(24))
        extents = [(24, 64), (64, 64), (64, 256), (256, 256), (256, 256), (256, 256)]
        self.convolutions = nn.ModuleList(nn.Conv2d(*ends, 3, padding=1, bias=False) for ends in extents)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _, outputs in extents)
        self.fc = nn.Linear(256, CLASSES, bias=False)

    def forward(self, x: Any) -> Any:
        x = functional.conv2d(functional.pad(x - 0.47, (0, 1, 0, 1)), self.filters, self.bias)
        x = functional.gelu(x, approximate="tanh")
        for number, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            y = convolution(x)
            if number % 2 == 0:
                x = functional.gelu(norm(functional.max_pool2d(y, 2)), approximate="tanh")
            else:
                x = x + functional.gelu(norm(y), approximate="tanh")
        return 0.125 * self.fc(x.amax((2, 3)))
