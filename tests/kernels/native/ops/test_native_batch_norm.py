"""Native batch normalisation: channels around vector widths, both modes, both dtypes, means far from zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from tensorbow.kernels.native.products.channels import ChannelSums
from tensorbow.ops.batch_norm import FusedBatchNorm, FusedBatchNormGrad
from tensorbow.specs import float32, float64
from tests.native_rig.native_calls import (
    assert_as_reference,
    assert_sample,
    run_native,
    run_reference,
    samples_of,
)
from tests.ops_contract.collection import each
from tests.ops_contract.sample import normal, uniform
from tests.program_rig.examples import given_few

OPS = {"FusedBatchNorm", "FusedBatchNormGrad"}


@pytest.mark.sampled(1)
@each(samples_of(OPS), few=4)
def test_native_batch_norm_samples(sample):
    assert_sample(sample)


def _inputs(shape, dtype):
    channels = shape[-1]
    vectors = [uniform(channels, dtype=dtype, seed=seed) for seed in range(4)]
    return normal(*shape, dtype=dtype), *vectors


@pytest.mark.slow
@given_few(
    5,
    25,
    st.sampled_from([(1,), (2,), (3,), (5, 1), (4, 9, 7), (2, 16, 16), (263,)]),
    st.sampled_from([1, 3, 7, 8, 9, 16, 17, 31, 64, 65, 150]),
    st.sampled_from([np.float32, np.float64]),
    st.booleans(),
    st.booleans(),
)
def test_native_batch_norm_and_its_gradient(rows, channels, dtype, is_training, narrow):
    shape = (*rows, channels)
    options = {"targets": ["narrow" if narrow else "host"], "rtol": 1e-4, "atol": 2e-5}
    inputs = _inputs(shape, dtype)
    assert_as_reference(FusedBatchNorm, inputs, {"is_training": is_training}, **options)
    x, scale, _, mean, inverse = inputs
    given_gradient = normal(*shape, dtype=dtype, seed=1)
    flow = (given_gradient, x, scale, mean, inverse)
    options["atol"] = 2e-4
    assert_as_reference(FusedBatchNormGrad, flow, {"is_training": is_training}, **options)
    attrs = {"is_training": is_training}
    assert_as_reference(FusedBatchNormGrad, flow, attrs, inplace=[(0, 0)], **options)


@pytest.mark.parametrize("shape", [(0, 5), (0, 3, 16), (4, 0)])
@pytest.mark.parametrize("is_training", [True, False])
def test_native_batch_norm_of_nothing(shape, is_training):
    inputs = _inputs(shape, np.float32)
    assert_as_reference(FusedBatchNorm, inputs, {"is_training": is_training})
    nan = np.full(shape[-1:], np.nan, np.float32)
    flow = (inputs[0], inputs[0], inputs[1], nan, nan)
    assert_as_reference(FusedBatchNormGrad, flow, {"is_training": is_training})


def test_native_variance_far_from_zero_is_that_of_float64():
    x = 1000 + normal(8, 32, 32, 16)
    inputs = (x, *_inputs((1, 16), np.float32)[1:])
    _, mean, variance, *_ = run_native(FusedBatchNorm, inputs, {"is_training": True})
    exact = x.astype(np.float64).reshape(-1, 16)
    np.testing.assert_allclose(mean, exact.mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, exact.var(0, ddof=1), rtol=1e-5)


def test_native_gradient_through_the_batch_matches_in_float64():
    x = normal(6, 5, 4, 19, dtype=np.float64)
    inputs = (x, *_inputs((1, 19), np.float64)[1:])
    *_, mean, inverse = run_native(FusedBatchNorm, inputs)
    flow = (normal(*x.shape, dtype=np.float64, seed=7), x, inputs[1], mean, inverse)
    for ours, theirs in zip(
        run_native(FusedBatchNormGrad, flow), run_reference(FusedBatchNormGrad, flow), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("dtype", [float32, float64])
@pytest.mark.parametrize("channels", [1, 16, 33, 1000, 100_000])
def test_a_chunk_stays_in_the_first_cache(channels, dtype):
    rows = ChannelSums(channels, dtype, of_flow=False).rows
    assert rows & (rows - 1) == 0
    assert rows == 1 or 8 << 10 < rows * channels * dtype.size <= 16 << 10


def test_chunks_whose_means_lie_far_apart():
    x = normal(2048, 16) + np.repeat(np.array([1000, -1000, 3, 1e4], np.float32), 512)[:, None]
    inputs = (x, *_inputs((1, 16), np.float32)[1:])
    _, mean, variance, *_ = run_native(FusedBatchNorm, inputs, {"is_training": True})
    np.testing.assert_allclose(mean, x.astype(np.float64).mean(0), rtol=1e-5)
    np.testing.assert_allclose(variance, x.astype(np.float64).var(0, ddof=1), rtol=1e-5)
