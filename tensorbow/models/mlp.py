"""Multilayer perceptron: 784-128-10 on 28x28 pictures and 10 classes, 101,770 parameters."""

from __future__ import annotations

from typing import Annotated

from tensorbow import layers
from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, Fraction, checked, sequence, whole
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, flat_features
from tensorbow.ops.elementwise import relu

Widths = Annotated[tuple[int, ...], sequence(whole(1), "whole numbers of at least 1", lone=True)]


class MLP(Model):
    """Dense layers with ReLU between them."""

    name = "mlp"
    defaults = Defaults(learning_rate=0.02)

    @checked
    def __init__(self, hidden: Widths = (128,), dropout: Fraction = 0.0):
        """hidden: width of each hidden layer. dropout: of their outputs, in training."""
        self.hidden, self.dropout = hidden, dropout

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels] or features."""
        values, _ = flat_features(images)
        for number, width in enumerate(self.hidden, start=1):
            values = layers.dense(values, width, relu, kernel_initializer="he_normal", name=f"fc{number}")
            values = layers.dropout(values, self.dropout, training=training)
        return layers.dense(values, classes, name=f"fc{len(self.hidden) + 1}")
