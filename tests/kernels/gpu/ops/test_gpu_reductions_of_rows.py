"""Running sums, top k, scatters, sparse updates, broadcasts on an emulated GPU: borders, ties, order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbow.kernels.gpu.ops.broadcasting import broadcast_axes
from tensorbow.kernels.gpu.runtime.call import DeviceArray, GpuCall
from tensorbow.ops.broadcasting import BroadcastTo, Shape, Size
from tensorbow.ops.cumulative import Cumprod, Cumsum, Recurrence
from tensorbow.ops.definition import kernel_for
from tensorbow.ops.filling import Fill, Range, Rank
from tensorbow.ops.ordering import TopKV2
from tensorbow.ops.regularized_updates import (
    SparseApplyAdagradDA,
    SparseApplyFtrl,
    SparseApplyProximalAdagrad,
    SparseApplyProximalGradientDescent,
)
from tensorbow.ops.scatter import (
    ScatterAdd,
    ScatterDiv,
    ScatterMax,
    ScatterMin,
    ScatterMul,
    ScatterSub,
    ScatterUpdate,
)
from tensorbow.ops.sparse_adaptive_updates import (
    SparseApplyAdadelta,
    SparseApplyAdagrad,
    SparseApplyCenteredRMSProp,
    SparseApplyRMSProp,
)
from tensorbow.ops.sparse_updates import SparseApplyMomentum, SumEqualRows
from tensorbow.specs import TensorSpec, as_dtype, int64
from tests.gpu_rig.against_cpu import assert_as_on_cpu, on_cpu, on_gpu, same_everywhere
from tests.gpu_rig.gpu_kernels import GpuBench, every_gpu_kernel
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.ops_contract.sample import integers, normal, uniform

SCATTERS = [ScatterAdd, ScatterSub, ScatterMul, ScatterDiv, ScatterMax, ScatterMin, ScatterUpdate]
each_scatter = pytest.mark.parametrize("op", SCATTERS, ids=lambda op: op.name)

# Running sums and products --------------------------------------------------------------------------------


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1,), 0), ((64,), 0), ((65,), -1), ((2, 97, 3), 1), ((9, 128), 1), ((1000,), 0), ((5, 0), 1)],
)
def test_running_sums(shape, axis, reverse, exclusive):
    attrs = {"axis": axis, "reverse": reverse, "exclusive": exclusive}
    assert_as_on_cpu(Cumsum, (normal(*shape),), attrs, atol=1e-4)
    assert_as_on_cpu(Cumprod, (1 + normal(*shape) / 50,), attrs, rtol=1e-4)
    for dtype in (np.uint8, np.int32, np.int64):
        x = integers(*shape, high=200, dtype=dtype)
        assert_as_on_cpu(Cumsum, (x,), attrs)
        assert_as_on_cpu(Cumprod, (x,), attrs)


@needs_compiler
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((1,), 0), ((300,), 0), ((2, 97, 3), 1), ((5, 0), 1)])
def test_recurrences(shape, axis, reverse):
    arrays = 1 + normal(*shape) / 50, normal(*shape, seed=1)
    assert_as_on_cpu(Recurrence, arrays, {"axis": axis, "reverse": reverse}, rtol=1e-4)


@needs_compiler
def test_many_lines_have_numpys_bits():
    assert_as_on_cpu(Cumsum, (normal(90, 5000),), {"axis": 0}, rtol=0)
    assert_as_on_cpu(Cumsum, (normal(3, 50, 7),), {"axis": 1, "reverse": True}, rtol=0)


@needs_compiler
def test_nan_and_infinity_run_on():
    x = np.ones((2, 300), np.float32)
    x[0, 100], x[1, 40], x[1, 290] = np.nan, np.inf, -np.inf
    for reverse in (False, True):
        assert_as_on_cpu(Cumsum, (x,), {"axis": 1, "reverse": reverse})


# Top k ------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize(
    ("shape", "k"), [((5,), 1), ((3, 33), 32), ((3, 33), 33), ((2, 1500), 5), ((2, 300), 300), ((7, 2, 4), 2)]
)
def test_top_k(shape, k):
    for x in (
        normal(*shape),
        integers(*shape, high=4),
        integers(*shape, high=250, dtype=np.uint8),
        integers(*shape, low=-(2**60), high=2**60, dtype=np.int64),
        np.full(shape, -np.inf, np.float32),
    ):
        assert_as_on_cpu(TopKV2, (x,), {"k": k}, rtol=0)


@needs_compiler
@pytest.mark.parametrize("k", [3, 40])
def test_top_k_puts_nan_first(k):
    x = normal(2, 70)
    x[0, 5] = x[0, 69] = x[1, 0] = np.nan
    x[0, 3] = np.inf
    assert_as_on_cpu(TopKV2, (x,), {"k": k}, rtol=0)


# Scatters ---------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@needs_compiler
@each_scatter
@pytest.mark.parametrize("index", [np.int32, np.int64, np.uint8])
@pytest.mark.parametrize(
    ("variable", "count", "rows"),
    [((7, 3), 100, 7), ((300, 1), 513, 200), ((4, 5, 70), 9, 2), ((20,), 64, 1)],
)
def test_equal_indices_count_in_order(op, index, variable, count, rows):
    inputs = (
        normal(*variable),
        integers(count, high=rows, dtype=index),
        normal(count, *variable[1:], seed=1),
    )
    assert_as_on_cpu(op, inputs, rtol=0, status=0)
    assert same_everywhere(op, inputs)


@pytest.mark.sampled(1)
@needs_compiler
@each_scatter
def test_scatter_of_a_scalar_and_integers(op):
    assert_as_on_cpu(op, (normal(6, 2), integers(9, high=6), np.float32(1.5)), status=0)
    variable, rows = integers(6, 2, dtype=np.uint8), integers(90, 2, low=1, dtype=np.uint8)
    assert_as_on_cpu(op, (variable, integers(90, high=6), rows), status=0)


@needs_compiler
@each_scatter
@pytest.mark.parametrize("dtype", [np.float32, np.int32])  # memory around is NaN, or -1
def test_indices_out_of_range_are_left_out(op, dtype):
    variable, rows = integers(5, 3, dtype=dtype), integers(6, 3, dtype=dtype, low=1, seed=1)
    indices = np.array([1, -1, 5, 1, 99, 4], np.int32)
    inside = (indices >= 0) & (indices < 5)
    (expected,) = on_cpu(op, (variable, indices[inside], rows[inside])).written
    (actual,) = on_gpu(op, (variable, indices, rows), status=0).written
    np.testing.assert_array_equal(actual, expected)


ROW_UPDATES = [
    (SparseApplyMomentum, 1, (0.1,), (0.9,), {}),
    (SparseApplyMomentum, 1, (0.1,), (0.9,), {"use_nesterov": True}),
    (SparseApplyAdagrad, 1, (0.1,), (), {}),
    (SparseApplyAdadelta, 2, (0.1,), (0.9, 1e-3), {}),
    (SparseApplyRMSProp, 2, (0.1,), (0.75, 0.5, 1e-3), {}),
    (SparseApplyCenteredRMSProp, 3, (0.1,), (0.75, 0.5, 9.0), {}),
    (SparseApplyFtrl, 2, (0.5,), (0.5, 0.25), {"learning_rate_power": -0.5, "l2_shrinkage": 0.0}),
    (SparseApplyFtrl, 2, (0.5,), (0.5, 0.25), {"learning_rate_power": -0.75, "l2_shrinkage": 0.125}),
    (SparseApplyProximalGradientDescent, 0, (0.5,), (0.5, 0.25), {}),
    (SparseApplyProximalAdagrad, 1, (0.5,), (0.5, 0.25), {}),
    (SparseApplyAdagradDA, 2, (0.5,), (0.25, 0.25, 3.0), {}),
]


def _row_update(slots, rate, scalars, indices, shape):
    tables = [uniform(*shape, seed=seed) for seed in range(slots + 1)]
    gradient = normal(len(indices), *shape[1:], seed=9)
    return (*tables, gradient, *map(np.float32, rate), indices, *map(np.float32, scalars))


@pytest.mark.sampled(8)
@needs_compiler
@pytest.mark.parametrize(("op", "slots", "rate", "scalars", "attrs"), ROW_UPDATES)
@pytest.mark.parametrize("shape", [(9,), (9, 1), (40, 33), (300, 2, 5)])
def test_row_updates(op, slots, rate, scalars, attrs, shape):
    chosen = np.arange(0, shape[0], 3)[::-1].astype(np.int64)
    for indices in (chosen, np.concatenate([chosen, [-1, -1]])):
        given = _row_update(slots, rate, scalars, indices, shape)
        assert_as_on_cpu(op, given, attrs, status=0, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize(("op", "slots", "rate", "scalars", "attrs"), ROW_UPDATES)
def test_row_updates_do_nothing_while_the_status_is_set(op, slots, rate, scalars, attrs):
    given = _row_update(slots, rate, scalars, np.array([2, 0, -1]), (5, 3))
    after = on_gpu(op, given, attrs, status=1).written
    for i, table in zip(op.writes, after, strict=True):
        np.testing.assert_array_equal(table, given[i])


@needs_compiler
@pytest.mark.parametrize("index", [-1, 4])
def test_row_updates_leave_the_rows_around_a_variable(index):
    """Variables lie side by side in one buffer: here as the middle rows of a table."""
    tables = [uniform(6, 3, seed=seed) for seed in (0, 1)]
    rest = normal(1, 3), np.float32(0.1), np.array([index], np.int32), np.float32(0.9)
    every_gpu_kernel()
    with emulated_runtime() as runtime, GpuBench(runtime) as bench:
        memory = [bench.memory(TensorSpec(a.shape, as_dtype(a.dtype))) for a in (*tables, *rest)]
        for array, place in zip((*tables, *rest), memory, strict=True):
            bench.upload(np.asarray(array), place)
        inner = [DeviceArray(m.address + 12, (4, 3), m.dtype) for m in memory[:2]]
        call = GpuCall({"use_nesterov": False}, (*inner, *memory[2:]), (inner[0],), bench.context)
        kernel_for(SparseApplyMomentum, "gpu").bind(call)()
        for array, place in zip(tables, memory, strict=False):
            np.testing.assert_array_equal(bench.download(place), array)


@needs_compiler
@each_scatter
def test_scatter_does_nothing_while_the_status_is_set(op):
    given = normal(5, 3), integers(4, high=5), normal(4, 3, seed=1)
    (after,) = on_gpu(op, given, status=1).written
    np.testing.assert_array_equal(after, given[0])


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(("count", "high", "inner"), [(1, 1, 3), (33, 5, 70), (300, 1000, 2), (513, 3, 1)])
def test_sum_of_equal_rows(count, high, inner):
    indices = integers(count, high=high, dtype=np.int64)
    given = normal(count, inner), indices
    assert_as_on_cpu(SumEqualRows, given, rtol=0)
    assert same_everywhere(SumEqualRows, given)
    assert_as_on_cpu(SumEqualRows, (integers(count, inner, dtype=np.uint8, high=250), indices))


# Broadcasts and filled tensors ------------------------------------------------------------------------------


@st.composite
def broadcasts(draw):
    large = draw(st.lists(st.integers(1, 5), max_size=5))
    small = [draw(st.sampled_from([1, extent])) for extent in large]
    return tuple(small[draw(st.integers(0, len(small))) :]), tuple(large)


@pytest.mark.slow
@given(broadcasts())
def test_broadcast_axes_are_numpys(case):
    small, large = case
    axes = broadcast_axes(small, large)
    places = [np.unravel_index(i, axes.extents) if axes.extents else () for i in range(math.prod(large))]
    actual = [sum(int(p) * s for p, s in zip(place, axes.strides, strict=True)) for place in places]
    expected = np.broadcast_to(np.arange(math.prod(small)).reshape(small), large)
    np.testing.assert_array_equal(actual, expected.reshape(-1))
    assert 1 not in axes.extents


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize(
    ("small", "large"),
    [((), (3, 1000)), ((3, 1), (3, 300)), ((1, 3), (5, 3)), ((2, 1, 3, 1), (2, 4, 3, 5)), ((3,), (0, 3))],
)
def test_broadcast_to(dtype, small, large):
    x = np.asarray(integers(*small, high=200), dtype)
    assert_as_on_cpu(BroadcastTo, (x, np.array(large, np.int64)), rtol=0)


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_range_and_fill(dtype):
    start, limit, delta = (np.asarray(number, dtype) for number in (-7, 5000, 3))
    assert_as_on_cpu(Range, (start, limit, delta))
    assert_as_on_cpu(Fill, (np.array([3, 0], np.int32), delta))
    assert_as_on_cpu(Fill, (np.array([30, 50], np.int32), delta))


@needs_compiler
@pytest.mark.parametrize("shape", [(), (7,), (2, 0, 3), (1, 2, 1, 3, 1, 2)])
def test_shapes_as_tensors(shape):
    x = normal(*shape)
    assert_as_on_cpu(Shape, (x,))
    assert_as_on_cpu(Shape, (x,), {"out_type": int64})
    assert_as_on_cpu(Size, (x,), {"out_type": int64})
    assert_as_on_cpu(Rank, (x,))
