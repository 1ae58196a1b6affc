"""Differences of neighbouring pixels, and Sobel's."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")


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
    fed = tb.placeholder(tb.float64, [None, None, None, 5])
    edges = tb.image.sobel_edges(fed)
    assert np.allclose(session.run(edges, {fed: x}), np.stack(expected, -1))
    for small in (x[:, :1], x[:, :, :1], x[:, :0]):
        with pytest.raises(InvalidArgumentError, match=r"sobel_edges.*is not in"):
            session.run(edges, {fed: small})
