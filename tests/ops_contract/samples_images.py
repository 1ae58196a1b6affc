"""Samples of pooling with positions, outlines of boxes and random boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.image_boxes import DrawBoundingBoxes, SampleDistortedBoundingBox
from tensorbow.ops.pooling_positions import MaxPoolWithArgmax
from tensorbow.specs import Array, int32
from tests.ops_contract.sample import Sample, apart, normal, uniform
from tests.ops_contract.samples_random import SEEDS, STATE


def _pool(images: Array, ksize: Any, strides: Any, padding: str, **more: Any) -> Sample:
    attrs = {
        "ksize": (1, *ksize, 1),
        "strides": (1, *strides, 1),
        "padding": padding,
        **more.pop("attrs", {}),
    }

    def expected(x: Array) -> tuple[Array, Array]:
        batch, height, width, channels = x.shape
        counts, before = [], []
        for n, k, s in zip((height, width), ksize, strides, strict=True):
            count = -(-n // s) if padding == "SAME" else (n - k) // s + 1
            counts.append(count)
            before.append(max(0, (count - 1) * s + k - n) // 2 if padding == "SAME" else 0)
        pooled = np.zeros((batch, *counts, channels), x.dtype)
        positions = np.zeros(pooled.shape, np.int64)
        for b, i, j, c in np.ndindex(*pooled.shape):
            rows, columns = (
                range(max(0, at * s - p), min(n, at * s - p + k))
                for at, s, p, n, k in zip((i, j), strides, before, (height, width), ksize, strict=True)
            )
            y, z = max(((y, z) for y in rows for z in columns), key=lambda at: x[b, at[0], at[1], c])
            pooled[b, i, j, c] = x[b, y, z, c]
            offset = b * height * width * channels if attrs.get("include_batch_in_index") else 0
            positions[b, i, j, c] = offset + (y * width + z) * channels + c
        return pooled, positions

    return Sample(MaxPoolWithArgmax, (images,), more.pop("expected", expected), attrs, through=(0,), **more)


def _outlined(images: Array, boxes: Array) -> Array:
    """Boxes that lie in the image, of one channel, are white."""
    result = images.copy()
    _, height, width, _ = images.shape
    for b, number in np.ndindex(*boxes.shape[:2]):
        top, left, bottom, right = boxes[b, number]
        rows = slice(int(top * (height - 1)), int(bottom * (height - 1)) + 1)
        columns = slice(int(left * (width - 1)), int(right * (width - 1)) + 1)
        inner = result[b, rows, columns].copy()
        result[b, rows, columns] = 1
        result[b, rows.start + 1 : rows.stop - 1, columns.start + 1 : columns.stop - 1] = inner[1:-1, 1:-1]
    return result


BOXES = np.array([[[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 0.5, 1.0]], [[0.3, 0.3, 0.9, 0.6]] * 2], np.float32)

SAMPLES = [
    _pool(apart(2, 5, 7, 3), (2, 3), (2, 2), "VALID"),
    _pool(apart(2, 5, 7, 3), (3, 2), (2, 3), "SAME", label="same", attrs={"include_batch_in_index": True}),
    _pool(apart(1, 4, 6, 2), (2, 2), (1, 1), "VALID", label="overlapping", attrs={"Targmax": int32}),
    _pool(normal(0, 4, 6, 2), (2, 2), (2, 2), "VALID", label="empty"),
    _pool(normal(4, 64, 65, 8), (3, 3), (2, 2), "SAME", label="large", expected=None),
    Sample(DrawBoundingBoxes, (uniform(2, 9, 11, 1), BOXES), _outlined),
    Sample(DrawBoundingBoxes, (uniform(2, 9, 11, 3), BOXES[:, :0]), lambda x, boxes: x, label="empty"),
    Sample(DrawBoundingBoxes, (uniform(2, 250, 260, 1), BOXES), _outlined, label="large"),
    Sample(
        SampleDistortedBoundingBox,
        (np.array([40, 60, 3], np.int32), BOXES[:1]),
        None,
        {**SEEDS},
        state=STATE,
    ),
    Sample(
        SampleDistortedBoundingBox,
        (np.array([40, 60, 3], np.int32), np.zeros((1, 0, 4), np.float32)),
        None,
        {**SEEDS, "use_image_if_no_bounding_boxes": True},
        state=STATE,
        label="empty",
    ),
]
