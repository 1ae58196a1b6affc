"""Convolutions of all replicas in one launch, without a library."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import numpy as np

from tensorbow.errors import InternalError
from tensorbow.graph import Kernel, KernelCall, OpDef
from tensorbow.kernels.gpu.fused.context import FusedContext
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall
from tensorbow.kernels.gpu.runtime.cublas import Cublas
from tensorbow.kernels.gpu.source import direct_convolution as direct
from tensorbow.kernels.gpu.source.direct_convolution import Convolution
from tensorbow.kernels.gpu.source.implicit_gemm import ConvolutionProduct, Pass, implicit_gemm
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput


def _forward(call: GpuCall) -> Enqueue:
    (images, filters), (out,) = call.inputs, call.outputs
    what, op, context = Convolution.of(images.shape, filters.shape, call.attrs), "Conv2D", call.context
    if _is_product(what) and out.size:
        return context.library(Cublas).product(op, _matrix(images), _matrix(filters), _matrix(out))
    if _is_direct(images, filters, out):
        return direct.forward(context, op, what, images, filters, out)
    return implicit_gemm(context, op, Pass.FORWARD, what, images, filters, out, replicas=_replicas(call))


def _to_images(call: GpuCall) -> Enqueue:
    (_, filters, flow), (images,) = call.inputs, call.outputs
    what, op = Convolution.of(images.shape, filters.shape, call.attrs), "Conv2DBackpropInput"
    context = call.context
    if _is_product(what) and images.size:
        operands = _matrix(flow), _matrix(filters), _matrix(images)
        return context.library(Cublas).product(op, *operands, transpose_b=True)
    if _is_direct(images, filters, flow):
        return direct.backward_input(context, op, what, filters, flow, images)
    return implicit_gemm(context, op, Pass.TO_IMAGES, what, flow, filters, images, replicas=_replicas(call))


def _to_filters(call: GpuCall) -> Enqueue:
    (images, _, flow), (filters,) = call.inputs, call.outputs
    what, op = Convolution.of(images.shape, filters.shape, call.attrs), "Conv2DBackpropFilter"
    context = call.context
    if _is_product(what):
        operands = _matrix(images), _matrix(flow), _matrix(filters)
        return context.library(Cublas).product(op, *operands, transpose_a=True)
    if _is_direct(images, filters, flow):
        return direct.backward_filter(context, op, what, images, flow, filters, call.scratch[2])
    parts = ConvolutionProduct.of(Pass.TO_FILTERS, what).parts
    partial = _fused(call).partial(parts * filters.nbytes) if parts > 1 else None
    arrays = images, flow, filters, partial
    return implicit_gemm(context, op, Pass.TO_FILTERS, what, *arrays, replicas=_replicas(call))


def _is_product(what: Convolution) -> bool:
    return what.rows.is_pointwise and what.columns.is_pointwise


def _is_direct(*arrays: DeviceArray) -> bool:
    """True for arrays without elements, and for float64."""
    return any(not array.size or array.dtype != np.float32 for array in arrays)


def _matrix(array: DeviceArray) -> DeviceArray:
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


def _fused(call: GpuCall) -> FusedContext:
    if not isinstance(call.context, FusedContext):
        raise InternalError("a convolution of fused replicas needs their context")
    return call.context


def _replicas(call: GpuCall) -> int:
    return _fused(call).memory.replicas


def _kernel(prepare: Callable[[GpuCall], Enqueue]) -> Kernel:
    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare))


FUSED_KERNELS: dict[OpDef, Kernel] = {
    Conv2D: _kernel(_forward),
    Conv2DBackpropInput: _kernel(_to_images),
    Conv2DBackpropFilter: _kernel(_to_filters),
}
"""Kernels in place of those that call cuDNN for one replica; they need a FusedContext."""
