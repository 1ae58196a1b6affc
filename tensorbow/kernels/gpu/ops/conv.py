"""GPU kernels of `ops/conv.py`: the first applicable of five methods.

1. 1x1 windows with stride 1: a cuBLAS matrix product, without copies.
2. The own implicit GEMM, where the context asks for it: for fused replicas, which no library serves, and in
   bf16, which cuDNN does not read from float32.
3. Windows of up to 32 elements in up to 4 channels (first layers: 5x5x1, 3x3x3): direct sums, one launch.
   cuDNN would need a transposed filter and reads channels in fours.
4. cuDNN in NHWC, the filter transposed from HWIO to OHWI; if cuDNN does not support that
   (float64), in NCHW on transposed copies in the workspace.
5. Direct sums, if cuDNN supports neither, or not within the workspace.

Scratch holds the transposed filter, and images framed with zeros if their padding is asymmetric (cuDNN pads
both sides equally). The method is fixed when the plan is bound.

A filter may also be given packed, in cuDNN's layout, and its gradient taken so (see `fusion.packed_filters`):
then nothing is copied. A packed filter has leading zeros where that makes asymmetric padding symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from tensorbow.graph import Kernel, KernelCall, NodeSpec
from tensorbow.kernels.gpu.ops.cudnn import Cudnn, Direction, Layout
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall, gpu_kernel, in_order
from tensorbow.kernels.gpu.runtime.cublas import Cublas
from tensorbow.kernels.gpu.source import direct_convolution as direct
from tensorbow.kernels.gpu.source.direct_convolution import Convolution
from tensorbow.kernels.gpu.source.implicit_gemm import ConvolutionProduct, Pass, implicit_gemm
from tensorbow.kernels.gpu.source.packed_filters import PackedFilter, pack
from tensorbow.kernels.gpu.source.padded_copy import PaddedAxis, padded_copy
from tensorbow.kernels.gpu.source.strided_copy import phantom, strided_copy
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.sliding_windows import Axis
from tensorbow.program.nodes import Node
from tensorbow.specs import TensorSpec, as_dtype, float32

FEW_CHANNELS = 4
SMALL_WINDOW = 32
MOST_LED = 1 << 22  # elements of images up to which a window's zeros cost less than a copy's launch
ALIGNMENT = 256  # of copies in the workspace
TO_CHANNELS_FIRST = (0, 3, 1, 2)
TO_CHANNELS_LAST = (0, 2, 3, 1)
# Permutations from HWIO to cuDNN's filter layouts, and back; the last ones are from packed filters, OHWI.
TO_FILTER = {Layout.NHWC: (3, 0, 1, 2), Layout.NCHW: (3, 2, 0, 1)}
FROM_FILTER = {Layout.NHWC: (1, 2, 3, 0), Layout.NCHW: (2, 3, 1, 0)}
PACKED_TO_FILTER, PACKED_FROM_FILTER = (0, 3, 1, 2), (0, 2, 3, 1)  # in NCHW


def _is_product(what: Convolution) -> bool:
    return what.rows.is_pointwise and what.columns.is_pointwise


def _is_small(what: Convolution) -> bool:
    return what.channels <= FEW_CHANNELS and what.depth <= SMALL_WINDOW


def _is_symmetric(axis: Axis) -> bool:
    """True if padding of `before` on both sides gives exactly these windows."""
    return (axis.extent + 2 * axis.before - axis.span) // axis.stride + 1 == axis.count


def _scratch_specs(what: Convolution, node: NodeSpec) -> list[TensorSpec]:
    """The filter in cuDNN's layout, and framed images."""
    dtype = node.outputs[0].dtype
    nothing = TensorSpec((0,), dtype)
    if _is_product(what) or _is_small(what):
        return [nothing, nothing]
    turned = TensorSpec((what.outputs, what.rows.window, what.columns.window, what.channels), dtype)
    if _is_symmetric(what.rows) and _is_symmetric(what.columns):
        return [turned, nothing]
    framed = what.framed()
    frame = TensorSpec((what.batch, framed.rows.extent, framed.columns.extent, what.channels), dtype)
    return [turned, frame]


def _forward_scratch(node: NodeSpec) -> Sequence[TensorSpec]:
    images, filters = node.inputs
    return _scratch_specs(Convolution.of(images.extents, filters.extents, node.attrs), node)


