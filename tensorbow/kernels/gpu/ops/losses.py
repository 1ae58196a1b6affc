"""Softmax cross-entropy: loss and its derivative in one launch, a warp or a block per example.

A label out of range cannot raise here: the example's loss and derivative are NaN, as on
TensorFlow's GPUs, so the status is set and the update skipped.

What surrounds the loss of a classifier (see `fusion.loss_heads`) fits in its launch if one block does it all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from tensorbow.graph import Kernel, KernelCall
from tensorbow.kernels.gpu.ops.nn import ROW_SUMS
from tensorbow.kernels.gpu.ops.reductions import ITEM
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.context import Argument
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.blocks import BLOCKS, WARP, row_block
from tensorbow.kernels.gpu.source.elements import Element
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.losses import SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits
from tensorbow.specs import DType, TensorSpec, as_dtype, int64

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


# One block does everything; a warp at a time takes an example. Sums of warps are joined in a tree.
LOSS_HEAD = (
    BLOCKS
    + ROW_SUMS
    + ITEM
    + """
$LOGIT_ELEMENT
$FLOW_ELEMENT
$RIGHT_ELEMENT
typedef $RIGHT R;

// The sum of the warps' values, for all threads. `shared`: an element for each of 32 warps.
template <class V> __device__ inline V sum_of_warps(V value, V* shared) {
    __syncthreads();
    if (threadIdx.x == 0) shared[threadIdx.y] = value;
    __syncthreads();
    return tb_reduce_warp(TbAdd(), shared[threadIdx.x]);
}

extern "C" __global__ void __launch_bounds__(1024, 1) loss_head(
    const $LABEL* labels, T* flow, T* losses, T* loss, R* right, T* bias, long long* status,
    bool loss_is_mean, bool right_is_mean, I rows, I classes$LOGIT_TAKEN$FLOW_TAKEN$RIGHT_TAKEN
) {
    __shared__ T shared[1024];
    __shared__ R shared_right[32];
    T total_loss = 0;
    R total_right = 0;
    for (I row = threadIdx.y; row < rows; row += 32) {
        $LABEL label = labels[row];
        bool is_class = label >= 0 && label < classes;
        Item best = {0, -1};
        T greatest = -TB_INFINITY, total = 0;
        for (I i = threadIdx.x; i < classes; i += 32) {
            T logit = Logit::element(row * classes + i, row, i, 0$LOGIT_GIVEN);
            greatest = tb_maximum(greatest, logit);
            best = greatest_item(best, Item{logit, i});
        }
        greatest = tb_reduce_warp(TbMaximum(), greatest);
        for (I i = threadIdx.x; i < classes; i += 32) {
            total += tb_exp(Logit::element(row * classes + i, row, i, 0$LOGIT_GIVEN) - greatest);
        }
        total = tb_reduce_warp(TbAdd(), total);
        T chosen = is_class ? Logit::element(row * classes + label, row, (I)label, 0$LOGIT_GIVEN) : TB_NAN;
        T own_loss = tb_log(total) - (chosen - greatest);
        total_loss += own_loss;
        if (losses != nullptr && threadIdx.x == 0) losses[row] = own_loss;
        for (I i = threadIdx.x; i < classes; i += 32) {
            T logit = Logit::element(row * classes + i, row, i, 0$LOGIT_GIVEN);
            T probability = tb_exp(logit - greatest) / total;
            T derivative = is_class ? probability - (i == label ? 1 : 0) : TB_NAN;
            flow[row * classes + i] = Flow::element(row * classes + i, row, i, derivative$FLOW_GIVEN);
        }
        if (right != nullptr) {
            best = tb_reduce_warp(GreatestItem(), best);
            total_right += Right::element(row, row, 0, best.position$RIGHT_GIVEN);
        }
    }
    if (loss != nullptr) {
        total_loss = sum_of_warps(total_loss, shared);
        if (loss_is_mean) total_loss = total_loss / (T)rows;
        if (threadIdx.x == 0 && threadIdx.y == 0) {
            *loss = total_loss;
            if (status != nullptr && !(total_loss - total_loss == 0)) *status = 1;
        }
    }
    if (right != nullptr) {
        total_right = sum_of_warps(total_right, shared_right);
        if (right_is_mean) total_right = total_right / (R)rows;
        if (threadIdx.x == 0 && threadIdx.y == 0) *right = total_right;
    }
    if (bias == nullptr) return;
    for (I first = 0; first < classes; first += 32) {
        I i = first + threadIdx.x;
        __syncthreads();
        T sum = 0;
        if (i < classes) {
            for (I row = threadIdx.y; row < rows; row += 32) sum += flow[row * classes + i];
        }
        sum = tb_reduce_column(TbAdd(), sum, shared);
        if (i < classes && threadIdx.y == 0) bias[i] = sum;
    }
}
"""
)


@dataclass(frozen=True)
class LossHead:
    """Results of one launch beside the derivative of sparse softmax cross-entropy.

    logit, flow, right: expressions of the logits, of the derivative, and of the greatest logit's number.
    Results that it has, in this order behind the derivative: losses, the loss, right, bias. counts: of the
    inputs of each expression; all follow the labels. position: dtype of the greatest logit's number.
    """

    logits: TensorSpec
    logit: Element
    flow: Element
    right: Element
    counts: Sequence[int]
    has: Sequence[bool]
    loss_is_mean: bool = False
    right_is_mean: bool = False
    checks: bool = False  # sets the status if the loss is not finite
    position: DType = int64

    def kernel(self) -> Kernel:
        """The kernel; its inputs and outputs are those of the fields' description."""
        return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", self._prepare))

    def _prepare(self, call: GpuCall) -> Enqueue:
        labels, *arrays = call.inputs
        first, second = self.counts[0], self.counts[0] + self.counts[1]
        of_each = arrays[:first], arrays[first:second], arrays[second:]
        flow, *results = call.outputs
        rest = iter(results)
        losses, loss, right, bias = (next(rest) if has else None for has in self.has)
        (rows, classes), dtype = self.logits.extents, self.logits.dtype
        index = index_for(self.logits.size)
        values = {"T": c_type(dtype), "I": index.name, "LABEL": c_type(labels.dtype)}
        values["RIGHT"] = c_type(self.right.result.dtype)
        owns = (dtype, dtype, self.position)
        taken: list[Argument] = []
        for name, element, own, given in zip(
            ("Logit", "Flow", "Right"), (self.logit, self.flow, self.right), owns, of_each, strict=True
        ):
            values |= element.keys([as_dtype(array.dtype) for array in given], own, index, name)
            taken += element.arrays(given)
        return call.context.launch(
            CudaSource.of("loss head", LOSS_HEAD, **values),
            "loss_head",
            1,
            (WARP, WARP),
            labels,
            flow,
            losses,
            loss,
            right,
            bias,
            call.state["status"] if self.checks else None,
            np.bool_(self.loss_is_mean),
            np.bool_(self.right_is_mean),
            index.make(rows),
            index.make(classes),
            *taken,
        )


gpu_kernel(
    SparseSoftmaxCrossEntropyWithLogits,
    lambda call: _prepare(call, SPARSE, "sparse_cross_entropy"),
    inplace=((1, 0),),
)
gpu_kernel(SoftmaxCrossEntropyWithLogits, lambda call: _prepare(call, DENSE, "cross_entropy"))
