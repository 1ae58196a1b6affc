"""Cumulative sums and products along an axis, and the recurrence of cumprod's gradient.

Many or short lines: one thread per line, in NumPy's order and so with its bits. Few long
lines: a warp per line, 32 elements at a time; a sum's error is below (n / 32 + 6) * epsilon * sum(|x|).
The recurrence always uses one thread per line: combining its steps needs products that may overflow.
"""

from __future__ import annotations

import math

from tensorbow.graph import OpDef
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.blocks import BLOCKS, WARP
from tensorbow.kernels.gpu.source.index_types import IndexType, index_for
from tensorbow.ops.cumulative import Cumprod, Cumsum, Recurrence

SHORT = 64  # elements up to which one thread is at least as fast as a warp
MANY = 4096  # lines that occupy a GPU with one thread each

LINES = """
typedef $T T;
typedef $I I;
// Line number `line` of [outer, length, inner] begins here; its elements are `inner` apart.
__device__ inline I line_start(I line, I length, I inner) {
    return line / inner * length * inner + line % inner;
}
"""
RUNNING = (
    BLOCKS
    + LINES
    + """
struct Combine { __device__ T operator()(T a, T b) const { return $COMBINE; } };

// The value of the lane that is `lanes` earlier, and that of the last one.
template <class V> __device__ inline V earlier(V v, int lanes) {
    return __shfl_up_sync(0xffffffffu, v, lanes);
}
__device__ inline unsigned char earlier(unsigned char v, int lanes) {
    return (unsigned char)earlier((int)v, lanes);
}
template <class V> __device__ inline V last(V v) { return __shfl_sync(0xffffffffu, v, 31); }
__device__ inline unsigned char last(unsigned char v) { return (unsigned char)last((int)v); }

extern "C" __global__ void by_threads(const T* x, T* result, I lines, I length, I inner) {
    TB_FOR_EACH(I, line, lines) {
        I start = line_start(line, length, inner);
        T total = $NEUTRAL;
        for (I k = 0; k < length; ++k) {
            I i = start + ($REVERSE ? length - 1 - k : k) * inner;
            T next = k == 0 ? x[i] : Combine()(total, x[i]);
            result[i] = $EXCLUSIVE ? total : next;
            total = next;
        }
    }
}

extern "C" __global__ void by_warps(const T* x, T* result, I lines, I length, I inner) {
    I line = blockIdx.x * (I)blockDim.y + threadIdx.y;
    if (line >= lines) return;
    I start = line_start(line, length, inner);
    int lane = threadIdx.x;
    T carry = $NEUTRAL;
    for (I base = 0; base < length; base += 32) {
        I k = base + lane, i = start + ($REVERSE ? length - 1 - k : k) * inner;
        T total = k < length ? x[i] : (T)$NEUTRAL;
        for (int lanes = 1; lanes < 32; lanes *= 2) {
            T before = earlier(total, lanes);
            if (lane >= lanes) total = Combine()(before, total);
        }
        T all = last(total), before = earlier(total, 1);
        if (k < length) {
            T inclusive = Combine()(carry, total);
            result[i] = !$EXCLUSIVE ? inclusive : lane == 0 ? carry : Combine()(carry, before);
        }
        carry = Combine()(carry, all);
    }
}
"""
)


RECURRENCE = (
    LINES
    + """
extern "C" __global__ void recurrence(const T* x, const T* terms, T* result, I lines, I length, I inner) {
    TB_FOR_EACH(I, line, lines) {
        I start = line_start(line, length, inner);
        T s = 0;
        for (I k = 0; k < length; ++k) {
            I i = start + ($REVERSE ? length - 1 - k : k) * inner;
            result[i] = s;
            s = terms[i] + x[i] * s;
        }
    }
}
"""
)


def _lines_of(call: GpuCall) -> tuple[IndexType, int, int, int]:
    """The index type, and the shape [lines, length, inner] around the axis."""
    x = call.inputs[0]
    axis = call.attrs["axis"] % x.ndim
    length, inner = x.shape[axis], math.prod(x.shape[axis + 1 :])
    return index_for(x.size), x.size // max(1, length), length, inner


def _register(definition: OpDef, combine: str, neutral: str) -> None:
    def prepare(call: GpuCall) -> Enqueue:
        (x,), (result,) = call.inputs, call.outputs
        index, lines, length, inner = _lines_of(call)
        source = CudaSource.of(
            definition.name,
            RUNNING,
            T=c_type(x.dtype),
            I=index.name,
            COMBINE=combine,
            NEUTRAL=neutral,
            REVERSE="true" if call.attrs["reverse"] else "false",
            EXCLUSIVE="true" if call.attrs["exclusive"] else "false",
        )
        sizes = index.make(lines), index.make(length), index.make(inner)
        launch = call.context.launch
        if length <= SHORT or lines >= MANY:
            return launch(source, "by_threads", call.context.blocks(lines), BLOCK, x, result, *sizes)
        block = WARP, BLOCK // WARP
        return launch(source, "by_warps", -(-lines // block[1]), block, x, result, *sizes)

    gpu_kernel(definition, prepare)


_register(Cumsum, "tb_add(a, b)", "0")
_register(Cumprod, "tb_multiply(a, b)", "1")


def _prepare_recurrence(call: GpuCall) -> Enqueue:
    index, lines, length, inner = _lines_of(call)
    reverse = "true" if call.attrs["reverse"] else "false"
    dtype = c_type(call.outputs[0].dtype)
    source = CudaSource.of("Recurrence", RECURRENCE, T=dtype, I=index.name, REVERSE=reverse)
    sizes = index.make(lines), index.make(length), index.make(inner)
    blocks, arrays = call.context.blocks(lines), (*call.inputs, *call.outputs)
    return call.context.launch(source, "recurrence", blocks, BLOCK, *arrays, *sizes)


gpu_kernel(Recurrence, _prepare_recurrence)
