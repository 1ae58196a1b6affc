"""Products in an inference graph that integers can compute, with what follows folded into their weights.

Batch normalisation and other maps a * x + b of each channel are folded, and a ReLU is noted (Jacob et al.,
2018, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensorbow.graph import Operation, Tensor
from tensorbow.ops.arrays import Reshape
from tensorbow.ops.batch_norm import FusedBatchNorm
from tensorbow.ops.constant import Const
from tensorbow.ops.control import Identity, StopGradient
from tensorbow.ops.conv import Conv2D
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.elementwise_table import Add, Mul, RealDiv, Relu, Sub
from tensorbow.ops.matmul import MatMul
from tensorbow.ops.nn import BiasAdd
from tensorbow.ops.quantized_products import LONGEST
from tensorbow.ops.state import ReadVariable, VariableReference
from tensorbow.specs import Array, float32

LARGEST_CONSTANT = 1 << 28  # bytes of one array that is computed of constants


@dataclass(frozen=True)
class FoldedProduct:
    """A product with its channels last, and its folded successors.

    op: Conv2D or MatMul. weights: float64 [..., outputs], bias: float64 [outputs]. result: the tensor that
    all of it computes. absorbed: the operations between. rectified: the last of them is a ReLU.
    """

    op: Operation
    weights: Array
    bias: Array
    result: Tensor
    absorbed: tuple[Operation, ...]
    rectified: bool = False

    @property
    def input(self) -> Tensor:
        """The activations that are multiplied."""
        return self.op.inputs[0]

    def scaled(self, factor: Array, shift: Array, op: Operation) -> FoldedProduct:
        """The product followed by `op`, result * factor + shift of each channel."""
        return replace(
            self,
            weights=self.weights * factor,
            bias=self.bias * factor + shift,
            result=op.outputs[0],
            absorbed=(*self.absorbed, op),
        )


def known_values(operations: Sequence[Operation], variables: Mapping[str, Array]) -> dict[Tensor, Array]:
    """Values of the tensors that depend on no input, given those of variables by name."""
    known: dict[Tensor, Array] = {}
    for op in operations:
        definition = op.definition
        if definition is Const:
            known[op.outputs[0]] = np.asarray(op.outputs[0].spec.value)
        elif definition is VariableReference:
            if op.name in variables:
                known[op.outputs[0]] = np.asarray(variables[op.name])
        elif op.inputs and all(tensor in known for tensor in op.inputs):
            values = [known[tensor] for tensor in op.inputs]
            if definition in (ReadVariable, Identity, StopGradient):
                known[op.outputs[0]] = values[0]
            elif _is_computable(op):
                known.update(zip(op.outputs, run_reference_kernel(definition, values, op.attrs), strict=True))
    return known


def _is_computable(op: Operation) -> bool:
    """True for an op without effects or random numbers, of moderate size."""
    definition = op.definition
    plain = not (definition.stateful or definition.random or definition.state or definition.exchange)
    sizes = [t.spec.nbytes for t in op.outputs if _has_extents(t)]
    return bool(
        plain
        and definition.host is None
        and not definition.flow
        and (definition.kernels or definition is Reshape)
        and len(sizes) == len(op.outputs)
        and max(sizes, default=0) <= LARGEST_CONSTANT
    )


def _has_extents(tensor: Tensor) -> bool:
    return tensor.spec.shape is not None and None not in tensor.spec.shape


def find_products(
    operations: Sequence[Operation], known: Mapping[Tensor, Array], kept: Collection[Tensor]
) -> list[FoldedProduct]:
    """The products of float32 with known weights. kept: tensors that must stay, such as outputs."""
    readers: dict[Tensor, list[Operation]] = {}
    for op in operations:
        for tensor in op.inputs:
            readers.setdefault(tensor, []).append(op)
    found = []
    for op in operations:
        product = _product(op, known)
        while product is not None and not product.rectified and product.result not in kept:
            following = readers.get(product.result, ())
            if len(following) != 1 or any(t in readers or t in kept for t in following[0].outputs[1:]):
                break
            longer = _folded(product, following[0], known)
            if longer is None:
                break
            product = longer
        if product is not None:
            found.append(product)
    return found


def _product(op: Operation, known: Mapping[Tensor, Array]) -> FoldedProduct | None:
    if op.definition not in (Conv2D, MatMul) or op.inputs[0] in known or op.inputs[1] not in known:
        return None
    weights = known[op.inputs[1]]
    if op.definition is MatMul:
        if op.attrs["transpose_a"]:
            return None
        weights = weights.T if op.attrs["transpose_b"] else weights
    fits = op.outputs[0].dtype == float32 and math.prod(weights.shape[:-1]) <= LONGEST
    if not fits or 0 in weights.shape or not np.isfinite(weights).all():
        return None
    weights = weights.astype(np.float64)
    return FoldedProduct(op, weights, np.zeros(weights.shape[-1]), op.outputs[0], ())


def _folded(product: FoldedProduct, op: Operation, known: Mapping[Tensor, Array]) -> FoldedProduct | None:
    """The product with its only reader, if that is a ReLU or a map of channels."""
    if op.definition is Relu:
        return replace(product, result=op.outputs[0], absorbed=(*product.absorbed, op), rectified=True)
    if op.definition in (Identity, StopGradient):
        return replace(product, result=op.outputs[0], absorbed=(*product.absorbed, op))
    found = _affine(product, op, known)
    if found is None or not all(np.isfinite(part).all() for part in found):
        return None
    return product.scaled(*found, op)


def _affine(
    product: FoldedProduct, op: Operation, known: Mapping[Tensor, Array]
) -> tuple[Array, Array] | None:
    """Factor and shift [outputs] of a map of channels; None for another op."""
    first, outputs = op.inputs[0] is product.result, len(product.bias)
    others = [known.get(tensor) for tensor in op.inputs if tensor is not product.result]
    if any(each is None for each in others) or len(others) != len(op.inputs) - 1:
        return None
    values = [np.asarray(each, np.float64) for each in others]
    if op.definition is FusedBatchNorm:
        if op.attrs["is_training"]:
            return None
        gamma, beta, mean, variance = values
        factor = gamma / np.sqrt(variance + op.attrs["epsilon"])
        return factor, beta - mean * factor
    compute = MAPS.get(op.definition)
    rank = product.result.spec.rank
    if compute is None or (op.definition is RealDiv and not first):
        return None
    (value,) = values
    if value.ndim > rank or any(extent != 1 for extent in value.shape[:-1]) or value.size not in (1, outputs):
        return None
    return compute(np.broadcast_to(value.ravel(), (outputs,)), first)


MAPS: dict[object, Callable[[Array, bool], tuple[Array, Array]]] = {
    Add: lambda value, first: (np.ones_like(value), value),
    BiasAdd: lambda value, first: (np.ones_like(value), value),
    Sub: lambda value, first: (np.ones_like(value), -value) if first else (-np.ones_like(value), value),
    Mul: lambda value, first: (value, np.zeros_like(value)),
    RealDiv: lambda value, first: (1 / value, np.zeros_like(value)),
}
