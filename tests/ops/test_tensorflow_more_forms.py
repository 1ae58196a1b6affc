"""Shapes that are stated, slices by example, counters, getters of variables, edges: TensorFlow 1's names."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, OutOfRangeError


@pytest.fixture(autouse=True)
def session():
    with tb.Graph().as_default(), tb.Session() as session:
        yield session


def test_a_stated_shape_is_checked(session):
    x = tb.placeholder(tb.float32, [None, None])
    y = tb.ensure_shape(x, [None, 3])
    assert (y.shape, x.shape) == ([None, 3], [None, None])
    (slope,) = tb.gradients(y * y, [x])
    assert session.run(slope, {x: np.ones((2, 3))}).tolist() == [[2.0] * 3] * 2
    with pytest.raises(InvalidArgumentError, match=r"EnsureShape: expected a tensor of shape \[\?, 3\]"):
        session.run(y, {x: np.ones((2, 4))})
    with pytest.raises(InvalidArgumentError, match="EnsureShape"):
        tb.ensure_shape(tb.zeros([2]), [3])


def test_a_stated_shape_is_checked_in_the_dynamic_mode(session):
    x = tb.placeholder(tb.float32, [None])
    kept = tb.ensure_shape(tb.boolean_mask(x, x > 0), [2])
    assert session.run(kept * 2, {x: [1, -1, 3]}).tolist() == [2.0, 6.0]
    with pytest.raises(InvalidArgumentError, match="EnsureShape"):
        session.run(kept * 2, {x: [1, 1, 3]})


def test_shapes_of_broadcasts(session):
    assert tb.broadcast_static_shape([4, 1, 3], [5, 1]) == [4, 5, 3]
    assert tb.broadcast_static_shape([None, 3], [1]) == [None, 3]
    assert tb.broadcast_static_shape(None, [1]).ndims is None
    x, y = tb.placeholder(tb.float32, [None, 3]), tb.placeholder(tb.float32, [None])
    extents = tb.broadcast_dynamic_shape(tb.shape(x), tb.shape(y))
    filled = tb.broadcast_to(y, extents)
    found = session.run([extents, filled], {x: np.ones((2, 3)), y: [7.0]})
    assert (found[0].tolist(), found[1].tolist()) == ([2, 3], [[7.0] * 3] * 2)
    with pytest.raises(InvalidArgumentError, match=r"broadcast_static_shape: shapes .* do not broadcast"):
        tb.broadcast_static_shape([2], [3])
    with pytest.raises(InvalidArgumentError, match=r"BroadcastArgs: shapes .* do not broadcast"):
        session.run(extents, {x: np.ones((2, 3)), y: [7.0] * 2})


def _by_example(x, where_to, axis, batch):
    examples = np.ndindex(*x.shape[:batch])
    rows = [np.take(x[k], where_to[k], axis=axis - batch) for k in examples]
    return np.reshape(rows, (*x.shape[:batch], *rows[0].shape))


@pytest.mark.parametrize(
    ("shape", "extents", "axis", "batch"),
    [
        ((2, 5), (2, 3), None, 1),
        ((2, 3, 5), (2, 4), 2, 1),
        ((2, 3, 5, 4), (2, 3, 6), 3, 2),
        ((2, 3, 5, 4), (2, 3, 2), -2, -1),
    ],
)
def test_gather_by_example(session, shape, extents, axis, batch):
    draws = np.random.default_rng(3)
    values = draws.normal(size=shape)
    x = tb.constant(values)
    where_to = draws.integers(0, shape[batch if axis is None else axis], extents).astype(np.int32)
    y = tb.gather(x, where_to, axis=axis, batch_dims=batch)
    count = batch % len(extents) if batch < 0 else batch
    expected = _by_example(values, where_to, count if axis is None else axis % len(shape), count)
    assert y.shape == list(expected.shape)
    weights = draws.normal(size=expected.shape)
    found, slope = session.run([y, *tb.gradients(y, [x], grad_ys=[tb.constant(weights)])])
    assert np.array_equal(found, expected)
    assert math.isclose(np.vdot(slope, values), np.vdot(weights, expected))  # as it is linear


def test_batch_gather(session):
    x = tb.placeholder(tb.float32, [None, None])
    picked = tb.batch_gather(x, tb.constant([[2, 0], [1, 1]]))
    assert session.run(picked, {x: [[1, 2, 3], [4, 5, 6]]}).tolist() == [[3.0, 1.0], [5.0, 5.0]]
    with pytest.raises(InvalidArgumentError, match="is not in"):
        session.run(tb.batch_gather([[1, 2], [3, 4]], [[2], [0]]))
    with pytest.raises(InvalidArgumentError, match="axis 0 is before batch_dims=1"):
        tb.gather([[1, 2]], [[0]], axis=0, batch_dims=1)
    with pytest.raises(InvalidArgumentError, match="known ranks"):
        tb.gather(tb.placeholder(tb.float32), [[0]], batch_dims=1)


def test_a_counter_ends(session):
    counter = tb.Variable(0)
    session.run(counter.initializer)
    count = counter.count_up_to(2)
    assert [int(session.run(count)) for _ in range(2)] == [0, 1]
    with pytest.raises(OutOfRangeError, match="the variable is 2, and the limit 2"):
        session.run(count)
    assert (session.run(counter), session.run(tb.count_up_to(counter, 3))) == (2, 2)
    assert session.run(counter) == 3


def test_a_getter_of_ones_own(session):
    seen = []

    def halves(getter, name, shape=None, dtype=None, *arguments, **named):
        seen.append((name, dtype, named["trainable"]))
        made = getter(name, shape, tb.float32, *arguments, **named)
        return tb.cast(made, dtype)

    def noted(getter, *arguments, **named):
        seen.append("outer")
        return getter(*arguments, **named)

    with tb.variable_scope("a", custom_getter=noted, use_resource=True):
        with tb.variable_scope("b", custom_getter=halves, dtype=tb.float16):
            w = tb.get_variable("w", [2])
        tb.get_variable("v", [2], use_resource=False, validate_shape=False)
    assert (w.dtype, seen) == (tb.float16, [("a/b/w", tb.float16, True), "outer", "outer"])
    assert [each.name for each in tb.global_variables()] == ["a/b/w:0", "a/v:0"]
    with tb.variable_scope("a/b", reuse=True):
        assert tb.get_variable("w").dtype == tb.float32
    with pytest.raises(InvalidArgumentError, match="custom_getter to be a function"):
        tb.get_variable("x", [2], custom_getter=lambda: None)


def test_arguments_without_effect():
    tb.Variable([1.0], True, None, False, use_resource=True)
    assert tb.GPUOptions(allocator_type="BFC").allocator_type == "BFC"
    with pytest.raises(InvalidArgumentError, match="allocator_type"):
        tb.GPUOptions(allocator_type="other")
    config = tb.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = tb.OptimizerOptions.ON_1
    with pytest.warns(UserWarning, match="graph_options have no effect"):
        tb.Session(config=config).close()
    tb.Session(config=tb.ConfigProto(graph_options=tb.GraphOptions())).close()


def test_summaries_made_by_hand():
    made = tb.Summary(value=[tb.Summary.Value(tag="loss", simple_value=0.5)])
    assert tb.Summary is tb.summary.Summary
    assert tb.summary.Summary.FromString(made.SerializeToString()).value[0].simple_value == 0.5


def test_erf_of_halves(session):
    found = session.run(tb.erf(tb.constant([0.5, -1.0], tb.float16)))
    assert found.dtype == np.float16
    assert np.allclose(found, [math.erf(0.5), math.erf(-1)], atol=1e-3)


@pytest.mark.parametrize(("axis", "keepdims"), [((1, 2), False), ((0, 2), True), ((2, 0), True)])
def test_two_norm_of_matrices(session, axis, keepdims):
    x = np.random.default_rng(5).normal(size=(2, 3, 4))
    found = session.run(tb.norm(x, 2, axis, keepdims))
    assert np.allclose(found, np.linalg.norm(x, 2, axis, keepdims))


def test_differences_of_pixels(session):
    x = np.random.default_rng(7).normal(size=(2, 3, 4, 5))
    dy, dx = session.run(tb.image.image_gradients(x))
    assert np.allclose(dy[:, :-1], np.diff(x, axis=1))
    assert np.allclose(dx[:, :, :-1], np.diff(x, axis=2))
    assert not dy[:, -1].any()
    assert not dx[:, :, -1].any()


def test_sobel_edges(session):
    x = np.random.default_rng(7).normal(size=(2, 3, 4, 5))
    wide = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="reflect")
    kernel = np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]])
    expected = [
        sum(weights[i, j] * wide[:, i : i + 3, j : j + 4] for i in range(3) for j in range(3))
        for weights in (kernel, kernel.T)
    ]
    assert np.allclose(session.run(tb.image.sobel_edges(x)), np.stack(expected, -1))
    with pytest.raises(InvalidArgumentError, match="no second row"):
        tb.image.sobel_edges(tb.zeros([1, 1, 4, 3]))


@pytest.mark.parametrize("known", [True, False])
def test_images_are_fitted_into_margins(session, known):
    values = np.random.default_rng(2).normal(size=(4, 6, 2)).astype(np.float32)
    x = tb.placeholder(tb.float32, [4, 6, 2] if known else [None, None, 2])
    found, inside = session.run(
        [tb.image.resize_image_with_pad(x, 7, 4), tb.image.resize_images(x, [2, 4])], {x: values}
    )
    assert found.shape == (7, 4, 2)
    assert np.allclose(found[2:4], inside)
    assert not found[:2].any()
    assert not found[4:].any()
