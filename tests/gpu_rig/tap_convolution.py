"""A convolution and its two gradients, tap by tap in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def convolve(
    kind: str,
    x: np.ndarray,
    w: np.ndarray,
    y: np.ndarray,
    padding: Any,
    stride: Any,
    dilation: Any,
    groups: int,
    mode: int,
) -> None:
    """Adds the products of each tap to the result, which is one of x, w and y; all float64, NCHW and KCRS."""
    (pad_h, pad_w), (_, channels, height, width) = padding, x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (pad_h, pad_h), (pad_w, pad_w)))
    per, out = channels // groups, w.shape[0] // groups
    rows, columns = y.shape[2:]
    for r in range(w.shape[2]):
        for s in range(w.shape[3]):
            tap = (r, s) if mode == 1 else (w.shape[2] - 1 - r, w.shape[3] - 1 - s)
            top, left = tap[0] * dilation[0], tap[1] * dilation[1]
            seen = padded[
                :,
                :,
                top : top + (rows - 1) * stride[0] + 1 : stride[0],
                left : left + (columns - 1) * stride[1] + 1 : stride[1],
            ]
            for g in range(groups):
                i, o = slice(g * per, (g + 1) * per), slice(g * out, (g + 1) * out)
                if kind == "forward":
                    y[:, o] += np.einsum("nchw,kc->nkhw", seen[:, i], w[o, :, r, s], optimize=True)
                elif kind == "data":
                    seen[:, i] += np.einsum("nkhw,kc->nchw", y[:, o], w[o, :, r, s], optimize=True)
                else:
                    w[o, :, r, s] += np.einsum("nchw,nkhw->kc", seen[:, i], y[:, o], optimize=True)
    if kind == "data":
        x[...] = padded[:, :, pad_h : pad_h + height, pad_w : pad_w + width]
