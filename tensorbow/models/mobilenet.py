"""MobileNetV2 (Sandler et al., 2018, table 2): inverted residuals with depthwise convolutions.

At half width it has 1,968,680 parameters for 1000 classes; at full width 3,504,872, as torchvision's.
Pictures with sides below 96 pass the first two strides of 2 unreduced.
"""

from __future__ import annotations

from functools import partial

from tensorbow import layers
from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, Fraction, PositiveNumber, checked
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, float_images, image_extents
from tensorbow.models.normalised_convolution import convolved, normalised
from tensorbow.ops.activations import relu6
from tensorbow.ops.elementwise import add
from tensorbow.ops.reductions import reduce_mean
from tensorbow.variable_scope import variable_scope

STAGES = (  # expansion, channels, blocks, stride of the first
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM, HEAD = 32, 1280  # channels of the first and of the last convolution
SMALL = 96  # sides of pictures below which the first strides are 1

_depthwise = partial(
    layers.depthwise_conv2d,
    padding="same",
    use_bias=False,
    depthwise_initializer="he_normal",
    name="depthwise",
)


class MobileNet(Model):
    """MobileNetV2, by default at half width."""

    name = "mobilenet"
    defaults = Defaults(learning_rate=0.03, weight_decay=4e-5, epochs=6, schedule="cosine")

    @checked
    def __init__(self, width: PositiveNumber = 0.5, dropout: Fraction = 0.2):
        """width: factor of all numbers of channels, but the last convolution has at least 1280.

        dropout: before the last layer, in training.
        """
        self.width, self.dropout = width, dropout

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels]."""
        small = max(image_extents(images)[:2]) < SMALL
        with variable_scope("conv1"):
            stem = convolved(float_images(images), _multiple_of_8(STEM * self.width), 3, 1 if small else 2)
            hidden = relu6(normalised(stem, training))
        for stage, (expansion, channels, blocks, first_stride) in enumerate(STAGES, start=2):
            for block in range(1, blocks + 1):
                stride = 1 if block > 1 or (small and stage == 3) else first_stride
                width = _multiple_of_8(channels * self.width)
                with variable_scope(f"stage{stage}_block{block}"):
                    hidden = _inverted_residual(hidden, expansion, width, stride, training)
        with variable_scope("conv9"):
            head = convolved(hidden, _multiple_of_8(HEAD * max(self.width, 1.0)), 1)
            hidden = relu6(normalised(head, training))
        pooled = layers.dropout(reduce_mean(hidden, [1, 2]), self.dropout, training=training)
        return layers.dense(pooled, classes, name="fc")


def _inverted_residual(inputs: Tensor, expansion: int, channels: int, stride: int, training: bool) -> Tensor:
    """1x1 convolution to more channels, depthwise 3x3, 1x1 to `channels`; a shortcut where shapes agree."""
    given = inputs.spec.dims[-1] or 0
    hidden = inputs
    if expansion > 1:
        with variable_scope("expand"):
            hidden = relu6(normalised(convolved(hidden, expansion * given, 1), training))
    with variable_scope("filter"):
        hidden = relu6(normalised(_depthwise(hidden, 3, stride), training))
    with variable_scope("project"):
        hidden = normalised(convolved(hidden, channels, 1), training)
    return add(inputs, hidden) if stride == 1 and given == channels else hidden


def _multiple_of_8(channels: float) -> int:
    """The nearest multiple of 8 that is not below 90 %, as in the reference implementation."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest
