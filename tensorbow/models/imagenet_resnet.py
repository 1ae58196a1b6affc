"""Residual networks for ImageNet (He et al., 2015, table 1): 18, 34, 50, 101 or 152 layers.

The 3x3 convolution of a stage's first block has the stage's stride, and the last gamma of each block starts
at 0 (Goyal et al., 2017). Parameters are those of torchvision's networks of these names: ResNet-18 has
11,689,512 for 1000 classes, ResNet-50 25,557,032.
"""

from __future__ import annotations

from tensorbow import layers
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, Positive, checked
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, float_images
from tensorbow.models.normalised_convolution import convolved, normalised
from tensorbow.ops.elementwise import add, relu
from tensorbow.ops.reductions import reduce_mean
from tensorbow.variable_scope import variable_scope

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
CHANNELS = (64, 128, 256, 512)
EXPANSION = 4  # output channels of a bottleneck for each channel of its 3x3 convolution


class ImageNetResNet(Model):
    """ResNet with a 7x7 stem and four stages; blocks are bottlenecks in networks of 50 layers and more."""

    defaults = Defaults(learning_rate=0.01, weight_decay=1e-4, epochs=5, schedule="cosine")

    @checked
    def __init__(self, depth: Positive = 50):
        """depth: number of layers. Raises InvalidArgumentError for one that table 1 has not."""
        if depth not in BLOCKS:
            raise InvalidArgumentError(
                f"ImageNetResNet: expected depth to be one of {', '.join(map(str, BLOCKS))}, got {depth}"
            )
        self.depth = depth
        self.name = f"resnet{depth}"

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels].

        training: normalise by the batch's statistics instead of the moving averages.
        """
        block_of_depth = _bottleneck if self.depth >= 50 else _basic
        with variable_scope("conv1"):
            hidden = relu(normalised(convolved(float_images(images), 64, 7, 2), training))
        hidden = layers.max_pooling2d(hidden, 3, 2, padding="same", name="pool1")
        for stage, (blocks, channels) in enumerate(zip(BLOCKS[self.depth], CHANNELS, strict=True), start=2):
            for block in range(1, blocks + 1):
                stride = 2 if stage > 2 and block == 1 else 1
                with variable_scope(f"stage{stage}_block{block}"):
                    hidden = block_of_depth(hidden, channels, stride, training)
        pooled = reduce_mean(hidden, [1, 2], name="pool5")
        return layers.dense(pooled, classes, kernel_initializer="glorot_uniform", name="fc")


def _basic(inputs: Tensor, channels: int, stride: int, training: bool) -> Tensor:
    """Two 3x3 convolutions beside a shortcut."""
    with variable_scope("conv1"):
        hidden = relu(normalised(convolved(inputs, channels, 3, stride), training))
    with variable_scope("conv2"):
        hidden = normalised(convolved(hidden, channels, 3), training, gamma="zeros")
    return relu(add(hidden, _shortcut(inputs, channels, stride, training)))


def _bottleneck(inputs: Tensor, channels: int, stride: int, training: bool) -> Tensor:
    """Convolutions of 1x1, 3x3 and 1x1 beside a shortcut."""
    width = EXPANSION * channels
    with variable_scope("conv1"):
        hidden = relu(normalised(convolved(inputs, channels, 1), training))
    with variable_scope("conv2"):
        hidden = relu(normalised(convolved(hidden, channels, 3, stride), training))
    with variable_scope("conv3"):
        hidden = normalised(convolved(hidden, width, 1), training, gamma="zeros")
    return relu(add(hidden, _shortcut(inputs, width, stride, training)))


def _shortcut(inputs: Tensor, channels: int, stride: int, training: bool) -> Tensor:
    """The inputs, projected where a block changes their shape."""
    if inputs.spec.dims[-1] == channels and stride == 1:
        return inputs
    with variable_scope("projection"):
        return normalised(convolved(inputs, channels, 1, stride), training)
