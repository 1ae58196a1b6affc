"""Convolutional networks of TensorFlow's table 1 (OSDI 2016) before Inception-v3: AlexNet, Overfeat, VGG-A.

Layers, padding and sizes are those of Chintala's convnet-benchmarks, with which the table was measured. For
1000 classes and 224 (Overfeat: 231) pixels they have 61,100,840, 145,920,872 and 132,863,336 parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from tensorbow import layers
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, Fraction, checked
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, float_images, image_extents
from tensorbow.ops.elementwise import relu
from tensorbow.ops.padding import pad

convolution = partial(layers.conv2d, activation=relu, kernel_initializer="he_normal")


def require_side(name: str, images: Tensor, smallest: int) -> None:
    """Raises InvalidArgumentError for pictures with a side below `smallest`."""
    height, width, _ = image_extents(images)
    if min(height, width) < smallest:
        raise InvalidArgumentError(
            f"{name}: expected images of at least {smallest} x {smallest}, got {images.spec}; "
            f"give --image-size {smallest}x{smallest} or more (tb.image.resize_images in a program), or use "
            "a model for small pictures, such as resnet32"
        )


class Conv(NamedTuple):
    """A convolution with ReLU: filters, side of the window, stride, zeros around the picture, then a pooling.

    pool: side of the window of max pooling, 0: none; its stride is 2.
    """

    filters: int
    side: int
    stride: int = 1
    zeros: int = 0
    pool: int = 0


class PlainConvNet(Model):
    """Convolutions one after the other, then dense layers: the base of AlexNet, Overfeat and OxfordNet."""

    defaults = Defaults(
        learning_rate=1.5e-4,
        weight_decay=5e-4,
        epochs=8,
        optimizer="adam",
        schedule="cosine",
        image_size=(64, 64),
    )
    convolutions: Sequence[Conv]
    units: Sequence[int]
    smallest: int  # side of pictures

    @checked
    def __init__(self, dropout: Fraction = 0.5):
        """dropout: before each dense layer but the last, in training."""
        self.dropout = dropout

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels].

        Raises InvalidArgumentError for pictures that are too small.
        """
        require_side(self.name, images, self.smallest)
        hidden = float_images(images)
        for number, each in enumerate(self.convolutions, 1):
            if each.zeros:
                hidden = pad(hidden, [[0, 0], [each.zeros] * 2, [each.zeros] * 2, [0, 0]])
            hidden = convolution(hidden, each.filters, each.side, each.stride, name=f"conv{number}")
            if each.pool:
                hidden = layers.max_pooling2d(hidden, each.pool, 2, name=f"pool{number}")
        hidden = layers.flatten(hidden)
        for number, units in enumerate(self.units, 1):
            hidden = layers.dropout(hidden, self.dropout, training=training)
            hidden = layers.dense(
                hidden, units, activation=relu, kernel_initializer="he_normal", name=f"fc{number}"
            )
        return layers.dense(hidden, classes, name=f"fc{len(self.units) + 1}")


class AlexNet(PlainConvNet):
    """AlexNet in one column (Krizhevsky, 2014, "One weird trick"): five convolutions, three dense layers."""

    name = "alexnet"
    convolutions = (
        Conv(64, 11, 4, 2, pool=3),
        Conv(192, 5, zeros=2, pool=3),
        Conv(384, 3, zeros=1),
        Conv(256, 3, zeros=1),
        Conv(256, 3, zeros=1, pool=3),
    )
    units = (4096, 4096)
    smallest = 63


class Overfeat(PlainConvNet):
    """Overfeat, the fast model (Sermanet et al., 2013, table 1): five convolutions, three dense layers."""

    name = "overfeat"
    convolutions = (
        Conv(96, 11, 4, pool=2),
        Conv(256, 5, pool=2),
        Conv(512, 3, zeros=1),
        Conv(1024, 3, zeros=1),
        Conv(1024, 3, zeros=1, pool=2),
    )
    units = (3072, 4096)
    smallest = 71
    defaults = replace(PlainConvNet.defaults, image_size=(72, 72))


class OxfordNet(PlainConvNet):
    """VGG-A (Simonyan and Zisserman, 2014, table 1), "OxfordNet" in the table: eight convolutions."""

    name = "vgg_a"
    convolutions = (
        Conv(64, 3, zeros=1, pool=2),
        Conv(128, 3, zeros=1, pool=2),
        Conv(256, 3, zeros=1),
        Conv(256, 3, zeros=1, pool=2),
        Conv(512, 3, zeros=1),
        Conv(512, 3, zeros=1, pool=2),
        Conv(512, 3, zeros=1),
        Conv(512, 3, zeros=1, pool=2),
    )
    units = (4096, 4096)
    smallest = 32
