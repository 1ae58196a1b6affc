"""ResNet of eight layers that learns small pictures fast, after ResNet-9 and airbench (Jordan, 2024).

Its first layer is fixed: it decorrelates the values of 2x2 pixels and gives them alike deviations, so that
the first steps need not learn that. Pictures are pooled before each residual branch, of one convolution.
"""

from __future__ import annotations

import numpy as np

from tensorbow import layers
from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, Positive, checked
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, float_images, image_extents
from tensorbow.models.normalised_convolution import convolved, normalised
from tensorbow.models.resnet9 import logits_of_largest
from tensorbow.ops.activations import gelu
from tensorbow.ops.conv import conv2d
from tensorbow.ops.elementwise import add, subtract
from tensorbow.specs import Array
from tensorbow.variable_scope import get_variable, variable_scope

MEAN = 0.47  # of the values of natural pictures
HAAR = np.array([[1, 1], [1, -1]]) / 2**0.5
OPPONENT = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])
# of grey, red - blue and magenta - green: of the mean of 2x2 pixels, of its columns, rows and diagonals
DEVIATIONS = np.array([[0.80, 0.22, 0.10], [0.15, 0.014, 0.008], [0.16, 0.017, 0.009], [0.057, 0.003, 0.003]])
LEAST_DEVIATION = 0.0055  # is added, squared: less is noise


class FastResNet(Model):
    """Whitening of 2x2 pixels, and three stages of a convolution, pooling and a residual branch of a further
    one: 1,972,504 parameters for 3 channels and 10 classes.
    """

    name = "fast_resnet"
    defaults = Defaults(
        dataset="cifar10",
        batch_size=32,
        learning_rate=0.14,
        weight_decay=5e-4,
        epochs=16,
        schedule="one_cycle",
        optimizer="nesterov",
    )

    @checked
    def __init__(self, width: Positive = 64):
        """width: channels of the first stage; the other two have 4 times as many."""
        self.width = width

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits [batch, classes] from images [batch, height, width, channels] with sides of at least 8."""
        filters = whitening(image_extents(images)[2])
        hidden = conv2d(subtract(float_images(images), MEAN), filters, [1, 1, 1, 1], "SAME")
        hidden = gelu(
            add(hidden, get_variable("bias", [filters.shape[-1]], initializer="zeros")), approximate=True
        )
        for stage, channels in enumerate((self.width, 4 * self.width, 4 * self.width), 1):
            with variable_scope(f"stage{stage}"):
                hidden = _layer(hidden, channels, "conv1", training, pools=True)
                hidden = add(hidden, _layer(hidden, channels, "conv2", training))
        return logits_of_largest(hidden, classes)


def _layer(inputs: Tensor, channels: int, name: str, training: bool, pools: bool = False) -> Tensor:
    with variable_scope(name):
        hidden = convolved(inputs, channels, 3, 1)
        if pools:
            hidden = layers.max_pooling2d(hidden, 2, 2, name="pool")
        return gelu(normalised(hidden, training), approximate=True)


def whitening(channels: int) -> Array:
    """Filters float32 [2, 2, channels, 8 * channels] of pictures from 0 to 1, each with its negative.

    They are Haar's of 2x2 pixels, of grey and the opponent colours of three channels, or of each channel of
    other pictures, over the deviations that these have in natural pictures: nearly the principal components.
    """
    colours = OPPONENT if channels == len(OPPONENT) else np.eye(channels)
    deviations = DEVIATIONS if channels == len(OPPONENT) else np.repeat(DEVIATIONS[:, :1], channels, axis=1)
    scales = 1 / np.sqrt(deviations.reshape(2, 2, channels) ** 2 + LEAST_DEVIATION**2)
    filters = np.einsum("au,bv,dc,abd->uvcabd", HAAR, HAAR, colours, scales).reshape(2, 2, channels, -1)
    return np.concatenate([filters, -filters], axis=-1).astype(np.float32)
