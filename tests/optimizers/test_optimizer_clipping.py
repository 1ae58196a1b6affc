"""Clipping by the global norm, against NumPy and TensorFlow's rules for what is not finite."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")

A, B = np.array([[3.0, -4.0, 0.0], [1.0, 2.0, -2.0]]), np.array([5.0, 1.0])
NORM = np.sqrt((A**2).sum() + (B**2).sum())


@pytest.mark.parametrize("limit", [NORM / 3, NORM, NORM * 2])
def test_against_numpy(session, limit):
    clipped, norm = tb.clip_by_global_norm([tb.constant(A), None, tb.constant(B)], limit)
    assert clipped[1] is None
    a, b, length = session.run([clipped[0], clipped[2], norm])
    assert length == pytest.approx(NORM)
    scale = limit / max(limit, NORM)
    np.testing.assert_allclose(a, A * scale)
    np.testing.assert_allclose(b, B * scale)


def test_the_norm_may_be_given(session):
    clipped, norm = tb.clip_by_global_norm([tb.constant(B)], 1.0, use_norm=tb.constant(np.float64(4.0)))
    got, length = session.run([clipped[0], norm])
    assert length == 4.0
    np.testing.assert_allclose(got, B / 4)


def test_zeros_stay_zeros(session):
    clipped, norm = tb.clip_by_global_norm([tb.constant(np.zeros(3))], 1.0)
    got, length = session.run([clipped[0], norm])
    assert length == 0.0
    assert not got.any()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_makes_everything_nan(session, bad):
    x = tb.placeholder(tb.float64, [2])
    clipped, _ = tb.clip_by_global_norm([x, tb.constant(B)], 1.0)
    got = session.run(clipped, {x: [1.0, bad]})
    assert np.isnan(got[0]).all()
    assert np.isnan(got[1]).all()


def test_two_dtypes_and_plain_arrays(session):
    clipped, norm = tb.clip_by_global_norm([tb.constant(A), tb.constant(B.astype(np.float32))], 1.0)
    a, b, length = session.run([*clipped, norm])
    assert (a.dtype, b.dtype, length.dtype) == (np.float64, np.float32, np.float64)
    np.testing.assert_allclose(b, B / NORM, rtol=1e-6)
    assert session.run(tb.global_norm([A, B])) == pytest.approx(NORM)


def test_nothing_to_clip():
    with pytest.raises(InvalidArgumentError, match="no tensor given"):
        tb.global_norm([None])
