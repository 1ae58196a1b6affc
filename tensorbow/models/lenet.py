"""LeNet of TensorBow, table 5.1: 1,111,946 parameters, 4.24 MB, for 28x28x1 pictures and 10 classes."""

from __future__ import annotations

import math

import numpy as np

from tensorbow.graph import Tensor, name_scope
from tensorbow.initializers import glorot_uniform
from tensorbow.kinds import Flag, checked
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, float_images, image_extents
from tensorbow.ops.arrays import reshape
from tensorbow.ops.conv import conv2d
from tensorbow.ops.elementwise import relu
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import bias_add
from tensorbow.ops.pooling import max_pool2d
from tensorbow.variables import Variable


class LeNet(Model):
    """LeNet: conv 5x5x32 valid, pool 2, conv 5x5x64 valid, pool 2, fc 1024, fc classes; ReLU between."""

    name = "lenet"
    # To 99 % on MNIST, checked every eighth of an epoch: 0.75 to 0.875 epochs with 1, 2 and 4 replicas, as
    # with a line to 0 at the end of 0.9 epochs, and 1.1 with the rate 0.01414 and one drop after an epoch.
    # Earlier drops, to 0.1 after 0.68 epochs, need 0.75 epochs, but one seed of 4 replicas then needed 1.5.
    # On digits, 2 replicas, 15 epochs, seeds 0 to 5: 99.63 %, at the constant rate 0.005 98.94 %.
    defaults = Defaults(
        learning_rate=0.005,
        learning_rates=(("digits", 0.01), ("mnist", 0.0212)),
        dataset_drops=(
            ("digits", ((8, 0.3), (12, 0.1))),
            ("mnist", ((0.3, 0.6), (0.5, 0.4), (0.65, 0.25), (0.8, 0.12))),
        ),
    )

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels] from 16x16 on."""
        channels = image_extents(images)[2]
        hidden = _convolution("conv1", float_images(images), [5, 5, channels, 32])
        hidden = _convolution("conv2", hidden, [5, 5, 32, 64])
        features = math.prod(image_extents(hidden))
        hidden = relu(_dense("fc1", reshape(hidden, [-1, features]), features, 1024))
        return _dense("fc2", hidden, 1024, classes)


def _convolution(name: str, images: Tensor, shape: list[int]) -> Tensor:
    with name_scope(name):
        filters, biases = _parameters(shape)
        convolved = conv2d(images, filters, strides=1, padding="VALID")
        return max_pool2d(relu(bias_add(convolved, biases)), ksize=2, strides=2, padding="VALID")


def _dense(name: str, inputs: Tensor, features: int, units: int) -> Tensor:
    with name_scope(name):
        weights, biases = _parameters([features, units])
        return bias_add(matmul(inputs, weights), biases)


def _parameters(shape: list[int]) -> tuple[Variable, Variable]:
    """Weights initialised as in TensorFlow (Glorot and Bengio, 2010), biases with zeros.

    The larger weights of He et al. (2015) start at losses of 5 to 7 and need twice the epochs for 99 % on
    MNIST.
    """
    weights = Variable(lambda: glorot_uniform()(shape), name="weights")
    return weights, Variable(np.zeros(shape[-1:], np.float32), name="biases")
