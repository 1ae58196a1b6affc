"""GPU kernels of bias gradients, softmax, log softmax and L2 loss.

Softmax is one launch: a warp per short row, a block per long row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tensorbow.graph import Kernel, KernelCall, NodeSpec, OpDef
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.blocks import BLOCKS, row_block
from tensorbow.kernels.gpu.source.channel_cut import cut_rows
from tensorbow.kernels.gpu.source.column_sums import column_sums
from tensorbow.kernels.gpu.source.elements import Element
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.kernels.gpu.source.reduction_plans import parts_scratch, prepare_reduction, sum_recipe
from tensorbow.ops import nn
from tensorbow.program.nodes import Node
from tensorbow.specs import TensorSpec, as_dtype

# Head of the softmax and loss sources. Subtracting the maximum makes the largest exponential 1: no overflow.
ROW_SUMS = """
typedef $T T;
typedef $I I;

// The greatest of a row's elements, by the threads along x.
__device__ inline T row_maximum(const T* row, I length, T* shared) {
    T greatest = -TB_INFINITY;
    for (I i = threadIdx.x; i < length; i += blockDim.x) greatest = tb_maximum(greatest, row[i]);
    return tb_reduce_row(TbMaximum(), greatest, shared);
}

// The sum of exp(element - greatest).
__device__ inline T row_total(const T* row, I length, T greatest, T* shared) {
    T total = 0;
    for (I i = threadIdx.x; i < length; i += blockDim.x) total += tb_exp(row[i] - greatest);
    return tb_reduce_row(TbAdd(), total, shared);
}
"""

SOFTMAX = (
    BLOCKS
    + ROW_SUMS
    + """
extern "C" __global__ void softmax(const T* logits, T* result, I rows, I classes) {
    __shared__ T shared[32];
    I row = blockIdx.x * (I)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    logits += row * classes;
    result += row * classes;
    T greatest = row_maximum(logits, classes, shared);
    T total = row_total(logits, classes, greatest, shared);
    $PREPARE
    for (I i = threadIdx.x; i < classes; i += blockDim.x) {
        T shifted = logits[i] - greatest;
        result[i] = $RESULT;
    }
}
"""
)


def _bias_add_grad_scratch(node: NodeSpec) -> list[TensorSpec]:
    (gradient,) = node.inputs
    return parts_scratch(gradient.extents, range(gradient.rank - 1), gradient.dtype)


def _prepare_bias_add_grad(call: GpuCall) -> Enqueue:
    (gradient,), (bias,) = call.inputs, call.outputs
    recipe = sum_recipe("BiasAddGrad")
    axes = range(gradient.ndim - 1)
    return prepare_reduction(call.context, recipe, gradient, axes, bias, call.scratch)


gpu_kernel(nn.BiasAddGrad, _prepare_bias_add_grad, scratch=_bias_add_grad_scratch)


def summed(node: Node, element: Element) -> Kernel:
    """The kernel of BiasAddGrad of an expression of its inputs, whose elements are a second result."""
    shape, dtype = node.inputs[0].spec.extents, node.inputs[0].spec.dtype

    def prepare(call: GpuCall) -> Enqueue:
        sums, *keep = call.outputs
        index = index_for(node.inputs[0].spec.size)
        keys = element.keys([as_dtype(array.dtype) for array in call.inputs], dtype, index)
        kept, arrays = keep[0] if keep else None, element.arrays(call.inputs)
        return column_sums(call.context, "BiasAddGrad", shape, sums, kept, call.scratch, keys, arrays)

    scratch = cut_rows(shape).scratch(1, dtype)
    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare), scratch=lambda _: scratch)


def _register_softmax(definition: OpDef, prepared: str, result: str) -> None:
    """prepared: C statement that uses a row's `total`. result: C expression of `shifted`."""

    def prepare(call: GpuCall) -> Enqueue:
        (logits,), (probabilities,) = call.inputs, call.outputs
        index = index_for(logits.size)
        classes = logits.shape[-1]
        rows = logits.size // max(1, classes)
        source = CudaSource.of(
            definition.name,
            SOFTMAX,
            T=c_type(logits.dtype),
            I=index.name,
            PREPARE=prepared,
            RESULT=result,
        )
        block = row_block(classes)
        return call.context.launch(
            source,
            "softmax",
            -(-rows // block[1]),
            block,
            logits,
            probabilities,
            index.make(rows),
            index.make(classes),
        )

    gpu_kernel(definition, prepare, inplace=((0, 0),))


_register_softmax(nn.Softmax, "", "tb_exp(shifted) / total")
_register_softmax(nn.LogSoftmax, "total = tb_log(total);", "shifted - total")


def _l2_loss_scratch(node: NodeSpec) -> list[TensorSpec]:
    (t,) = node.inputs
    return parts_scratch(t.extents, range(t.rank), t.dtype)


def _prepare_l2_loss(call: GpuCall) -> Enqueue:
    (t,), (loss,) = call.inputs, call.outputs
    recipe = sum_recipe("L2Loss", "x * x", "a * (T)0.5")
    return prepare_reduction(call.context, recipe, t, range(t.ndim), loss, call.scratch)


gpu_kernel(nn.L2Loss, _prepare_l2_loss, scratch=_l2_loss_scratch)
