"""GPU kernels of `ops/depthwise.py`: direct sums with one channel per group.

Depthwise convolution has so few products that reading the images bounds it; cuDNN needs transposed copies.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.graph import NodeSpec
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.source.direct_convolution import (
    Convolution,
    backward_filter,
    backward_input,
    forward,
)
from tensorbow.ops.depthwise import (
    DepthwiseConv2dNative,
    DepthwiseConv2dNativeBackpropFilter,
    DepthwiseConv2dNativeBackpropInput,
)
from tensorbow.specs import TensorSpec


def _forward(call: GpuCall) -> Enqueue:
    (images, filters), (out,) = call.inputs, call.outputs
    convolution = Convolution.of(images.shape, filters.shape, call.attrs, depthwise=True)
    return forward(call.context, "DepthwiseConv2dNative", convolution, images, filters, out)


def _backward_input(call: GpuCall) -> Enqueue:
    (_, filters, flow), (images,) = call.inputs, call.outputs
    convolution = Convolution.of(images.shape, filters.shape, call.attrs, depthwise=True)
    op = "DepthwiseConv2dNativeBackpropInput"
    return backward_input(call.context, op, convolution, filters, flow, images)


def _partial(node: NodeSpec) -> Sequence[TensorSpec]:
    (images, _, _), (filters,) = node.inputs, node.outputs
    convolution = Convolution.of(images.extents, filters.extents, node.attrs, depthwise=True)
    parts = convolution.parts
    return [TensorSpec((parts if parts > 1 else 0, filters.size), filters.dtype)]


def _backward_filter(call: GpuCall) -> Enqueue:
    (images, _, flow), (filters,), (partial,) = call.inputs, call.outputs, call.scratch
    convolution = Convolution.of(images.shape, filters.shape, call.attrs, depthwise=True)
    op = "DepthwiseConv2dNativeBackpropFilter"
    return backward_filter(call.context, op, convolution, images, flow, filters, partial)


gpu_kernel(DepthwiseConv2dNative, _forward)
gpu_kernel(DepthwiseConv2dNativeBackpropInput, _backward_input)
gpu_kernel(DepthwiseConv2dNativeBackpropFilter, _backward_filter, scratch=_partial)
