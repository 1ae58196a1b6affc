"""Max pooling and its derivatives against one window at a time, for many shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph
from tensorbow.ops.control import placeholder
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.pooling import MASK_BYTES, MaxPool, MaxPoolGrad, MaxPoolGradGrad, max_pool, max_pool2d
from tensorbow.specs import float32
from tests.ops_contract.naive_windows import (
    naive_max_pool,
    naive_max_pool_gradient,
    naive_max_pool_gradient_gradient,
)

PAIR = st.tuples(st.integers(1, 4), st.integers(1, 4))


def check(x, window, strides, padding):
    how = window, strides, padding
    attrs = {"ksize": (1, *window, 1), "strides": (1, *strides, 1), "padding": padding}
    (y,) = run_reference_kernel(MaxPool, [x], attrs)
    assert np.array_equal(y, naive_max_pool(x, *how))
    generator = np.random.default_rng(1)
    dy, dx = (generator.integers(-9, 10, a.shape).astype(x.dtype) for a in (y, x))
    (result,) = run_reference_kernel(MaxPoolGrad, [x, y, dy], attrs)
    assert np.array_equal(result, naive_max_pool_gradient(x, dy, *how))
    (result,) = run_reference_kernel(MaxPoolGradGrad, [x, y, dx], attrs)
    assert np.array_equal(result, naive_max_pool_gradient_gradient(x, dx, *how))


def test_windows_whose_masks_are_few_and_strided():
    """NumPy 2.4's in-place negative is wrong on arrays of 16-byte strides: the masks must not use it."""
    for seed in range(20):
        x = np.random.default_rng(seed).integers(-2, 3, (2, 3, 5, 1)).astype(np.float32)
        check(x, (2, 2), (2, 4), "SAME")


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    extents=st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)),
    window=PAIR,
    strides=PAIR,
    padding=st.sampled_from(["SAME", "VALID"]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_all_shapes(extents, window, strides, padding, dtype):
    if padding == "VALID":
        window = min(window[0], extents[1]), min(window[1], extents[2])
    x = np.random.default_rng(0).integers(-2, 3, extents).astype(dtype)  # with many ties
    check(x, window, strides, padding)


def test_masks_for_some_images_at_a_time():
    x = np.random.default_rng(0).integers(-2, 3, (5, 62, 61, 100)).astype(np.float32)
    assert x.size // 4 * 6 > 2 * MASK_BYTES
    attrs = {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "SAME"}
    (y,) = run_reference_kernel(MaxPool, [x], attrs)
    (result,) = run_reference_kernel(MaxPoolGrad, [x, y, np.ones_like(y)], attrs)
    for image in (0, 4):
        alone = run_reference_kernel(MaxPoolGrad, [x[[image]], y[[image]], np.ones_like(y[[image]])], attrs)[
            0
        ]
        assert np.array_equal(result[[image]], alone)
    assert result.sum() == y.size


def test_infinite_gradients_stay_where_they_belong():
    x = np.array([[1, 5], [7, 3]], np.float32).reshape(1, 2, 2, 1)
    attrs = {"ksize": (1, 2, 2, 1), "strides": (1, 1, 1, 1), "padding": "VALID"}
    (y,) = run_reference_kernel(MaxPool, [x], attrs)
    (result,) = run_reference_kernel(MaxPoolGrad, [x, y, np.full_like(y, np.inf)], attrs)
    assert result.reshape(-1).tolist() == [0, 0, np.inf, 0]


def test_nan_is_the_maximum():
    x = np.array([[1, 5], [np.nan, 3]], np.float32).reshape(1, 2, 2, 1)
    attrs = {"ksize": (1, 2, 2, 1), "strides": (1, 1, 1, 1), "padding": "VALID"}
    (y,) = run_reference_kernel(MaxPool, [x], attrs)
    assert np.isnan(y).all()
    (result,) = run_reference_kernel(MaxPoolGrad, [x, y, np.ones_like(y)], attrs)
    assert result.sum() == 1  # one element has it


def test_spec():
    with Graph().as_default():
        x = placeholder(float32, [None, 25, None, 3])
        assert max_pool2d(x, 2, 2, "VALID").shape == [None, 12, None, 3]
        assert max_pool(x, ksize=[1, 3, 2, 1], strides=[1, 2, 1, 1], padding="SAME").shape == [
            None,
            13,
            None,
            3,
        ]
        assert max_pool(placeholder(float32), [2, 2], [2, 2], "SAME").shape == [None] * 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ksize": [1, 2, 2, 2]}, "ksize.*channels"),
        ({"strides": [2, 2, 2, 1]}, "strides.*batch"),
        ({"ksize": 9}, "window of 9 does not fit.*8"),
        ({"padding": "full"}, "'SAME' or 'VALID'"),
        ({"data_format": "CHWN"}, "'NHWC' or 'NCHW'"),
    ],
)
def test_refusals(arguments, words):
    with Graph().as_default(), pytest.raises(InvalidArgumentError, match=words):
        max_pool2d(
            **{"value": placeholder(float32, [2, 8, 8, 3]), "ksize": 2, "strides": 2, "padding": "VALID"}
            | arguments
        )
