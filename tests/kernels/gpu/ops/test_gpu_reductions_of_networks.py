"""Softmax, losses, batch norm and pooling on an emulated GPU: sizes at borders, ties, NaN, in place."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbow.kernels.gpu.source.channel_cut import HELD, cut_rows
from tensorbow.ops.average_pooling import AvgPool, AvgPoolGrad
from tensorbow.ops.batch_norm import FusedBatchNorm, FusedBatchNormGrad
from tensorbow.ops.losses import SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits
from tensorbow.ops.nn import BiasAdd, LogSoftmax, Softmax
from tensorbow.ops.pooling import MaxPool, MaxPoolGrad, MaxPoolGradGrad
from tests.gpu_rig.against_cpu import assert_as_on_cpu, on_cpu, on_gpu, same_everywhere
from tests.gpu_rig.runtimes import needs_compiler
from tests.ops_contract.sample import integers, normal, uniform

ROWS = [(1, 1), (9, 10), (3, 33), (2, 1024), (2, 1025), (1, 5000), (300, 2)]
each_row = pytest.mark.parametrize("shape", ROWS, ids=str)


# Bias, softmax, losses ------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("op", [Softmax, LogSoftmax], ids=lambda op: op.name)
@each_row
def test_softmax(op, shape):
    assert_as_on_cpu(op, (normal(*shape),), atol=1e-6)
    assert_as_on_cpu(op, (normal(*shape) * 1e4,), rtol=1e-4, atol=1e-6)
    assert_as_on_cpu(op, (normal(*shape, dtype=np.float64),), rtol=1e-12, atol=1e-14)


@needs_compiler
@pytest.mark.parametrize("op", [Softmax, LogSoftmax], ids=lambda op: op.name)
def test_softmax_of_infinities_and_nan(op):
    x = normal(5, 40)
    x[0, 3], x[1, 3], x[2, 3], x[3] = np.inf, -np.inf, np.nan, -np.inf
    result = assert_as_on_cpu(op, (x,), atol=1e-6).outputs[0]
    assert np.isfinite(result[4]).all()


@pytest.mark.sampled(5)
@needs_compiler
@pytest.mark.parametrize("op", [Softmax, LogSoftmax], ids=lambda op: op.name)
@each_row
def test_softmax_in_place(op, shape):
    x = normal(*shape)
    apart, within = on_gpu(op, (x,)), on_gpu(op, (x,), shared={0: 0})
    assert apart.outputs[0].tobytes() == within.outputs[0].tobytes()


@pytest.mark.sampled(3)
@needs_compiler
@each_row
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sparse_cross_entropy(shape, dtype):
    logits, labels = 10 * normal(*shape), integers(shape[0], high=shape[1], dtype=dtype)
    assert_as_on_cpu(SparseSoftmaxCrossEntropyWithLogits, (logits, labels), atol=1e-5)
    apart = on_gpu(SparseSoftmaxCrossEntropyWithLogits, (logits, labels)).outputs
    within = on_gpu(SparseSoftmaxCrossEntropyWithLogits, (logits, labels), shared={1: 0}).outputs
    assert [a.tobytes() for a in apart] == [a.tobytes() for a in within]


@needs_compiler
def test_a_label_that_is_no_class_gives_nan_and_spares_the_others():
    logits, labels = normal(4, 7), np.array([-1, 3, 7, 0], np.int32)
    loss, derivative = on_gpu(SparseSoftmaxCrossEntropyWithLogits, (logits, labels)).outputs
    assert np.isnan(loss).tolist() == [True, False, True, False]
    assert np.isnan(derivative).all(1).tolist() == [True, False, True, False]
    right = on_cpu(SparseSoftmaxCrossEntropyWithLogits, (logits[1::2], labels[1::2])).outputs
    np.testing.assert_allclose(loss[1::2], right[0], 1e-5)
    np.testing.assert_allclose(derivative[1::2], right[1], 1e-5, 1e-7)


@needs_compiler
@each_row
def test_dense_cross_entropy(shape):
    logits, labels = 10 * normal(*shape), uniform(*shape)
    assert_as_on_cpu(SoftmaxCrossEntropyWithLogits, (logits, labels), rtol=2e-5, atol=1e-4)


@needs_compiler
def test_dense_cross_entropy_without_classes():
    assert_as_on_cpu(SoftmaxCrossEntropyWithLogits, (normal(3, 0), normal(3, 0)))


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8])
def test_bias_add(dtype):
    value, bias = integers(7, 50, 33, dtype=dtype), integers(33, high=250, dtype=dtype)
    assert_as_on_cpu(BiasAdd, (value, bias), rtol=0)


# Batch normalisation ----------------------------------------------------------------------------------------

NORMED = [  # at once and by parts; channels below, at and above a warp
    (8, 3),
    (9, 5),
    (256, 32),
    (257, 40),
    (1024, 7),
    (1025, 7),
    (3000, 1),
    (4, 20, 20, 16),
    (5000, 33),
    (2, 300),
]
each_normed = pytest.mark.parametrize("shape", NORMED, ids=str)


@given(st.integers(0, 100_000), st.integers(0, 3000))
def test_cut_covers_all_rows(rows, channels):
    cut = cut_rows((rows, channels))
    assert math.prod(cut.held_block) <= 1024
    assert math.prod(cut.block) <= 256
    assert cut.at_once == (rows <= HELD * cut.held_block[1])
    assert cut.held_grid * cut.held_block[0] >= channels
    assert cut.tiles * cut.block[0] >= channels
    assert cut.parts * cut.share >= rows
    assert cut.chunks * cut.some >= rows
    if rows:
        assert (cut.parts - 1) * cut.share < rows
        assert (cut.chunks - 1) * cut.some < rows


def test_cut_is_one_launch_for_what_small_batches_have():
    assert cut_rows((16, 8, 8, 64)).at_once
    assert cut_rows((64, 512)).at_once
    assert not cut_rows((64, 32, 32, 16)).at_once


def _normed(shape, dtype=np.float32, mean=0.0):
    channels = shape[-1]
    nothing = np.zeros(0, dtype)
    x = np.asarray(normal(*shape, dtype=np.float64) + mean, dtype)
    scale, offset = uniform(channels, dtype=dtype), normal(channels, dtype=dtype)
    return x, scale, offset, nothing, nothing.copy()


@pytest.mark.sampled(3)
@needs_compiler
@each_normed
def test_batch_norm_and_its_gradient(shape):
    given = _normed(shape)
    outputs = assert_as_on_cpu(FusedBatchNorm, given, rtol=1e-4, atol=1e-4).outputs
    back = (normal(*shape, seed=1), given[0], given[1], *outputs[3:])
    assert_as_on_cpu(FusedBatchNormGrad, back, rtol=1e-4, atol=2e-3)
    assert_as_on_cpu(FusedBatchNormGrad, back, {"is_training": False}, rtol=1e-4, atol=2e-3)


@needs_compiler
@each_normed
def test_batch_norm_by_given_moments(shape):
    x, scale, offset, *_ = _normed(shape)
    moments = normal(shape[-1], seed=2), uniform(shape[-1], seed=3)
    assert_as_on_cpu(FusedBatchNorm, (x, scale, offset, *moments), {"is_training": False}, atol=1e-5)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("shape", [(8, 3), (300, 5), (5000, 33)])
def test_batch_norm_in_double(shape):
    given = _normed(shape, np.float64)
    outputs = assert_as_on_cpu(FusedBatchNorm, given, rtol=1e-10, atol=1e-12).outputs
    back = (normal(*shape, dtype=np.float64, seed=1), given[0], given[1], *outputs[3:])
    assert_as_on_cpu(FusedBatchNormGrad, back, rtol=1e-9, atol=1e-11)


@needs_compiler
@pytest.mark.parametrize("shape", [(200, 3), (5000, 3)])
def test_variance_far_from_zero_keeps_its_digits(shape):
    x, *rest = _normed(shape, mean=1000.0)
    _, mean, variance, _, _ = on_gpu(FusedBatchNorm, (x, *rest)).outputs
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(0), 1e-6)
    np.testing.assert_allclose(variance, exact.var(0, ddof=1), 1e-4)  # sums of squares would give 0.06


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("shape", [(300, 5), (5000, 33)])
def test_batch_norm_has_the_same_bits_on_every_gpu(shape):
    given = _normed(shape)
    assert same_everywhere(FusedBatchNorm, given)
    saved = on_cpu(FusedBatchNorm, given).outputs[3:]
    assert same_everywhere(FusedBatchNormGrad, (normal(*shape, seed=1), given[0], given[1], *saved))


@needs_compiler
@pytest.mark.parametrize("rows", [100, 5000])
def test_nan_stays_in_its_channel(rows):
    x, *rest = _normed((rows, 3))
    x = x.copy()
    x[rows // 2, 1] = np.nan
    outputs = on_gpu(FusedBatchNorm, (x, *rest)).outputs
    for result in outputs:
        bad = np.isnan(result) if result.ndim == 1 else np.isnan(result).all(0)
        assert bad.tolist() == [False, True, False]
        assert np.isfinite(result[..., [0, 2]]).all()


# Pooling ----------------------------------------------------------------------------------------------------

POOLS = [  # (images, window, strides, padding)
    ((2, 6, 8, 3), (2, 2), (2, 2), "VALID"),
    ((2, 7, 9, 3), (3, 3), (2, 2), "SAME"),
    ((1, 7, 5, 2), (3, 2), (1, 2), "VALID"),
    ((1, 5, 6, 2), (2, 3), (3, 1), "SAME"),
    ((2, 9, 9, 1), (2, 2), (4, 4), "VALID"),
    ((1, 2, 3, 4), (5, 4), (1, 1), "SAME"),
    ((3, 24, 25, 9), (3, 3), (2, 2), "SAME"),
    ((2, 5, 4, 3), (5, 4), (1, 1), "VALID"),
]
each_pool = pytest.mark.parametrize(("images", "window", "strides", "padding"), POOLS, ids=str)


def _attrs(window, strides, padding):
    return {"ksize": (1, *window, 1), "strides": (1, *strides, 1), "padding": padding}


def _images(kind, shape):
    if kind == "ties":
        return integers(*shape, high=2).astype(np.float32)
    x = normal(*shape)
    if kind == "nan":
        x.reshape(-1)[::7] = np.nan
    if kind == "infinite":
        x.reshape(-1)[::2], x.reshape(-1)[::5] = -np.inf, np.inf
    return x


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("kind", ["normal", "ties", "nan", "infinite"])
@each_pool
def test_max_pool_and_its_gradients(images, window, strides, padding, kind):
    attrs, x = _attrs(window, strides, padding), _images(kind, images)
    (pooled,) = assert_as_on_cpu(MaxPool, (x,), attrs, rtol=0).outputs
    assert_as_on_cpu(MaxPoolGrad, (x, pooled, normal(*pooled.shape, seed=1)), attrs, rtol=0)
    assert_as_on_cpu(MaxPoolGradGrad, (x, pooled, normal(*images, seed=2)), attrs, rtol=0)


@needs_compiler
def test_max_pool_gradient_of_infinite_flow_stays_where_the_maximum_is():
    x = normal(1, 4, 4, 2)
    attrs = _attrs((2, 2), (2, 2), "VALID")
    (pooled,) = on_cpu(MaxPool, (x,), attrs).outputs
    flow = np.full(pooled.shape, np.inf, np.float32)
    (result,) = assert_as_on_cpu(MaxPoolGrad, (x, pooled, flow), attrs).outputs
    assert np.isinf(result).sum() == pooled.size
    assert not np.isnan(result).any()


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@each_pool
def test_average_pool_and_its_gradient(images, window, strides, padding, dtype):
    attrs, x = _attrs(window, strides, padding), normal(*images, dtype=dtype)
    rtol, atol = (1e-5, 1e-6) if dtype == np.float32 else (1e-13, 1e-14)
    (pooled,) = assert_as_on_cpu(AvgPool, (x,), attrs, rtol=rtol, atol=atol).outputs
    sizes = np.array(images, np.int32)
    assert_as_on_cpu(AvgPoolGrad, (sizes, normal(*pooled.shape, dtype=dtype)), attrs, rtol=rtol, atol=atol)


@needs_compiler
@pytest.mark.parametrize("shape", [(0, 4, 4, 2), (2, 4, 4, 0)])
def test_pooling_of_nothing(shape):
    x, attrs = normal(*shape), _attrs((2, 2), (2, 2), "SAME")
    (pooled,) = assert_as_on_cpu(MaxPool, (x,), attrs).outputs
    assert_as_on_cpu(MaxPoolGrad, (x, pooled, pooled), attrs)
    assert_as_on_cpu(AvgPool, (x,), attrs)
