"""Native pooling: windows that overlap, leave gaps or reach beyond the image; ties, NaN, infinities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from tensorbow.ops.average_pooling import AvgPool, AvgPoolGrad
from tensorbow.ops.pooling import MaxPool, MaxPoolGrad, MaxPoolGradGrad
from tests.native_rig.native_calls import (
    TARGETS,
    assert_as_reference,
    assert_sample,
    each_target,
    run_reference,
    samples_of,
)
from tests.ops_contract.collection import each
from tests.ops_contract.sample import integers, normal
from tests.program_rig.examples import given_few

OPS = {d.name for d in (MaxPool, MaxPoolGrad, MaxPoolGradGrad, AvgPool, AvgPoolGrad)}
CASES = [  # images, window, stride, padding
    ((8, 24, 24, 32), (2, 2), (2, 2), "VALID"),
    ((3, 8, 8, 64), (2, 2), (2, 2), "VALID"),
    ((2, 9, 7, 5), (2, 2), (2, 2), "VALID"),
    ((2, 9, 7, 5), (2, 2), (2, 2), "SAME"),
    ((2, 10, 11, 17), (3, 3), (2, 2), "SAME"),
    ((2, 10, 11, 17), (3, 3), (1, 1), "VALID"),
    ((2, 9, 8, 3), (2, 1), (3, 4), "VALID"),
    ((1, 5, 6, 70), (4, 5), (1, 2), "SAME"),
    ((2, 6, 5, 1), (6, 5), (1, 1), "VALID"),
    ((0, 6, 5, 2), (2, 2), (2, 2), "VALID"),
    ((2, 6, 5, 0), (2, 2), (2, 2), "VALID"),
]
each_case = pytest.mark.parametrize(("shape", "window", "stride", "padding"), CASES, ids=str)
each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def _attrs(window, stride, padding):
    return {"ksize": (1, *window, 1), "strides": (1, *stride, 1), "padding": padding}


@pytest.mark.sampled(1)
@each(samples_of(OPS), few=4)
def test_native_pooling_samples(sample):
    assert_sample(sample)


def _assert_pools(images, attrs, **options):
    assert_as_reference(MaxPool, (images,), attrs, rtol=0, atol=0, **options)
    (pooled,) = run_reference(MaxPool, (images,), attrs)
    flow = normal(*pooled.shape, dtype=images.dtype, seed=5)
    assert_as_reference(MaxPoolGrad, (images, pooled, flow), attrs, **options)
    back = normal(*images.shape, dtype=images.dtype, seed=6)
    assert_as_reference(MaxPoolGradGrad, (images, pooled, back), attrs, rtol=0, atol=0, **options)
    assert_as_reference(AvgPool, (images,), attrs, **options)
    assert_as_reference(AvgPoolGrad, (np.array(images.shape, np.int32), flow), attrs, **options)


@pytest.mark.sampled(1)
@each_case
@each_dtype
def test_native_pooling(shape, window, stride, padding, dtype):
    _assert_pools(normal(*shape, dtype=dtype), _attrs(window, stride, padding))


@pytest.mark.sampled(1)
@each_case
def test_native_pooling_with_ties(shape, window, stride, padding):
    _assert_pools(integers(*shape, high=3, dtype=np.float32), _attrs(window, stride, padding))


@each_target
@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_native_max_pooling_with_nan_and_infinities(target, padding):
    images = normal(2, 7, 9, 19)
    flat = images.reshape(-1)
    flat[::7], flat[1::11], flat[2::5] = np.nan, -np.inf, np.inf
    images[0, :3, :3] = -np.inf
    images[1, :4, :4] = np.nan
    attrs = _attrs((2, 3), (2, 2), padding)
    assert_as_reference(MaxPool, (images,), attrs, rtol=0, targets=[target])
    (pooled,) = run_reference(MaxPool, (images,), attrs)
    flow = np.full(pooled.shape, np.inf, np.float32)
    assert_as_reference(MaxPoolGrad, (images, pooled, flow), attrs, rtol=0, targets=[target])


@pytest.mark.slow
@given_few(
    5,
    25,
    st.tuples(
        st.integers(1, 2), st.integers(1, 7), st.integers(1, 7), st.sampled_from([1, 8, 9, 15, 16, 33, 70])
    ),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from(["VALID", "SAME"]),
    st.sampled_from(list(TARGETS)),
)
def test_native_pooling_of_any_windows(shape, window, stride, padding, target):
    assume(padding == "SAME" or (window[0] <= shape[1] and window[1] <= shape[2]))
    images = integers(*shape, high=4, dtype=np.float32)
    _assert_pools(images, _attrs(window, stride, padding), targets=[target], aligned=False)
