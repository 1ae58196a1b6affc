"""Softmax cross-entropy: loss and its derivative in one launch, a warp or a block per example.

A label out of range cannot raise here: the example's loss and derivative are NaN, as on
TensorFlow's GPUs, so the status is set and the update skipped.
"""

from __future__ import annotations

from tensorbow.kernels.gpu.ops.nn import ROW_SUMS
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.blocks import BLOCKS, row_block
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.losses import SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits

# The derivative may overwrite the logits: the last read of a row precedes the first write.
SPARSE = (
    BLOCKS
    + ROW_SUMS
    + """
extern "C" __global__ void sparse_cross_entropy(
    const T* logits, const $LABEL* labels, T* loss, T* derivative, I rows, I classes
) {
    __shared__ T shared[32];
    I row = blockIdx.x * (I)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    logits += row * classes;
    derivative += row * classes;
    $LABEL label = labels[row];
    bool is_class = label >= 0 && label < classes;
    T chosen = is_class ? logits[label] : TB_NAN;
    T greatest = row_maximum(logits, classes, shared);
    T total = row_total(logits, classes, greatest, shared);
    if (threadIdx.x == 0) loss[row] = tb_log(total) - (chosen - greatest);
    for (I i = threadIdx.x; i < classes; i += blockDim.x) {
        T probability = tb_exp(logits[i] - greatest) / total;
        derivative[i] = is_class ? probability - (i == label ? 1 : 0) : TB_NAN;
    }
}
"""
)

DENSE = (
    BLOCKS
    + ROW_SUMS
    + """
extern "C" __global__ void cross_entropy(
    const T* logits, const T* labels, T* loss, T* derivative, I rows, I classes
) {
    __shared__ T shared[32];
    I row = blockIdx.x * (I)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    logits += row * classes;
    labels += row * classes;
    derivative += row * classes;
    T greatest = row_maximum(logits, classes, shared);
    T logarithm = tb_log(row_total(logits, classes, greatest, shared));
    T sum = 0;
    for (I i = threadIdx.x; i < classes; i += blockDim.x) {
        T shifted = logits[i] - greatest, label = labels[i];
        sum += (logarithm - shifted) * label;
        derivative[i] = tb_exp(shifted - logarithm) - label;
    }
    sum = tb_reduce_row(TbAdd(), sum, shared);
    if (threadIdx.x == 0) loss[row] = sum;
}
"""
)


def _prepare(call: GpuCall, template: str, function: str) -> Enqueue:
    (logits, labels), (loss, derivative) = call.inputs, call.outputs
    rows, classes = logits.shape
    index = index_for(logits.size)
    values = {"T": c_type(logits.dtype), "I": index.name, "LABEL": c_type(labels.dtype)}
    block = row_block(classes)
    return call.context.launch(
        CudaSource.of(function, template, **values),
        function,
        -(-rows // block[1]),
        block,
        logits,
        labels,
        loss,
        derivative,
        index.make(rows),
        index.make(classes),
    )


gpu_kernel(
    SparseSoftmaxCrossEntropyWithLogits,
    lambda call: _prepare(call, SPARSE, "sparse_cross_entropy"),
    inplace=((1, 0),),
)
gpu_kernel(SoftmaxCrossEntropyWithLogits, lambda call: _prepare(call, DENSE, "cross_entropy"))
