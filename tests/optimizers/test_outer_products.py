"""A loss that subtracts [batch] and [batch, 1] is told where the update is built."""

from __future__ import annotations

import warnings

import pytest

import tensorbow as tb


def minimized(batch, outputs_of):
    with tb.Graph().as_default():
        x, y = tb.placeholder(tb.float32, [batch, 3]), tb.placeholder(tb.float32, [batch])
        loss = tb.reduce_mean(tb.squared_difference(outputs_of(tb.layers.dense(x, 1)), y))
        tb.train.GradientDescentOptimizer(0.1).minimize(loss)


@pytest.mark.parametrize("batch", [None, 16])
def test_a_column_beside_a_vector_of_the_batch_warns(batch):
    shown = "?" if batch is None else batch
    expected = rf"Sub broadcasts float32\[{shown}\] and float32\[{shown}, 1\] to .*; give both one shape"
    with pytest.warns(UserWarning, match=expected.replace("?", r"\?")) as caught:
        minimized(batch, tb.tanh)
    assert caught[0].filename == __file__
    assert "test_outer_products.py" in str(caught[0].message)


@pytest.mark.parametrize("batch", [None, 16, 1])
def test_what_is_meant_does_not_warn(batch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        minimized(batch, lambda outputs: outputs[:, 0])
        minimized(batch, lambda outputs: tb.expand_dims(outputs[:, 0], 1))  # pairs of all examples
    with tb.Graph().as_default():  # a column of weights, which is no batch
        column, row = tb.get_variable("column", [4, 1]), tb.get_variable("row", [4])
        tb.train.GradientDescentOptimizer(0.1).minimize(tb.reduce_sum(column - row))
