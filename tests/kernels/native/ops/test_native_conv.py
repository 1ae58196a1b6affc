"""Native convolution and its derivatives: channels around vector widths, strides, dilations, paddings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.sliding_windows import Windows
from tests.native_rig.native_calls import assert_as_reference, assert_sample, samples_of
from tests.ops_contract.collection import each
from tests.ops_contract.sample import normal, vector
from tests.program_rig.examples import given_few

OPS = {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}
channels = st.sampled_from([1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 32, 33, 48])
extents = st.integers(1, 12)
windows = st.integers(1, 5)
strides = st.integers(1, 3)
floats = st.sampled_from([np.float32, np.float64])


@pytest.mark.slow
@each(samples_of(OPS), few=4)
def test_native_convolution_samples(sample):
    assert_sample(sample)


def check(images, filters, steps, padding, rates, dtype, targets, batch_tolerance=1):
    """Compares all three passes of one convolution with the reference."""
    attrs = {"strides": (1, *steps, 1), "padding": padding, "dilations": (1, *rates, 1)}
    place = Windows.of(images, filters, attrs["strides"], padding, attrs["dilations"])
    x, w = normal(*images, dtype=dtype), normal(*filters, dtype=dtype, seed=1)
    dy = normal(images[0], place.rows.count, place.columns.count, filters[3], dtype=dtype, seed=2)
    options = {"targets": targets, "rtol": 1e-4, "atol": 1e-4 * batch_tolerance}
    assert_as_reference(Conv2D, (x, w), attrs, **options)
    assert_as_reference(Conv2DBackpropInput, (vector(*images), w, dy), attrs, **options)
    assert_as_reference(Conv2DBackpropFilter, (x, vector(*filters), dy), attrs, **options)


@pytest.mark.slow
@given_few(
    6,
    50,
    st.integers(1, 3),
    st.tuples(extents, extents),
    st.tuples(windows, windows),
    st.tuples(channels, channels),
    st.tuples(strides, strides),
    st.tuples(strides, strides),
    st.sampled_from(["SAME", "VALID"]),
    floats,
    st.booleans(),
)
def test_native_convolutions(batch, image, window, depth, steps, rates, padding, dtype, narrow):
    reach = [(n - 1) * rate + 1 for n, rate in zip(window, rates, strict=True)]
    assume(padding == "SAME" or all(r <= n for r, n in zip(reach, image, strict=True)))
    targets = ["narrow" if narrow else "host"]
    check((batch, *image, depth[0]), (*window, *depth), steps, padding, rates, dtype, targets)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("images", "filters", "steps", "padding"),
    [
        ((2, 28, 28, 1), (5, 5, 1, 32), (1, 1), "VALID"),
        ((3, 12, 12, 32), (5, 5, 32, 64), (1, 1), "VALID"),
        ((2, 32, 32, 16), (3, 3, 16, 16), (1, 1), "SAME"),
        ((2, 32, 32, 16), (3, 3, 16, 32), (2, 2), "SAME"),
        ((2, 32, 32, 16), (1, 1, 16, 32), (2, 2), "SAME"),
        ((5, 8, 8, 64), (3, 3, 64, 64), (1, 1), "SAME"),
        ((2, 9, 7, 40), (1, 1, 40, 24), (1, 1), "SAME"),
    ],
)
def test_native_convolutions_of_networks(images, filters, steps, padding):
    check(images, filters, steps, padding, (1, 1), np.float32, ["host", "narrow"], batch_tolerance=10)


@pytest.mark.slow
def test_native_image_gradient_is_zero_where_no_window_looks():
    """Strides wider than the window, rows padded, columns not."""
    check((2, 7, 11, 5), (3, 1, 5, 6), (2, 4), "SAME", (1, 1), np.float32, ["host", "narrow"])
