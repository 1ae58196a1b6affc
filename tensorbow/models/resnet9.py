"""ResNet-9 for small pictures, which led the CIFAR-10 list of DAWNBench (Coleman et al., 2017).

Eight 3x3 convolutions with batch normalisation, two residual branches of two of them each, and a dense layer:
94 % on CIFAR-10 in a tenth of the epochs of He et al.'s networks.
"""

from __future__ import annotations

from tensorbow import layers
from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, Positive, checked
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, float_images, image_extents
from tensorbow.models.normalised_convolution import convolved, normalised
from tensorbow.ops.elementwise import add, multiply, relu
from tensorbow.ops.reductions import reduce_max
from tensorbow.variable_scope import variable_scope

SCALE = 0.125  # of the logits


class ResNet9(Model):
    """ResNet-9 at half width: 1,646,112 parameters for 10 classes; with 64 channels first 6,573,120."""

    name = "resnet9"
    defaults = Defaults(
        dataset="cifar10",
        batch_size=32,
        learning_rate=0.1,
        weight_decay=5e-4,
        epochs=24,
        schedule="one_cycle",
        optimizer="nesterov",
    )

    @checked
    def __init__(self, width: Positive = 32):
        """width: channels of the first convolution; the three stages have 2, 4 and 8 times as many."""
        self.width = width

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels] from 8x8 on."""
        image_extents(images)
        hidden = _layer(float_images(images), self.width, "conv1", training)
        for stage in (1, 2, 3):
            with variable_scope(f"stage{stage}"):
                channels = self.width << stage
                hidden = _layer(hidden, channels, "conv1", training)
                hidden = layers.max_pooling2d(hidden, 2, 2, name="pool")
                if stage != 2:
                    branch = _layer(hidden, channels, "conv2", training)
                    hidden = add(hidden, _layer(branch, channels, "conv3", training))
        return logits_of_largest(hidden, classes)


def _layer(inputs: Tensor, channels: int, name: str, training: bool) -> Tensor:
    with variable_scope(name):
        return relu(normalised(convolved(inputs, channels, 3, 1), training))


def logits_of_largest(hidden: Tensor, classes: int) -> Tensor:
    """Logits [batch, classes] from each channel's largest value; hidden: [batch, height, width, channels]."""
    largest = reduce_max(hidden, [1, 2])
    logits = layers.dense(largest, classes, use_bias=False, kernel_initializer="glorot_uniform", name="fc")
    return multiply(logits, SCALE)
