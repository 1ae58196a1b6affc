"""Reductions on an emulated GPU: sizes at the borders of warps, blocks, parts; NaN, ties, error bounds."""

from __future__ import annotations

import itertools
import math
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorbow.graph import OpDef
from tensorbow.kernels.gpu.ops import (
    average_pooling,
    batch_norm,
    batch_norm_grad,
    broadcasting,
    cumulative,
    filling,
    losses,
    nn,
    ordering,
    pooling,
    scatter,
    sparse_updates,
)
from tensorbow.kernels.gpu.source import reduction_plans
from tensorbow.kernels.gpu.source.index_types import IndexType
from tensorbow.kernels.gpu.source.reduction_plans import plan_reduction
from tensorbow.ops.broadcasting import SumTo
from tensorbow.ops.nn import BiasAddGrad, L2Loss
from tensorbow.ops.reductions import All, Any_, ArgMax, Max, Mean, Min, Prod, Sum
from tests.gpu_rig.against_cpu import assert_as_on_cpu, on_gpu, same_everywhere
from tests.gpu_rig.gpu_kernels import every_gpu_kernel
from tests.gpu_rig.runtimes import needs_compiler
from tests.ops_contract.collection import all_samples
from tests.ops_contract.sample import integers, normal

CASES = [  # (shape, axes): what crosses the borders of warps, blocks, parts
    *[((n,), None) for n in (1, 16, 17, 31, 33, 1023, 1025, 8192, 8193, 100_003)],
    ((3, 1025), (1,)),
    ((9, 1000), (1,)),
    ((2, 40_000), (1,)),
    ((5000, 3), (0,)),
    ((4097, 33), (0,)),
    ((2, 5000), (0,)),
    ((1000, 17), (1,)),
    ((1000, 2), (1,)),
    ((3, 257, 5), (0, 2)),
    ((2, 300, 3, 40), (1, 3)),
    ((6, 2, 500, 7), (0, 2)),
    ((1, 5, 1, 300, 1), (1, 3)),
]
each_case = pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)


# How the work is cut: no GPU needed ---------------------------------------------------------------------


@st.composite
def reductions(draw):
    shape = tuple(draw(st.lists(st.integers(1, 7), max_size=5)))
    return shape, tuple(axis for axis in range(len(shape)) if draw(st.booleans()))


def _offsets(axes):
    return [
        sum(i * s for i, s in zip(place, axes.strides, strict=True))
        for place in itertools.product(*(range(e) for e in axes.extents))
    ]


@given(reductions())
def test_plan_visits_the_elements_numpy_reduces(case):
    shape, axes = case
    plan = plan_reduction(shape, axes)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    places = np.arange(math.prod(shape)).reshape(shape).transpose(*kept, *axes)
    expected = places.reshape(plan.outputs, plan.reduced.size)
    actual = np.add.outer(_offsets(plan.kept), _offsets(plan.reduced))
    np.testing.assert_array_equal(actual, expected)


@given(reductions())
def test_plan_joins_axes_of_one_kind(case):
    plan = plan_reduction(*case)
    assert abs(len(plan.kept.extents) - len(plan.reduced.extents)) <= 1
    assert 1 not in (*plan.kept.extents, *plan.reduced.extents)


@given(st.integers(1, 300_000), st.integers(1, 5000), st.booleans())
def test_plan_covers_all_and_no_part_is_empty(count, outputs, rows):
    plan = plan_reduction((outputs, count) if rows else (count, outputs), (1 if rows else 0,))
    assert plan.parts * plan.share >= count
    assert (plan.parts - 1) * plan.share < count
    assert plan.parts <= 128
    assert math.prod(plan.block) <= 256
    assert plan.grid[0] * plan.block[1 if plan.along_rows else 0] >= outputs
    assert plan_reduction((outputs, count), (1,), in_parts=False).parts == 1


