"""GPU kernels of `ops/indexing.py`: gather, its gradient, and one_hot.

A GPU kernel cannot raise for an index out of range. As in TensorFlow's GPU kernels, gather gives
zeros for it, and its gradient skips that slice.
"""

from __future__ import annotations

import math

import numpy as np

from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall, gpu_kernel, in_order
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.kernels.gpu.source.words import (
    QUAD,
    WORDS,
    elements_per_word,
)
from tensorbow.ops.indexing import GatherGrad, GatherV2, OneHot

GATHER = (
    QUAD
    + """
struct Extents { $I extent; $I indices; $I inner; };  // params are [outer, extent, inner]
extern "C" __global__ void gather(
    $W* target, const $W* params, const $B* indices, Extents sizes, $I count) {
    TB_FOR_EACH($I, i, count) {
        $I slice = i / sizes.inner, outer = slice / sizes.indices;
        long long index = indices[slice - outer * sizes.indices];
        $W value = {};
        if (index >= 0 && index < sizes.extent)
            value = params[(outer * sizes.extent + ($I)index) * sizes.inner + (i - slice * sizes.inner)];
        target[i] = value;
    }
}
"""
)

# One block per index: the block of the first of equal indices adds the slices of all of them, in order.
GATHER_GRAD = """
struct Extents { $I extent; $I indices; $I inner; $I outer; };
extern "C" __global__ void gather_grad(
    $T* target, const $T* gradients, const $B* indices, Extents sizes) {
    $I own = blockIdx.x;
    long long index = indices[own];
    if (index < 0 || index >= sizes.extent) return;
    bool repeated = false;
    for ($I j = threadIdx.x; j < own; j += blockDim.x) repeated = repeated || indices[j] == index;
    __shared__ int found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (repeated) found = 1;
    __syncthreads();
    if (found) return;
    for ($I i = threadIdx.x; i < sizes.outer * sizes.inner; i += blockDim.x) {
        $I outer = i / sizes.inner, column = i - outer * sizes.inner;
        const $T* slices = gradients + outer * sizes.indices * sizes.inner + column;
        $T sum = 0;
        for ($I j = own; j < sizes.indices; ++j)
            if (indices[j] == index) sum = sum + slices[j * sizes.inner];
        target[(outer * sizes.extent + ($I)index) * sizes.inner + column] = sum;
    }
}
"""

ONE_HOT = """
extern "C" __global__ void one_hot(
    $T* target, const $B* indices, $I depth, $I inner, $T on, $T off, $I count) {
    TB_FOR_EACH($I, i, count) {
        $I row = i / inner, outer = row / depth;
        target[i] = indices[outer * inner + (i - row * inner)] == row - outer * depth ? on : off;
    }
}
"""


def _around(array: DeviceArray, axis: int) -> tuple[int, int, int]:
    """Number of elements before, along and after an axis."""
    return math.prod(array.shape[:axis]), array.shape[axis], math.prod(array.shape[axis + 1 :])


def _gather(call: GpuCall) -> Enqueue:
    (params, indices), (out,) = call.inputs, call.outputs
    _, extent, inner = _around(params, call.attrs["axis"] % params.ndim)
    itemsize = out.dtype.itemsize
    words = elements_per_word(itemsize, (params.address, out.address), (inner,))
    index, count = index_for(params.size, out.size, indices.size), out.size // words
    return call.context.launch(
        CudaSource.of("GatherV2", GATHER, I=index.name, W=WORDS[itemsize * words], B=c_type(indices.dtype)),
        "gather",
        call.context.blocks(count),
        256,
        out,
        params,
        indices,
        index.array([extent, indices.size, inner // words]),
        index.make(count),
    )


def _gather_grad(call: GpuCall) -> Enqueue:
    (gradients, indices, _), (out,), context = call.inputs, call.outputs, call.context
    outer, extent, inner = _around(out, call.attrs["axis"] % out.ndim)
    index = index_for(out.size, gradients.size, indices.size)
    add = context.launch(
        CudaSource.of("GatherGrad", GATHER_GRAD, I=index.name, T=c_type(out.dtype), B=c_type(indices.dtype)),
        "gather_grad",
        indices.size if out.size else 0,
        max(32, min(256, -(-outer * inner // 32) * 32)),
        out,
        gradients,
        indices,
        index.array([extent, indices.size, inner, outer]),
    )
    return in_order(context.clear(out), add)


def _one_hot(call: GpuCall) -> Enqueue:
    (indices,), (out,), attrs = call.inputs, call.outputs, call.attrs
    _, depth, inner = _around(out, attrs["axis"] % out.ndim)
    index = index_for(out.size)
    on, off = (np.array(attrs[key]).astype(out.dtype) for key in ("on_value", "off_value"))
    return call.context.launch(
        CudaSource.of("OneHot", ONE_HOT, I=index.name, T=c_type(out.dtype), B=c_type(indices.dtype)),
        "one_hot",
        call.context.blocks(out.size),
        256,
        out,
        indices,
        index.make(depth),
        index.make(inner),
        on,
        off,
        index.make(out.size),
    )


gpu_kernel(GatherV2, _gather)
gpu_kernel(GatherGrad, _gather_grad)
gpu_kernel(OneHot, _one_hot)
