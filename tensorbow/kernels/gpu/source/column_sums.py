"""Sums over the rows [rows, channels] of an expression, whose elements may be kept: one launch or two.

The rows are divided as those of batch normalisation: one launch if a block can hold all rows of its channels,
else one that sums parts and one that joins them. The division depends on the shape alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, in_order
from tensorbow.kernels.gpu.runtime.context import Argument, GpuContext
from tensorbow.kernels.gpu.source.blocks import BLOCKS
from tensorbow.kernels.gpu.source.channel_cut import cut_rows
from tensorbow.kernels.gpu.source.index_types import index_for

COLUMN_SUMS = (
    BLOCKS
    + """
typedef $T T;
typedef $I I;
$OWN_CODE
$ELEMENT
// Of up to $HELD rows of a channel, `step` from each other.
__device__ inline T sum_of(T* kept, I row, I end, I step, I channels, I channel$TAKEN$OWN_TAKEN) {
    T sum = 0;
    for (int k = 0; k < $HELD; ++k) {
        if (row + k * step < end) {
            I i = (row + k * step) * channels + channel;
            T value = Expression::element(i, row + k * step, channel, $OWN$GIVEN);
            if (kept != nullptr) kept[i] = value;
            sum += value;
        }
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__($MOST_THREADS, 1) column_sums(
    T* sums, T* kept, I rows, I channels$TAKEN$OWN_TAKEN
) {
    __shared__ T shared[$MOST_THREADS];
    I channel = blockIdx.x * (I)blockDim.x + threadIdx.x;
    T sum = 0;
    if (channel < channels) {
        sum = sum_of(kept, threadIdx.y, rows, blockDim.y, channels, channel$GIVEN$OWN_GIVEN);
    }
    sum = tb_reduce_column(TbAdd(), sum, shared);
    if (channel < channels && threadIdx.y == 0) sums[channel] = sum;
}

extern "C" __global__ void column_sum_parts(T* parts, T* kept, I rows, I channels, I share$TAKEN$OWN_TAKEN) {
    __shared__ T shared[$BLOCK];
    I channel = blockIdx.x * (I)blockDim.x + threadIdx.x, step = blockDim.y;
    I first = blockIdx.y * share, end = tb_minimum(first + share, rows);
    T sum = 0;
    if (channel < channels) {
        for (I row = first + (I)threadIdx.y; row < end; row += $HELD * step) {
            sum += sum_of(kept, row, end, step, channels, channel$GIVEN$OWN_GIVEN);
        }
    }
    sum = tb_reduce_column(TbAdd(), sum, shared);
    if (channel < channels && threadIdx.y == 0) parts[blockIdx.y * channels + channel] = sum;
}

extern "C" __global__ void column_sums_joined(const T* parts, T* sums, I channels, I number) {
    __shared__ T shared[$BLOCK];
    I channel = blockIdx.x * (I)blockDim.x + threadIdx.x;
    T sum = 0;
    if (channel < channels) {
        for (I part = threadIdx.y; part < number; part += blockDim.y) sum += parts[part * channels + channel];
    }
    sum = tb_reduce_column(TbAdd(), sum, shared);
    if (channel < channels && threadIdx.y == 0) sums[channel] = sum;
}
"""
)


@dataclass(frozen=True)
class Own:
    """C++ of an expression's own value for element i: of `code`, a template, and of further arguments."""

    value: str = "0"
    code: str = ""
    taken: str = ""
    given: str = ""
    arguments: tuple[Argument, ...] = ()


def column_sums(
    context: GpuContext,
    name: str,
    shape: Sequence[int],
    result: DeviceArray,
    kept: DeviceArray | None,
    scratch: Sequence[DeviceArray],
    keys: Mapping[str, str],
    arguments: Sequence[Argument],
    own: Own | None = None,
) -> Enqueue:
    """Sums an expression of `shape` over all axes but the last.

    scratch: what `cut_rows(shape).scratch(1, ...)` asks for. keys: those of `Element.keys`, and of `own`.
    arguments: what TAKEN declares.
    """
    own = own or Own()
    cut, index = cut_rows(shape), index_for(cut_rows(shape).rows * shape[-1])
    own_keys = {"OWN": own.value, "OWN_TAKEN": own.taken, "OWN_GIVEN": own.given}
    template = COLUMN_SUMS.replace("$OWN_CODE", own.code)
    source = cut.source(name, template, result.dtype, index, {**keys, **own_keys})
    arguments = [*arguments, *own.arguments]
    rows, channels, share = index.make(cut.rows), index.make(cut.channels), index.make(cut.share)
    if cut.at_once:
        return context.launch(
            source, "column_sums", cut.held_grid, cut.held_block, result, kept, rows, channels, *arguments
        )
    (parts,) = scratch
    grid = cut.tiles, cut.parts
    return in_order(
        context.launch(
            source, "column_sum_parts", grid, cut.block, parts, kept, rows, channels, share, *arguments
        ),
        context.launch(
            source, "column_sums_joined", cut.tiles, cut.block, parts, result, channels, index.make(cut.parts)
        ),
    )
