"""Corner cases of formulas: mixed signs, zeros, ties, bounds, overflow. Values and gradients by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError
from tests.ops_contract.interpreter import run_graph

pytestmark = pytest.mark.usefixtures("graph")

NAN, INF = np.nan, np.inf


def value(result: Any) -> Any:
    return run_graph([result], {})[0]


def same(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, np.asarray(expected, np.float64), rtol=1e-12, atol=1e-15)


def with_gradients(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """The value, and the gradient of its sum by every array; None where there is none."""
    inputs = {tb.placeholder(tb.float64, np.shape(a)): np.asarray(a, np.float64) for a in arrays}
    result = function(*inputs)
    grads = tb.gradients(result, list(inputs))
    known = [g for g in grads if g is not None]
    values = dict(zip(known, run_graph(known, inputs), strict=True))
    return [run_graph([result], inputs)[0], *(None if g is None else values[g] for g in grads)]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_division_rounds_down_whatever_the_signs(dtype):
    x, y = np.array([7, -7, 7, -7], dtype), np.array([3, 3, -3, -3], dtype)
    assert value(tb.floor_div(x, y)).tolist() == [2, -3, -3, 2]
    assert value(tb.mod(x, y)).tolist() == [1, 2, -2, -1]


def test_mod_of_floats():
    z, by_x, by_y = with_gradients(tb.mod, [7.5, -7.5, 7.5, -7.5, 5.0], [2.0, 2.0, -2.0, -2.0, INF])
    same(z, [1.5, 0.5, -0.5, -1.5, 5.0])
    same(by_x, np.ones(5))
    same(by_y, [-3, 4, 4, -3, 0])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_wrap_around(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    assert value(tb.add(np.array([high], dtype), np.array([1], dtype))) == low
    assert value(tb.floor_div(np.array([low], dtype), np.array([-1], dtype))) == low
    assert value(tb.mod(np.array([low], dtype), np.array([-1], dtype))) == 0
    assert value(tb.reduce_sum(np.array([high, 1], dtype))) == low
    assert value(tb.cumsum(np.array([high, 1], dtype)))[1] == low
    assert value(tb.abs(np.array([low], dtype))) == low


def test_bytes_wrap_around():
    assert value(tb.subtract(np.array([1], np.uint8), np.array([2], np.uint8))) == 255
    assert value(tb.reduce_sum(np.array([200, 100], np.uint8))) == 44
    assert value(tb.cumsum(np.array([200, 100], np.uint8))).tolist() == [200, 44]


def test_powers_at_zero():
    z, by_x, by_y = with_gradients(tb.pow, [0.0, 0.0, 0.0, -2.0, 2.0, INF], [2.0, 1.0, 0.0, 3.0, -1.0, 0.0])
    same(z, [0, 0, 1, -8, 0.5, 1])
    same(by_x, [0, 1, 0, 12, -0.25, 0])
    same(by_y[:5], [0, 0, 0, 0, 0.5 * np.log(2)])
    _, by_x = with_gradients(lambda x: x**0, [0.0, 3.0])
    same(by_x, [0, 0])
    _, by_x = with_gradients(lambda x: x**0.5, [0.0, 4.0])
    same(by_x, [INF, 0.25])


def test_the_second_derivative_of_a_power_with_exponent_zero():
    x, y = (tb.placeholder(tb.float64, [2]) for _ in range(2))
    (by_x,) = tb.gradients(tb.pow(x, y), [x])
    (mixed,) = tb.gradients(by_x, [y])
    result = run_graph([mixed], {x: np.array([2.0, 4.0]), y: np.zeros(2)})[0]
    same(result, [0.5, 0.25])


def test_powers_of_integers():
    assert value(tb.pow(np.array([3, -2, 0]), np.array([4, 3, 0]))).tolist() == [81, -8, 1]
    assert value(tb.shape(np.zeros((3, 5))) ** 2).tolist() == [9, 25]
    with pytest.raises(InvalidArgumentError, match=r"integers to negative integer powers.*tb.cast"):
        value(tb.pow(np.array([3]), np.array([-1])))


def test_roots_and_reciprocals_at_zero():
    same(with_gradients(tb.sqrt, [0.0, 4.0])[1], [INF, 0.25])
    same(with_gradients(tb.rsqrt, [0.0, 4.0]), [[INF, 0.5], [-INF, -0.0625]])
    same(with_gradients(tb.reciprocal, [0.0, -2.0]), [[INF, -0.5], [-INF, -0.25]])


def test_signs_and_steps_have_no_slope():
    for function in (tb.sign, tb.floor, tb.ceil):
        assert with_gradients(function, [-1.5, 0.0, 2.0])[1] is None
    same(value(tb.sign(np.array([-2.0, -0.0, 0.0, NAN]))), [-1, 0, 0, NAN])
    same(with_gradients(tb.abs, [-2.0, 0.0, 3.0])[1], [-1, 0, 1])


def test_clip_passes_the_gradient_at_its_bounds():
    z, by_x = with_gradients(lambda x: tb.clip_by_value(x, -1.0, 1.0), [-2.0, -1.0, 0.0, 1.0, 2.0])
    same(z, [-1, -1, 0, 1, 1])
    same(by_x, [0, 1, 1, 1, 0])
    _, _, low, high = with_gradients(tb.clip_by_value, [-2.0, -1.0, 0.0, 1.0, 2.0], -1.0, 1.0)
    assert (low, high) == (1, 1)


def test_products_with_zeros_have_a_gradient():
    x = [[2.0, 0.0, 3.0], [0.0, 0.0, 1.0], [1.0, 2.0, 3.0]]
    z, by_x = with_gradients(lambda x: tb.reduce_prod(x, 1), x)
    same(z, [0, 0, 6])
    same(by_x, [[0, 6, 0], [0, 0, 0], [6, 3, 2]])
    same(with_gradients(tb.reduce_prod, [[2.0, 0.0], [1.0, 3.0]])[1], [[0, 6], [0, 0]])


def test_ties_share_the_gradient_of_an_extreme():
    same(with_gradients(tb.reduce_max, [1.0, 3.0, 3.0])[1], [0, 0.5, 0.5])
    same(with_gradients(lambda x: tb.reduce_min(x, 0), [[1.0, 3.0], [1.0, 2.0]])[1], [[0.5, 0], [0.5, 1]])
    same(with_gradients(tb.maximum, [1.0, 2.0], [1.0, 3.0])[1:], [[1, 0], [0, 1]])


def test_top_k_takes_the_first_of_equals():
    z, by_x = with_gradients(lambda x: tb.nn.top_k(x, 2)[0], [1.0, 3.0, 3.0, 3.0])
    same(z, [3, 3])
    same(by_x, [0, 1, 1, 0])
    values, indices = tb.nn.top_k(np.array([1.0, NAN, 3.0]), 2)
    same(value(values), [NAN, 3])
    assert value(indices).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("exclusive", "reverse", "sums", "slopes"),
    [
        (False, False, [1, 3, 6], [6, 5, 3]),
        (True, False, [0, 1, 3], [5, 3, 0]),
        (False, True, [6, 5, 3], [1, 3, 6]),
        (True, True, [5, 3, 0], [0, 1, 3]),
    ],
)
def test_running_sums(exclusive, reverse, sums, slopes):
    def weighted(x):
        return tb.cumsum(x, exclusive=exclusive, reverse=reverse) * np.array([1.0, 2.0, 3.0])

    z, by_x = with_gradients(weighted, [1.0, 2.0, 3.0])
    same(z, np.multiply(sums, [1, 2, 3]))
    same(by_x, slopes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("exclusive", "reverse", "products", "slopes"),
    [
        (False, False, [2, 0, 0], [1, 10, 0]),
        (True, False, [1, 2, 0], [1, 2, 0]),
        (False, True, [0, 0, 4], [0, 12, 1]),
        (True, True, [0, 4, 1], [0, 4, 1]),
    ],
)
def test_the_gradient_of_products_with_a_zero(exclusive, reverse, products, slopes, dtype):
    """[2, 0, 4]: of the sum of [x, x y, x y z], of [1, x, x y], and the same from the end."""
    x = tb.placeholder(dtype, [3])
    result = tb.cumprod(x, exclusive=exclusive, reverse=reverse)
    with tb.Session() as session:
        found = session.run([result, tb.gradients(result, x)[0]], {x: np.array([2, 0, 4], dtype)})
    same(found, [products, slopes])


def test_the_curvature_of_a_product_with_zeros():
    """The second derivatives of x y z are the third factor, at zeros too."""
    x = tb.placeholder(tb.float64, [3])
    (slope,) = tb.gradients(tb.reduce_prod(x), x)
    (curvature,) = tb.gradients(tb.reduce_sum(slope * [1.0, 10.0, 100.0]), x)
    for a, b, c in ([2.0, 0.0, 4.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0]):
        expected = [10 * c + 100 * b, c + 100 * a, b + 10 * a]
        same(run_graph([curvature], {x: np.array([a, b, c])})[0], expected)


def test_lists_of_tensors_along_negative_axes():
    x = np.arange(6.0).reshape(2, 3)
    z, by_x = with_gradients(lambda x: tb.unstack(x, axis=-1)[1], x)
    same(z, [1, 4])
    same(by_x, [[0, 1, 0], [0, 1, 0]])
    same(value(tb.stack([[1.0, 2.0], [3.0, 4.0]], axis=-1)), [[1, 3], [2, 4]])
    same(value(tb.stack([[1.0, 2.0], [3.0, 4.0]], axis=-2)), [[1, 2], [3, 4]])
    same(value(tb.split(x, [1, -1], axis=-1)[1]), [[1, 2], [4, 5]])


def test_a_slice_beyond_the_end_is_empty_and_an_index_is_refused():
    z, by_x = with_gradients(lambda x: x[5:9], np.arange(4.0))
    assert z.shape == (0,)
    same(by_x, np.zeros(4))
    with pytest.raises(InvalidArgumentError, match="index 5 is out of range"):
        tb.constant(np.zeros(4))[5]


def test_add_n_wants_one_shape():
    x = tb.constant([1.0, 2.0])
    same(value(tb.add_n([x, x, [3.0, 4.0]])), [5, 8])
    with pytest.raises(InvalidArgumentError, match=r"term 3 is float32\[1\].*expected one shape"):
        tb.add_n([x, x, [3.0]])


def test_activations_far_out():
    far = [-1e3, -1.0, 0.0, 1.0, 1e3]
    e = np.exp(-1.0)
    same(with_gradients(tb.nn.elu, far), [[-1, e - 1, 0, 1, 1e3], [0, e, 1, 1, 1]])
    log = np.log1p(e)
    slope = 1 / (1 + np.e)
    same(
        with_gradients(tb.nn.softplus, far),
        [[0, log, np.log(2), 1 + log, 1e3], [0, slope, 0.5, 1 - slope, 1]],
    )
    same(with_gradients(tb.nn.leaky_relu, far), [[-200, -0.2, 0, 1, 1e3], [0.2, 0.2, 0.2, 1, 1]])
    z, by_x = with_gradients(tb.nn.gelu, far)
    same(z[[0, 2, 4]], [0, 0, 1e3])
    same(by_x[[0, 2, 4]], [0, 0.5, 1])


def test_reverse_of_a_scalar_follows_its_input():
    x = tb.placeholder(tb.float32, [])
    y = tb.reverse(x, [])
    with tb.Session() as session:
        assert [session.run(y, {x: value}) for value in (1.0, 2.0)] == [1.0, 2.0]


@pytest.mark.usefixtures("reference_kernels")
def test_tile_of_a_scalar_follows_its_input():
    x = tb.placeholder(tb.float32, [])
    y = tb.tile(x, np.zeros(0, np.int32))
    with tb.Session() as session:
        assert [session.run(y, {x: value}) for value in (3.0, 5.0)] == [3.0, 5.0]


def test_one_hot_of_booleans():
    with tb.Session() as session:
        hot = session.run(tb.one_hot([2, 0, 5], 3, dtype=tb.bool))
    np.testing.assert_array_equal(hot, [[False, False, True], [True, False, False], [False] * 3])


# Beyond what 32 and 64 bits count ---------------------------------------------------------------------


@pytest.mark.parametrize("extent", [1 << 31, 1 << 40, 1 << 59])
def test_shapes_that_int32_does_not_hold(extent):
    x = tb.placeholder(tb.float32, [extent], name="x")
    assert tb.shape(x, out_type=tb.int64).spec.value.tolist() == [extent]
    assert tb.size(x, out_type=tb.int64).spec.value == extent
    for op, function in (("Shape", tb.shape), ("Size", tb.size)):
        with pytest.raises(
            InvalidArgumentError, match=rf"{op}: the {extent} of .* int32 .*out_type=tb.int64"
        ):
            function(x)


def test_a_mean_over_more_elements_than_int32_counts():
    x = tb.placeholder(tb.float32, [1 << 20, 1 << 20], name="x")
    with tb.Session() as session:
        step = session.explain(tb.gradients(tb.reduce_mean(x), x), {x: tb.TensorSpec(x.shape, tb.float32)})
    assert step.lower_bound_nbytes == 4 << 40


@pytest.mark.parametrize("extents", [[1 << 45], [1 << 62], [(1 << 63) - 1], [1 << 40, 1 << 40]])
def test_constants_for_which_there_is_no_room(extents):
    nbytes = f"{8 * int(np.prod(np.array(extents, object))):,} bytes"
    with pytest.raises(ResourceExhaustedError, match=f"constant: {nbytes} .* do not fit into memory; use"):
        tb.constant(1.0, tb.float64, extents)
    with pytest.raises(
        InvalidArgumentError, match="initializer: expected a shape of at most 2147483647 along"
    ):
        tb.initializers.ones()(extents)
    assert tb.constant([1.0, 2.0], shape=[2, 1]).shape == (2, 1)
    with pytest.raises(InvalidArgumentError, match="2 values do not fill"):
        tb.constant([1.0, 2.0], shape=[1 << 32, 1 << 32])
