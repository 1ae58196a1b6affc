"""Samples of convolution and its derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tests.ops_contract.naive_windows import dilated, naive_axis, naive_conv2d, naive_gradients
from tests.ops_contract.sample import Sample, normal, vector

Shape = tuple[int, ...]


def three(
    label: str,
    images: Shape,
    filters: Shape,
    strides: tuple[int, int],
    padding: str,
    dilations: tuple[int, int] = (1, 1),
    **options: Any,
) -> list[Sample]:
    """Sample of each of the three ops, for one convolution."""
    how: tuple[tuple[int, int], str] = (strides, padding)
    reach = dilated(np.zeros(filters), dilations).shape
    rows, columns = (naive_axis(images[i + 1], reach[i], strides[i], padding)[0] for i in (0, 1))
    x, w, dy = normal(*images), normal(*filters), normal(images[0], rows, columns, filters[3])
    tolerances = {"rtol": 1e-4, "atol": 2e-4 if "large" in label else 2e-5, "exact_layout": False}
    shared = {
        "attrs": {"strides": (1, *strides, 1), "padding": padding, "dilations": (1, *dilations, 1)},
        "label": label,
        **tolerances,
        **options,
    }

    def to_images(sizes: Any, w: Any, dy: Any) -> Any:
        return naive_gradients(normal(*images).astype(dy.dtype), dilated(w, dilations), dy, *how)[0]

    def to_filters(x: Any, sizes: Any, dy: Any) -> Any:
        full = naive_gradients(x, dilated(normal(*filters).astype(dy.dtype), dilations), dy, *how)[1]
        return full[:: dilations[0], :: dilations[1]]

    return [
        Sample(Conv2D, (x, w), expected=lambda x, w: naive_conv2d(x, dilated(w, dilations), *how), **shared),
        Sample(Conv2DBackpropInput, (vector(*images), w, dy), expected=to_images, **shared),
        Sample(Conv2DBackpropFilter, (x, vector(*filters), dy), expected=to_filters, **shared),
    ]


SAMPLES = [
    *three("valid", (2, 7, 6, 3), (3, 4, 3, 5), (1, 1), "VALID", second_order=True),
    *three("same", (2, 5, 6, 3), (2, 4, 3, 7), (1, 1), "SAME", second_order=True),
    *three("flipped", (2, 5, 6, 5), (2, 3, 5, 4), (1, 1), "SAME", second_order=True),
    *three("strides", (2, 7, 8, 3), (3, 2, 3, 4), (2, 3), "SAME", second_order=True),
    *three("wide strides", (2, 9, 7, 5), (2, 1, 5, 3), (3, 4), "VALID"),
    *three("dilated valid", (2, 8, 7, 3), (3, 2, 3, 5), (1, 1), "VALID", (2, 3), second_order=True),
    *three("dilated same", (2, 6, 7, 6), (3, 2, 6, 4), (1, 1), "SAME", (2, 4), second_order=True),
    *three("dilated strides", (2, 9, 8, 3), (3, 2, 3, 4), (2, 3), "SAME", (3, 2), second_order=True),
    *three("dilated beyond", (2, 3, 4, 2), (3, 3, 2, 5), (1, 1), "SAME", (4, 5)),
    *three("large dilated", (7, 33, 34, 17), (3, 2, 17, 6), (1, 1), "SAME", (2, 3)),
    *three("pointwise", (2, 4, 3, 6), (1, 1, 6, 5), (1, 1), "VALID", second_order=True),
    *three("one", (1, 1, 1, 1), (1, 1, 1, 1), (1, 1), "SAME"),
    *three("one window", (2, 3, 4, 5), (3, 4, 5, 6), (1, 1), "VALID"),
    *three("empty", (0, 7, 6, 3), (3, 4, 3, 5), (1, 2), "VALID"),
    *three("empty same", (0, 7, 6, 5), (3, 4, 5, 5), (1, 1), "SAME"),
    *three("large", (9, 24, 22, 33), (3, 5, 33, 2), (1, 1), "VALID"),
    *three("large same", (6, 25, 26, 38), (3, 2, 38, 41), (1, 1), "SAME"),
    *three("large columns", (7, 67, 68, 4), (3, 2, 4, 5), (1, 2), "SAME", atol=1e-3),  # sums of 16,000
]
