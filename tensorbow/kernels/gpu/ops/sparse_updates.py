"""GPU kernels of row-wise sparse updates, and of the sum of rows with equal indices before them.

Indices out of range are skipped.
"""

from __future__ import annotations

import math

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.kernels.gpu.ops.scatter import links_scratch, prepare_links, row_threads
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel, in_order
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.blocks import BLOCKS, power_of_two
from tensorbow.kernels.gpu.source.c_form import to_c
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.kernels.scalars import results_of
from tensorbow.ops.adaptive_updates import ApplyAdadelta, ApplyAdagrad, ApplyCenteredRMSProp, ApplyRMSProp
from tensorbow.ops.indexing import NO_ROW
from tensorbow.ops.regularized_updates import (
    ApplyAdagradDA,
    ApplyFtrl,
    ApplyProximalAdagrad,
    ApplyProximalGradientDescent,
    SparseApplyAdagradDA,
    SparseApplyFtrl,
    SparseApplyProximalAdagrad,
    SparseApplyProximalGradientDescent,
)
from tensorbow.ops.sparse_adaptive_updates import (
    SparseApplyAdadelta,
    SparseApplyAdagrad,
    SparseApplyCenteredRMSProp,
    SparseApplyRMSProp,
)
from tensorbow.ops.sparse_updates import SparseApplyMomentum, SumEqualRows
from tensorbow.ops.updates import ApplyMomentum
from tensorbow.specs import as_dtype

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

ROW_UPDATE = """\
$HELPERS
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


gpu_kernel(SumEqualRows, _prepare_sum, scratch=links_scratch)


def _row_update(definition: OpDef, dense: OpDef) -> None:
    """Registers the kernel of a row-wise update: the rule of the update of whole variables, at the rows.

    Inputs as in `rows_spec`: variable, slots, gradient, learning rate, indices, more scalars.
    """

    def prepare(call: GpuCall) -> Enqueue:
        arrays = dict(zip(definition.input_names, call.inputs, strict=True))
        indices, gradient, variable = arrays.pop("indices"), arrays["gradient"], call.inputs[0]
        written = [definition.input_names[i] for i in definition.writes]
        extent, inner = variable.shape[0], math.prod(variable.shape[1:])
        index = index_for(max(variable.size, gradient.size))
        dtypes = [as_dtype(array.dtype) for array in arrays.values()]
        form = to_c(results_of(dense, {"weight_decay": 0.0, **call.attrs}, dtypes, []), list(arrays))
        at = {**dict.fromkeys(written, "at"), "gradient": "i"}
        source = CudaSource.of(
            definition.name,
            ROW_UPDATE,
            HELPERS=form.helpers,
            T=c_type(variable.dtype),
            P=c_type(indices.dtype),
            I=index.name,
            PARAMETERS=", ".join(f"{'' if name in written else 'const '}T* all_{name}" for name in arrays),
            READS=" ".join(f"const T {name} = all_{name}[{at.get(name, 0)}];" for name in arrays),
            UPDATE=" ".join(form.statements),
            WRITES=" ".join(
                f"all_{name}[at] = {result};" for name, result in zip(written, form.results, strict=True)
            ),
        )
        return call.context.launch(
            source,
            "update_rows",
            call.context.blocks(gradient.size),
            BLOCK,
            call.predicate,
            *arrays.values(),
            indices,
            index.make(gradient.size),
            index.make(inner),
            np.int64(extent),
        )

    gpu_kernel(definition, prepare)


_row_update(SparseApplyMomentum, ApplyMomentum)
_row_update(SparseApplyAdagrad, ApplyAdagrad)
_row_update(SparseApplyAdadelta, ApplyAdadelta)
_row_update(SparseApplyRMSProp, ApplyRMSProp)
_row_update(SparseApplyCenteredRMSProp, ApplyCenteredRMSProp)
_row_update(SparseApplyFtrl, ApplyFtrl)
_row_update(SparseApplyProximalGradientDescent, ApplyProximalGradientDescent)
_row_update(SparseApplyProximalAdagrad, ApplyProximalAdagrad)
_row_update(SparseApplyAdagradDA, ApplyAdagradDA)
