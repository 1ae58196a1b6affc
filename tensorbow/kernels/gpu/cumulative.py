"""Running sums and products along an axis.

Many lines, or short ones: a thread goes along each line, in NumPy's order and so with its bits. Few and long
ones: a warp takes 32 elements of a line at a time; a sum's error is below (n / 32 + 6) * epsilon * sum(|x|).
"""

from __future__ import annotations

import math

from tensorbow.graph import OpDef
from tensorbow.kernels.gpu.blocks import BLOCKS, WARP
from tensorbow.kernels.gpu.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.context import BLOCK
from tensorbow.kernels.gpu.indices import index_for
from tensorbow.kernels.gpu.program import CudaSource, c_type
from tensorbow.ops.cumulative import Cumprod, Cumsum

SHORT = 64  # elements of a line that a thread goes along at least as fast as a warp
MANY = 4096  # lines that keep a GPU busy with a thread each

RUNNING = (
    BLOCKS
    + """
typedef $T T;
typedef $I I;
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

// Line number `line` of [outer, length, inner] begins here; its elements are `inner` apart.
__device__ inline I line_start(I line, I length, I inner) {
    return line / inner * length * inner + line % inner;
}

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


def _register(definition: OpDef, combine: str, neutral: str) -> None:
    def prepare(call: GpuCall) -> Enqueue:
        (x,), (result,) = call.inputs, call.outputs
        axis = call.attrs["axis"] % x.ndim
        length, inner = x.shape[axis], math.prod(x.shape[axis + 1 :])
        lines = x.size // max(1, length)
        index = index_for(x.size)
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
