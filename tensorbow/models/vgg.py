"""VGG (Simonyan and Zisserman, 2014, table 1) with batch normalisation, for small pictures.

One dense layer behind the mean over the picture takes the place of the three large ones: VGG-16 has
14,728,266 parameters for 32x32x3 pictures and 10 classes.
"""

from __future__ import annotations

from tensorbow import layers
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, Positive, checked
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, float_images
from tensorbow.models.normalised_convolution import convolved, normalised
from tensorbow.ops.elementwise import relu
from tensorbow.ops.reductions import reduce_mean
from tensorbow.variable_scope import variable_scope

CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3)}  # of each stage
CHANNELS = (64, 128, 256, 512, 512)


class VGG(Model):
    """VGG: stages of 3x3 convolutions, each halving the picture by max pooling."""

    defaults = Defaults(learning_rate=0.01, weight_decay=5e-4, epochs=5, schedule="cosine")

    @checked
    def __init__(self, depth: Positive = 11):
        """depth: number of layers of the original network: 11, 13 or 16."""
        if depth not in CONVOLUTIONS:
            raise InvalidArgumentError(f"VGG: expected depth to be 11, 13 or 16, got {depth}")
        self.depth = depth
        self.name = f"vgg{depth}"

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels]."""
        hidden = float_images(images)
        for stage, (count, channels) in enumerate(zip(CONVOLUTIONS[self.depth], CHANNELS, strict=True), 1):
            for number in range(1, count + 1):
                with variable_scope(f"stage{stage}_conv{number}"):
                    hidden = relu(normalised(convolved(hidden, channels, 3, use_bias=True), training))
            hidden = layers.max_pooling2d(hidden, 2, 2, padding="same", name=f"pool{stage}")
        return layers.dense(reduce_mean(hidden, [1, 2]), classes, name="fc")
