"""Native reductions: sizes at the borders of vectors, blocks and parts; NaN, ties, bounds of errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import strategies as st

from tensorbow.ops.broadcasting import SumTo
from tensorbow.ops.nn import BiasAddGrad, L2Loss
from tensorbow.ops.reductions import All, Any_, ArgMax, Max, Mean, Min, Prod, Sum
from tests.native_rig.native_calls import (
    TARGETS,
    assert_as_reference,
    assert_sample,
    each_target,
    run_native,
    samples_of,
)
from tests.ops_contract.collection import each
from tests.ops_contract.sample import integers, normal
from tests.program_rig.examples import given_few

OPS = {
    definition.name
    for definition in (Sum, Mean, Max, Min, Prod, Any_, All, ArgMax, SumTo, BiasAddGrad, L2Loss)
}
CASES = [  # (shape, axes)
    *[((n,), None) for n in (1, 7, 16, 17, 63, 64, 65, 16383, 16384, 16385, 40_003)],
    ((), None),
    ((3, 1025), (1,)),
    ((1000, 2), (1,)),
    ((1000, 17), (1,)),
    ((5000, 3), (0,)),
    ((256, 16), (0,)),
    ((1031, 16), (0,)),
    ((517, 67), (0,)),
    ((3, 257, 5), (0, 2)),
    ((2, 300, 3, 40), (1, 3)),
    ((6, 2, 500, 7), (0, 2)),
    ((1, 5, 1, 300, 1), (1, 3)),
    ((4, 8, 8, 64), (1, 2)),
    ((0, 3), (0,)),
    ((0, 3), (1,)),
    ((3, 0), (1,)),
    ((5, 4), ()),
]
each_case = pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)


@each(samples_of(OPS), few=4)
@pytest.mark.sampled(1)
def test_native_reduction_samples(sample):
    assert_sample(sample)


@pytest.mark.sampled(10)
@each_case
@each_target
def test_native_sum_keeps_the_stated_bound(shape, axes, target):
    x = normal(*shape)
    (result,) = run_native(Sum, (x,), {"axis": axes}, TARGETS[target]())
    count = x.size / max(1, result.size)
    terms = min(count, 256) + count / 256 + 8
    bound = terms * np.finfo(np.float32).eps * np.abs(x).sum(axes, np.float64)
    assert (np.abs(result - x.sum(axes, np.float64)) <= bound).all()


def test_native_sum_of_many_equal_numbers_is_exact_enough():
    x = np.full(1 << 20, 0.1, np.float32)
    for array, axes in ((x, (0,)), (x.reshape(-1, 16), (0,)), (x.reshape(64, -1, 16), (0, 1))):
        (result,) = run_native(Sum, (array,), {"axis": axes})
        np.testing.assert_allclose(result, array.sum(axes, np.float64), rtol=5e-6)


@pytest.mark.sampled(3)
@each_case
@pytest.mark.parametrize("op", [Max, Min], ids=lambda op: op.name)
def test_native_extremes(op, shape, axes):
    assert_as_reference(op, (normal(*shape),), {"axis": axes}, rtol=0, atol=0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "axes"), CASES[::3], ids=str)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_native_integer_reductions_are_exact_and_wrap_around(shape, axes, dtype):
    limits = np.iinfo(dtype)
    x = integers(*shape, low=limits.max // 2, high=limits.max, dtype=dtype)
    assert_as_reference(Sum, (x,), {"axis": axes}, targets=["host"])
    assert_as_reference(Max, (x,), {"axis": axes}, targets=["narrow"])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.float64])
@pytest.mark.parametrize("op", [Max, Min], ids=lambda op: op.name)
def test_native_extremes_of_the_range_of_a_dtype(op, dtype):
    limits = np.iinfo(dtype) if np.dtype(dtype).kind != "f" else np.finfo(dtype)
    x = np.array([[limits.min, limits.min], [limits.max, limits.max], [limits.min, limits.max]], dtype)
    assert_as_reference(op, (x,), {"axis": (1,)}, rtol=0)
    assert_as_reference(op, (np.zeros((3, 0), dtype),), {"axis": (1,)}, rtol=0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("op", [Max, Min, Sum, Mean, Prod], ids=lambda op: op.name)
@pytest.mark.parametrize("place", [0, 15, 16, 64, 4000, 9999])
def test_native_reduction_meets_one_nan(op, place):
    x = np.ones((2, 10_000), np.float32)
    x[1, place] = np.nan
    for array, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
        (result,) = run_native(op, (array,), {"axis": (axis,)})
        assert not np.isnan(result[0])
        assert np.isnan(result[1])


@pytest.mark.parametrize("place", [None, 0, 63, 20_000])
def test_native_any_and_all(place):
    for op, others in ((Any_, False), (All, True)):
        x = np.full((3, 20_001), others)
        if place is not None:
            x[1, place] = not others
        for array, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
            assert_as_reference(op, (array,), {"axis": (axis,)}, targets=["host"])


@pytest.mark.slow
@given_few(
    10,
    40,
    st.lists(st.sampled_from([1, 2, 3, 7, 8, 9, 15, 16, 17, 33]), max_size=4),
    st.integers(0, 15),
    st.sampled_from([Sum, Max, Mean, Min]),
    st.sampled_from(list(TARGETS)),
)
def test_native_reduction_over_any_axes(shape, chosen, op, target):
    axes = tuple(axis for axis in range(len(shape)) if chosen >> axis & 1)
    atol = max(1e-5, 6e-8 * math.prod(shape[axis] for axis in axes))  # the reference adds one by one
    for keepdims in (False, True):
        attrs = {"axis": axes, "keepdims": keepdims}
        assert_as_reference(op, (normal(*shape),), attrs, atol=atol, targets=[target], aligned=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", [(64, 128), (4096, 10), (3, 50, 50, 33), (2, 1), (0, 4), (5, 0), (8, 1024)])
def test_native_bias_gradient(shape):
    assert_as_reference(BiasAddGrad, (normal(*shape),), atol=1e-4)
    assert_as_reference(BiasAddGrad, (normal(*shape, dtype=np.float64),), targets=["host"], atol=1e-10)


@pytest.mark.parametrize(
    ("large", "small"),
    [((7, 300, 5), (300, 1)), ((7, 300, 5), (5,)), ((7, 300, 5), ()), ((9, 1, 4), (1, 4)), ((0, 3), (3,))],
)
def test_native_sum_to(large, small):
    assert_as_reference(SumTo, (normal(*large), np.array(small, np.int64)), atol=1e-4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(3, 5), (2, 33), (4, 1025), (300, 3), (7, 6, 19)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_native_argmax_takes_the_first_of_equals(shape, axis):
    for x in (normal(*shape), integers(*shape, high=3), np.full(shape, -np.inf, np.float32)):
        assert_as_reference(ArgMax, (x,), {"axis": axis})


def test_native_argmax_takes_the_first_nan():
    x = normal(3, 3000)
    x[0, 7] = x[1, 0] = x[2, 2999] = np.nan
    x[0, 2000] = x[1, 1] = np.nan
    x[0, 3] = np.inf
    assert_as_reference(ArgMax, (x,), {"axis": 1})
    assert_as_reference(ArgMax, (np.ascontiguousarray(x.T),), {"axis": 0})


def test_native_l2_loss_and_mean_of_an_odd_number():
    x = 1 + normal(math.prod((23, 29, 31)))
    assert_as_reference(L2Loss, (x,))
    assert_as_reference(Mean, (x,))
