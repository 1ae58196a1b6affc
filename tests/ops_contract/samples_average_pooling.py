"""Samples of average pooling and depthwise convolution, and of their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.average_pooling import AvgPool, AvgPoolGrad
from tensorbow.ops.depthwise import (
    DepthwiseConv2dNative,
    DepthwiseConv2dNativeBackpropFilter,
    DepthwiseConv2dNativeBackpropInput,
)
from tensorbow.specs import Array
from tests.ops_contract.naive_windows import dilated, naive_axis, naive_conv2d, naive_gradients
from tests.ops_contract.sample import Sample, normal, vector

Pair = tuple[int, int]


def _mixed(filters: Array) -> Array:
    """Filter of the full convolution equal to a depthwise one: zero between different channels."""
    height, width, channels, multiplier = filters.shape
    full = np.zeros((height, width, channels, channels, multiplier), filters.dtype)
    full[:, :, np.arange(channels), np.arange(channels)] = filters
    return full.reshape(height, width, channels, channels * multiplier)


def _counts(shape: tuple[int, ...], window: Pair, strides: Pair, padding: str) -> Array:
    """Number of image elements in each window, by convolution of ones."""
    ones = np.ones((1, *shape[1:3], 1))
    return naive_conv2d(ones, np.ones((*window, 1, 1)), strides, padding)


def _pool(
    label: str, shape: tuple[int, ...], window: Pair, strides: Pair, padding: str, **more: Any
) -> list[Sample]:
    how = strides, padding
    ones = _mixed(np.ones((*window, shape[3], 1)))
    rows, columns = (naive_axis(shape[i + 1], window[i], strides[i], padding)[0] for i in (0, 1))
    counts = _counts(shape, window, *how) if shape[0] else np.ones((1, rows, columns, 1))
    shared = {
        "attrs": {"ksize": (1, *window, 1), "strides": (1, *strides, 1), "padding": padding},
        "label": label,
        "rtol": 1e-5,
        "atol": 1e-5,
        **more,
    }

    def back(sizes: Array, dy: Array) -> Array:
        return naive_gradients(np.zeros(tuple(sizes)), ones, dy / counts, *how)[0]

    return [
        Sample(AvgPool, (normal(*shape),), lambda x: naive_conv2d(x, ones, *how) / counts, **shared),
        Sample(AvgPoolGrad, (vector(*shape), normal(shape[0], rows, columns, shape[3])), back, **shared),
    ]


def _depthwise(
    label: str,
    images: tuple[int, ...],
    filters: tuple[int, ...],
    strides: Pair,
    padding: str,
    dilations: Pair = (1, 1),
    **more: Any,
) -> list[Sample]:
    how = strides, padding
    reach = dilated(np.zeros(filters), dilations).shape
    rows, columns = (naive_axis(images[i + 1], reach[i], strides[i], padding)[0] for i in (0, 1))
    x, w, dy = normal(*images), normal(*filters), normal(images[0], rows, columns, filters[2] * filters[3])
    shared = {
        "attrs": {"strides": (1, *strides, 1), "padding": padding, "dilations": (1, *dilations, 1)},
        "label": label,
        "exact_layout": False,
        "rtol": 1e-4,
        "atol": 1e-3 if "large" in label else 2e-5,
        **more,
    }

    def wide(w: Array) -> Array:
        return dilated(_mixed(w), dilations)

    def to_images(sizes: Array, w: Array, dy: Array) -> Array:
        return naive_gradients(np.zeros(tuple(sizes)), wide(w), dy, *how)[0]

    def to_filters(x: Array, sizes: Array, dy: Array) -> Array:
        full = naive_gradients(x, np.zeros(wide(w).shape), dy, *how)[1][:: dilations[0], :: dilations[1]]
        own = full.reshape(*filters[:2], filters[2], filters[2], filters[3])
        return np.stack([own[:, :, c, c] for c in range(filters[2])], axis=2)

    return [
        Sample(DepthwiseConv2dNative, (x, w), lambda x, w: naive_conv2d(x, wide(w), *how), **shared),
        Sample(DepthwiseConv2dNativeBackpropInput, (vector(*images), w, dy), to_images, **shared),
        Sample(DepthwiseConv2dNativeBackpropFilter, (x, vector(*filters), dy), to_filters, **shared),
    ]


SAMPLES = [
    *_pool("valid", (2, 6, 8, 3), (2, 3), (2, 2), "VALID", second_order=False),
    *_pool("same", (2, 5, 7, 3), (3, 2), (2, 3), "SAME"),
    *_pool("overlapping same", (2, 5, 4, 3), (4, 3), (1, 2), "SAME"),
    *_pool("wider than the image", (2, 3, 5, 3), (11, 14), (1, 9), "SAME"),
    *_pool("wide strides", (2, 9, 8, 3), (2, 1), (3, 4), "SAME"),
    *_pool("empty", (0, 6, 8, 3), (2, 2), (2, 2), "VALID"),
    *_pool("large", (5, 31, 28, 37), (2, 3), (2, 3), "VALID"),
    *_depthwise("valid", (2, 7, 6, 3), (3, 2, 3, 1), (1, 1), "VALID", second_order=True),
    *_depthwise("same", (2, 5, 6, 3), (2, 3, 3, 2), (1, 1), "SAME", second_order=True),
    *_depthwise("strides", (2, 7, 8, 3), (3, 2, 3, 4), (2, 3), "SAME", second_order=True),
    *_depthwise("dilated", (2, 8, 7, 3), (3, 2, 3, 2), (1, 1), "VALID", (2, 3), second_order=True),
    *_depthwise("dilated same", (2, 5, 6, 3), (2, 3, 3, 1), (1, 1), "SAME", (3, 2), second_order=True),
    *_depthwise("dilated beyond", (2, 3, 4, 2), (3, 3, 2, 2), (1, 1), "SAME", (4, 5)),
    *_depthwise("wide strides", (2, 9, 7, 2), (2, 1, 2, 3), (3, 4), "VALID"),
    *_depthwise("empty", (0, 7, 6, 3), (3, 2, 3, 2), (1, 2), "VALID"),
    *_depthwise("large", (3, 35, 34, 38), (3, 2, 38, 1), (1, 1), "SAME"),
]
