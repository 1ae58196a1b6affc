"""Blocks of transformers, with layer normalisation before attention and before the two dense layers."""

from __future__ import annotations

from functools import partial
from typing import Any

from tensorbow import layers
from tensorbow.graph import Tensor
from tensorbow.initializers import Initializer, truncated_normal
from tensorbow.ops.activations import gelu

DEVIATION = 0.02  # of initial weights
START = truncated_normal(stddev=DEVIATION)
WIDENING = 4  # hidden units of the two dense layers for each feature


def normalised_features(inputs: Tensor) -> Tensor:
    """Layer normalisation of `[batch, steps, features]`."""
    return layers.layer_normalization(inputs, epsilon=1e-6, name="norm")


def transformer_block(
    inputs: Tensor,
    heads: int,
    name: str,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    training: bool = False,
    kernel_initializer: Initializer = START,
) -> Tensor:
    """`[batch, steps, features]` plus attention to each other, then plus two dense layers with GELU.

    dropout: of the outputs of both, in training.
    """
    features = inputs.spec.dims[-1] or 0
    dense = partial(layers.dense, kernel_initializer=kernel_initializer)

    def attended(tensor: Tensor) -> Tensor:
        normal = normalised_features(tensor)
        mixed = layers.multi_head_attention(
            normal, heads, causal=causal, kernel_initializer=kernel_initializer, name="attention"
        )
        return layers.dropout(mixed, dropout, training=training)

    def widened(tensor: Tensor) -> Tensor:
        normal = normalised_features(tensor)
        hidden = dense(normal, WIDENING * features, gelu, name="fc1")
        return layers.dropout(dense(hidden, features, name="fc2"), dropout, training=training)

    halves: list[Any] = [
        partial(layers.residual, block=attended, name="attended"),
        partial(layers.residual, block=widened, name="widened"),
    ]
    return layers.sequential(inputs, halves, name=name)
