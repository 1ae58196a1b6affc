"""Training steps of depthwise convolutions, recurrent cells and attention, on an emulated GPU and a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tests.gpu_rig.session_steps import launched_as_on_cpu

DRAW = np.random.default_rng(8)
PICTURES = DRAW.normal(size=(2, 6, 5, 3)).astype(np.float32)
SYMBOLS = DRAW.integers(0, 7, (2, 4)).astype(np.uint8)


def channels_alone() -> tb.Tensor:
    y = tb.layers.separable_conv2d(PICTURES, 4, 3, padding="same", activation=tb.nn.hard_swish)
    y = tb.layers.group_normalization(tb.layers.conv2d(y, 4, 3, dilation_rate=2, padding="same"), 2)
    return tb.layers.dense(tb.layers.flatten(tb.layers.depthwise_conv2d(y, 2, 2)), 7)


def recurrent() -> tb.Tensor:
    hidden, _ = tb.nn.dynamic_rnn(tb.nn.rnn_cell.GRUCell(3), tb.layers.embedding(SYMBOLS, 7, 5))
    outputs, _ = tb.nn.dynamic_rnn(tb.nn.rnn_cell.LSTMCell(4), hidden, sequence_length=[4, 2])
    return tb.layers.dense(outputs[:, -1], 7)


def attention() -> tb.Tensor:
    return tb.models.TinyTransformer(8, 1, 2).logits(tb.constant(SYMBOLS), 7, training=True)[:, -1]


@pytest.mark.slow
@pytest.mark.parametrize("network", [attention, channels_alone, recurrent])
def test_a_training_step(network: Callable[[], tb.Tensor]) -> None:
    def build() -> list[Any]:
        logits = network()
        losses = tb.nn.sparse_softmax_cross_entropy_with_logits(
            labels=SYMBOLS[:, 0].astype(np.int64), logits=logits
        )
        loss = tb.reduce_mean(losses)
        return [loss, tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)]

    launched_as_on_cpu(build, rtol=1e-4)
