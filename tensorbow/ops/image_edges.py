"""Differences between neighbouring pixels of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import checked
from tensorbow.ops.arrays import stack
from tensorbow.ops.elementwise import add, multiply, subtract
from tensorbow.ops.padding import pad
from tensorbow.ops.slicing import strided_slice

__all__ = ["image_gradients", "sobel_edges"]


def _batch_of(op: str, image: Any) -> Tensor:
    x = as_tensor(image)
    if x.shape.ndims != 4:
        raise InvalidArgumentError(
            f"{op}: expected images [batch, height, width, channels], got {x.spec}; use tb.expand_dims"
        )
    return x


@checked
def image_gradients(image: Any) -> tuple[Tensor, Tensor]:
    """Differences of images [batch, height, width, channels] to the pixel below, and to the one on the right.

    Returns (dy, dx) of the shape and dtype of the images, with zeros in the last row and the last column.
    Raises InvalidArgumentError for another rank.
    """
    x = _batch_of("image_gradients", image)
    with x.graph.as_default(), name_scope("image_gradients"):
        down = subtract(strided_slice(x, np.s_[:, 1:]), strided_slice(x, np.s_[:, :-1]))
        right = subtract(strided_slice(x, np.s_[:, :, 1:]), strided_slice(x, np.s_[:, :, :-1]))
        dy, dx = pad(down, [[0, 0], [0, 1], [0, 0], [0, 0]]), pad(right, [[0, 0], [0, 0], [0, 1], [0, 0]])
        for each in (dy, dx):
            each.set_shape(x.shape)
        return dy, dx


@checked
def sobel_edges(image: Any) -> Tensor:
    """Sobel's edges of images [batch, height, width, channels], whose borders are reflected.

    Returns [batch, height, width, channels, 2], the edges along the height, then those along the width.
    Raises InvalidArgumentError for another rank, and for a height or width below 2, at run time (on CPU
    devices) where it is not known before.
    """
    x = _batch_of("sobel_edges", image)
    with x.graph.as_default(), name_scope("sobel_edges"):
        if any(extent in (0, 1) for extent in x.spec.dims[1:3]):
            raise InvalidArgumentError(
                f"sobel_edges: {x.spec} has no second row or column to reflect; expected 2 x 2 pixels or more"
            )
        wide = pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
        edges = []
        for along, across in ((1, 2), (2, 1)):
            before, middle, after = (_cut(wide, across, begin) for begin in range(3))
            smooth = add(add(before, after), multiply(middle, 2))
            edges.append(subtract(_cut(smooth, along, 2), _cut(smooth, along, 0)))
        result = stack(edges, -1)
        result.set_shape([*x.spec.dims, 2])
        return result


def _cut(x: Tensor, axis: int, begin: int) -> Tensor:
    """All but two rows of an axis, from `begin` on."""
    index = [slice(None)] * 4
    index[axis] = slice(begin, begin - 2 or None)
    return strided_slice(x, tuple(index))
