"""The convolutional networks of TensorFlow's table 1 in PyTorch, with the layers of `tensorbow.models`.

Convolutions of stride 2 with padding SAME pad both sides alike here, which costs the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

CLASSES = 1000
Layer = tuple[int, int, int, int, int]  # filters, side, stride, zeros around, side of the pooling behind or 0
PLAIN: dict[str, tuple[Sequence[Layer], int, Sequence[int]]] = {  # convolutions, pixels of a side, units
    "alexnet": (
        ((64, 11, 4, 2, 3), (192, 5, 1, 2, 3), (384, 3, 1, 1, 0), (256, 3, 1, 1, 0), (256, 3, 1, 1, 3)),
        6,
        (4096, 4096),
    ),
    "overfeat": (
        ((96, 11, 4, 0, 2), (256, 5, 1, 0, 2), (512, 3, 1, 1, 0), (1024, 3, 1, 1, 0), (1024, 3, 1, 1, 2)),
        6,
        (3072, 4096),
    ),
    "vgg_a": (
        (
            *((64, 3, 1, 1, 2), (128, 3, 1, 1, 2), (256, 3, 1, 1, 0), (256, 3, 1, 1, 2)),
            *((512, 3, 1, 1, 0), (512, 3, 1, 1, 2), (512, 3, 1, 1, 0), (512, 3, 1, 1, 2)),
        ),
        7,
        (4096, 4096),
    ),
}
INCEPTION = (  # GoogLeNet's blocks, and None for a pooling between them
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)
CONVNETS = (*PLAIN, "googlenet", "inception_v3")


def convnet(model: str) -> nn.Module:
    """Logits [batch, 1000] of pictures in NCHW, of the published size."""
    if model in PLAIN:
        return _plain(*PLAIN[model])
    return _googlenet() if model == "googlenet" else _inception_v3()


def _plain(layers: Sequence[Layer], side: int, units: Sequence[int]) -> nn.Sequential:
    made: list[nn.Module] = []
    inputs = 3
    for filters, window, stride, zeros, pool in layers:
        made += [nn.Conv2d(inputs, filters, window, stride, zeros), nn.ReLU(inplace=True)]
        made += [nn.MaxPool2d(pool, 2)] if pool else []
        inputs = filters
    made.append(nn.Flatten())
    features = inputs * side * side
    for count in units:
        made += [nn.Dropout(0.5), nn.Linear(features, count), nn.ReLU(inplace=True)]
        features = count
    return nn.Sequential(*made, nn.Linear(features, CLASSES))


class _Joined(nn.Module):
    """Branches whose channels are joined."""

    def __init__(self, *branches: nn.Module):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Any) -> Any:
        return torch.cat([branch(x) for branch in self.branches], 1)


def _rectified(inputs: int, outputs: int, side: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, side, stride, side // 2), nn.ReLU(inplace=True))


def _googlenet() -> nn.Sequential:
    def halved() -> nn.Module:
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    def lrn() -> nn.Module:
        return nn.LocalResponseNorm(5, 1e-4, 0.75, 1.0)

    layers: list[nn.Module] = [
        *(_rectified(3, 64, 7, 2), halved(), lrn(), _rectified(64, 64, 1)),
        *(_rectified(64, 192, 3), lrn(), halved()),
    ]
    inputs = 192
    for block in INCEPTION:
        if block is None:
            layers.append(halved())
            continue
        ones, threes_in, threes, fives_in, fives, pooled = block
        layers.append(
            _Joined(
                _rectified(inputs, ones, 1),
                nn.Sequential(_rectified(inputs, threes_in, 1), _rectified(threes_in, threes, 3)),
                nn.Sequential(_rectified(inputs, fives_in, 1), _rectified(fives_in, fives, 5)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), _rectified(inputs, pooled, 1)),
            )
        )
        inputs = ones + threes + fives + pooled
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(inputs, CLASSES)
    )


Size = int | tuple[int, int]


def _normalised(inputs: int, outputs: int, size: Size, stride: int = 1, same: bool = True) -> nn.Sequential:
    """Convolution without bias, batch normalisation, ReLU."""
    sides = (size, size) if isinstance(size, int) else size
    padding = tuple(side // 2 for side in sides) if same else 0
    convolution = nn.Conv2d(inputs, outputs, sides, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs, eps=1e-5), nn.ReLU(inplace=True))


def _chain(inputs: int, *steps: tuple[int, Size]) -> nn.Sequential:
    made = []
    for outputs, size in steps:
        made.append(_normalised(inputs, outputs, size))
        inputs = outputs
    return nn.Sequential(*made)


def _averaged(inputs: int, outputs: int) -> nn.Sequential:
    pooling = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
    return nn.Sequential(pooling, _normalised(inputs, outputs, 1))


def _inception_v3() -> nn.Sequential:
    def halved() -> nn.Module:
        return nn.MaxPool2d(3, 2)

    layers: list[nn.Module] = [
        *(_normalised(3, 32, 3, 2, same=False), _normalised(32, 32, 3, same=False), _normalised(32, 64, 3)),
        *(halved(), _normalised(64, 80, 1), _normalised(80, 192, 3, same=False), halved()),
    ]
    inputs = 192
    for pooled in (32, 64, 64):  # 35 x 35
        layers.append(
            _Joined(
                _normalised(inputs, 64, 1),
                _chain(inputs, (48, 1), (64, 5)),
                _chain(inputs, (64, 1), (96, 3), (96, 3)),
                _averaged(inputs, pooled),
            )
        )
        inputs = 64 + 64 + 96 + pooled
    deep = nn.Sequential(_chain(inputs, (64, 1), (96, 3)), _normalised(96, 96, 3, 2, same=False))
    layers.append(_Joined(_normalised(inputs, 384, 3, 2, same=False), deep, halved()))
    inputs += 384 + 96
    row, column = (1, 7), (7, 1)
    for inner in (128, 160, 160, 192):  # 17 x 17
        layers.append(
            _Joined(
                _normalised(inputs, 192, 1),
                _chain(inputs, (inner, 1), (inner, row), (192, column)),
                _chain(inputs, (inner, 1), (inner, column), (inner, row), (inner, column), (192, row)),
                _averaged(inputs, 192),
            )
        )
        inputs = 4 * 192
    wide = nn.Sequential(_normalised(inputs, 192, 1), _normalised(192, 320, 3, 2, same=False))
    deep = nn.Sequential(
        _chain(inputs, (192, 1), (192, row), (192, column)), _normalised(192, 192, 3, 2, same=False)
    )
    layers.append(_Joined(wide, deep, halved()))
    inputs += 320 + 192
    for _ in range(2):  # 8 x 8
        both = [_Joined(_normalised(384, 384, (1, 3)), _normalised(384, 384, (3, 1))) for _ in range(2)]
        layers.append(
            _Joined(
                _normalised(inputs, 320, 1),
                nn.Sequential(_normalised(inputs, 384, 1), both[0]),
                nn.Sequential(_chain(inputs, (448, 1), (384, 3)), both[1]),
                _averaged(inputs, 192),
            )
        )
        inputs = 320 + 2 * 768 + 192
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(inputs, CLASSES)
    )
