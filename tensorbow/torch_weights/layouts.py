"""Layouts of variables in PyTorch, by the ops that read them.

A dense kernel is `[in, out]` here and `[out, in]` in PyTorch, a convolution's `[height, width, in, out]` here
and `[out, in, height, width]` there, a depthwise one's `[height, width, channels, multiplier]` here and
`[channels * multiplier, 1, height, width]` there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor
from tensorbow.ops.arrays import ExpandDims
from tensorbow.ops.depthwise import DepthwiseConv2dNative
from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tensorbow.ops.state import ReadVariable
from tensorbow.specs import Array
from tensorbow.torch_weights.flattened_images import UnclearOrderError, images_of
from tensorbow.torch_weights.weight import GraphWeight

# PyTorch's names of what layers here call otherwise.
LAST_NAMES = {
    "weight": ("kernel", "weights", "gamma", "embeddings", "weight"),
    "bias": ("bias", "biases", "beta"),
    "running_mean": ("moving_mean", "running_mean"),
    "running_var": ("moving_variance", "running_var"),
}


# What an error advises for features of unknown order, given the kernel's name and number of inputs.
GIVE_FLATTENED = (
    "give flattened={{{name!r}: (height, width, channels)}}, or (1, 1, {size}) for the order of PyTorch, to "
    "a function of tb.interop.torch"
)


class StateLayout(NamedTuple):
    """Conversions of an array from PyTorch's layout and to it."""

    to_here: Callable[[Array], Array]
    to_torch: Callable[[Array], Array]


SAME = StateLayout(lambda a: a, lambda a: a)
MATRIX = StateLayout(np.transpose, np.transpose)
KERNEL = StateLayout(lambda a: a.transpose(2, 3, 1, 0), lambda a: a.transpose(3, 2, 0, 1))
KERNEL_3D = StateLayout(lambda a: a.transpose(2, 3, 4, 1, 0), lambda a: a.transpose(4, 3, 0, 1, 2))
KERNEL_1D = StateLayout(lambda a: a.transpose(2, 1, 0), lambda a: a.transpose(2, 1, 0))


class Layouts:
    """The layout of each variable, by the ops that read it.

    images: (height, width, channels) of the images whose flattened elements a variable multiplies, where
    PyTorch has them in another order.
    """

    def __init__(
        self,
        variables: Sequence[GraphWeight],
        flattened: Mapping[str, tuple[int, int, int]],
        remedy: str = GIVE_FLATTENED,
    ):
        """flattened: (height, width, channels) of the images that a dense kernel's inputs are made of.

        remedy: like `GIVE_FLATTENED`. Raises InvalidArgumentError for a name that no variable has, and for
        kernels of which it is not known.
        """
        unknown = flattened.keys() - {v.op.name for v in variables}
        if unknown:
            raise InvalidArgumentError(
                f"flattened: there is no variable {min(unknown)!r}; give its full name"
            )
        readers: dict[Tensor, list[tuple[Operation, Tensor]]] = {}
        for op in variables[0].graph.get_operations() if variables else ():
            for tensor in op.inputs:
                source = tensor.op.inputs[0] if tensor.op.definition is ReadVariable else tensor
                readers.setdefault(source, []).append((op, tensor))
        reads = {v: readers.get(v.op.outputs[0], []) for v in variables}
        images = {v: flattened.get(v.op.name) or _images(v, reads[v], remedy) for v in variables}
        self.images = {v: found for v, found in images.items() if found}
        vectors = {_scope_and_size(v): found for v, found in images.items() if found and v.shape.ndims == 1}
        self.of = {
            v: _layout(v, [op for op, _ in reads[v]], images[v] or vectors.get(_scope_and_size(v)))
            for v in variables
        }

    def fit(self, variable: GraphWeight, array: Array) -> bool:
        """True if the array has the variable's shape in PyTorch's layout."""
        try:
            return bool(self.of[variable].to_here(array).shape == tuple(variable.shape.as_list()))
        except ValueError:
            return False

    def extents(self, variable: GraphWeight) -> list[int]:
        """Shape of the variable in PyTorch's layout."""
        nothing = np.broadcast_to(np.float32(0), [int(d or 0) for d in variable.shape.as_list()])
        return [*self.of[variable].to_torch(nothing).shape]


def _scope_and_size(variable: GraphWeight) -> tuple[str, str]:
    """Equal for the vectors of one batch normalisation, of which a training step reads only some."""
    return variable.op.name.rpartition("/")[0], str(variable.shape)


def _images(
    variable: GraphWeight, reads: Sequence[tuple[Operation, Tensor]], remedy: str
) -> tuple[int, int, int] | None:
    """Images of which the variable multiplies the flattened elements. Raises InvalidArgumentError."""
    dims = [int(d or 0) for d in variable.shape.as_list()]
    if len(dims) == 2:
        reads = [(op, tensor) for op, tensor in reads if _is_dense(op, variable)]
    try:
        return images_of(dims, reads)
    except UnclearOrderError as error:
        name = variable.op.name
        raise InvalidArgumentError(
            f"variable {name} {variable.shape}: {error}, so its order in PyTorch, which flattens images with "
            f"their channels first, is not known; {remedy.format(name=name, size=dims[0])}"
        ) from None


def _layout(
    variable: GraphWeight, readers: Sequence[Operation], images: tuple[int, int, int] | None
) -> StateLayout:
    dims = [int(d or 0) for d in variable.shape.as_list()]
    if images is not None:
        height, width, channels = images
        return StateLayout(
            lambda a: a.reshape(-1, channels, height, width).transpose(2, 3, 1, 0).reshape(dims),
            lambda a: a.reshape(height, width, channels, -1).transpose(3, 2, 0, 1).reshape(dims[::-1]),
        )
    if len(dims) == 4 and any(op.definition is DepthwiseConv2dNative for op in readers):
        height, width, channels, multiplier = dims
        return StateLayout(
            lambda a: a.reshape(channels, multiplier, height, width).transpose(2, 3, 0, 1),
            lambda a: a.transpose(2, 3, 0, 1).reshape(channels * multiplier, 1, height, width),
        )
    if len(dims) == 4:
        return KERNEL
    if len(dims) == 5:
        return KERNEL_3D
    if len(dims) == 3 and any(op.definition is ExpandDims for op in readers):  # as conv1d does
        return KERNEL_1D
    return MATRIX if len(dims) == 2 and any(_is_dense(op, variable) for op in readers) else SAME


def _is_dense(op: Operation, variable: GraphWeight) -> bool:
    """True if the op multiplies by the variable as a matrix [in, out]."""
    if op.definition not in (MatMul, BatchMatMulV2) or variable.op.outputs[0] not in op.inputs[1].op.inputs:
        return False
    return not op.attrs["transpose_b" if op.definition is MatMul else "adj_y"]