def test_plan_is_one_launch_where_that_is_quick():
    assert plan_reduction((64, 10), (1,)).parts == 1  # the losses of a small batch
    assert plan_reduction((64, 128), (0,)).parts == 1  # the bias of a dense layer
    assert plan_reduction((1024, 4096), (0,)).parts > 1
    assert plan_reduction((4096, 100_000), (1,)).parts == 1  # rows enough for any GPU


# Sums and their error -------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@needs_compiler
@each_case
def test_sum_keeps_the_stated_bound(shape, axes):
    x = normal(*shape)
    (result,) = on_gpu(Sum, (x,), {"axis": axes}).outputs
    plan = plan_reduction(shape, range(len(shape)) if axes is None else axes)
    threads = plan.parts * plan.block[0 if plan.along_rows else 1]
    terms = plan.reduced.size / (4 * threads) + math.log2(4 * threads) + 8
    bound = terms * np.finfo(np.float32).eps * np.abs(x).sum(axes, np.float64)
    assert (np.abs(result - x.sum(axes, np.float64)) <= bound).all()


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("axes", [(0,), (1,), None])
def test_sum_has_the_same_bits_on_every_gpu(axes):
    assert same_everywhere(Sum, (normal(2000, 65),), {"axis": axes})


@pytest.mark.sampled(1)
@needs_compiler
@each_case
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_integer_sums_are_exact_and_wrap_around(shape, axes, dtype):
    limits = np.iinfo(dtype)
    x = integers(*shape, low=limits.max // 2, high=limits.max, dtype=dtype)
    assert_as_on_cpu(Sum, (x,), {"axis": axes})


@pytest.mark.slow
@needs_compiler
def test_float64_stays_double():
    x = normal(40_000, 3, dtype=np.float64)
    assert_as_on_cpu(Sum, (x,), {"axis": (0,)}, rtol=1e-12)
    assert_as_on_cpu(Mean, (x,), {"axis": None}, rtol=1e-10)
    assert_as_on_cpu(L2Loss, (x,), rtol=1e-13)


@needs_compiler
@pytest.mark.parametrize("shape", [(300,), (100_003,), (40, 50, 60), (0, 3), ()])
def test_mean_and_l2_loss(shape):
    x = 1 + normal(*shape)
    assert_as_on_cpu(Mean, (x,))
    assert_as_on_cpu(L2Loss, (x,))


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("shape", [(64, 128), (4096, 10), (3, 50, 50, 33), (2, 1), (0, 4), (5, 0)])
def test_bias_gradient(shape):
    assert_as_on_cpu(BiasAddGrad, (normal(*shape),), atol=1e-4)


@needs_compiler
@pytest.mark.parametrize(
    ("large", "small"),
    [((7, 300, 5), (300, 1)), ((7, 300, 5), (5,)), ((7, 300, 5), ()), ((9, 1, 4), (1, 4)), ((0, 3), (3,))],
)
def test_sum_to(large, small):
    assert_as_on_cpu(SumTo, (normal(*large), np.array(small, np.int64)), atol=1e-4)


# The others -------------------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@needs_compiler
@each_case
@pytest.mark.parametrize("op", [Max, Min], ids=lambda op: op.name)
def test_extremes(op, shape, axes):
    assert_as_on_cpu(op, (normal(*shape),), {"axis": axes}, rtol=0)


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("op", [Max, Min], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.float64])
def test_extremes_of_the_range_of_a_dtype(op, dtype):
    limits = np.iinfo(dtype) if np.dtype(dtype).kind != "f" else np.finfo(dtype)
    x = np.array([[limits.min, limits.min], [limits.max, limits.max], [limits.min, limits.max]], dtype)
    assert_as_on_cpu(op, (x,), {"axis": (1,)}, rtol=0)
    assert_as_on_cpu(op, (np.zeros((3, 0), dtype),), {"axis": (1,)}, rtol=0)


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize("op", [Max, Min, Sum, Mean, Prod], ids=lambda op: op.name)
@pytest.mark.parametrize("place", [0, 31, 32, 4000, 9999])
def test_one_nan_is_enough(op, place):
    x = np.ones((2, 10_000), np.float32)
    x[1, place] = np.nan
    for array, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
        (result,) = on_gpu(op, (array,), {"axis": (axis,)}).outputs
        assert not np.isnan(result[0])
        assert np.isnan(result[1])


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64, np.uint8])
def test_product(dtype):
    x = integers(3, 70, 5, low=1, high=4, dtype=dtype) if dtype != np.float32 else 1 + normal(3, 70, 5) / 100
    for axes in ((1,), (0, 2), (2,)):
        assert_as_on_cpu(Prod, (x,), {"axis": axes})


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("place", [None, 0, 63, 20_000])
def test_any_and_all(place):
    for op, others in ((Any_, False), (All, True)):
        x = np.full((3, 20_001), others)
        if place is not None:
            x[1, place] = not others
        for array, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
            assert_as_on_cpu(op, (array,), {"axis": (axis,)})


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize("shape", [(3, 5), (2, 33), (4, 1025), (2, 5000), (300, 3), (5000, 2)])
@pytest.mark.parametrize("axis", [0, -1])
def test_argmax_takes_the_first_of_equals(shape, axis):
    for x in (normal(*shape), integers(*shape, high=3), np.full(shape, -np.inf, np.float32)):
        assert_as_on_cpu(ArgMax, (x,), {"axis": axis})