def _input_scratch(node: NodeSpec) -> Sequence[TensorSpec]:
    return _scratch_specs(Convolution.of(node.outputs[0].extents, node.inputs[1].extents, node.attrs), node)


def _filter_scratch(node: NodeSpec) -> Sequence[TensorSpec]:
    """`_scratch_specs`, and the parts of the direct sum."""
    filters = node.outputs[0]
    what = Convolution.of(node.inputs[0].extents, filters.extents, node.attrs)
    parts = TensorSpec((what.parts if what.parts > 1 else 0, filters.size), filters.dtype)
    return [*_scratch_specs(what, node), parts]


def _forward(call: GpuCall) -> Enqueue:
    (images, filters), (out,) = call.inputs, call.outputs
    what = Convolution.of(images.shape, filters.shape, call.attrs)
    if _is_product(what) and out.size:
        pixels, weights = _matrix(images), _matrix(filters)
        return call.context.library(Cublas).product("Conv2D", pixels, weights, _matrix(out))
    if _is_gathered(call, images, filters, out):
        return _gathered(call, "Conv2D", Pass.FORWARD, what, images, filters, out)
    by_library = _by_cudnn(call, "Conv2D", Direction.FORWARD, what, (images, filters, out))
    return by_library or direct.forward(call.context, "Conv2D", what, images, filters, out)


def _backward_input(call: GpuCall) -> Enqueue:
    (_, filters, flow), (images,) = call.inputs, call.outputs
    what, op = Convolution.of(images.shape, filters.shape, call.attrs), "Conv2DBackpropInput"
    if _is_product(what) and images.size:
        pixels, weights = _matrix(flow), _matrix(filters)
        return call.context.library(Cublas).product(op, pixels, weights, _matrix(images), transpose_b=True)
    if _is_gathered(call, images, filters, flow):
        return _gathered(call, op, Pass.TO_IMAGES, what, flow, filters, images)
    by_library = _by_cudnn(call, op, Direction.BACKWARD_INPUT, what, (images, filters, flow))
    return by_library or direct.backward_input(call.context, op, what, filters, flow, images)


def _backward_filter(call: GpuCall) -> Enqueue:
    (images, _, flow), (filters,) = call.inputs, call.outputs
    what, op = Convolution.of(images.shape, filters.shape, call.attrs), "Conv2DBackpropFilter"
    if _is_product(what):
        left, right = _matrix(images), _matrix(flow)
        return call.context.library(Cublas).product(op, left, right, _matrix(filters), transpose_a=True)
    if _is_gathered(call, images, filters, flow):
        return _gathered(call, op, Pass.TO_FILTERS, what, images, flow, filters)
    by_library = _by_cudnn(call, op, Direction.BACKWARD_FILTER, what, (images, filters, flow))
    partial = call.scratch[2]
    return by_library or direct.backward_filter(call.context, op, what, images, flow, filters, partial)


def _matrix(array: DeviceArray) -> DeviceArray:
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


def _is_gathered(call: GpuCall, *arrays: DeviceArray) -> bool:
    """True if the implicit GEMM takes these arrays, and the context wants it to."""
    return call.context.gathers_convolutions and all(a.size and a.dtype == np.float32 for a in arrays)


def _gathered(
    call: GpuCall,
    op: str,
    which: Pass,
    what: Convolution,
    left: DeviceArray,
    right: DeviceArray,
    result: DeviceArray,
) -> Enqueue:
    context, parts = call.context, ConvolutionProduct.of(which, what).parts
    partial = context.partial(parts * result.nbytes) if parts > 1 else None
    return implicit_gemm(context, op, which, what, left, right, result, partial, context.replicas)


Arrays = tuple[DeviceArray, DeviceArray, DeviceArray]  # images, filters, outputs; one of them is the result


