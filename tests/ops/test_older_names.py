"""TensorFlow 1's names for combinations of ops."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

X = np.array([[[3, -1, 2, -1], [1, 1, 0, 7]], [[5, 5, 5, 4], [0, -9, 8, 8]]], np.float32)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_sorted_in_both_directions(session, axis, dtype):
    x = X.astype(dtype)
    up, down, places, back = session.run(
        [
            tb.sort(x, axis),
            tb.sort(x, axis, direction="DESCENDING"),
            tb.argsort(x, axis, stable=True),
            tb.argsort(x, axis, "DESCENDING"),
        ]
    )
    np.testing.assert_array_equal(up, np.sort(x, axis))
    np.testing.assert_array_equal(down, -np.sort(-x, axis))
    np.testing.assert_array_equal(places, np.argsort(x, axis, kind="stable"))
    np.testing.assert_array_equal(back, np.argsort(-x, axis, kind="stable"))


def test_sort_has_a_gradient_and_needs_a_known_rank(session):
    x = tb.constant(X[0])
    (gradient,) = tb.gradients(tb.sort(x) * np.arange(4.0, dtype=np.float32), x)
    np.testing.assert_array_equal(
        session.run(gradient), np.argsort(np.argsort(X[0], kind="stable"), kind="stable")
    )
    unknown = tb.placeholder(tb.float32, [2, None])
    assert session.run(tb.sort(unknown, 0), {unknown: [[3], [1]]}).tolist() == [[1], [3]]
    with pytest.raises(InvalidArgumentError, match="sort: expected values of a known rank of at least 1"):
        tb.sort(tb.placeholder(tb.float32))
    with pytest.raises(InvalidArgumentError, match="argsort: expected direction to be 'ASCENDING' or"):
        tb.argsort(x, direction="up")


def test_casts_lists_and_dtypes(session):
    x = tb.constant(X[0] + 0.75)
    for cast, dtype in ((tb.to_int32, tb.int32), (tb.to_int64, tb.int64), (tb.to_double, tb.float64)):
        assert cast(x).dtype == dtype
    assert session.run(tb.to_int32(x))[0].tolist() == [3, 0, 2, 0]
    assert (tb.to_float([1, 2]).dtype, tb.to_bfloat16(x).dtype) == (tb.float32, tb.bfloat16)
    assert (tb.half, tb.double) == (tb.float16, tb.float64)
    same, shapes = session.run([tb.identity_n([x, 3]), tb.shape_n([x, [1, 2, 3]])])
    np.testing.assert_array_equal(same[0], X[0] + 0.75)
    assert (same[1], [shape.tolist() for shape in shapes]) == (3, [[2, 4], [3]])


def test_clipping_by_the_average_norm(session):
    x = X[0].astype(np.float64)
    average = np.sqrt((x**2).sum()) / x.size
    clipped, kept = session.run([tb.clip_by_average_norm(x, limit) for limit in (average / 2, average * 2)])
    np.testing.assert_allclose(clipped, x / 2)
    np.testing.assert_allclose(kept, x)
    with pytest.raises(InvalidArgumentError, match="expected t to be a tensor of floats"):
        tb.clip_by_average_norm([1, 2], 1.0)


def test_model_variables_are_those_that_a_program_adds(session):
    variable = tb.Variable(1.0, collections=[tb.GraphKeys.GLOBAL_VARIABLES, tb.GraphKeys.MODEL_VARIABLES])
    tb.Variable(2.0)
    assert tb.model_variables() == [variable]


def test_older_names_of_the_axes_of_sequences(session):
    x = tb.constant([[1, 2, 3], [4, 5, 6]])
    turned = tb.reverse_sequence(x, [2, 3], seq_dim=1, batch_dim=0)
    assert session.run(turned).tolist() == [[2, 1, 3], [6, 5, 4]]
