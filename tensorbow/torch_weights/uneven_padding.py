"""Layers of a graph whose padding "same" is not the same on both sides, which PyTorch's layers cannot have.

With a stride of 2, TensorFlow's windows often need an odd number of rows, of which the last is behind;
PyTorch adds as many in front. The weights fit in either case, and the outputs differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tensorbow.graph import Graph, Operation, Tensor
from tensorbow.missing_names import listed
from tensorbow.ops.average_pooling import AvgPool
from tensorbow.ops.conv import Conv2D, Conv2DBackpropInput
from tensorbow.ops.depthwise import DepthwiseConv2dNative
from tensorbow.ops.pooling import MaxPool
from tensorbow.ops.sliding_windows import make_axis, span
from tensorbow.ops.state import VariableReference

_POOLS = (MaxPool, AvgPool)
_CONVOLUTIONS = (Conv2D, DepthwiseConv2dNative, Conv2DBackpropInput)  # the last is a transposed layer, too
_BEHIND = 8  # ops between a variable and the convolution that reads it, as a split into groups
SHOWN = 4  # layers in a warning


class UnevenLayer(NamedTuple):
    """A layer with more padding behind than in front.

    windows: their extents. width: the padding that modules of PyTorch usually have then.
    """

    name: str
    is_pool: bool
    windows: tuple[int, ...]
    strides: tuple[int, ...]
    width: int

    def __str__(self) -> str:
        windows, strides = ("x".join(map(str, numbers)) for numbers in (self.windows, self.strides))
        return f"{self.name} (windows {windows}, strides {strides})"


def uneven_layers(graph: Graph, variables: Collection[str]) -> list[UnevenLayer]:
    """The layers, by name, of those that read one of these variables, and of the pools.

    Strides of 1 do not count: PyTorch has padding "same" for these, with the same windows. Volumes do not
    count along their depth. An unknown extent counts if there is one for which the padding is uneven.
    """
    found: dict[str, UnevenLayer] = {}
    for op in graph.get_operations():
        if op.definition not in (*_POOLS, *_CONVOLUTIONS) or op.attrs["padding"] != "SAME":
            continue
        kernel = None if op.definition in _POOLS else _variable_behind(op.inputs[1])
        if kernel is not None and kernel not in variables:
            continue
        layer = _uneven(op, op.name if kernel is None else kernel.rpartition("/")[0] or kernel)
        if layer is not None:
            found.setdefault(layer.name, layer)
    return [*found.values()]


def warning_of_padding(graph: Graph, variables: Collection[str]) -> str:
    """A warning for a model that has got weights of PyTorch for these variables; empty if none is needed."""
    layers = uneven_layers(graph, variables)
    if not layers:
        return ""
    pools = " (only a pool with ceil_mode=True there is the same as here)"
    return (
        f'padding "same" of {listed([*map(str, layers)], SHOWN)} adds more rows behind than in front, as '
        "TensorFlow does, where layers of PyTorch add as many on both sides: outputs differ from the "
        f"module's; give the model its padding as a number, as padding={max(layer.width for layer in layers)}"
        f"{pools if any(layer.is_pool for layer in layers) else ''}"
    )


def _uneven(op: Operation, name: str) -> UnevenLayer | None:
    """The layer of an op, if it has more padding behind than in front along an axis."""
    images = op.outputs[0] if op.definition is Conv2DBackpropInput else op.inputs[0]
    if op.definition in _POOLS:
        window: Iterable[int | None] = op.attrs["ksize"][1:3]
        rates = (1, 1)
    else:
        window, rates = op.inputs[1].spec.dims[:2], op.attrs["dilations"][1:3]
    extents, steps = images.spec.shape, op.attrs["strides"][1:3]
    extents = (None, None) if extents is None else extents[1:3]
    axes = [*zip(extents, window, steps, rates, strict=True)]
    spans = [(span(size, rate), step) for _, size, step, rate in axes if size is not None]
    if len(spans) < 2 or not any(_is_uneven(*axis) for axis in axes):
        return None
    seen = [(size, step) for size, step in spans if (size, step) != (1, 1)]  # not the rows of a sequence
    windows, strides = zip(*seen, strict=True)
    return UnevenLayer(
        name, op.definition in _POOLS, windows, strides, max((size - 1) // 2 for size in windows)
    )


def _is_uneven(extent: int | None, size: int | None, stride: int, rate: int) -> bool:
    if size is None or stride == 1:
        return False
    if extent is None:
        return span(size, rate) > 1
    axis = make_axis(extent, size, stride, "SAME", rate)
    return axis.covered - axis.extent > 2 * axis.before


def _variable_behind(kernel: Tensor) -> str | None:
    """Name of the variable that a kernel is read from; None if there is none near."""
    tensor = kernel
    for _ in range(_BEHIND):
        if tensor.op.definition is VariableReference:
            return tensor.op.name
        if not tensor.op.inputs:
            return None
        tensor = tensor.op.inputs[0]
    return None
