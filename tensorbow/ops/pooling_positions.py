"""Max pooling that also gives the positions of the maxima (TensorFlow 1's max_pool_with_argmax)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, Kernel, KernelCall, NodeSpec, Operation, Tensor, as_tensor
from tensorbow.kinds import AsDType, Flag, Name, checked
from tensorbow.ops.argument_kinds import DataFormat, Padding, WindowSize
from tensorbow.ops.arrays import expand_dims, reshape
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import add, multiply
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.indexing import GatherGrad
from tensorbow.ops.pooling import POOL_ATTRS, _pooled_dims
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sliding_windows import Windows, spatial_pair
from tensorbow.specs import FLOATING, TensorSpec, bool_, int32, int64

__all__ = ["max_pool_with_argmax"]


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    require_dtype("max_pool_with_argmax", inputs[0], FLOATING, "the images")
    require_dtype("max_pool_with_argmax", TensorSpec((), attrs["Targmax"]), (int32, int64), "Targmax")
    dims = _pooled_dims(inputs[0], attrs)
    return [TensorSpec(dims, inputs[0].dtype), TensorSpec(dims, attrs["Targmax"])]


def _scratch(node: NodeSpec) -> list[TensorSpec]:
    output = node.outputs[0]
    return [TensorSpec(output.shape, bool_), TensorSpec(output.shape, bool_)]


def _prepare(call: KernelCall) -> Callable[[], None]:
    (images,), (pooled, positions), (chosen, is_new) = call.inputs, call.outputs, call.scratch
    if not pooled.size:
        return lambda: None
    batch, height, width, channels = images.shape
    windows = Windows.of_pool(images.shape, call.attrs)
    rows, columns = np.arange(height), np.arange(width)
    first = np.arange(batch) * (height * width * channels) * bool(call.attrs["include_batch_in_index"])
    plan = []
    for _, part, pixels in windows.elements():
        flat = rows[pixels[1]][:, None] * width + columns[pixels[2]]
        plan.append((part, images[pixels], (flat * channels)[..., None] + np.arange(channels)))

    def step() -> None:
        positions.fill(-1)
        for part, element, places in plan:
            better, new = chosen[part], is_new[part]
            np.greater(element, pooled[part], out=better)
            np.less(positions[part], 0, out=new)
            np.logical_or(better, new, out=better)
            np.copyto(pooled[part], element, where=better)
            np.copyto(positions[part], places, where=better, casting="same_kind")
        np.add(positions, first[:, None, None, None], out=positions, casting="same_kind")

    return step


def _gradient(op: Operation, g: Tensor | None, _: Tensor | None) -> list[Tensor | None]:
    """Each element goes to the position of its maximum."""
    if g is None:
        return [None]
    (images,) = op.inputs
    extents = shape(images, out_type=int64)
    places = cast(op.outputs[1], int64)
    if not op.attrs["include_batch_in_index"]:
        of_each = reduce_prod(strided_slice(extents, slice(1, None)))
        first = multiply(number_range(strided_slice(extents, 0)), of_each)
        places = add(places, reshape(first, [-1, 1, 1, 1]))
    size = expand_dims(reduce_prod(extents), 0)
    flat = GatherGrad(reshape(g, [-1]), reshape(places, [-1]), size)
    return [reshape(flat, shape(images))]


MaxPoolWithArgmax = define_op(
    "MaxPoolWithArgmax",
    spec=_spec,
    gradient=_gradient,
    kernel=Kernel(prepare=_prepare, scratch=_scratch),
    inputs=("input",),
    attrs={**POOL_ATTRS, "Targmax": int64, "include_batch_in_index": False},
    unknown_dtypes=lambda inputs, attrs: (inputs[0].dtype, attrs["Targmax"]),
    why_cpu="NumPy finds the positions of the maxima",
)


@checked
def max_pool_with_argmax(
    input: Any,
    ksize: WindowSize,
    strides: WindowSize,
    padding: Padding,
    data_format: DataFormat = "NHWC",
    Targmax: AsDType = int64,  # noqa: N803 - TensorFlow's name
    name: Name = None,
    output_dtype: AsDType | None = None,
    include_batch_in_index: Flag = False,
) -> tuple[Tensor, Tensor]:
    """`max_pool` of NHWC images, and the positions of the maxima, of equal ones the first: on a CPU.

    A position is (row * width + column) * channels + channel, with `include_batch_in_index` plus the example
    times the image's size. Targmax or output_dtype: int64 or int32.
    """
    if data_format == "NCHW":
        raise InvalidArgumentError("max_pool_with_argmax: data_format is NCHW; use tb.transpose")
    images = as_tensor(input)
    pooled, positions = MaxPoolWithArgmax(
        images,
        ksize=spatial_pair("max_pool_with_argmax", ksize, "ksize", "NHWC"),
        strides=spatial_pair("max_pool_with_argmax", strides, "strides", "NHWC"),
        padding=padding,
        Targmax=output_dtype or Targmax,
        include_batch_in_index=include_batch_in_index,
        name=name,
    )
    return pooled, positions
