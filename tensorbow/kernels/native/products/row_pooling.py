"""Pooling of rows that a contraction has just computed, while they are in the cache.

For windows that do not overlap and lie on the image, of which whole rows are computed at a time. The
bits are those of pooling by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter, index, type_of
from tensorbow.kernels.native.codegen.strips import Places
from tensorbow.kernels.native.codegen.window_pooling import write_average_pool, write_max_pool
from tensorbow.ops.average_pooling import AvgPool
from tensorbow.ops.pooling import MaxPool
from tensorbow.ops.sliding_windows import Windows
from tensorbow.program.nodes import Node
from tensorbow.specs import DType


@dataclass(frozen=True)
class RowPooling:
    """window: rows and columns, over images that are `width` columns wide."""

    is_max: bool
    window: tuple[int, int]
    width: int
    channels: int
    dtype: DType

    @classmethod
    def of(cls, node: Node) -> RowPooling | None:
        """The pooling of a node, if it can be done by rows."""
        if node.definition not in (MaxPool, AvgPool):
            return None
        images = node.inputs[0].spec
        windows = Windows.of_pool(images.extents, node.attrs)
        axes = windows.rows, windows.columns
        if any(a.is_padded or a.window != a.stride or a.count * a.window != a.extent for a in axes):
            return None
        high, wide = (axis.window for axis in axes)
        _, _, width, channels = images.extents
        return cls(node.definition is MaxPool, (high, wide), width, channels, images.dtype)

    @property
    def rows(self) -> int:
        """Rows of the images, as a matrix [rows, channels], under one row of windows."""
        return self.window[0] * self.width

    def write(self, e: Emitter, made: ir.Value, first: ir.Value, rows: int, pooled: ir.Value) -> None:
        """made: pointer to the first of these rows, of whole windows; first: its number. pooled: result."""
        window, strides = self.window, (1, *self.window, 1)
        windows = Windows.of((1, rows // self.width, self.width, self.channels), window, strides, "VALID")
        number = e.builder.udiv(first, index(window[0] * window[1]))
        to = e.offset(pooled, type_of(self.dtype), e.builder.mul(number, index(self.channels)))
        source, target = (Places(e, pointer, self.dtype) for pointer in (made, to))
        writer = write_max_pool if self.is_max else write_average_pool
        writer(e, windows, (1, self.channels), source, target)
