"""Convolution and its derivatives against loops over single windows, for many shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph
from tensorbow.ops.control import placeholder
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput, conv2d
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.depthwise import (
    DepthwiseConv2dNativeBackpropFilter,
    DepthwiseConv2dNativeBackpropInput,
)
from tensorbow.ops.im2col import Unrolling
from tensorbow.ops.sliding_windows import make_axis
from tensorbow.specs import Array, float32
from tests.ops_contract.naive_windows import naive_axis, naive_conv2d, naive_gradients


@st.composite
def cases(draw: Any) -> tuple[Any, ...]:
    small = st.integers(1, 5)
    height, width = draw(st.integers(1, 11)), draw(st.integers(1, 11))
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    window = draw(small), draw(small)
    if padding == "VALID":
        window = min(window[0], height), min(window[1], width)
    batch, inputs, outputs = draw(st.integers(0, 4)), draw(st.integers(1, 7)), draw(small)
    strides = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return (batch, height, width, inputs), (*window, inputs, outputs), strides, padding, dtype


def scrambled(array: Array, how: str) -> Array:
    """The same values with other strides."""
    if how == "reversed":
        return np.ascontiguousarray(array[:, ::-1, :, ::-1])[:, ::-1, :, ::-1]
    if how == "transposed":
        return np.ascontiguousarray(array.transpose(3, 1, 0, 2)).transpose(2, 1, 3, 0)
    return array


def check(images: Array, filters: Array, strides: tuple[int, int], padding: str, how: str = "") -> None:
    attrs = {"strides": (1, *strides, 1), "padding": padding}
    expected = naive_conv2d(images, filters, strides, padding)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if images.dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-11}
    x, w = scrambled(images, how), scrambled(filters, how)
    (result,) = run_reference_kernel(Conv2D, [x, w], attrs)
    np.testing.assert_allclose(result, expected, **tolerance)
    output = np.random.default_rng(1).standard_normal(expected.shape).astype(images.dtype)
    to_images, to_filters = naive_gradients(images, filters, output, strides, padding)
    dy = scrambled(output, how)
    (result,) = run_reference_kernel(Conv2DBackpropInput, [np.array(images.shape, np.int32), w, dy], attrs)
    np.testing.assert_allclose(result, to_images, **tolerance)
    (result,) = run_reference_kernel(Conv2DBackpropFilter, [x, np.array(filters.shape, np.int32), dy], attrs)
    np.testing.assert_allclose(result, to_filters, **tolerance)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(case=cases(), how=st.sampled_from(["", "reversed", "transposed"]))
def test_all_shapes(case: tuple[Any, ...], how: str) -> None:
    images, filters, strides, padding, dtype = case
    generator = np.random.default_rng(0)
    x = generator.standard_normal(images).astype(dtype)
    w = generator.standard_normal(filters).astype(dtype)
    check(x, w, strides, padding, how)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("images", "filters", "strides", "padding"),
    [
        ((7, 28, 26, 1), (5, 4, 1, 3), (1, 1), "VALID"),  # several pieces of one window per column
        ((9, 24, 22, 6), (5, 5, 6, 2), (1, 1), "SAME"),  # several pieces of images, flipped filter
        ((2, 61, 63, 24), (3, 5, 24, 2), (1, 1), "SAME"),  # bands of one image
        ((2, 63, 64, 24), (3, 5, 24, 70), (1, 2), "SAME"),  # bands, scattered
        ((2, 130, 130, 3), (5, 5, 3, 70), (2, 1), "VALID"),  # bands of one window per column
        ((3, 9, 8, 5), (1, 1, 5, 4), (1, 1), "VALID"),  # the images are the matrix
        ((3, 9, 8, 5), (1, 1, 5, 4), (2, 3), "SAME"),
    ],
)
def test_pieces(images: Any, filters: Any, strides: Any, padding: str) -> None:
    generator = np.random.default_rng(0)
    check(generator.standard_normal(images), generator.standard_normal(filters), strides, padding)


@given(
    extent=st.integers(1, 30),
    window=st.integers(1, 9),
    stride=st.integers(1, 9),
    padding=st.sampled_from("SV"),
)
def test_axis_is_tensorflows(extent: int, window: int, stride: int, padding: str) -> None:
    padding = {"S": "SAME", "V": "VALID"}[padding]
    if padding == "VALID":
        window = min(window, extent)
    axis = make_axis(extent, window, stride, padding)
    assert (axis.count, axis.before) == naive_axis(extent, window, stride, padding)[:2]
    for offset in range(window):
        windows, elements = axis.reach(offset)
        pairs = [(i, i * stride + offset - axis.before) for i in range(axis.count)]
        inside = [(i, e) for i, e in pairs if 0 <= e < extent]
        assert [i for i, _ in inside] == list(range(axis.count))[windows]
        assert [e for _, e in inside] == list(range(extent))[elements]


@given(case=cases())
def test_pieces_cover_every_window_once(case: tuple[Any, ...]) -> None:
    (batch, height, width, channels), (rows, columns, _, _), strides, padding, _ = case
    axes = make_axis(height, rows, strides[0], padding), make_axis(width, columns, strides[1], padding)
    unrolling = Unrolling(batch, *axes, channels, float32)
    seen = np.zeros((batch, axes[0].count), int)
    for images, band in unrolling.pieces.slices():
        seen[images, band] += 1
        assert seen[images, band].size * axes[1].count <= unrolling.pieces.windows
    assert (seen == 1).all()


def test_scratch_is_bounded() -> None:
    axis = make_axis(224, 3, 1, "SAME")
    for channels in (3, 64):
        unrolling = Unrolling(256, axis, axis, channels, float32)
        matrix, frame = unrolling.scratch()
        assert matrix.nbytes <= 1 << 20
        assert frame.nbytes <= 226 * 226 * channels * 4
        assert unrolling.scatter_scratch()[0].nbytes <= 1 << 18


def test_spec() -> None:
    with Graph().as_default():
        images = placeholder(float32, [None, 28, None, 3])
        filters = placeholder(float32, [5, 3, 3, 8])
        assert conv2d(images, filters, 2, "VALID").shape == [None, 12, None, 8]
        assert conv2d(images, filters, [1, 3, 2, 1], "SAME").shape == [None, 10, None, 8]
        assert conv2d(placeholder(float32), filters, (1, 1), "SAME").shape == [None, None, None, 8]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"filter": np.zeros((5, 5, 4, 8), np.float32)}, "have 3 channels.*takes 4"),
        ({"filter": np.zeros((29, 5, 3, 8), np.float32)}, "window of 29 does not fit.*28"),
        ({"filter": np.zeros((5, 5, 3), np.float32)}, "expected rank 4"),
        ({"strides": [2, 1, 1, 1]}, "batch and channels"),
        ({"strides": 0}, "expected strides to be a whole number of at least 1"),
        ({"padding": "FULL"}, "'SAME' or 'VALID'"),
        ({"dilations": [2, 7]}, "window of 5, 29 with its dilation of 7, does not fit.*28"),
        ({"dilations": [2, 1, 1, 1]}, "dilations .* batch and channels"),
        ({"data_format": "CHWN"}, "'NHWC' or 'NCHW'"),
    ],
)
def test_errors(arguments: dict[str, Any], words: str) -> None:
    with Graph().as_default():
        images = placeholder(float32, [2, 28, 28, 3])
        complete = {"filter": np.zeros((5, 5, 3, 8), np.float32), "strides": 1, "padding": "VALID"}
        with pytest.raises(InvalidArgumentError, match=words):
            conv2d(images, **{**complete, **arguments})


def test_backprop_of_another_shape() -> None:
    dy = np.zeros((2, 23, 24, 8), np.float32)
    with pytest.raises(InvalidArgumentError, match=r"\[2, 23, 24, 8\], expected \[2, 24, 24, 8\]"):
        run_reference_kernel(
            Conv2DBackpropInput, [np.array([2, 28, 28, 3], np.int32), np.zeros((5, 5, 3, 8), np.float32), dy]
        )


SIZED = {
    "input": (Conv2DBackpropInput, 0),
    "filter": (Conv2DBackpropFilter, 1),
    "depthwise input": (DepthwiseConv2dNativeBackpropInput, 0),
    "depthwise filter": (DepthwiseConv2dNativeBackpropFilter, 1),
}


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("index", range(4))
def test_sizes_that_no_tensor_has(name: str, index: int) -> None:
    op, sized = SIZED[name]
    outputs = 6 if "depthwise" in name else 8  # a depthwise filter makes 2 channels of each
    arrays = [np.zeros((2, 9, 8, 3), np.float32), np.zeros((5, 4, 3, outputs), np.float32)]
    if "depthwise" in name:
        arrays[1] = np.zeros((5, 4, 3, 2), np.float32)
    inputs = [*arrays, np.zeros((2, 9, 8, outputs), np.float32)]
    inputs[sized] = np.array(arrays[sized].shape, np.int32)
    (result,) = run_reference_kernel(op, inputs, {"padding": "SAME"})
    assert result.shape == arrays[sized].shape
    inputs[sized][index] = -1
    with pytest.raises(InvalidArgumentError, match=r"sizes is \[.*-1.*\], expected 4 extents of at least 0"):
        run_reference_kernel(op, inputs, {"padding": "SAME"})
    inputs[sized] = inputs[sized][:3]
    with pytest.raises(InvalidArgumentError, match=r"sizes is int32\[3\], expected a vector of 4"):
        run_reference_kernel(op, inputs, {"padding": "SAME"})
