"""Vision transformer (Dosovitskiy et al., 2020) of the tiny size of DeiT (Touvron et al., 2021, table 1).

For 224x224x3 pictures in patches of 16 and 1000 classes it has 5,717,416 parameters.
"""

from __future__ import annotations

from tensorbow import layers
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.initializers import glorot_uniform
from tensorbow.kinds import Flag, Fraction, Positive, checked
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, float_images, image_extents
from tensorbow.models.transformer_blocks import START, normalised_features, transformer_block
from tensorbow.ops.arrays import concat, reshape
from tensorbow.ops.broadcasting import broadcast_to, shape
from tensorbow.ops.elementwise import add
from tensorbow.ops.slicing import strided_slice
from tensorbow.variable_scope import get_variable

# Weights of 0.02, as in long training on many pictures, learn few pictures in few epochs much more slowly.
WEIGHTS = glorot_uniform()
LARGE = 64  # sides of pictures from which patches have 16 pixels


class VisionTransformer(Model):
    """Transformer over the patches of a picture, and a class token that sees all."""

    name = "vit-tiny"
    defaults = Defaults(learning_rate=5e-4, epochs=15, optimizer="adam", schedule="one_cycle")

    @checked
    def __init__(
        self,
        width: Positive = 192,
        depth: Positive = 12,
        num_heads: Positive = 3,
        patch: Positive | None = None,
        dropout: Fraction = 0.0,
    ):
        """patch: side in pixels; by default 16, for sides below 64 a quarter of the side."""
        self.width, self.depth, self.num_heads = width, depth, num_heads
        self.patch, self.dropout = patch, dropout

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels].

        Raises InvalidArgumentError for sides that the patches do not divide.
        """
        height, width, _ = image_extents(images)
        side = self.patch or (16 if min(height, width) >= LARGE else max(min(height, width) // 4, 1))
        if height % side or width % side:
            raise InvalidArgumentError(
                f"vit-tiny: expected sides that patches of {side} pixels divide, got {height}x{width}; give "
                "another patch (--model.patch)"
            )
        count = height * width // side**2
        patches = layers.conv2d(
            float_images(images), self.width, side, side, kernel_initializer=WEIGHTS, name="patches"
        )
        tokens = reshape(patches, [-1, count, self.width])
        token = get_variable("class_token", [1, 1, self.width], initializer=START, decayed=False)
        batch = strided_slice(shape(tokens), 0)
        tokens = concat([broadcast_to(token, [batch, 1, self.width]), tokens], 1)
        tokens.set_shape([None, count + 1, self.width])
        places = get_variable("positions", [1, count + 1, self.width], initializer=START, decayed=False)
        hidden = layers.dropout(add(tokens, places), self.dropout, training=training)
        for number in range(1, self.depth + 1):
            hidden = transformer_block(
                hidden,
                self.num_heads,
                f"block{number}",
                dropout=self.dropout,
                training=training,
                kernel_initializer=WEIGHTS,
            )
        first = strided_slice(normalised_features(hidden), (slice(None), 0))
        return layers.dense(first, classes, kernel_initializer=WEIGHTS, name="fc")