@needs_compiler
def test_argmax_takes_the_first_nan():
    x = normal(3, 3000)
    x[0, 7] = x[1, 0] = x[2, 2999] = np.nan
    x[0, 2000] = x[1, 1] = np.nan
    x[0, 3] = np.inf
    assert_as_on_cpu(ArgMax, (x,), {"axis": 1})
    assert_as_on_cpu(ArgMax, (np.ascontiguousarray(x.T),), {"axis": 0})


@pytest.mark.slow
@needs_compiler
@settings(max_examples=30, deadline=None)
@given(reductions(), st.sampled_from([Sum, Max, Mean]))
def test_any_axes(case, op):
    shape, axes = case
    assert_as_on_cpu(op, (normal(*shape),), {"axis": axes}, atol=1e-5)


# Indices of more than 31 bits -------------------------------------------------------------------------------

MODULES = [
    average_pooling,
    batch_norm,
    batch_norm_grad,
    broadcasting,
    cumulative,
    filling,
    losses,
    nn,
    ordering,
    pooling,
    reduction_plans,
    scatter,
    sparse_updates,
]


def _one_of_each_op():
    found = {}
    for sample in all_samples():
        kernel = every_gpu_kernel().get(sample.op.name)
        is_complex = any(map(np.iscomplexobj, sample.inputs))  # their kernels are of CPUs
        if kernel is not None and not sample.empty and not sample.large and not is_complex:
            found.setdefault(sample.op.name, sample)
    return found


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_long_indices_give_the_same_bits(module, monkeypatch):
    """Arrays of 2^30 elements and more need long indices; here small ones are made to use them."""
    users = {definition for definition in _definitions(module) if definition.name in _one_of_each_op()}
    assert users
    for definition in users:
        sample = _one_of_each_op()[definition.name]
        short = on_gpu(definition, sample.inputs, sample.attrs).outputs
        with monkeypatch.context() as patch:
            patch.setattr(module, "index_for", lambda count: IndexType("long long", np.int64))
            long = on_gpu(definition, sample.inputs, sample.attrs).outputs
        assert [a.tobytes() for a in short] == [a.tobytes() for a in long]


def _definitions(module):
    """The ops whose kernels a module prepares."""
    named = [value for value in vars(module).values() if isinstance(value, OpDef)]
    of_modules = [
        value
        for ops in vars(module).values()
        if isinstance(ops, ModuleType) and ops.__name__.startswith("tensorbow.ops.")
        for value in vars(ops).values()
        if isinstance(value, OpDef)
    ]
    return {*named, *of_modules} or {Sum, Mean, Max, Min, Prod, Any_, All, ArgMax}
