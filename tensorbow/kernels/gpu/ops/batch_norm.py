"""Fused batch normalisation: one launch if a block can hold all rows of its channels, else two.

With two, the first launch reduces parts of the rows [n, channels]; the second combines the parts in every
block and normalises the elements. Moments of parts are combined by Chan, Golub and LeVeque's formula (1983),
which keeps digits that sums of squares lose. An infinite element may give a mean of NaN; the CPU's is
infinite.

An element-wise expression of the normalised elements (see `fusion.inlining`) takes no launch of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from tensorbow.graph import Kernel, KernelCall, NodeSpec
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel, in_order
from tensorbow.kernels.gpu.source.blocks import BLOCKS
from tensorbow.kernels.gpu.source.channel_cut import cut_rows
from tensorbow.kernels.gpu.source.elements import Element, ElementIndex
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.batch_norm import FusedBatchNorm
from tensorbow.specs import TensorSpec, as_dtype

BATCH_NORM = (
    BLOCKS
    + """
typedef $T T;
typedef $I I;
$ELEMENT
struct Moments { T count; T mean; T squares; };  // squares: the sum of squared distances to the mean

struct Join {
    __device__ Moments operator()(Moments a, Moments b) const {
        if (a.count == 0) return b;
        if (b.count == 0) return a;
        T count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
        return {count, a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share};
    }
};

// Of up to $HELD rows of a channel, `step` from each other, whose values it leaves in `values`.
__device__ inline Moments held(const T* x, I row, I end, I step, I channels, I channel, T* values) {
    Moments found = {0, 0, 0};
    for (int k = 0; k < $HELD; ++k) {
        if (row + k * step < end) {
            values[k] = x[(row + k * step) * channels + channel];
            found.mean += values[k];
            found.count += 1;
        }
    }
    if (found.count == 0) return found;
    found.mean /= found.count;
    for (int k = 0; k < $HELD; ++k) {
        if (row + k * step < end) found.squares += (values[k] - found.mean) * (values[k] - found.mean);
    }
    return found;
}

struct Vectors { T* batch_mean; T* batch_variance; T* saved_mean; T* saved_inverse; };
struct Line { T mean; T factor; T shift; };  // y = (x - mean) * factor + shift

// What normalises a channel of these moments; writes the vectors where that is asked for.
__device__ inline Line line_of(
    Moments found, T scale, T offset, T epsilon, I rows, I channel, const Vectors& vectors, bool writes
) {
    T mean = rows > 0 ? found.mean : TB_NAN;
    T inverse = 1 / tb_sqrt(found.squares / (T)rows + epsilon);
    if (writes) {
        vectors.batch_mean[channel] = vectors.saved_mean[channel] = mean;
        vectors.batch_variance[channel] = found.squares / (T)(rows > 1 ? rows - 1 : 1);
        vectors.saved_inverse[channel] = inverse;
    }
    return {mean, scale * inverse, offset};
}

// Rows of y, by blocks along y.
__device__ inline void apply(const T* x, T* y, Line line, I channel, I rows, I channels, I some$TAKEN) {
    I first = blockIdx.y * some, end = tb_minimum(first + some, rows);
    for (I row = first + (I)threadIdx.y; row < end; row += blockDim.y) {
        I i = row * channels + channel;
        y[i] = Expression::element(i, row, channel, (x[i] - line.mean) * line.factor + line.shift$GIVEN);
    }
}

extern "C" __global__ void __launch_bounds__($MOST_THREADS, 1) normalize_at_once(
    const T* x, const T* scale, const T* offset, T* y, T* batch_mean, T* batch_variance, T* saved_mean,
    T* saved_inverse, T epsilon, I rows, I channels$TAKEN
) {
    __shared__ Moments shared[$MOST_THREADS];
    I channel = blockIdx.x * (I)blockDim.x + threadIdx.x, first = threadIdx.y, step = blockDim.y;
    T values[$HELD];
    Moments found = {0, 0, 0};
    if (channel < channels) found = held(x, first, rows, step, channels, channel, values);
    found = tb_reduce_column(Join(), found, shared);
    if (channel >= channels) return;
    Vectors vectors = {batch_mean, batch_variance, saved_mean, saved_inverse};
    Line line = line_of(
        found, scale[channel], offset[channel], epsilon, rows, channel, vectors, threadIdx.y == 0
    );
    for (int k = 0; k < $HELD; ++k) {
        I row = first + k * step, i = row * channels + channel;
        if (row < rows) {
            T own = (values[k] - line.mean) * line.factor + line.shift;
            y[i] = Expression::element(i, row, channel, own$GIVEN);
        }
    }
}

