"""Gamma and Poisson numbers and drawn classes: moments, gradients, repetition, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")


def test_moments_of_gamma_and_poisson_numbers(session: tb.Session) -> None:
    alpha, beta = tb.constant([0.5, 3.0]), tb.constant([[1.0], [4.0]])
    drawn = tb.random_gamma([20_000], alpha, beta, seed=1)
    assert drawn.shape == [20_000, 2, 2]
    value = session.run(drawn)
    scale = np.array([[1.0], [4.0]])
    np.testing.assert_allclose(value.mean(0), np.array([0.5, 3.0]) / scale, rtol=0.05)
    np.testing.assert_allclose(value.var(0), np.array([0.5, 3.0]) / scale**2, rtol=0.1)
    counts = session.run(tb.random_poisson([0.5, 40.0], [20_000], tb.int32, seed=2))
    assert counts.dtype == np.int32
    np.testing.assert_allclose(counts.mean(0), [0.5, 40], rtol=0.05)
    np.testing.assert_allclose(counts.var(0), [0.5, 40], rtol=0.05)


def test_numbers_change_with_the_step_and_repeat_in_a_new_session(session: tb.Session) -> None:
    drawn = [tb.random_gamma([5], 2.0, seed=1), tb.random_poisson(9.0, [5], seed=1)]
    first, second = session.run(drawn), session.run(drawn)
    assert not np.array_equal(first, second)
    with tb.Session() as again:
        np.testing.assert_array_equal(again.run(drawn), first)


def test_the_gradient_of_gamma_numbers_is_that_of_their_mean(session: tb.Session) -> None:
    """E[z / beta] = alpha / beta, so the mean slopes are 1 / beta and -alpha / beta^2."""
    alpha, beta = tb.constant(1.7), tb.constant(2.5)
    mean = tb.reduce_mean(tb.random_gamma([40_000], alpha, beta, seed=3))
    by_alpha, by_beta = session.run(tb.gradients(mean, [alpha, beta]))
    assert by_alpha == pytest.approx(1 / 2.5, rel=0.02)
    assert by_beta == pytest.approx(-1.7 / 2.5**2, rel=0.02)


def test_classes_follow_their_logits(session: tb.Session) -> None:
    p = np.array([[0.1, 0.2, 0.7], [0.5, 0.0, 0.5]])
    with np.errstate(divide="ignore"):
        logits = np.log(p).astype(np.float32) + 3
    drawn = tb.multinomial(logits, 20_000, seed=4, output_dtype=tb.int32)
    assert drawn.shape == [2, 20_000]
    classes = session.run(drawn)
    shares = [np.bincount(row, minlength=3) / 20_000 for row in classes]
    np.testing.assert_allclose(shares, p, atol=0.015)


def test_refusals() -> None:
    with pytest.raises(InvalidArgumentError, match="random_gamma: dtype int32 is not supported"):
        tb.random_gamma([2], 1.0, dtype=tb.int32)
    with pytest.raises(InvalidArgumentError, match="random_poisson: dtype bool"):
        tb.random_poisson(1.0, [2], tb.bool)
    with pytest.raises(InvalidArgumentError, match="multinomial: logits is float32"):
        tb.multinomial(tb.constant([1.0]), 2)
