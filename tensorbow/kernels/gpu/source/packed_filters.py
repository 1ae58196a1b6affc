"""Kernels that transpose many convolution filters in one launch: HWIO to cuDNN's OHWI, and back.

Tables in the kernel's arguments have the addresses and extents of each filter. A packed filter may have
leading rows and columns of zeros, which are written with it and left out on the way back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue
from tensorbow.kernels.gpu.runtime.context import POINTERS, GpuContext, PointerTable
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type

MOST_FILTERS = 64  # of a launch: at most 56 bytes of arguments each, of which there may be 4096
TILE, TILE_ROWS = 32, 8

# One block transposes a tile of inputs and outputs at one position of a filter.
SOURCE = (
    POINTERS
    + """
typedef $T T;
struct Filter { int first_block, height, width, inputs, outputs, down, across, tiles_in, tiles_out; };
struct Filters { Filter at[$number]; };

// Block `block` of a filter: its position in the packed filter, and the first input and output of its tile.
struct Place { int row, column, input, output; };
__device__ inline Place place_of(const Filter& f, int block) {
    Place place;
    place.input = block % f.tiles_in * $TILE;
    block /= f.tiles_in;
    place.output = block % f.tiles_out * $TILE;
    block /= f.tiles_out;
    place.column = block % (f.width + f.across);
    place.row = block / (f.width + f.across);
    return place;
}
__device__ inline int filter_of(const Filters& filters, int block) {
    int low = 0, high = $number - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (filters.at[middle].first_block <= block) low = middle; else high = middle - 1;
    }
    return low;
}

extern "C" __global__ void pack_filters(
    TbPointers<const T, $number> sources, TbPointers<T, $number> targets, Filters filters
) {
    __shared__ T tile[$TILE][$TILE + 1];
    const int number = filter_of(filters, blockIdx.x);
    const Filter f = filters.at[number];
    const T* source = sources.at[number];
    T* target = targets.at[number];
    Place at = place_of(f, blockIdx.x - f.first_block);
    int row = at.row - f.down, column = at.column - f.across;
    bool is_zero = row < 0 || column < 0;
    for (int k = threadIdx.y; k < $TILE; k += $ROWS) {
        int input = at.input + k, output = at.output + threadIdx.x;
        if (input < f.inputs && output < f.outputs) {
            tile[k][threadIdx.x] =
                is_zero ? (T)0 : source[((row * f.width + column) * f.inputs + input) * f.outputs + output];
        }
    }
    __syncthreads();
    int height = f.height + f.down, width = f.width + f.across;
    for (int k = threadIdx.y; k < $TILE; k += $ROWS) {
        int input = at.input + threadIdx.x, output = at.output + k;
        if (input < f.inputs && output < f.outputs) {
            target[((output * height + at.row) * width + at.column) * f.inputs + input] =
                tile[threadIdx.x][k];
        }
    }
}

extern "C" __global__ void unpack_filters(
    TbPointers<const T, $number> sources, TbPointers<T, $number> targets, Filters filters
) {
    __shared__ T tile[$TILE][$TILE + 1];
    const int number = filter_of(filters, blockIdx.x);
    const Filter f = filters.at[number];
    const T* source = sources.at[number];
    T* target = targets.at[number];
    Place at = place_of(f, blockIdx.x - f.first_block);
    int row = at.row - f.down, column = at.column - f.across;
    if (row < 0 || column < 0) return;
    int height = f.height + f.down, width = f.width + f.across;
    for (int k = threadIdx.y; k < $TILE; k += $ROWS) {
        int input = at.input + threadIdx.x, output = at.output + k;
        if (input < f.inputs && output < f.outputs) {
            tile[threadIdx.x][k] =
                source[((output * height + at.row) * width + at.column) * f.inputs + input];
        }
    }
    __syncthreads();
    for (int k = threadIdx.y; k < $TILE; k += $ROWS) {
        int input = at.input + k, output = at.output + threadIdx.x;
        if (input < f.inputs && output < f.outputs) {
            target[((row * f.width + column) * f.inputs + input) * f.outputs + output] =
                tile[k][threadIdx.x];
        }
    }
}
"""
)

_FIELDS = (
    *("first_block", "height", "width", "inputs", "outputs"),
    *("down", "across", "tiles_in", "tiles_out"),
)
_FILTER = [(name, np.int32) for name in _FIELDS]


@dataclass(frozen=True)
class PackedFilter:
    """The form of a packed filter: extents of the filter, HWIO, and rows and columns of zeros in front."""

    extents: tuple[int, ...]
    lead: tuple[int, int]

    @property
    def packed_extents(self) -> tuple[int, int, int, int]:
        """Extents of the packed filter, OHWI."""
        height, width, inputs, outputs = self.extents
        return outputs, height + self.lead[0], width + self.lead[1], inputs


def pack(
    context: GpuContext,
    forms: Sequence[PackedFilter],
    filters: Sequence[DeviceArray],
    packed: Sequence[DeviceArray],
) -> Enqueue:
    """Packs up to MOST_FILTERS filters of one dtype."""
    return _launch(context, "pack_filters", forms, filters, packed)


def unpack(
    context: GpuContext,
    forms: Sequence[PackedFilter],
    packed: Sequence[DeviceArray],
    filters: Sequence[DeviceArray],
) -> Enqueue:
    """Unpacks up to MOST_FILTERS filters of one dtype."""
    return _launch(context, "unpack_filters", forms, packed, filters)


def _launch(
    context: GpuContext,
    function: str,
    forms: Sequence[PackedFilter],
    sources: Sequence[DeviceArray],
    targets: Sequence[DeviceArray],
) -> Enqueue:
    rows: list[tuple[int, ...]] = []
    blocks = 0
    for form in forms:
        inputs, outputs = form.extents[2:]
        tiles = -(-inputs // TILE), -(-outputs // TILE)
        rows.append((blocks, *form.extents, *form.lead, *tiles))
        blocks += math.prod(tiles) * math.prod(form.packed_extents[1:3])
    table = np.array(rows, _FILTER)
    pointers = (PointerTable(tuple(arrays), len(forms)) for arrays in (sources, targets))
    code = CudaSource.of(
        "packed filters",
        SOURCE,
        T=c_type(targets[0].dtype),
        number=str(len(forms)),
        TILE=str(TILE),
        ROWS=str(TILE_ROWS),
    )
    return context.launch(code, function, blocks, (TILE, TILE_ROWS), *pointers, table)
