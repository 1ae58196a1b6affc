"""Winograd's convolution: the matrices, all three passes, rounding, and where it is chosen."""

from __future__ import annotations

import math
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from tensorbow.kernels.native.products import winograd_shape
from tensorbow.kernels.native.products.convolution import ConvolutionShape
from tensorbow.kernels.native.products.winograd_matrices import OUT, POINTS, matrices_of
from tensorbow.kernels.native.products.winograd_shape import Winograd
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.sliding_windows import Windows
from tensorbow.specs import float32
from tests.native_rig.native_calls import assert_as_reference, run_native
from tests.ops_contract.sample import normal, vector
from tests.program_rig.examples import given_few

PLAIN = {"strides": (1, 1, 1, 1), "dilations": (1, 1, 1, 1)}
windows = st.sampled_from(sorted(POINTS))
channels = st.sampled_from([1, 3, 8, 15, 16, 17, 33])


@contextmanager
def wherever_possible():
    """Chosen without regard to what it costs."""
    with mock.patch.object(winograd_shape, "WORTH", math.inf):
        yield


def shape_of(images, filters, padding="SAME", **attrs):
    return ConvolutionShape.of(images, filters, {**PLAIN, "padding": padding, **attrs}, float32)


def check(images, filters, padding, dtype=np.float32, targets=("host", "narrow"), aligned=True):
    """Compares all three passes with the reference; the gradients, where they use Winograd's algorithm."""
    attrs = {**PLAIN, "padding": padding}
    place = Windows.of(images, filters, attrs["strides"], padding)
    x, w = normal(*images, dtype=dtype), normal(*filters, dtype=dtype, seed=1)
    dy = normal(images[0], place.rows.count, place.columns.count, filters[3], dtype=dtype, seed=2)
    terms = math.prod(filters[:3])
    options = {"targets": targets, "aligned": aligned}
    options |= (
        {"rtol": 1e-4, "atol": 1e-5 * math.sqrt(terms)}
        if dtype == np.float32
        else {"rtol": 1e-9, "atol": 1e-9}
    )
    assert_as_reference(Conv2D, (x, w), attrs, **options)
    assert_as_reference(Conv2DBackpropInput, (vector(*images), w, dy), attrs, **options)
    rows = images[0] * place.rows.count * place.columns.count
    options["atol"] *= max(1, math.sqrt(rows / terms))
    assert_as_reference(Conv2DBackpropFilter, (x, vector(*filters), dy), attrs, **options)


@pytest.mark.parametrize("window", sorted(POINTS))
def test_matrices_give_a_correlation(window):
    made = matrices_of(window)
    d, g = (np.random.default_rng(n).standard_normal(n) for n in (window + 1, window))
    transformed = (np.array(made.filters) @ g) * (np.array(made.images) @ d)
    np.testing.assert_allclose(np.array(made.result) @ transformed, np.correlate(d, g, "valid"), rtol=1e-12)
    assert len(made.result) == OUT


@pytest.mark.slow
@given_few(
    3,
    60,
    st.integers(1, 5),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.tuples(windows, windows),
    st.tuples(channels, channels),
    st.sampled_from(["SAME", "VALID"]),
    st.sampled_from([np.float32, np.float64]),
    st.booleans(),
    st.booleans(),
)
def test_all_passes(batch, tiles, window, depth, padding, dtype, narrow, aligned):
    extents = [OUT * n + (w - 1 if padding == "VALID" else 0) for n, w in zip(tiles, window, strict=True)]
    images, filters = (batch, *extents, depth[0]), (*window, *depth)
    with wherever_possible():
        assert Winograd.of(shape_of(images, filters, padding)) is not None
        check(images, filters, padding, dtype, ["narrow" if narrow else "host"], aligned)


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("images", [(1, 24, 40, 3), (2, 8, 70, 16), (7, 8, 8, 16), (12, 6, 6, 5)])
def test_strips_of_large_images_and_groups_of_small_ones(images, padding):
    """Rows of tiles one after the other, and several images side by side; batches that do not divide well."""
    with wherever_possible():
        found = Winograd.of(shape_of(images, (3, 5, images[3], 9), padding))
        assert found.strips > 1 or found.group > 1 or images[0] == 7
        check(images, (3, 5, images[3], 9), padding, targets=["host"])


@pytest.mark.parametrize(
    ("images", "filters", "padding", "chosen"),
    [
        ((4, 12, 12, 32), (5, 5, 32, 64), "VALID", True),
        ((4, 8, 8, 64), (3, 3, 64, 64), "SAME", True),
        ((1, 12, 12, 32), (5, 5, 32, 64), "VALID", False),  # the filter's transform is not worth one image
        ((4, 28, 28, 1), (5, 5, 1, 32), "VALID", False),  # no sum over channels to speak of
        ((4, 13, 13, 32), (5, 5, 32, 64), "VALID", False),  # an odd extent
        ((4, 8, 8, 64), (1, 1, 64, 64), "SAME", False),
        ((0, 8, 8, 64), (3, 3, 64, 64), "SAME", False),
    ],
)
def test_where_it_is_chosen(images, filters, padding, chosen):
    assert (Winograd.of(shape_of(images, filters, padding)) is not None) == chosen


@pytest.mark.parametrize("attrs", [{"strides": (1, 2, 2, 1)}, {"dilations": (1, 2, 2, 1)}])
def test_it_is_not_chosen_for_strides_or_rates(attrs):
    with wherever_possible():
        assert Winograd.of(shape_of((4, 16, 16, 64), (3, 3, 64, 64), **attrs)) is None


@pytest.mark.slow
@pytest.mark.parametrize(("window", "most"), [(3, 2.5), (5, 8)])
def test_rounding_errors_are_near_those_of_a_sum_in_order(window, most):
    """The root of their mean square, in roundings of float32 of a typical result; plain sums have about 2."""
    images, filters = (2, 12, 12, 32), (window, window, 32, 48)
    x, w = np.maximum(normal(*images), 0), normal(*filters, seed=1)
    attrs = {**PLAIN, "padding": "VALID"}
    with wherever_possible():
        (ours,) = run_native(Conv2D, (x, w), attrs)
    seen = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (window, window), (1, 2))
    exact = np.einsum("nyxcij,ijck->nyxk", seen, w.astype(np.float64), optimize=True)
    scale = np.finfo(np.float32).eps * np.sqrt((exact**2).mean())
    assert np.sqrt(((ours - exact) ** 2).mean()) / scale < most


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("window", sorted(POINTS))
def test_what_is_not_finite_does_not_get_lost(window, value):
    """A window with a non-finite element gives a non-finite result, so that checks detect it."""
    x, w = normal(1, 8, 8, 3), normal(window, window, 3, 7, seed=1)
    attrs = {**PLAIN, "padding": "SAME"}
    ones = np.ones_like(w)
    for place in [(0, 0, 0, 0), (0, 3, 4, 1), (0, 7, 7, 2), (0, 4, 1, 0)]:
        bad = x.copy()
        bad[place] = value
        seen = np.zeros_like(x)
        seen[place] = 1
        (reached,) = run_native(Conv2D, (seen, ones), attrs)
        with wherever_possible():
            (ours,) = run_native(Conv2D, (bad, w), attrs)
        assert not np.isfinite(ours[reached > 0.5]).any()


def test_any_number_of_images_is_grouped_at_once():
    """Also a prime one, which nothing counts up to."""
    assert Winograd.of(shape_of((2_147_483_647, 8, 8, 64), (3, 3, 64, 64))).group == 1
    assert Winograd.of(shape_of((1 << 30, 8, 8, 64), (3, 3, 64, 64))).group > 1
