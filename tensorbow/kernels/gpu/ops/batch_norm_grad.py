"""Gradient of fused batch normalisation: one launch if a block can hold its channels, else two.

With two, as in `batch_norm`, the second combines the parts' sums in every block and computes the elements.
The error of a sum of n numbers in p parts and T threads is at most (n / pT + log2(pT)) * epsilon *
sum(|x|), as the threads' sums are combined in trees.

The gradient of y may be an element-wise expression of other arrays (see `fusion.inlining`), which takes no
launch of its own; `kept` is memory for its elements, if others read them too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from tensorbow.graph import Kernel, KernelCall, NodeSpec
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall, gpu_kernel, in_order
from tensorbow.kernels.gpu.source.blocks import BLOCKS
from tensorbow.kernels.gpu.source.channel_cut import cut_rows
from tensorbow.kernels.gpu.source.elements import Element, ElementIndex
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.batch_norm import FusedBatchNormGrad
from tensorbow.program.nodes import Node
from tensorbow.specs import TensorSpec, as_dtype

BATCH_NORM_GRAD = (
    BLOCKS
    + """
typedef $T T;
typedef $I I;
$ELEMENT
struct Sums { T flow; T product; };  // of dy, and of dy * (x - mean)

struct Both {
    __device__ Sums operator()(Sums a, Sums b) const { return {a.flow + b.flow, a.product + b.product}; }
};

// dx = ((dy - shift) - (x - mean) * slope) * factor
struct Back { T middle; T slope; T shift; T factor; };
__device__ inline Back back_of(
    Sums found, T scale, T mean, T inverse, I rows, I channel, T* dscale, T* doffset, bool training,
    bool writes
) {
    T to_scale = rows > 0 ? found.product * inverse : 0;  // mean and inverse of no rows are NaN
    if (writes) {
        dscale[channel] = to_scale;
        doffset[channel] = found.flow;
    }
    T factor = scale * inverse;
    if (!training) return {mean, 0, 0, factor};
    return {mean, to_scale * inverse / (T)rows, found.flow / (T)rows, factor};
}
__device__ inline T went_back(const Back& back, T flow, T x, bool training) {
    if (training) flow = flow - (x - back.middle) * back.slope - back.shift;
    return flow * back.factor;
}

extern "C" __global__ void __launch_bounds__($MOST_THREADS, 1) differentiate_at_once(
    const T* x, const T* scale, const T* mean, const T* inverse, T* dx, T* dscale, T* doffset, T* kept,
    bool training, I rows, I channels$TAKEN
) {
    __shared__ Sums shared[$MOST_THREADS];
    I channel = blockIdx.x * (I)blockDim.x + threadIdx.x, first = threadIdx.y, step = blockDim.y;
    T flows[$HELD], values[$HELD];
    Sums found = {0, 0};
    if (channel < channels) {
        T middle = mean[channel];
        for (int k = 0; k < $HELD; ++k) {
            I row = first + k * step, i = row * channels + channel;
            if (row < rows) {
                flows[k] = Expression::element(i, row, channel, 0$GIVEN);
                if (kept != nullptr) kept[i] = flows[k];
                values[k] = x[i];
                found = Both()(found, Sums{flows[k], flows[k] * (values[k] - middle)});
            }
        }
    }
    found = tb_reduce_column(Both(), found, shared);
    if (channel >= channels) return;
    Back back = back_of(
        found, scale[channel], mean[channel], inverse[channel], rows, channel, dscale, doffset, training,
        threadIdx.y == 0
    );
    for (int k = 0; k < $HELD; ++k) {
        I row = first + k * step;
        if (row < rows) dx[row * channels + channel] = went_back(back, flows[k], values[k], training);
    }
}

extern "C" __global__ void sums(
    const T* x, const T* mean, T* parts, T* kept, I rows, I channels, I share$TAKEN
) {
    __shared__ Sums shared[$BLOCK];
    I channel = blockIdx.x * (I)blockDim.x + threadIdx.x, step = blockDim.y;
    I first = blockIdx.y * share, end = tb_minimum(first + share, rows);
    Sums found = {0, 0};
    if (channel < channels) {
        T middle = mean[channel];
        for (I row = first + (I)threadIdx.y; row < end; row += $HELD * step) {
            Sums some = {0, 0};
            for (int k = 0; k < $HELD; ++k) {
                if (row + k * step < end) {
                    I i = (row + k * step) * channels + channel;
                    T flow = Expression::element(i, row + k * step, channel, 0$GIVEN);
                    if (kept != nullptr) kept[i] = flow;
                    some = Both()(some, Sums{flow, flow * (x[i] - middle)});
                }
            }
            found = Both()(found, some);
        }
    }
    found = tb_reduce_column(Both(), found, shared);
    if (channel < channels && threadIdx.y == 0) {
        parts[2 * blockIdx.y * channels + channel] = found.flow;
        parts[(2 * blockIdx.y + 1) * channels + channel] = found.product;
    }
}