def _by_cudnn(
    call: GpuCall, op: str, direction: Direction, what: Convolution, arrays: Arrays
) -> Enqueue | None:
    """The launches with cuDNN, or None if direct sums must be used."""
    if _is_small(what) or call.context.gathers_convolutions or not all(array.size for array in arrays):
        return None
    images, filters, outputs = arrays
    frame = call.scratch[1]
    if not frame.size:
        return _in_layouts(call, op, direction, what, arrays)
    inner = _in_layouts(call, op, direction, what.framed(), (frame, filters, outputs))
    if inner is None:
        return None
    _, top, left, _ = before = (0, what.rows.before, what.columns.before, 0)
    if direction is Direction.BACKWARD_INPUT:
        view = phantom(frame)[:, top : top + images.shape[1], left : left + images.shape[2]]
        return in_order(inner, strided_copy(call.context, op, images, frame, view))
    extents = zip(frame.shape, images.shape, before, strict=True)
    axes = [PaddedAxis(extent, count, first) for extent, count, first in extents]
    return in_order(padded_copy(call.context, op, frame, images, axes), inner)


def _in_layouts(
    call: GpuCall, op: str, direction: Direction, what: Convolution, arrays: Arrays
) -> Enqueue | None:
    last = _channels_last(call, op, direction, what, arrays, call.scratch[0])
    return last or _channels_first(call, op, direction, what, arrays, TO_FILTER[Layout.NCHW])


def _channels_last(
    call: GpuCall,
    op: str,
    direction: Direction,
    what: Convolution,
    arrays: Arrays,
    turned: DeviceArray | None,
) -> Enqueue | None:
    """cuDNN on the NHWC activations. turned: memory for the filter's transpose; None for a packed filter."""
    workspace = call.context.workspace
    dtype = as_dtype(arrays[0].dtype)
    found = call.context.library(Cudnn).find(op, direction, what, dtype, Layout.NHWC, workspace.nbytes)
    if found is None:
        return None
    images, filters, outputs = arrays
    addresses = images.address, (turned or filters).address, outputs.address
    run = call.context.library(Cudnn).convolve(op, found, addresses, workspace.address)
    back = FROM_FILTER[Layout.NHWC]
    return _around(call, op, direction, run, arrays, (None, turned, None), TO_FILTER[Layout.NHWC], back)


def _channels_first(
    call: GpuCall,
    op: str,
    direction: Direction,
    what: Convolution,
    arrays: Arrays,
    to_filter: tuple[int, ...],
) -> Enqueue | None:
    """cuDNN on NCHW copies of everything, at the beginning of the workspace. to_filter: axes of OIHW."""
    workspace, first, copies = call.context.workspace, 0, []
    for array, axes in zip(arrays, (TO_CHANNELS_FIRST, to_filter, TO_CHANNELS_FIRST), strict=True):
        shape = tuple(array.shape[axis] for axis in axes)
        copies.append(DeviceArray(workspace.address + first, shape, array.dtype))
        first += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    if first > workspace.nbytes:
        return None
    dtype = as_dtype(arrays[0].dtype)
    found = call.context.library(Cudnn).find(
        op, direction, what, dtype, Layout.NCHW, workspace.nbytes - first
    )
    if found is None:
        return None
    run = call.context.library(Cudnn).convolve(
        op, found, [copy.address for copy in copies], workspace.address + first
    )
    back = PACKED_FROM_FILTER if to_filter == PACKED_TO_FILTER else FROM_FILTER[Layout.NCHW]
    return _around(call, op, direction, run, arrays, copies, to_filter, back)


def _around(
    call: GpuCall,
    op: str,
    direction: Direction,
    run: Enqueue,
    arrays: Arrays,
    copies: Sequence[DeviceArray | None],
    to_filter: tuple[int, ...],
    from_filter: tuple[int, ...],
) -> Enqueue:
    """The call, preceded by copies of its operands and followed by the copy of its result, where needed."""
    steps, last = [], direction.value[2][-1]
    to_copy = (TO_CHANNELS_FIRST, to_filter, TO_CHANNELS_FIRST)
    for i, (array, copy) in enumerate(zip(arrays, copies, strict=True)):
        if copy is not None and i != last:
            steps.append(strided_copy(call.context, op, copy, array, phantom(array).transpose(to_copy[i])))
    steps.append(run)
    result, copy = arrays[last], copies[last]
    if copy is not None:
        back = from_filter if last == 1 else TO_CHANNELS_LAST
        steps.append(strided_copy(call.context, op, result, copy, phantom(copy).transpose(back)))
    return in_order(*steps)


# Packed filters -----------------------------------------------------------------------------------


