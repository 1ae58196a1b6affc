"""GPU kernels of row-wise sparse updates, and of the sum of rows with equal indices before them.

Indices out of range are skipped.
"""

from __future__ import annotations

import math

import numpy as np

from tensorbow.graph import NodeSpec, OpDef
from tensorbow.kernels.gpu.ops.scatter import links_spec, prepare_links, row_threads
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel, in_order
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.blocks import BLOCKS, power_of_two
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.indexing import NO_ROW
from tensorbow.ops.sparse_updates import SparseApplyAdagrad, SparseApplyMomentum, SumEqualRows
from tensorbow.specs import TensorSpec

MOST_INDEX = np.iinfo(np.int64).max

SUM_EQUAL_ROWS = (
    BLOCKS
    + """
typedef $T T;
typedef $I I;
// blockIdx.x: a position among the indices. The first of equals writes the row of their sum, every other
// one a row that is left over, counted from the end.
extern "C" __global__ void sum_equal_rows(
    const T* values, const $P* indices, const int* links, T* sums, long long* rows, int count, I inner
) {
    __shared__ int shared[32];
    int position = blockIdx.x, before = 0;
    long long index = indices[position];
    bool is_first = links[position] >= 0;
    for (int other = threadIdx.x; other < count; other += blockDim.x) {
        if (is_first) before += links[other] >= 0 && indices[other] < index;
        else before += other < position && links[other] < 0;
    }
    before = tb_reduce_row(TbAdd(), before, shared);
    int row = is_first ? before : count - 1 - before;
    if (threadIdx.x == 0) rows[row] = is_first ? index : $NO_ROW;
    for (I i = threadIdx.x; i < inner; i += blockDim.x) {
        T total = 0;
        for (int p = is_first ? position : count; p < count; p = links[p] < 0 ? ~links[p] : links[p]) {
            total = tb_add(total, values[p * inner + i]);
        }
        sums[row * inner + i] = total;
    }
}
"""
)

ROW_UPDATE = (
    BLOCKS
    + """
typedef $T T;
typedef $I I;
// Of the elements of the gradient; indices differ.
extern "C" __global__ void update_rows(
    const long long* status, $PARAMETERS, const $P* row_indices, I size, I inner, long long extent
) {
    TB_PREDICATED(status);
    TB_FOR_EACH(I, i, size) {
        long long row = row_indices[i / inner];
        if (row < 0 || row >= extent) continue;
        I at = (I)row * inner + i % inner;
        $READS
        $UPDATE
        $WRITES
    }
}
"""
)

MOMENTUM = "velocity = velocity * momentum + gradient; var -= velocity * learning_rate;"
NESTEROV = """
        velocity = velocity * momentum + gradient;
        var -= (velocity * momentum + gradient) * learning_rate;
"""
ADAGRAD = "accumulator += gradient * gradient; var -= gradient * learning_rate / tb_sqrt(accumulator);"


def _sum_scratch(node: NodeSpec) -> list[TensorSpec]:
    return [links_spec(node.inputs[1].size)]


def _prepare_sum(call: GpuCall) -> Enqueue:
    (values, indices), (sums, rows), (links,) = call.inputs, call.outputs, call.scratch
    count, inner = indices.size, math.prod(values.shape[1:])
    index = index_for(values.size)
    source = CudaSource.of(
        "SumEqualRows",
        SUM_EQUAL_ROWS,
        T=c_type(values.dtype),
        P=c_type(indices.dtype),
        I=index.name,
        NO_ROW=str(NO_ROW),
    )
    threads = max(row_threads(inner)[0], min(BLOCK, power_of_two(count)))
    first = prepare_links(call.context, indices, MOST_INDEX, links)
    second = call.context.launch(
        source,
        "sum_equal_rows",
        count,
        threads,
        values,
        indices,
        links,
        sums,
        rows,
        np.int32(count),
        index.make(inner),
    )

    return in_order(first, second)


gpu_kernel(SumEqualRows, _prepare_sum, scratch=_sum_scratch)


def prepare_row_update(call: GpuCall, definition: OpDef, update: str) -> Enqueue:
    """Updates rows of a variable and its slots. update: C statements for one element, on the inputs' names.

    Inputs as in `rows_spec`: variable, slots, gradient, learning rate, indices, more scalars.
    """
    names = dict(zip(definition.input_names, call.inputs, strict=True))
    written = [definition.input_names[i] for i in definition.writes]
    indices, gradient, variable = names.pop("indices"), names["gradient"], call.inputs[0]
    extent, inner = variable.shape[0], math.prod(variable.shape[1:])
    index = index_for(max(variable.size, gradient.size))
    subscripts = {
        name: "[at]" if name in written else "[i]" if name == "gradient" else "[0]" for name in names
    }
    source = CudaSource.of(
        definition.name,
        ROW_UPDATE,
        T=c_type(variable.dtype),
        P=c_type(indices.dtype),
        I=index.name,
        PARAMETERS=", ".join(f"{'' if name in written else 'const '}T* all_{name}" for name in names),
        READS=" ".join(f"T {name} = all_{name}{subscript};" for name, subscript in subscripts.items()),
        UPDATE=update,
        WRITES=" ".join(f"all_{name}[at] = {name};" for name in written),
    )
    return call.context.launch(
        source,
        "update_rows",
        call.context.blocks(gradient.size),
        BLOCK,
        call.predicate,
        *names.values(),
        indices,
        index.make(gradient.size),
        index.make(inner),
        np.int64(extent),
    )


def _prepare_momentum(call: GpuCall) -> Enqueue:
    update = NESTEROV if call.attrs["use_nesterov"] else MOMENTUM
    return prepare_row_update(call, SparseApplyMomentum, update)


gpu_kernel(SparseApplyMomentum, _prepare_momentum)
gpu_kernel(SparseApplyAdagrad, lambda call: prepare_row_update(call, SparseApplyAdagrad, ADAGRAD))