extern "C" __global__ void moments(const T* x, T* parts, I rows, I channels, I share) {
    __shared__ Moments shared[$BLOCK];
    I channel = blockIdx.x * (I)blockDim.x + threadIdx.x, step = blockDim.y;
    I first = blockIdx.y * share, end = tb_minimum(first + share, rows);
    Moments found = {0, 0, 0};
    if (channel < channels) {
        for (I row = first + (I)threadIdx.y; row < end; row += $HELD * step) {
            T values[$HELD];
            found = Join()(found, held(x, row, end, step, channels, channel, values));
        }
    }
    found = tb_reduce_column(Join(), found, shared);
    if (channel < channels && threadIdx.y == 0) {
        parts[2 * blockIdx.y * channels + channel] = found.mean;
        parts[(2 * blockIdx.y + 1) * channels + channel] = found.squares;
    }
}

extern "C" __global__ void normalize_by_parts(
    const T* x, const T* scale, const T* offset, const T* parts, T* y, T* batch_mean, T* batch_variance,
    T* saved_mean, T* saved_inverse, T epsilon, I rows, I channels, I number, I share, I some$TAKEN
) {
    __shared__ Moments shared[$BLOCK];
    I channel = blockIdx.x * (I)blockDim.x + threadIdx.x;
    Moments found = {0, 0, 0};
    if (channel < channels) {
        for (I part = threadIdx.y; part < number; part += blockDim.y) {
            T count = tb_minimum(share, rows - part * share);
            found = Join()(found, Moments{
                count, parts[2 * part * channels + channel], parts[(2 * part + 1) * channels + channel]
            });
        }
    }
    found = tb_reduce_column(Join(), found, shared);
    if (channel >= channels) return;
    Vectors vectors = {batch_mean, batch_variance, saved_mean, saved_inverse};
    bool writes = blockIdx.y == 0 && threadIdx.y == 0;
    Line line = line_of(found, scale[channel], offset[channel], epsilon, rows, channel, vectors, writes);
    apply(x, y, line, channel, rows, channels, some$GIVEN);
}

extern "C" __global__ void normalize_by_given(
    const T* x, const T* scale, const T* offset, const T* mean, const T* variance, T* y, T* batch_mean,
    T* batch_variance, T* saved_mean, T* saved_inverse, T epsilon, I rows, I channels, I some$TAKEN
) {
    I channel = blockIdx.x * (I)blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    T inverse = 1 / tb_sqrt(variance[channel] + epsilon);
    if (blockIdx.y == 0 && threadIdx.y == 0) {
        batch_mean[channel] = saved_mean[channel] = mean[channel];
        batch_variance[channel] = variance[channel];
        saved_inverse[channel] = inverse;
    }
    Line line = {mean[channel], scale[channel] * inverse, offset[channel]};
    apply(x, y, line, channel, rows, channels, some$GIVEN);
}
"""
)


def _scratch(node: NodeSpec) -> list[TensorSpec]:
    x = node.inputs[0]
    return cut_rows(x.extents).scratch(2, x.dtype) if node.attrs["is_training"] else []


def _prepare(call: GpuCall, element: Element | None = None) -> Enqueue:
    """element: an expression of the normalised elements, and of the inputs behind the op's five."""
    x, scale, offset, mean, variance, *others = call.inputs
    cut, index, launch = cut_rows(x.shape), index_for(x.size), call.context.launch
    element = element or Element.identity(ElementIndex.OWN, as_dtype(x.dtype))
    keys = element.keys([as_dtype(array.dtype) for array in others], as_dtype(x.dtype), index)
    source = cut.source("FusedBatchNorm", BATCH_NORM, x.dtype, index, keys)
    epsilon = x.dtype.type(call.attrs["epsilon"])
    rows, channels, share, some = (index.make(n) for n in (cut.rows, cut.channels, cut.share, cut.some))
    over_all, arrays = (cut.tiles, cut.chunks), element.arrays(others)
    if not call.attrs["is_training"]:
        given = (x, scale, offset, mean, variance, *call.outputs, epsilon, rows, channels, some)
        return launch(source, "normalize_by_given", over_all, cut.block, *given, *arrays)
    if cut.at_once:
        held = (x, scale, offset, *call.outputs, epsilon, rows, channels)
        return launch(source, "normalize_at_once", cut.held_grid, cut.held_block, *held, *arrays)
    (parts,) = call.scratch
    number = index.make(cut.parts)
    measured = (x, scale, offset, parts, *call.outputs, epsilon, rows, channels, number, share, some)
    return in_order(
        launch(source, "moments", (cut.tiles, cut.parts), cut.block, x, parts, rows, channels, share),
        launch(source, "normalize_by_parts", over_all, cut.block, *measured, *arrays),
    )


def normalized(element: Element, inplace: Sequence[tuple[int, int]]) -> Kernel:
    """The kernel of FusedBatchNorm whose first result is an expression of the normalised elements.

    The expression's inputs are those of the call behind the op's five; any stands for the elements.
    """
    prepare = cast("Callable[[KernelCall], Enqueue]", partial(_prepare, element=element))
    return Kernel(prepare=prepare, scratch=_scratch, inplace=tuple(inplace))


gpu_kernel(FusedBatchNorm, _prepare, scratch=_scratch)
