"""The models of `tensorbow.models` in PyTorch, with the same layers; stride 2 pads both sides alike here.

That costs the same; `resnet_against_torch.py`, which compares values, pads as TensorBow does.
"""

from __future__ import annotations

from typing import Any

from torch import nn, relu

CLASSES = 10


def torch_network(model: str) -> nn.Module:
    """`logreg`, `lenet` or `resnet<6n+2>`: logits [batch, 10] of images [batch, channels, height, width]."""
    if model == "logreg":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, CLASSES))
    if model == "lenet":
        return nn.Sequential(
            *(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, CLASSES)),
        )
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
