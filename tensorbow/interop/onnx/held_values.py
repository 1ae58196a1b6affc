"""Values of an ONNX graph while it is built: known arrays, or tensors in an order of axes of their own.

ONNX has the channels of images second, the ops of this library have them last. A value that an op leaves with
its channels last stays so: its `axes` say where ONNX's axes are, and only an op that needs another order
transposes it. ONNX's Transpose only changes `axes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbow.graph import Tensor
from tensorbow.ops.arrays import reshape, transpose
from tensorbow.specs import Array, Dims

AxisOrder: TypeAlias = tuple[int, ...]


class BatchExtent(NamedTuple):
    """A whole number that depends on the batch: per_example * batch + rest."""

    per_example: int
    rest: int

    def of(self, batch: int) -> int:
        """The number for a batch."""
        return self.per_example * batch + self.rest


@dataclass
class Held:
    """A value: `known`, or a tensor whose axis i is ONNX's axis axes[i] (None: the same order).

    Known arrays of whole numbers may contain `BatchExtent`; their dtype is then object, that of the numbers
    `whole`.
    """

    known: Array | None = None
    stored: Tensor | None = None
    axes: AxisOrder | None = None
    whole: np.dtype[Any] | None = None
    ordered: dict[AxisOrder, Tensor] = field(default_factory=dict)  # transposes made so far

    def __post_init__(self) -> None:
        if self.axes is not None and self.axes == tuple(range(len(self.axes))):
            self.axes = None

    @property
    def tensor(self) -> Tensor:
        """The tensor of a value that is not known."""
        assert self.stored is not None
        return self.stored

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self.known.ndim if self.known is not None else len(self.tensor.spec.dims)

    @property
    def order(self) -> AxisOrder:
        """ONNX's axes in the order of the tensor's."""
        return self.axes or tuple(range(self.rank))

    @property
    def dims(self) -> Dims:
        """Static shape with ONNX's order of axes."""
        dims: Dims = self.tensor.spec.dims if self.known is None else self.known.shape
        if self.known is not None:
            return dims
        return tuple(dims[i] for i in inverse(self.order))

    def position(self, axis: int) -> int:
        """Axis of the tensor that is ONNX's `axis`, which may count from the end."""
        return self.order.index(axis % self.rank)

    def in_order(self, order: AxisOrder) -> Tensor:
        """The tensor with ONNX's axes in this order."""
        if order == self.order:
            return self.tensor
        if order not in self.ordered:
            own = self.order
            self.ordered[order] = transposed(self.tensor, tuple(own.index(axis) for axis in order))
        return self.ordered[order]


def inverse(axes: AxisOrder) -> AxisOrder:
    """The permutation that undoes `axes`."""
    return tuple(axes.index(i) for i in range(len(axes)))


def transposed(tensor: Tensor, perm: AxisOrder) -> Tensor:
    """Tensor with its axes in the order `perm`: a reshape where only axes of extent 1 move."""
    dims = tensor.spec.dims
    moved = [axis for axis in perm if dims[axis] != 1]
    if moved == sorted(moved) and sum(dims[axis] is None for axis in moved) <= 1:
        return reshape(tensor, [-1 if dims[axis] is None else dims[axis] for axis in perm])
    return transpose(tensor, perm)


def channels_last(rank: int) -> AxisOrder:
    """Order of axes with the channels, ONNX's axis 1, last."""
    return (0, *range(2, rank), 1)


def flows(held: Held) -> bool:
    """True if the tensor's elements lie in ONNX's order, since only axes of extent 1 stand elsewhere."""
    dims = held.dims
    moved = [axis for axis in held.order if dims[axis] != 1]
    return moved == sorted(moved)


def without(order: AxisOrder, removed: Sequence[int]) -> AxisOrder:
    """Order of the remaining axes, numbered anew."""
    kept = sorted(set(order) - set(removed))
    return tuple(kept.index(axis) for axis in order if axis not in removed)


def padded_order(rank: int, order: AxisOrder) -> tuple[int, ...]:
    """Leading axes of extent 1 to add to a value of this rank so that it has as many as `order`."""
    return (1,) * (len(order) - rank)


def known_in_order(array: Array, order: AxisOrder) -> Array:
    """A known array, padded by leading axes, with its axes in this order; a number stays one."""
    if array.size == 1 and array.ndim <= len(order):
        return array.reshape(())
    return np.transpose(array.reshape(*padded_order(array.ndim, order), *array.shape), order)
