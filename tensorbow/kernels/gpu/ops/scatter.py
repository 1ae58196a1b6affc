"""Writes to the rows of a variable selected by indices. No float atomics: equal indices count in order.

The first launch finds for each index the next equal one, and whether an earlier one exists. In the
second, the thread of the first of equal indices takes the rows of all of them in order, which gives the
CPU's bits. The first launch compares all pairs of indices: cheap for some thousands, too much for
millions. An index out of range cannot raise here: its row is skipped, as on TensorFlow's GPUs.
"""

from __future__ import annotations

import math

import numpy as np

from tensorbow.graph import NodeSpec, OpDef
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall, gpu_kernel, in_order
from tensorbow.kernels.gpu.runtime.context import BLOCK, GpuContext
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.blocks import BLOCKS, WARP, power_of_two
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.scatter import (
    ScatterAdd,
    ScatterDiv,
    ScatterMax,
    ScatterMin,
    ScatterMul,
    ScatterSub,
    ScatterUpdate,
)
from tensorbow.specs import TensorSpec, int32

LINKS = (
    BLOCKS
    + """
// For each index by a warp: the position of the next one that is equal, or `count`. Where an earlier one is
// equal, the complement of that; where the index is out of range, the complement of `count`.
extern "C" __global__ void link(const $P* indices, int* links, int count, long long extent) {
    int position = blockIdx.x * (int)blockDim.y + (int)threadIdx.y;
    if (position >= count) return;
    long long index = indices[position];
    int next = count, is_later = 0;
    for (int other = threadIdx.x; other < count; other += 32) {
        if (indices[other] != index || other == position) continue;
        if (other < position) is_later = 1;
        else next = tb_minimum(next, other);
    }
    next = tb_reduce_warp(TbMinimum(), next);
    is_later = tb_reduce_warp(TbMaximum(), is_later);
    if (index < 0 || index >= extent) next = count, is_later = 1;
    if (threadIdx.x == 0) links[position] = is_later ? ~next : next;
}
"""
)

SCATTER = (
    BLOCKS
    + """
typedef $T T;
typedef $I I;
// blockIdx.x: an index. The threads along x: the elements of its row.
extern "C" __global__ void accumulate(
    const long long* status, T* variable, const $P* indices, const T* updates, const int* links, int count,
    long long extent, I inner, I row_step, I step
) {
    TB_PREDICATED(status);
    int position = blockIdx.x;
    if (links[position] < 0) return;
    T* row = variable + (I)indices[position] * inner;
    for (I i = blockIdx.y * (I)blockDim.x + threadIdx.x; i < inner; i += (I)gridDim.y * blockDim.x) {
        T total = row[i];
        for (int p = position; p < count; p = links[p] < 0 ? ~links[p] : links[p]) {
            T update = updates[p * row_step + i * step];
            total = $COMBINED;
        }
        row[i] = total;
    }
}

extern "C" __global__ void replace(
    const long long* status, T* variable, const $P* indices, const T* updates, const int* links, int count,
    long long extent, I inner, I row_step, I step
) {
    TB_PREDICATED(status);
    int position = blockIdx.x;
    long long index = indices[position];
    bool is_last = links[position] == count || links[position] == ~count;
    if (!is_last || index < 0 || index >= extent) return;
    for (I i = blockIdx.y * (I)blockDim.x + threadIdx.x; i < inner; i += (I)gridDim.y * blockDim.x) {
        variable[(I)index * inner + i] = updates[position * row_step + i * step];
    }
}
"""
)


def links_spec(count: int) -> TensorSpec:
    """The spec of the links of that many indices."""
    return TensorSpec((count,), int32)


def prepare_links(context: GpuContext, indices: DeviceArray, extent: int, links: DeviceArray) -> Enqueue:
    """Links equal indices, see LINKS; links of indices out of [0, extent) are undefined."""
    source = CudaSource.of("links", LINKS, P=c_type(indices.dtype))
    warps = BLOCK // WARP
    return context.launch(
        source,
        "link",
        -(-indices.size // warps),
        (WARP, warps),
        indices,
        links,
        np.int32(indices.size),
        np.int64(extent),
    )


def row_threads(inner: int) -> tuple[int, int]:
    """Threads of a block, and blocks, along a row of that many elements."""
    threads = min(BLOCK, max(WARP, power_of_two(inner)))
    return threads, min(-(-inner // threads), 64)


def links_scratch(node: NodeSpec) -> list[TensorSpec]:
    """Scratch of a kernel that links the equal ones of its second input."""
    return [links_spec(node.inputs[1].size)]


def _register(definition: OpDef, function: str, combined: str = "update") -> None:
    def prepare(call: GpuCall) -> Enqueue:
        (variable, indices, updates), (links,) = call.inputs, call.scratch
        extent, inner = variable.shape[0], math.prod(variable.shape[1:])
        index = index_for(max(variable.size, updates.size))
        row_step, step = (inner, 1) if updates.ndim else (0, 0)  # or one scalar for all rows
        source = CudaSource.of(
            definition.name,
            SCATTER,
            T=c_type(variable.dtype),
            P=c_type(indices.dtype),
            I=index.name,
            COMBINED=combined,
        )
        threads, blocks = row_threads(inner)
        first = prepare_links(call.context, indices, extent, links)
        second = call.context.launch(
            source,
            function,
            (indices.size, blocks),
            threads,
            call.predicate,
            variable,
            indices,
            updates,
            links,
            np.int32(indices.size),
            np.int64(extent),
            index.make(inner),
            index.make(row_step),
            index.make(step),
        )

        return in_order(first, second)

    gpu_kernel(definition, prepare, scratch=links_scratch)


_register(ScatterAdd, "accumulate", "tb_add(total, update)")
_register(ScatterSub, "accumulate", "tb_subtract(total, update)")
_register(ScatterMul, "accumulate", "tb_multiply(total, update)")
_register(ScatterDiv, "accumulate", "total / update")
_register(ScatterMax, "accumulate", "tb_maximum(total, update)")
_register(ScatterMin, "accumulate", "tb_minimum(total, update)")
_register(ScatterUpdate, "replace")
