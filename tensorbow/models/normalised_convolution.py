"""Convolution without bias and batch normalisation, of which the residual networks and others are made."""

from __future__ import annotations

from functools import partial

from tensorbow import layers
from tensorbow.graph import Tensor

MOMENTUM, EPSILON = 0.9, 1e-5  # of batch normalisation: decay of moving averages, added to the variance

convolved = partial(
    layers.conv2d, padding="same", use_bias=False, kernel_initializer="he_normal", name="conv"
)


def normalised(images: Tensor, training: bool, gamma: str = "ones") -> Tensor:
    """Batch normalisation of the images' channels. gamma: initialiser of its factors."""
    return layers.batch_normalization(
        images, momentum=MOMENTUM, epsilon=EPSILON, gamma_initializer=gamma, training=training, name="norm"
    )
