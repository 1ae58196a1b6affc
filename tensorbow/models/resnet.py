"""Residual networks for small pictures (He et al., 2015, section 4.2): 6n + 2 layers, 16, 32 and 64 channels.

The shortcuts that change the shape are 1x1 convolutions with batch normalisation: ResNet-32 has 466,906
parameters, and with its moving averages 1.79 MB (TensorBow, table 5.1).
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from tensorbow import layers
from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, checked, whole
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, float_images, image_extents
from tensorbow.models.normalised_convolution import convolved, normalised
from tensorbow.ops.elementwise import add, relu
from tensorbow.ops.reductions import reduce_mean
from tensorbow.variable_scope import variable_scope

Blocks: TypeAlias = Annotated[int, whole(1, 1 << 20)]

CHANNELS = (16, 32, 64)


class ResNet(Model):
    """ResNet of 6 * blocks + 2 layers; blocks = 5 is ResNet-32."""

    defaults = Defaults(
        dataset="cifar10",
        batch_size=32,
        learning_rate=0.025,  # the paper's 0.1, scaled from batches of 128 to 32
        learning_rate_drops=((82, 0.1), (123, 0.01)),
        weight_decay=1e-4,
        epochs=164,
    )

    @checked
    def __init__(self, blocks: Blocks = 5):
        """blocks: number of residual blocks in each of the three stages."""
        self.blocks = blocks
        self.name = f"resnet{6 * blocks + 2}"

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels].

        training: normalise by the batch's statistics instead of the moving averages.
        """
        image_extents(images)
        with variable_scope("conv1"):
            hidden = relu(normalised(convolved(float_images(images), CHANNELS[0], 3, 1), training))
        for stage, channels in enumerate(CHANNELS, start=1):
            for block in range(1, self.blocks + 1):
                stride = 2 if stage > 1 and block == 1 else 1
                with variable_scope(f"stage{stage}_block{block}"):
                    hidden = _block(hidden, channels, stride, training)
        pooled = reduce_mean(hidden, [1, 2])
        return layers.dense(pooled, classes, kernel_initializer="glorot_uniform", name="fc")


def _block(inputs: Tensor, channels: int, stride: int, training: bool) -> Tensor:
    with variable_scope("conv1"):
        hidden = relu(normalised(convolved(inputs, channels, 3, stride), training))
    with variable_scope("conv2"):
        hidden = normalised(convolved(hidden, channels, 3, 1), training)
    if inputs.spec.dims[-1] != channels:
        with variable_scope("projection"):
            inputs = normalised(convolved(inputs, channels, 1, stride), training)
    return relu(add(hidden, inputs))
