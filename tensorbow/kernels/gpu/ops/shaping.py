"""GPU kernels of `ops/shaping.py`: split, tile and reverse."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.source.split_and_concat import cut
from tensorbow.kernels.gpu.source.strided_copy import phantom, strided_copy
from tensorbow.ops.shaping import ReverseV2, Split, Tile

Index: TypeAlias = "tuple[Any, ...]"  # ends in an ellipsis, so that even a scalar gives a view


def _split(call: GpuCall) -> Enqueue:
    (value,) = call.inputs
    return cut(call.context, value, call.outputs, call.attrs["axis"] % value.ndim)


def _tile(call: GpuCall) -> Enqueue:
    """Broadcasts the input over a new axis of repetitions before each axis."""
    (x, _), (out,) = call.inputs, call.outputs
    pairs = [(of // max(extent, 1), extent) for of, extent in zip(out.shape, x.shape, strict=True)]
    repeated: Index = (*(item for _ in x.shape for item in (None, np.s_[:])), ...)
    view = np.broadcast_to(phantom(x)[repeated], [extent for pair in pairs for extent in pair])
    return strided_copy(call.context, "Tile", out, x, view)


def _reverse(call: GpuCall) -> Enqueue:
    (x,), (out,) = call.inputs, call.outputs
    reversed_axes = {axis % x.ndim for axis in call.attrs["axis"]}
    turned: Index = (*(np.s_[:: -1 if axis in reversed_axes else 1] for axis in range(x.ndim)), ...)
    return strided_copy(call.context, "ReverseV2", out, x, phantom(x)[turned])


gpu_kernel(Split, _split)
gpu_kernel(Tile, _tile)
gpu_kernel(ReverseV2, _reverse)
