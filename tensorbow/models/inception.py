"""GoogLeNet and Inception-v3: blocks of parallel convolutions whose channels are joined.

Without their auxiliary classifiers they have 6,998,552 and 23,834,568 parameters for 1000 classes.
"""

from __future__ import annotations

from functools import partial

from tensorbow import layers
from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, Fraction, checked
from tensorbow.models.imagenet_convnets import convolution, require_side
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, float_images
from tensorbow.models.normalised_convolution import convolved, normalised
from tensorbow.ops.arrays import concat
from tensorbow.ops.elementwise import relu
from tensorbow.ops.normalization import local_response_normalization
from tensorbow.ops.reductions import reduce_mean
from tensorbow.variable_scope import variable_scope

# GoogLeNet's blocks: 1x1; 3x3 behind 1x1; 5x5 behind 1x1; 1x1 behind pooling. None: pooling, stride 2.
BLOCKS = (
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
_same = partial(convolution, padding="same")
_halved = partial(layers.max_pooling2d, pool_size=3, strides=2, padding="same")
_normalise = partial(local_response_normalization, depth_radius=2, bias=1.0, alpha=2e-5, beta=0.75)


class GoogLeNet(Model):
    """GoogLeNet (Szegedy et al., 2014, table 1), without auxiliary classifiers."""

    name = "googlenet"
    defaults = Defaults(
        learning_rate=5e-4,
        weight_decay=2e-4,
        epochs=5,
        optimizer="adam",
        schedule="cosine",
        image_size=(64, 64),
    )

    @checked
    def __init__(self, dropout: Fraction = 0.4):
        """dropout: before the last layer, in training."""
        self.dropout = dropout

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels] of at least 32 x 32.

        Raises InvalidArgumentError for smaller ones.
        """
        require_side("googlenet", images, 32)
        hidden = _normalise(_halved(_same(float_images(images), 64, 7, 2, name="conv1")))
        hidden = _same(_same(hidden, 64, 1, name="conv2_reduce"), 192, 3, name="conv2")
        hidden = _halved(_normalise(hidden))
        for number, block in enumerate(BLOCKS, 1):
            if block is None:
                hidden = _halved(hidden)
                continue
            with variable_scope(f"block{number}"):
                ones, threes_in, threes, fives_in, fives, pooled = block
                around = layers.max_pooling2d(hidden, 3, 1, "same")
                branches = [
                    _same(hidden, ones, 1, name="one"),
                    _same(_same(hidden, threes_in, 1, name="three_reduce"), threes, 3, name="three"),
                    _same(_same(hidden, fives_in, 1, name="five_reduce"), fives, 5, name="five"),
                    _same(around, pooled, 1, name="pooled"),
                ]
                hidden = concat(branches, -1)
        features = layers.dropout(reduce_mean(hidden, [1, 2]), self.dropout, training=training)
        return layers.dense(features, classes, name="fc")


class InceptionV3(Model):
    """Inception-v3 (Szegedy et al., 2015, table 1) with batch normalisation, without auxiliary classifier."""

    name = "inception_v3"
    defaults = Defaults(
        learning_rate=5e-4,
        weight_decay=4e-5,
        epochs=8,
        optimizer="adam",
        schedule="cosine",
        image_size=(80, 80),
    )

    @checked
    def __init__(self, dropout: Fraction = 0.5):
        """dropout: before the last layer, in training."""
        self.dropout = dropout

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels] of at least 75 x 75.

        Raises InvalidArgumentError for smaller ones; the published size is 299 x 299.
        """
        require_side("inception_v3", images, 75)

        def conv(
            x: Tensor, filters: int, size: object, name: str, stride: int = 1, padding: str = "same"
        ) -> Tensor:
            with variable_scope(name):
                return relu(normalised(convolved(x, filters, size, stride, padding=padding), training))

        def chain(x: Tensor, name: str, *steps: tuple[int, object]) -> Tensor:
            for number, (filters, size) in enumerate(steps, 1):
                x = conv(x, filters, size, f"{name}_{number}")
            return x

        def averaged(x: Tensor, filters: int) -> Tensor:
            return conv(layers.average_pooling2d(x, 3, 1, "same"), filters, 1, "pooled")

        def halved(x: Tensor) -> Tensor:
            return layers.max_pooling2d(x, 3, 2)

        hidden = conv(float_images(images), 32, 3, "conv1", 2, "valid")
        hidden = conv(conv(hidden, 32, 3, "conv2", padding="valid"), 64, 3, "conv3")
        hidden = conv(conv(halved(hidden), 80, 1, "conv4", padding="valid"), 192, 3, "conv5", padding="valid")
        hidden = halved(hidden)
        for number, pooled in enumerate((32, 64, 64), 1):  # 35 x 35
            with variable_scope(f"a{number}"):
                branches = [
                    conv(hidden, 64, 1, "one"),
                    chain(hidden, "five", (48, 1), (64, 5)),
                    chain(hidden, "threes", (64, 1), (96, 3), (96, 3)),
                    averaged(hidden, pooled),
                ]
                hidden = concat(branches, -1)
        with variable_scope("b"):
            deep = chain(hidden, "threes", (64, 1), (96, 3))
            branches = [conv(hidden, 384, 3, "three", 2, "valid"), conv(deep, 96, 3, "threes_3", 2, "valid")]
            hidden = concat([*branches, halved(hidden)], -1)
        for number, inner in enumerate((128, 160, 160, 192), 1):  # 17 x 17
            row, column = (1, 7), (7, 1)
            with variable_scope(f"c{number}"):
                deep_steps = ((inner, 1), (inner, column), (inner, row), (inner, column), (192, row))
                branches = [
                    conv(hidden, 192, 1, "one"),
                    chain(hidden, "seven", (inner, 1), (inner, row), (192, column)),
                    chain(hidden, "sevens", *deep_steps),
                    averaged(hidden, 192),
                ]
                hidden = concat(branches, -1)
        with variable_scope("d"):
            deep = chain(hidden, "seven", (192, 1), (192, (1, 7)), (192, (7, 1)))
            wide = conv(chain(hidden, "three", (192, 1)), 320, 3, "three_2", 2, "valid")
            hidden = concat([wide, conv(deep, 192, 3, "seven_4", 2, "valid"), halved(hidden)], -1)
        for number in (1, 2):  # 8 x 8
            with variable_scope(f"e{number}"):
                three = conv(hidden, 384, 1, "three")
                threes = chain(hidden, "threes", (448, 1), (384, 3))
                branches = [conv(hidden, 320, 1, "one")]
                for name, x in (("three", three), ("threes", threes)):
                    branches += [conv(x, 384, (1, 3), f"{name}_row"), conv(x, 384, (3, 1), f"{name}_column")]
                hidden = concat([*branches, averaged(hidden, 192)], -1)
        features = layers.dropout(reduce_mean(hidden, [1, 2]), self.dropout, training=training)
        return layers.dense(features, classes, name="fc")
