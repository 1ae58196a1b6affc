"""The models of `tensorbow.models` in PyTorch, with the same layers; stride 2 pads both sides alike here.

That costs the same; `resnet_against_torch.py`, which compares values, pads as TensorBow does.
"""

from __future__ import annotations

from typing import Any

from convnets_torch import CONVNETS, convnet
from torch import nn, relu

CLASSES = 10


def torch_network(model: str) -> nn.Module:
    """`logreg`, `lenet`, `resnet9` or `resnet<6n+2>`: logits [batch, 10] of NCHW images; or a `convnet`."""
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
    if model == "resnet9":
        return _ResNet9(32)
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


class _ResNet9(nn.Module):
    """Eight convolutions, of which two pairs are residual branches."""

    def __init__(self, width: int):
        super().__init__()
        extents = [(3, 1), (1, 2), (2, 2), (2, 2), (2, 4), (4, 8), (8, 8), (8, 8)]  # in units of the width
        channels = [(3 if i == 0 else width * a, width * b) for i, (a, b) in enumerate(extents)]
        self.layers = nn.ModuleList(nn.Sequential(_normalized(a, b, 3, 1), nn.ReLU()) for a, b in channels)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(8 * width, CLASSES, bias=False)

    def forward(self, x: Any) -> Any:
        first, stage1, *branch1, stage2, stage3, branch3, branch4 = self.layers
        x = self.pool(stage1(first(x)))
        x = x + branch1[1](branch1[0](x))
        x = self.pool(stage3(self.pool(stage2(x))))
        x = x + branch4(branch3(x))
        return 0.125 * self.fc(x.amax((2, 3)))