def packed_form(node: Node) -> PackedFilter | None:
    """The form in which a convolution or its derivative takes a packed filter; None where it does not.

    That is where cuDNN would not be called, where zeros cannot make its padding symmetric, and where their
    products would cost more than copies of large images.
    """
    images, filters = {
        Conv2D: lambda: (node.inputs[0], node.inputs[1]),
        Conv2DBackpropInput: lambda: (node.outputs[0], node.inputs[1]),
        Conv2DBackpropFilter: lambda: (node.inputs[0], node.outputs[0]),
    }[node.definition]()
    if filters.spec.dtype != float32 or not (images.spec.size and filters.spec.size):
        return None  # cuDNN has no NHWC for float64
    what = Convolution.of(images.spec.extents, filters.spec.extents, node.attrs)
    if _is_product(what) or _is_small(what):
        return None
    down, across = _lead(what.rows), _lead(what.columns)
    if down is None or across is None or (down + across and images.spec.size > MOST_LED):
        return None
    return PackedFilter(filters.spec.extents, (down, across))


def _lead(axis: Axis) -> int | None:
    """Zeros in front of a window that make the axis's padding symmetric, 0 or 1; None if neither does."""
    return next((lead for lead in (0, 1) if _is_symmetric(_led(axis, lead))), None)


def _led(axis: Axis, lead: int) -> Axis:
    """The same windows, with `lead` elements in front."""
    return replace(axis, window=axis.window + lead, before=axis.before + lead * axis.rate)


def _by_packed(
    call: GpuCall, op: str, direction: Direction, form: PackedFilter, what: Convolution, arrays: Arrays
) -> Enqueue | None:
    """cuDNN on a packed filter."""
    down, across = form.lead
    led = replace(what, rows=_led(what.rows, down), columns=_led(what.columns, across))
    last = _channels_last(call, op, direction, led, arrays, None)
    return last or _channels_first(call, op, direction, led, arrays, PACKED_TO_FILTER)


def packed_forward(form: PackedFilter) -> Kernel:
    """The kernel of Conv2D with a further input, the packed filter."""

    def prepare(call: GpuCall) -> Enqueue:
        (images, filters, packed), (out,) = call.inputs, call.outputs
        what = Convolution.of(images.shape, filters.shape, call.attrs)
        run = _by_packed(call, "Conv2D", Direction.FORWARD, form, what, (images, packed, out))
        return run or direct.forward(call.context, "Conv2D", what, images, filters, out)

    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare))


def packed_backward_input(form: PackedFilter) -> Kernel:
    """The kernel of Conv2DBackpropInput with a further input, the packed filter."""

    def prepare(call: GpuCall) -> Enqueue:
        (_, filters, flow, packed), (images,) = call.inputs, call.outputs
        what, op = Convolution.of(images.shape, filters.shape, call.attrs), "Conv2DBackpropInput"
        run = _by_packed(call, op, Direction.BACKWARD_INPUT, form, what, (images, packed, flow))
        return run or direct.backward_input(call.context, op, what, filters, flow, images)

    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare))


def packed_backward_filter(form: PackedFilter) -> Kernel:
    """The kernel of Conv2DBackpropFilter with a packed result. Scratch is for direct sums."""

    def scratch(node: NodeSpec) -> Sequence[TensorSpec]:
        what = Convolution.of(node.inputs[0].extents, form.extents, node.attrs)
        parts = (what.parts if what.parts > 1 else 0, math.prod(form.extents))
        return [TensorSpec(form.extents, node.outputs[0].dtype), TensorSpec(parts, node.outputs[0].dtype)]

    def prepare(call: GpuCall) -> Enqueue:
        (images, _, flow), (packed,) = call.inputs, call.outputs
        plain, partial = call.scratch
        what, op = Convolution.of(images.shape, form.extents, call.attrs), "Conv2DBackpropFilter"
        run = _by_packed(call, op, Direction.BACKWARD_FILTER, form, what, (images, packed, flow))
        if run is not None:
            return run
        sums = direct.backward_filter(call.context, op, what, images, flow, plain, partial)
        return in_order(sums, pack(call.context, [form], [plain], [packed]))

    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare), scratch=scratch)


gpu_kernel(Conv2D, _forward, scratch=_forward_scratch)
gpu_kernel(Conv2DBackpropInput, _backward_input, scratch=_input_scratch)
gpu_kernel(Conv2DBackpropFilter, _backward_filter, scratch=_filter_scratch)
