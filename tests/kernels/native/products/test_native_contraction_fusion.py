"""Element-wise ops at the end of contractions: what joins, what does not, and that the bits stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

import tensorbow as tb
from tests.native_rig.fused_runs import values
from tests.native_rig.native_calls import TARGETS, each_target, native_cpu
from tests.ops_contract.sample import normal
from tests.program_rig.examples import given_few


def assert_same_bits(target, fetch, feeds, contraction, joins=True):
    """Fused and not; joins: whether `explain` names the contraction as fused."""
    width = TARGETS[target]()
    (ours, text), (alone, alone_text) = (values(fetch, feeds, fuses, width) for fuses in (True, False))
    assert (f"fused with {contraction}" in text) == joins
    assert f"fused with {contraction}" not in alone_text
    np.testing.assert_array_equal(ours, alone)
    with tb.Session() as session:
        np.testing.assert_allclose(ours, session.run(fetch, feeds), rtol=1e-4, atol=1e-4)


@pytest.fixture(autouse=True)
def graph():
    with tb.Graph().as_default():
        yield


@each_target
@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [tb.float32, tb.float64])
@pytest.mark.parametrize("outputs", [5, 16, 37])
def test_bias_and_relu_of_a_convolution(outputs, dtype, target):
    numpy_dtype = dtype.as_numpy_dtype
    x = tb.placeholder(dtype, [2, 9, 11, 7])
    w, b = normal(3, 3, 7, outputs, dtype=numpy_dtype), normal(outputs, dtype=numpy_dtype, seed=1)
    y = tb.nn.relu(tb.nn.bias_add(tb.nn.conv2d(x, w, 1, "SAME"), b))
    assert_same_bits(target, y, {x: normal(2, 9, 11, 7, dtype=numpy_dtype)}, "Conv2D")


ENDS = {
    "bias": lambda y, kind: tb.nn.bias_add(y, normal(int(y.shape[-1]), dtype=kind, seed=1)),
    "relu": lambda y, kind: tb.nn.relu(y),
    "tanh": lambda y, kind: tb.tanh(y),
    "factor": lambda y, kind: y * tb.constant(np.asarray(0.7, kind)),
    "sum": lambda y, kind: y + normal(*y.shape, dtype=kind, seed=2),
    "square": lambda y, kind: y * y,
}


@given_few(
    3,
    30,
    batch=st.integers(1, 3),
    extents=st.tuples(st.integers(5, 12), st.integers(5, 12)),
    depth=st.sampled_from([1, 3, 8, 15, 16, 17]),
    outputs=st.sampled_from([1, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33]),
    window=st.sampled_from([0, 1, 2, 3, 5]),
    stride=st.integers(1, 2),
    padding=st.sampled_from(["SAME", "VALID"]),
    ends=st.lists(st.sampled_from(sorted(ENDS)), min_size=1, max_size=4),
    dtype=st.sampled_from([tb.float32, tb.float64]),
    narrow=st.booleans(),
)
def test_any_ends_of_any_contraction(
    batch, extents, depth, outputs, window, stride, padding, ends, dtype, narrow
):
    """Window 0: a product of matrices."""
    kind = dtype.as_numpy_dtype
    shape = (batch, *extents, depth) if window else (batch, depth)
    with tb.Graph().as_default():
        x = tb.placeholder(dtype, shape)
        if window:
            y = tb.nn.conv2d(x, normal(window, window, depth, outputs, dtype=kind), stride, padding)
        else:
            y = tb.matmul(x, normal(depth, outputs, dtype=kind))
        for end in ends:
            y = ENDS[end](y, kind)
        feeds = {x: normal(*shape, dtype=kind, seed=3)}
        target = TARGETS["narrow" if narrow else "host"]()
        (ours, text), (alone, _) = (values(y, feeds, fuses, target) for fuses in (True, False))
        assert f"fused with {'Conv2D' if window else 'MatMul'}" in text
        np.testing.assert_array_equal(ours, alone)
        with tb.Session() as session:
            np.testing.assert_allclose(ours, session.run(y, feeds), rtol=1e-3, atol=1e-3)


@each_target
def test_sum_with_another_image_and_a_factor(target):
    x, z, s = (tb.placeholder(tb.float32, shape) for shape in ([3, 8, 6, 16], [3, 8, 6, 24], []))
    y = tb.nn.relu(tb.nn.conv2d(x, normal(1, 1, 16, 24), 1, "VALID") * s + z)
    feeds = {x: normal(3, 8, 6, 16), z: normal(3, 8, 6, 24, seed=1), s: np.float32(0.7)}
    assert_same_bits(target, y, feeds, "Conv2D")


@each_target
@pytest.mark.sampled(1)
@pytest.mark.parametrize("rows", [3, 70])
def test_end_of_a_product_whose_sum_takes_several_passes(rows, target):
    x, z = tb.placeholder(tb.float32, [rows, 900]), tb.placeholder(tb.float32, [rows, 300])
    y = tb.tanh(tb.nn.bias_add(tb.matmul(x, normal(900, 300)), normal(300, seed=1)) + z)
    assert_same_bits(target, y, {x: 0.1 * normal(rows, 900), z: normal(rows, 300, seed=2)}, "MatMul")


@each_target
def test_square_of_a_product(target):
    x = tb.placeholder(tb.float32, [5, 9])
    product = tb.matmul(x, normal(9, 20))
    assert_same_bits(target, product * product, {x: normal(5, 9)}, "MatMul")


@each_target
def test_gradient_of_relu_joins_that_of_a_convolution(target):
    x = tb.placeholder(tb.float32, [2, 8, 8, 16])
    hidden = tb.nn.relu(tb.nn.conv2d(x, 0.1 * normal(3, 3, 16, 16), 1, "SAME"))
    y = tb.nn.conv2d(hidden, 0.1 * normal(3, 3, 16, 16, seed=1), 1, "SAME")
    (gradient,) = tb.gradients(y * y, x)
    assert_same_bits(target, gradient, {x: normal(2, 8, 8, 16, seed=2)}, "Conv2DBackpropInput")


@each_target
def test_a_result_that_others_read_stays(target):
    x = tb.placeholder(tb.float32, [4, 9])
    product = tb.matmul(x, normal(9, 20))
    assert_same_bits(
        target, tb.nn.relu(product) - tb.reduce_sum(product), {x: normal(4, 9)}, "MatMul", joins=False
    )


def test_a_fetched_result_stays():
    x = tb.placeholder(tb.float32, [4, 9])
    product = tb.matmul(x, normal(9, 20))
    (_, ours), text = values([product, tb.nn.relu(product)], {x: normal(4, 9)})
    assert "fused with MatMul" not in text
    assert ours.min() == 0


@each_target
def test_a_column_that_is_no_row_stays_outside(target):
    x = tb.placeholder(tb.float32, [4, 9])
    y = tb.matmul(x, normal(9, 20)) + normal(4, 1, seed=1)
    assert_same_bits(target, y, {x: normal(4, 9)}, "MatMul", joins=False)


def test_reads_a_variable_as_it_was_before_a_later_write():
    x = tb.placeholder(tb.float32, [4, 9])
    weights = tb.Variable(normal(9, 20))
    product = tb.matmul(x, weights)
    with tb.control_dependencies([product]):
        write = tb.assign(weights, np.zeros((9, 20), np.float32))
    with tb.control_dependencies([write]):
        y = tb.nn.relu(product)
    feeds = {x: normal(4, 9, seed=1)}
    with native_cpu(), tb.Session() as session:
        session.run(tb.global_variables_initializer())
        ours = session.run(y, feeds)
    np.testing.assert_allclose(ours, np.maximum(feeds[x] @ normal(9, 20), 0), rtol=1e-5, atol=1e-5)
