"""`gather` with an index list of its own for each example."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")


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


def test_extents_that_only_a_run_knows_are_equal(session):
    x, where_to = tb.placeholder(tb.float32, [None, None, 2]), tb.placeholder(tb.int32, [None, None, 1])
    one, two = (tb.gather(x, where_to, axis=2, batch_dims=count) for count in (1, 2))
    values, places = (
        np.arange(12, dtype=np.float32).reshape(2, 3, 2),
        np.int32([[[0], [1], [1]], [[1], [0], [1]]]),
    )
    found = session.run(two, {x: values, where_to: places})
    assert np.array_equal(found, np.take_along_axis(values, places, 2))
    whole = np.zeros((2, 3, 2)), np.zeros((2, 3, 1), np.int32)
    for y, rows, columns in ((one, 1, 3), (two, 2, 1), (two, 1, 3)):
        for n, fed in enumerate(whole):
            feeds = {x: whole[0], where_to: whole[1], (x, where_to)[n]: fed[:rows, :columns]}
            with pytest.raises(InvalidArgumentError, match=r"params_and_indices_begin_alike.*made at"):
                session.run(y, feeds)
    with pytest.raises(InvalidArgumentError, match="params_and_indices_begin_alike"):
        session.run(two, {x: np.zeros((3, 2, 2)), where_to: whole[1]})


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