extern "C" __global__ void differentiate_by_parts(
    const T* x, const T* scale, const T* mean, const T* inverse, const T* parts, T* dx, T* dscale, T* doffset,
    const T* kept, bool training, I rows, I channels, I number, I some$TAKEN
) {
    __shared__ Sums shared[$BLOCK];
    I channel = blockIdx.x * (I)blockDim.x + threadIdx.x;
    Sums found = {0, 0};
    if (channel < channels) {
        for (I part = threadIdx.y; part < number; part += blockDim.y) {
            found = Both()(found, Sums{
                parts[2 * part * channels + channel], parts[(2 * part + 1) * channels + channel]
            });
        }
    }
    found = tb_reduce_column(Both(), found, shared);
    if (channel >= channels) return;
    Back back = back_of(
        found, scale[channel], mean[channel], inverse[channel], rows, channel, dscale, doffset, training,
        blockIdx.y == 0 && threadIdx.y == 0
    );
    I first = blockIdx.y * some, end = tb_minimum(first + some, rows);
    for (I row = first + (I)threadIdx.y; row < end; row += blockDim.y) {
        I i = row * channels + channel;
        T flow = kept != nullptr ? kept[i] : Expression::element(i, row, channel, 0$GIVEN);
        dx[i] = went_back(back, flow, x[i], training);
    }
}
"""
)


def _scratch(node: NodeSpec) -> list[TensorSpec]:
    return cut_rows(node.outputs[0].extents).scratch(2, node.outputs[0].dtype)


def _prepare(
    call: GpuCall, vectors: Sequence[DeviceArray], element: Element, arrays: Sequence[DeviceArray]
) -> Enqueue:
    """vectors: x, scale, mean and inverse. element: the gradient, an expression of `arrays`."""
    (x, _, mean, _), (dx, dscale, doffset, *keep) = vectors, call.outputs
    cut, index, launch = cut_rows(x.shape), index_for(x.size), call.context.launch
    keys = element.keys([as_dtype(array.dtype) for array in arrays], as_dtype(x.dtype), index)
    source = cut.source("FusedBatchNormGrad", BATCH_NORM_GRAD, x.dtype, index, keys)
    rows, channels, share, some = (index.make(n) for n in (cut.rows, cut.channels, cut.share, cut.some))
    training, taken = np.bool_(call.attrs["is_training"]), element.arrays(arrays)
    kept = keep[0] if keep else None
    results = dx, dscale, doffset, kept
    if cut.at_once:
        held = (*vectors, *results, training, rows, channels)
        return launch(source, "differentiate_at_once", cut.held_grid, cut.held_block, *held, *taken)
    (parts,) = call.scratch
    by_parts = (x, mean, parts, kept, rows, channels, share)
    joined = (*vectors, parts, *results, training, rows, channels, index.make(cut.parts), some)
    return in_order(
        launch(source, "sums", (cut.tiles, cut.parts), cut.block, *by_parts, *taken),
        launch(source, "differentiate_by_parts", (cut.tiles, cut.chunks), cut.block, *joined, *taken),
    )


def _prepare_plain(call: GpuCall) -> Enqueue:
    gradient, *vectors = call.inputs
    element = Element.identity(ElementIndex.EACH, as_dtype(gradient.dtype))
    return _prepare(call, vectors, element, [gradient])


def differentiated(node: Node, element: Element) -> Kernel:
    """The kernel of FusedBatchNormGrad whose gradient is an expression of the inputs behind the op's others.

    A fourth result is the gradient's elements.
    """

    def prepare(call: GpuCall) -> Enqueue:
        return _prepare(call, call.inputs[:4], element, call.inputs[4:])

    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare), scratch=_scratch)


gpu_kernel(FusedBatchNormGrad, _prepare_plain, scratch=_scratch)
