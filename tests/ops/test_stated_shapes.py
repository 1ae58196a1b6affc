"""Shapes that are stated and checked, and shapes of broadcasts."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")


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
