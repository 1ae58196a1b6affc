"""Functions made of several ops: values against NumPy, gradients against differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.interpreter import run_graph
from tests.ops_contract.sample import apart, integers, normal, uniform

pytestmark = pytest.mark.usefixtures("graph")

X = normal(4, 3, 5)
LABELS = uniform(4, 3, 5, low=0.0)


def value(tensor, feeds=None):
    return run_graph([tensor], feeds or {})[0]


def softplus(x):
    return np.logaddexp(x.astype(np.float64), 0)


MASK = np.array([[True, False], [True, True], [False, True]])


def attended(query, key, value, mask):
    scores = np.where(mask, query @ key.swapaxes(1, 2) / math.sqrt(5), -np.inf)
    weights = np.exp(scores)
    return weights / weights.sum(-1, keepdims=True) @ value


def images(x):
    return x.reshape(2, 6, 5, 1)


def volumes(x):
    return x.reshape(1, 2, 6, 5, 1)


def windows_of(x, *extents):
    return np.lib.stride_tricks.sliding_window_view(x, extents, tuple(range(1, 1 + len(extents))))


def of_images(function):
    return lambda x: function(tb.reshape(x, [2, 6, 5, 1]))


def of_volumes(function):
    return lambda x: function(tb.reshape(x, [1, 2, 6, 5, 1]))


def responses(x):
    band = np.abs(np.subtract.outer(np.arange(5), np.arange(5))) <= 1
    return x / (1.5 + 0.5 * (x * x) @ band) ** 0.75


def scattered(x):
    result = np.zeros((2, 3, 5), x.dtype)
    np.add.at(result, tuple(PLACES.T), x[:, 1])
    return result


def by_segment(function, x, first=0.0):
    return np.stack([function(x[[1, 3]], 0), np.full(x.shape[1:], first, x.dtype), x[0]])


TAPS = normal(2, 3, 2, 1, 3)
PLACES = np.array([[0, 2], [1, 1], [0, 2], [1, 0]])
SEGMENTS = [2, 0, -1, 0]

COMPOSED = {
    "truncatemod": (lambda x: tb.truncatemod(x, -0.7), lambda x: np.fmod(x, 0.7)),
    "scalar_mul": (lambda x: tb.scalar_mul(3, x), lambda x: 3 * x),
    "digamma": (
        lambda x: tb.digamma(x * x + 1.5) - tb.digamma(x * x + 0.5),
        lambda x: 1 / (x * x + 0.5),
    ),
    "space_to_depth": (
        lambda x: tb.space_to_depth(tb.reshape(x, [1, 6, 10, 1]), 2),
        lambda x: x.reshape(3, 2, 5, 2).transpose(0, 2, 1, 3).reshape(1, 3, 5, 4),
    ),
    "depth_to_space": (
        lambda x: tb.depth_to_space(tb.reshape(x, [1, 3, 5, 4]), 2),
        lambda x: x.reshape(3, 5, 2, 2).transpose(0, 2, 1, 3).reshape(1, 6, 10, 1),
    ),
    "space_to_batch": (
        of_images(lambda x: tb.space_to_batch(x, [[0, 0], [1, 0]], 2)),
        lambda x: np.concatenate(
            [
                np.pad(images(x), ((0, 0), (0, 0), (1, 0), (0, 0)))[:, i::2, j::2]
                for i in (0, 1)
                for j in (0, 1)
            ]
        ),
    ),
    "batch_to_space": (
        of_images(lambda x: tb.batch_to_space_nd(x, [1, 2], [[0, 1], [2, 1]])),
        lambda x: x.reshape(2, 6, 5).transpose(1, 2, 0).reshape(1, 6, 10, 1)[:, :5, 2:9],
    ),
    "patches": (
        of_images(lambda x: tb.extract_image_patches(x, [1, 3, 2, 1], [1, 2, 1, 1], [1, 1, 2, 1], "VALID")),
        lambda x: windows_of(images(x), 3, 3)[:, ::2, :, 0, :, ::2].reshape(2, 2, 3, 6),
    ),
    "conv3d": (
        of_volumes(lambda x: tb.nn.conv3d(x, TAPS, 1, "VALID")),
        lambda x: np.einsum("bdhwcijk,ijkco->bdhwo", windows_of(volumes(x), 2, 3, 2), TAPS),
    ),
    "conv3d SAME": (
        of_volumes(lambda x: tb.nn.conv3d(x, TAPS, [1, 1, 2, 1, 1], "SAME")),
        lambda x: np.einsum(
            "bdhwcijk,ijkco->bdhwo",
            windows_of(np.pad(volumes(x), ((0, 0), (0, 1), (0, 1), (0, 1), (0, 0))), 2, 3, 2)[:, :, ::2],
            TAPS,
        ),
    ),
    "max_pool3d": (
        of_volumes(lambda x: tb.nn.max_pool3d(x, [2, 3, 2], 1, "VALID")),
        lambda x: windows_of(volumes(x), 2, 3, 2).max((5, 6, 7)),
    ),
    "avg_pool3d": (
        of_volumes(lambda x: tb.nn.avg_pool3d(x, [2, 3, 2], [1, 3, 1], "VALID")),
        lambda x: windows_of(volumes(x), 2, 3, 2)[:, :, ::3].mean((5, 6, 7)),
    ),
    "lrn": (lambda x: tb.nn.lrn(x, 1, 1.5, 0.5, 0.75), responses),
    "separable_conv2d": (
        of_images(lambda x: tb.nn.separable_conv2d(x, TAPS[0], np.ones((1, 1, 3, 2)), 1, "VALID")),
        lambda x: np.repeat(
            np.einsum("bhwcij,ijco->bhw", windows_of(images(x), 3, 2), TAPS[0])[..., None], 2, axis=-1
        ),
    ),
    "atrous_conv2d": (
        of_images(lambda x: tb.nn.atrous_conv2d(x, TAPS[0], 2, "VALID")),
        lambda x: np.einsum("bhwcij,ijco->bhwo", windows_of(images(x), 5, 3)[..., ::2, ::2], TAPS[0]),
    ),
    "gather_nd": (lambda x: tb.gather_nd(x, PLACES), lambda x: x[tuple(PLACES.T)]),
    "gather_nd of elements": (
        lambda x: tb.gather_nd(x, [[[3, 2, 4], [0, 0, 1]]]),
        lambda x: np.array([[x[3, 2, 4], x[0, 0, 1]]]),
    ),
    "scatter_nd": (lambda x: tb.scatter_nd(PLACES, x[:, 1], [2, 3, 5]), scattered),
    "reverse_sequence": (
        lambda x: tb.reverse_sequence(x, [5, 0, 2], seq_axis=2, batch_axis=1),
        lambda x: np.stack([x[:, 0, ::-1], x[:, 1], x[:, 2][:, [1, 0, 2, 3, 4]]], 1),
    ),
    "unsorted_segment_sum": (
        lambda x: tb.unsorted_segment_sum(x, SEGMENTS, 3),
        lambda x: by_segment(np.sum, x),
    ),
    "unsorted_segment_mean": (
        lambda x: tb.unsorted_segment_mean(x, SEGMENTS, 3),
        lambda x: by_segment(np.mean, x),
    ),
    "unsorted_segment_sqrt_n": (
        lambda x: tb.unsorted_segment_sqrt_n(x, SEGMENTS, 3),
        lambda x: by_segment(lambda rows, axis: rows.sum(axis) / math.sqrt(2), x),
    ),
    "unsorted_segment_prod": (
        lambda x: tb.unsorted_segment_prod(x, SEGMENTS, 3),
        lambda x: by_segment(np.prod, x, 1.0),
    ),
    "segment_max": (
        lambda x: tb.segment_max(x, [0, 0, 2, 2]),
        lambda x: np.stack([x[:2].max(0), 0 * x[0], x[2:].max(0)]),
    ),
    "segment_min": (
        lambda x: tb.segment_min(x, [0, 0, 1, 1]),
        lambda x: np.stack([x[:2].min(0), x[2:].min(0)]),
    ),
    "segment_prod": (
        lambda x: tb.segment_prod(x, [0, 0, 2, 2]),
        lambda x: np.stack([x[:2].prod(0), np.ones_like(x[0]), x[2:].prod(0)]),
    ),
    "segment_prod of ids of a step": (
        lambda x: tb.segment_prod(x, tb.where(tb.reduce_max(tb.abs(x), [1, 2]) < 0.0, 1, [0, 0, 2, 2])),
        lambda x: np.stack([x[:2].prod(0), np.ones_like(x[0]), x[2:].prod(0)]),
    ),
    "unsorted_segment_sum of elements": (
        lambda x: tb.unsorted_segment_sum(x, np.arange(12).reshape(4, 3) % 2, 2),
        lambda x: np.stack([x.reshape(12, 5)[i::2].sum(0) for i in (0, 1)]),
    ),
    "squared_difference": (lambda x: tb.squared_difference(x, 0.5), lambda x: (x - 0.5) ** 2),
    "log_sigmoid": (tb.log_sigmoid, lambda x: -softplus(-x)),
    "logsumexp": (
        lambda x: tb.reduce_logsumexp(x, [0, 2]),
        lambda x: np.log(np.exp(x.astype(np.float64)).sum((0, 2))),
    ),
    "logsumexp kept": (
        lambda x: tb.reduce_logsumexp(x, keepdims=True),
        lambda x: np.log(np.exp(x.astype(np.float64)).sum(keepdims=True)),
    ),
    "sigmoid cross entropy": (
        lambda x: tb.nn.sigmoid_cross_entropy_with_logits(labels=LABELS, logits=x),
        lambda x: softplus(x) - x * LABELS,
    ),
    "weighted cross entropy": (
        lambda x: tb.nn.weighted_cross_entropy_with_logits(LABELS, x, 3.0),
        lambda x: 3 * LABELS * softplus(-x) + (1 - LABELS) * softplus(x),
    ),
    "relu6": (lambda x: tb.nn.relu6(x * 5), lambda x: np.clip(x * 5, 0, 6)),
    "crelu": (
        lambda x: tb.nn.crelu(x, axis=1),
        lambda x: np.maximum(np.concatenate([x, -x], 1), 0),
    ),
    "selu": (
        tb.nn.selu,
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    ),
    "softsign": (tb.nn.softsign, lambda x: x / (1 + np.abs(x))),
    "swish": (tb.nn.swish, lambda x: x / (1 + np.exp(-x))),
    "silu": (tb.nn.silu, lambda x: x / (1 + np.exp(-x))),
    "mish": (tb.nn.mish, lambda x: x * np.tanh(softplus(x))),
    "hard sigmoid": (lambda x: tb.nn.hard_sigmoid(x * 5), lambda x: np.clip(x * 5 + 3, 0, 6) / 6),
    "hard swish": (lambda x: tb.nn.hard_swish(x * 5), lambda x: x * 5 * np.clip(x * 5 + 3, 0, 6) / 6),
    "causal attention": (
        lambda x: tb.nn.scaled_dot_product_attention(x, x * 2, x[..., :2], causal=True),
        lambda x: attended(x, x * 2, x[..., :2], np.tri(3, dtype=bool)),
    ),
    "masked attention": (
        lambda x: tb.nn.scaled_dot_product_attention(x, X[:, :2], x[:, 1:], MASK),
        lambda x: attended(x, X[:, :2], x[:, 1:], MASK),
    ),
    "l2_normalize": (
        lambda x: tb.nn.l2_normalize(x, [1, 2]),
        lambda x: x / np.sqrt((x * x).sum((1, 2), keepdims=True)),
    ),
    "clip_by_norm": (lambda x: tb.clip_by_norm(x, 0.7), lambda x: x * 0.7 / np.linalg.norm(x)),
    "clip_by_norm by rows": (
        lambda x: tb.clip_by_norm(x, 1.5, axes=[2]),
        lambda x: x * 1.5 / np.maximum(np.linalg.norm(x, axis=2, keepdims=True), 1.5),
    ),
    "matrix_transpose": (tb.matrix_transpose, lambda x: x.swapaxes(1, 2)),
    "trace": (lambda x: tb.trace(tb.matmul(x, x, transpose_b=True)), lambda x: (x * x).sum((1, 2))),
    "norm": (tb.norm, lambda x: np.linalg.norm(x.ravel())),
    "norm 1": (lambda x: tb.norm(x, 1, 1), lambda x: np.abs(x).sum(1)),
    "norm 2": (lambda x: tb.norm(x, 2, -1, keepdims=True), lambda x: np.linalg.norm(x, 2, -1, True)),
    "norm 3": (lambda x: tb.norm(x, 3.0, 1), lambda x: (np.abs(x) ** 3).sum(1) ** (1 / 3)),
    "norm inf": (lambda x: tb.norm(x, np.inf, 1), lambda x: np.abs(x).max(1)),
    "norm of matrices": (lambda x: tb.norm(x, "fro", [1, 2]), lambda x: np.linalg.norm(x, axis=(1, 2))),
    "norm 1 of matrices": (
        lambda x: tb.norm(x, 1, [1, 2]),
        lambda x: np.linalg.norm(x, 1, (1, 2)),
    ),
    "norm inf of matrices": (
        lambda x: tb.norm(x, math.inf, (2, 0), keepdims=True),
        lambda x: np.linalg.norm(x, np.inf, (2, 0), True),
    ),
    "tensordot": (
        lambda x: tb.tensordot(x, X[:, :2] + 1, [[0, 2], [0, 2]]),
        lambda x: np.tensordot(x, X[:, :2] + 1, [[0, 2], [0, 2]]),
    ),
    "tensordot of the last": (
        lambda x: tb.tensordot(x, X[0].T, 1),
        lambda x: np.tensordot(x, X[0].T, 1),
    ),
    "tensordot of none": (lambda x: tb.tensordot(x, X[0], 0), lambda x: np.tensordot(x, X[0], 0)),
    "xw_plus_b": (
        lambda x: tb.nn.xw_plus_b(tb.reshape(x, [-1, 5]), X[0].T, X[0, :, 0]),
        lambda x: x.reshape(-1, 5) @ X[0].T + X[0, :, 0],
    ),
    "embedding_lookup with a limit": (
        lambda x: tb.nn.embedding_lookup(x, [[2, 0], [2, 3]], max_norm=3.0),
        lambda x: (x * np.minimum(1, 3 / np.linalg.norm(x, axis=(1, 2), keepdims=True)))[[[2, 0], [2, 3]]],
    ),
    "embedding_lookup of scalars with a limit": (
        lambda x: tb.nn.embedding_lookup(x[:, 0, 0], [2, 0, 2], max_norm=0.4),
        lambda x: np.clip(x[[2, 0, 2], 0, 0], -0.4, 0.4),
    ),
    "embedding_lookup": (lambda x: tb.nn.embedding_lookup([x], [2, 0, 2]), lambda x: x[[2, 0, 2]]),
    "linspace": (
        lambda x: tb.linspace(x[0, 0, 0], x[1, 1, 1], 5),
        lambda x: np.linspace(x[0, 0, 0], x[1, 1, 1], 5),
    ),
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", COMPOSED)
def test_values_and_gradients(name):
    function, expected = COMPOSED[name]
    result = value(function(tb.constant(X)))
    wanted = expected(X)
    assert (result.dtype, result.shape) == (np.float32, wanted.shape)
    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=1e-6)
    check_gradients(lambda x: [function(x)], [apart(4, 3, 5) / 10], rtol=1e-4)


def test_digamma_and_integers_truncated():
    found = value(tb.digamma(np.array([0.5, -0.5, 1.0, 100.0, -1.0, 0.0])))
    euler = 0.5772156649015329
    half = -euler - 2 * math.log(2)
    expected = [half, half + 2, -euler, 4.600161852738087, -np.inf, -np.inf]
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    x, y = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    assert value(tb.truncatediv(x, y)).tolist() == [3, -3, -3, 3]
    assert value(tb.truncatemod(x, y)).tolist() == [1, -1, 1, -1]


def test_digamma_beside_zero_and_its_slopes_at_halves():
    x = tb.constant(np.array([-1e-9, -1e-6, -0.5, -2.5, 0.25]))
    first = tb.gradients(tb.digamma(x), x)[0]
    second = tb.gradients(first, x)[0]
    for order, found in enumerate([tb.digamma(x), first, second]):
        expected = tb.polygamma(tb.ones_like(x) * order, x)
        np.testing.assert_allclose(value(found), value(expected), rtol=1e-9)
    np.testing.assert_allclose(value(tb.digamma(x))[:2], [1e9 - 0.577215663, 1e6 - 0.577217309], rtol=1e-15)


def test_positions_counts_and_grids():
    assert value(tb.invert_permutation([2, 0, 3, 1])).tolist() == [1, 3, 0, 2]
    assert value(tb.sequence_mask([1, 3, 0], dtype=tb.int32)).tolist() == [[1, 0, 0], [1, 1, 1], [0, 0, 0]]
    for indexing in ("xy", "ij"):
        given = [np.arange(3), np.arange(4), np.arange(2)]
        for found, wanted in zip(
            tb.meshgrid(*given, indexing=indexing), np.meshgrid(*given, indexing=indexing), strict=True
        ):
            np.testing.assert_array_equal(value(found), wanted)
    counts = value(tb.histogram_fixed_width(X, [-1.0, 1.5], 7))
    np.testing.assert_array_equal(counts, np.histogram(np.clip(X, -1, 1.5), 7, (-1, 1.5))[0])
    labels, predictions = tb.placeholder(tb.int32, [None]), tb.placeholder(tb.int64, [None])
    found = tb.confusion_matrix(labels, predictions, 3, weights=tb.cast(labels, tb.float32), dtype=tb.float32)
    feeds = {labels: np.int32([0, 2, 2, 1]), predictions: np.array([0, 1, 1, 2])}
    assert value(found, feeds).tolist() == [[0, 0, 0], [0, 0, 1], [0, 4, 0]]
    with pytest.raises(InvalidArgumentError, match=r"segment_ids are int32\[2, 1\]; expected a vector"):
        tb.segment_sum(X, [[0], [1]])
    with pytest.raises(InvalidArgumentError, match=r"must be sorted and at least 0"):
        tb.segment_mean(X, [1, 0, 1, 1])
    blocks = tb.space_to_batch_nd(X[None], tb.constant([2, 1]), tb.constant([[0, 0], [0, 0]]))
    assert blocks.shape.as_list() == [2, 2, *X.shape[1:]]
    with pytest.raises(InvalidArgumentError, match=r"a padded extent of 3 is not a multiple of 2"):
        tb.space_to_batch(np.zeros((1, 3, 4, 1)), [[0, 0], [0, 0]], 2)
    with pytest.raises(
        InvalidArgumentError, match=r"expected \[\.\.\., n\] with an n of at most the rank, 3"
    ):
        tb.gather_nd(X, [0, 0, 0, 0])


def test_norms_of_zeros_and_sparse_gradients():
    zeros = tb.zeros([3])
    clipped = tb.clip_by_norm(zeros, 0.5)
    assert value(clipped).tolist() == [0, 0, 0]
    assert value(tb.gradients(clipped, zeros)[0]).tolist() == [1, 1, 1]
    assert np.isnan(value(tb.gradients(tb.norm(zeros), zeros)[0])).all()
    table = tb.Variable(np.zeros((4, 2), np.float32))
    assert isinstance(tb.gradients(tb.nn.embedding_lookup(table, [1]), table)[0], tb.IndexedSlices)


def test_the_gradient_of_sigmoid_cross_entropy_at_zero():
    """All logits of a model that begins with zeros."""
    x, z = tb.zeros([3]), tb.constant([0.0, 0.25, 1.0])
    losses = tb.nn.sigmoid_cross_entropy_with_logits(labels=z, logits=x)
    np.testing.assert_allclose(value(tb.gradients(losses, x)[0]), [0.5, 0.25, -0.5])
    weighted = tb.nn.weighted_cross_entropy_with_logits(z, x, 2.0)
    np.testing.assert_allclose(value(tb.gradients(weighted, x)[0]), [0.5, 0.125, -1.0])
    far = tb.constant([1e4, -1e4, 90.0, -90.0])
    losses = tb.nn.sigmoid_cross_entropy_with_logits(labels=tb.constant([1.0, 0.0, 1.0, 0.0]), logits=far)
    np.testing.assert_allclose(value(losses), np.exp([-np.inf, -np.inf, -90, -90]), atol=1e-38)


def test_logsumexp_of_infinities():
    rows = np.array([[-np.inf, -np.inf], [np.inf, 0], [-np.inf, 1], [1e30, 1e30]], np.float32)
    np.testing.assert_allclose(value(tb.reduce_logsumexp(rows, 1)), [-np.inf, np.inf, 1, 1e30])
    assert value(tb.reduce_logsumexp(rows, [])).tolist() == rows.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_argmin(dtype):
    x = integers(4, 3, 5, low=0, high=9).astype(dtype)
    for axis in (None, 1, -1):
        found = value(tb.argmin(x, axis, output_type=tb.int32))
        np.testing.assert_array_equal(found, np.argmin(x, axis or 0))
        assert found.dtype == np.int32
    extreme = np.array([3, np.iinfo(np.int32).min, np.iinfo(np.int32).max], np.int32)
    assert value(tb.argmin(extreme)) == 1


def test_counts_and_tests():
    x = np.array([[0, 1.5, -0.0], [np.nan, np.inf, -np.inf]], np.float32)
    assert value(tb.count_nonzero(x, 1)).tolist() == [1, 3]
    assert value(tb.count_nonzero(x > 1, dtype=tb.int32)) == 2
    assert value(tb.is_inf(x)).tolist() == [[False] * 3, [False, True, True]]
    assert value(tb.nn.zero_fraction(x)) == np.float32(1 / 3)
    assert value(tb.round(np.int32([3, -2]))).tolist() == [3, -2]


def test_in_top_k():
    scores = np.array([[1, 3, 2, 2], [np.nan, 1, 0, 0], [5, 5, 5, np.inf], [0, 1, 2, 3]], np.float32)
    for k, expected in ((1, [False] * 4), (2, [True, False, True, False]), (4, [True, False, True, False])):
        assert value(tb.nn.in_top_k(scores, [2, 0, 1, 4], k)).tolist() == expected
        assert value(tb.nn.in_top_k(scores[1:2], [1], k)).tolist() == [k > 1]  # NaN is before it
    x, y = tb.placeholder(tb.float32, [None, 3]), tb.placeholder(tb.int64, [None])
    hits = tb.reduce_sum(tb.cast(tb.nn.in_top_k(x, y, 1), tb.int32))
    assert value(hits, {x: normal(6, 3), y: normal(6, 3).argmax(1)}) == 6


def test_matrices_of_ones():
    assert value(tb.eye(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    stack = tb.eye(2, batch_shape=[3], dtype=tb.int32)
    assert (stack.shape.as_list(), stack.dtype) == ([3, 2, 2], tb.int32)
    assert value(stack)[2].tolist() == [[1, 0], [0, 1]]
    assert value(tb.linspace(2.0, 10.0, 1)).tolist() == [2]


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_softmax_along_another_axis(axis):
    x = tb.placeholder(tb.float32, X.shape)
    powers = np.exp(X.astype(np.float64))
    expected = powers / powers.sum(axis, keepdims=True)
    labels = (LABELS / LABELS.sum(axis, keepdims=True)).astype(np.float32)
    loss = tb.nn.softmax_cross_entropy_with_logits_v2(labels, x, axis)
    got = run_graph([tb.nn.softmax(x, axis), tb.nn.log_softmax(x, dim=axis), loss], {x: X})
    values = [expected, np.log(expected), -(labels * np.log(expected)).sum(axis)]
    for found, wanted in zip(got, values, strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def test_refusals():
    with pytest.raises(InvalidArgumentError, match="norm: expected ord to be 'euclidean' or a positive"):
        tb.norm(X, "fro", 1)
    with pytest.raises(InvalidArgumentError, match="'fro', 1, 2 or infinity, got int 3"):
        tb.norm(X, 3, [0, 1])
    with pytest.raises(InvalidArgumentError, match=r"one or two axes, got \[0, 1, 2\]"):
        tb.norm(X, axis=[0, 1, 2])
    with pytest.raises(InvalidArgumentError, match="tensordot: expected axes to be 0 to 3 axes, or"):
        tb.tensordot(X, X, [[0], [0, 1]])
    with pytest.raises(InvalidArgumentError, match="embedding_lookup: params: expected the shards of a"):
        tb.nn.embedding_lookup([X, X[:1]], [0])
    with pytest.raises(InvalidArgumentError, match="must have one shape"):
        tb.nn.sigmoid_cross_entropy_with_logits(labels=X[0], logits=X)
    with pytest.raises(InvalidArgumentError, match="give labels and logits by name"):
        tb.nn.sigmoid_cross_entropy_with_logits(X, X)
    with pytest.raises(InvalidArgumentError, match="expected matrices"):
        tb.matrix_transpose([1.0])
    with pytest.raises(InvalidArgumentError, match=r"swapped: write tb.concat\(values, axis\)"):
        tb.concat(0, [X, X])


def test_initializers_under_their_old_names(graph):
    with tb.Session() as session:
        w = tb.get_variable("w", [2, 3], initializer=tb.constant_initializer(0.5))
        b = tb.get_variable("b", [3], initializer=tb.zeros_initializer())
        t = tb.get_variable("t", [50], initializer=tb.truncated_normal_initializer(stddev=0.1))
        session.run(tb.global_variables_initializer())
        values = session.run([w, b, t])
    assert values[0].tolist() == [[0.5] * 3] * 2
    assert values[1].tolist() == [0.0] * 3
    assert 0 < np.abs(values[2]).max() <= 0.2


def test_a_quotient_is_zero_where_the_divisor_is():
    x, y = tb.constant([1.0, 2.0, np.inf]), tb.constant([0.0, 4.0, 0.0])
    quotient = tb.div_no_nan(x, y)
    slopes = [value(each) for each in tb.gradients(quotient, [x, y])]
    assert value(quotient).tolist() == [0.0, 0.5, 0.0]
    assert [each.tolist() for each in slopes] == [[0.0, 0.25, 0.0], [0.0, -0.125, 0.0]]


@pytest.mark.parametrize(("axis", "keepdims"), [((1, 2), False), ((0, 2), True), ((2, 0), True)])
def test_two_norm_of_matrices(axis, keepdims):
    x = np.random.default_rng(5).normal(size=(2, 3, 4))
    found = value(tb.norm(x, 2, axis, keepdims))
    assert np.allclose(found, np.linalg.norm(x, 2, axis, keepdims))


def test_erf_of_halves():
    found = value(tb.erf(tb.constant([0.5, -1.0], tb.float16)))
    assert found.dtype == np.float16
    assert np.allclose(found, [math.erf(0.5), math.erf(-1)], atol=1e-3)
