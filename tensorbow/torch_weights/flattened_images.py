"""Images behind flattened features, found in the graph: PyTorch flattens them with their channels first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorbow.graph import Operation, Tensor
from tensorbow.ops.activations import LeakyRelu
from tensorbow.ops.arrays import ConcatV2, ExpandDims, Reshape, Squeeze, Transpose
from tensorbow.ops.batch_norm import FusedBatchNorm
from tensorbow.ops.control import CheckFinite, Copy, Identity, StopGradient
from tensorbow.ops.data_format import TO_LAST, TO_SECOND
from tensorbow.ops.elementwise_table import ELEMENTWISE
from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tensorbow.ops.nn import BiasAdd
from tensorbow.ops.selection import Cast, Select

_IN_ORDER = (Reshape, Squeeze, ExpandDims)  # of rows: the elements of an example keep their order
_LIKE_INPUT = (
    *(BiasAdd, Cast, CheckFinite, Copy, FusedBatchNorm, Identity, LeakyRelu, Select, StopGradient),
)
_BY_FEATURE = (BiasAdd, FusedBatchNorm)  # ops with a vector of one number for each feature


class UnclearOrderError(Exception):
    """The order of flattened features that the graph does not tell. The text names the op."""


def images_of(dims: Sequence[int], reads: Sequence[tuple[Operation, Tensor]]) -> tuple[int, int, int] | None:
    """(height, width, channels) of the flattened images whose elements are axis 0 of a variable.

    dims: shape of the variable, a dense kernel `[in, out]` or a vector. reads: ops that read it, and the
    tensors by which they do. None if the order is the same in PyTorch. Raises UnclearOrderError.
    """
    found = set()
    for op, read in reads:
        if len(dims) == 2 and op.definition in (MatMul, BatchMatMulV2):
            found.add(_images_behind(op.inputs[0], dims[0]))
        elif len(dims) == 1 and (op.definition in _BY_FEATURE or op.type in ELEMENTWISE):
            found |= {_images_behind(x, dims[0]) for x in op.inputs if x is not read} - {None}
    if len(found) > 1:
        raise UnclearOrderError("inputs of different order")
    return found.pop() if found else None


def _images_behind(tensor: Tensor, features: int) -> tuple[int, int, int] | None:
    """The images, where the examples of a tensor have so many elements and these are images' in all."""
    while True:
        op, dims = tensor.op, tensor.spec.shape
        extents = [] if dims is None else [extent or 0 for extent in dims[1:]]
        if dims is None or len(dims) < 2 or math.prod(extents) != features:
            return None
        if op.definition in _IN_ORDER:
            tensor = op.inputs[0]
            continue
        same = [x for x in op.inputs if x.spec.shape == dims]
        if not same or not (op.definition in _LIKE_INPUT or op.type in ELEMENTWISE):
            break
        tensor = same[0]
    if op.definition is ConcatV2 and len(dims) in (2, 4):
        parts = [_images_behind(x, math.prod(e or 0 for e in (x.spec.shape or ())[1:])) for x in op.inputs]
        if not any(parts):
            return None
        if len(dims) == 2:
            raise UnclearOrderError(f"{op.name} joins flattened images with other features")
    if len(dims) == 5:  # volumes: depth and height are one axis as to the order
        extents = [extents[0] * extents[1], *extents[2:]]
    if len(extents) != 3:
        return None
    height, width, channels = extents
    if channels == 1 or height * width == 1:
        return None
    if op.definition is Transpose and tuple(op.attrs["perm"] or ()) != TO_LAST:
        if tuple(op.attrs["perm"] or ()) == TO_SECOND:
            return None
        raise UnclearOrderError(f"{op.name} permutes the axes of the flattened tensor")
    return height, width, channels
