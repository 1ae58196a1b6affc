"""Moments, batch and layer normalisation, and the activations made of several ops."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.ops.batch_norm import FusedBatchNormGrad
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.nn import BiasAddGrad
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.interpreter import run_graph
from tests.ops_contract.sample import apart, normal, uniform

pytestmark = pytest.mark.usefixtures("graph")

X = normal(4, 3, 5)


@pytest.mark.parametrize("axes", [[0], [0, 1], 2, [0, 1, 2]])
@pytest.mark.parametrize("keep", [False, True])
def test_moments(axes, keep):
    mean, variance = run_graph(list(tb.nn.moments(X, axes, keep_dims=keep)), {})
    over = tuple(np.atleast_1d(axes).tolist())
    np.testing.assert_allclose(mean, X.mean(over, keepdims=keep), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance, X.var(over, keepdims=keep), rtol=1e-5)


@pytest.mark.parametrize("axis", [0, [0, 2], -1, None])
def test_l2_normalize(axis):
    over = axis if axis is None else tuple(np.atleast_1d(axis).tolist())
    norms = np.sqrt(np.square(X).sum(over, keepdims=True))
    y, of_small = run_graph([tb.nn.l2_normalize(X, axis), tb.nn.l2_normalize(X * 1e-3, axis, 4.0)], {})
    np.testing.assert_allclose(y, X / norms, rtol=1e-5)
    np.testing.assert_allclose(of_small, X * 5e-4, rtol=1e-5)
    check_gradients(lambda x: [tb.nn.l2_normalize(x, axis)], [X], second_order=True)
    with pytest.raises(InvalidArgumentError, match="l2_normalize: x has dtype int64, expected float32 or"):
        tb.nn.l2_normalize(np.array([3, 4]), axis if axis is None else 0)


def test_gradients_of_normalisation():
    check_gradients(lambda x: tb.nn.moments(x, [0]), [X], second_order=True)
    check_gradients(
        lambda x, m, v, o, s: [tb.nn.batch_normalization(x, m, v, o, s, 0.01)],
        [X, normal(5), uniform(5), normal(5, seed=1), uniform(5, seed=1)],
    )
    layer = [X, uniform(5), normal(5)]
    check_gradients(lambda x, s, o: [tb.nn.layer_norm(x, s, o, 0.01)], layer, second_order=True, rtol=1e-4)


def test_fused_and_plain_batch_norm_agree():
    scale, offset = uniform(5), normal(5)
    y, mean, variance = tb.nn.fused_batch_norm(X, scale, offset, epsilon=0.01)
    m, v = tb.nn.moments(X, [0, 1])
    plain = tb.nn.batch_normalization(X, m, v, offset, scale, 0.01)
    applied, *_ = tb.nn.fused_batch_norm(X, scale, offset, m, v, epsilon=0.01, is_training=False)
    results = run_graph([y, plain, applied, mean, m, variance, v], {})
    for result in results[1:3]:
        np.testing.assert_allclose(result, results[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results[3], results[4], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[5], results[6] * 12 / 11, rtol=1e-5)  # of a sample of 12


def test_batch_norm_in_a_session_with_an_unknown_batch():
    x = tb.placeholder(tb.float32, [None, 3, 5])
    y, mean, _ = tb.nn.fused_batch_norm(x, np.ones(5), np.zeros(5))
    assert (y.shape.as_list(), mean.shape.as_list()) == ([None, 3, 5], [5])
    (gradient,) = tb.gradients(tb.reduce_sum(tb.square(y)), x)
    with tb.Session() as session:
        result, back = session.run([y, gradient], {x: X})
    np.testing.assert_allclose(result.mean((0, 1)), np.zeros(5), atol=1e-6)
    np.testing.assert_allclose(back.sum((0, 1)), np.zeros(5), atol=1e-4)


def test_batch_norm_refusals():
    with pytest.raises(InvalidArgumentError, match="with is_training=False, and only then"):
        tb.nn.fused_batch_norm(X, np.ones(5), np.zeros(5), is_training=False)
    with pytest.raises(InvalidArgumentError, match="with is_training=False, and only then"):
        tb.nn.fused_batch_norm(X, np.ones(5), np.zeros(5), np.zeros(5), np.ones(5))
    with pytest.raises(InvalidArgumentError, match="5 channels, but a vector is"):
        tb.nn.fused_batch_norm(X, np.ones(4), np.zeros(5))


@pytest.mark.parametrize("gradient", [X[:3], X[:1], X[0], normal(4, 3, 1, 5), normal(12, 5)])
def test_a_gradient_of_another_shape_than_the_normalised_is_refused(gradient):
    vectors = [np.ones(5, np.float32)] * 3
    with pytest.raises(InvalidArgumentError, match=r"gradient is .*, x is .*\[4, 3, 5\]; .* one shape: give"):
        run_reference_kernel(FusedBatchNormGrad, [gradient, X, *vectors])
    fed = tb.placeholder(tb.float32)
    dx, *_ = FusedBatchNormGrad(fed, tb.constant(X), *map(tb.constant, vectors))
    with tb.Session() as session, pytest.raises(InvalidArgumentError, match="must have one shape"):
        session.run(dx, {fed: gradient})


def test_the_gradient_of_a_bias_has_channels():
    (total,) = run_reference_kernel(BiasAddGrad, [X])
    np.testing.assert_allclose(total, X.sum((0, 1)), rtol=1e-5)
    with pytest.raises(
        InvalidArgumentError, match=r"bias_add gradient: .* scalar, expected \[..., channels\]"
    ):
        run_reference_kernel(BiasAddGrad, [X[0, 0, 0]])


@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_norm(axis):
    shape = X.shape[axis:]
    scale, offset = uniform(*shape), normal(*shape)
    (result,) = run_graph([tb.nn.layer_norm(X, scale, offset, 0.01, axis=axis)], {})
    rows = X.reshape(*X.shape[:axis], -1)
    normal_rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 0.01)
    np.testing.assert_allclose(result, normal_rows.reshape(X.shape) * scale + offset, rtol=1e-4, atol=1e-5)


def test_gelu():
    x = apart(7)
    exact, fast = run_graph([tb.nn.gelu(x), tb.nn.gelu(x, approximate=True)], {})
    expected = [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x.tolist()]
    np.testing.assert_allclose(exact, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(fast, expected, atol=1e-3)
    for approximate in (False, True):
        check_gradients(lambda x, a=approximate: [tb.nn.gelu(x, approximate=a)], [x], second_order=True)
