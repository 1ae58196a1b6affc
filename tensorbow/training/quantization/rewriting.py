"""The quantised graph of an inference graph, built anew operation by operation.

A tensor may have two forms: float32, and bytes with their coding. Products read bytes, and write bytes if
another product reads what follows; pooling and reshaping keep the form; element-wise operations compute in
float32 between a conversion of their inputs and of their result, which the compiler makes one pass of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorbow.graph import Graph, Operation, Tensor, control_dependencies
from tensorbow.ops.arrays import ExpandDims, Reshape, Squeeze
from tensorbow.ops.control import Identity
from tensorbow.ops.conv import Conv2D
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.elementwise import relu
from tensorbow.ops.elementwise_table import ELEMENTWISE
from tensorbow.ops.pooling import MaxPool
from tensorbow.ops.quantization import dequantize, quantize
from tensorbow.ops.quantized_products import PackWeights, QuantizedConv2D, QuantizedMatMul, runs_of
from tensorbow.specs import Array, float32, uint8
from tensorbow.training.quantization.calibration import Coding
from tensorbow.training.quantization.products import FoldedProduct
from tensorbow.variables import Variable

KEEPS_FORM = (MaxPool, Reshape, Squeeze, ExpandDims, Identity)  # of their first input
LARGEST_BIAS = 1 << 30  # leaves a bit for the sum of products
LARGEST_WEIGHT = 127


@dataclass(frozen=True)
class Plan:
    """Forms that tensors get.

    as_bytes: tensors that products read, themselves or after a change of shape. made_as_bytes: results of
    products that are written as bytes.
    """

    as_bytes: frozenset[Tensor]
    made_as_bytes: frozenset[Tensor]

    @classmethod
    def of(cls, operations: Sequence[Operation], products: Sequence[FoldedProduct]) -> Plan:
        """The plan for a graph, from its results back."""
        inner = {op for product in products for op in product.absorbed}
        by_op = {product.op: product for product in products}
        as_bytes: set[Tensor] = set()
        cheap: set[Tensor] = set()  # tensors that are read as either form
        for op in reversed(operations):
            product = by_op.get(op)
            if product is not None:
                as_bytes.add(product.input)
            elif op not in inner and op.outputs:
                result = op.outputs[0]
                if op.definition in KEEPS_FORM and result in as_bytes:
                    as_bytes.add(op.inputs[0])
                elif op.definition.name in ELEMENTWISE and result in as_bytes | cheap:
                    cheap.update(op.inputs)
        results = {product.result for product in products}
        return cls(frozenset(as_bytes), frozenset(results & (as_bytes | cheap)))

    def observed(self, products: Sequence[FoldedProduct]) -> list[Tensor]:
        """Tensors whose ranges the plan needs, in program order."""
        kept = {t for t in self.as_bytes if t.op.definition in KEEPS_FORM and t.op.inputs[0] in self.as_bytes}
        return sorted(self.as_bytes - kept | self.made_as_bytes, key=lambda t: (t.op.id, t.name))


@dataclass
class Rewriter:
    """Builds the quantised graph in `graph`.

    ranges: least and greatest element of `Plan.observed`. values: of the new variables, by name.
    """

    graph: Graph
    plan: Plan
    ranges: Mapping[Tensor, tuple[float, float]]
    values: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._floating: dict[Tensor, Tensor] = {}
        self._bytes: dict[Tensor, tuple[Tensor, Coding]] = {}
        self._ops: dict[Operation, Operation] = {}

    def build(self, operations: Sequence[Operation], products: Sequence[FoldedProduct]) -> None:
        """Builds all operations, given in program order."""
        absorbed = {op for product in products for op in (product.op, *product.absorbed)}
        ends = {product.result.op: product for product in products}
        with self.graph.as_default():
            for op in operations:
                if op in ends:
                    self._add_product(ends[op])
                elif op not in absorbed:
                    self._add(op)

    def floating(self, tensor: Tensor) -> Tensor:
        """The new tensor in its own dtype."""
        if tensor not in self._floating:
            self._floating[tensor] = _decoded(*self._bytes[tensor])
        return self._floating[tensor]

    def coded(self, tensor: Tensor) -> tuple[Tensor, Coding]:
        """The new tensor as bytes, and their coding."""
        if tensor not in self._bytes:
            coding = Coding.of(*self.ranges[tensor])
            self._bytes[tensor] = quantize(self._floating[tensor], coding.scale, coding.zero_point), coding
        return self._bytes[tensor]

    def _add(self, op: Operation) -> None:
        """Copies an operation; where it keeps the form of bytes, for bytes."""
        controls = [self._ops[control] for control in op.control_inputs if control in self._ops]
        result = op.outputs[0] if op.outputs else None
        with control_dependencies(controls):
            if result in self.plan.as_bytes and op.definition in KEEPS_FORM:
                first, coding = self.coded(op.inputs[0])
                others = [self.floating(tensor) for tensor in op.inputs[1:]]
                made = op.definition(first, *others, name=op.name, **op.attrs)
                self._bytes[op.outputs[0]] = made, coding
                self._ops[op] = made.op
                return
            inputs = [
                self._light(tensor) if self._is_between(op) else self.floating(tensor) for tensor in op.inputs
            ]
            made = op.definition(*inputs, name=op.name, **op.attrs)
        outputs = made if isinstance(made, tuple) else (made,) if op.outputs else ()
        self._ops[op] = outputs[0].op if outputs else made
        self._floating.update(zip(op.outputs, outputs, strict=True))

    def _is_between(self, op: Operation) -> bool:
        """True for an element-wise operation whose result is coded in the same pass over memory."""
        return op.definition.name in ELEMENTWISE

    def _light(self, tensor: Tensor) -> Tensor:
        """A tensor for an element-wise operation: of bytes if it has them, which are a quarter to read."""
        if tensor in self.plan.as_bytes and tensor.dtype == float32:
            return _decoded(*self.coded(tensor))
        return self.floating(tensor)

    # Products -----------------------------------------------------------------------------------

    def _add_product(self, product: FoldedProduct) -> None:
        op, weights = product.op, product.weights
        given, coding = self.coded(product.input)
        largest = np.abs(weights).reshape(-1, weights.shape[-1]).max(axis=0)
        scales = np.maximum(largest / LARGEST_WEIGHT, np.finfo(np.float32).tiny)
        scales = np.maximum(scales, np.abs(product.bias) / (coding.scale * LARGEST_BIAS))
        whole = np.clip(np.rint(weights / scales), -LARGEST_WEIGHT, LARGEST_WEIGHT).astype(np.int8)
        sums = whole.astype(np.int64).reshape(-1, whole.shape[-1]).sum(axis=0)
        bias = np.rint(product.bias / (scales * coding.scale)).astype(np.int64) - coding.zero_point * sums
        unit = scales * coding.scale  # of a sum
        attrs: dict[str, Any] = {"dtype": float32}
        result: Coding | None = None
        if product.result in self.plan.made_as_bytes:
            result = Coding.of(*self.ranges[product.result])
            unit = unit / result.scale
            attrs = {"dtype": uint8, "zero_point": result.zero_point}
        made = self._product(op, given, whole, bias, unit, coding, attrs)
        if result is None:
            self._floating[product.result] = relu(made) if product.rectified else made
        else:
            self._bytes[product.result] = made, result
        self._ops[op] = self._ops[product.result.op] = made.op

    def _product(
        self,
        op: Operation,
        given: Tensor,
        whole: Array,
        bias: Array,
        unit: Array,
        coding: Coding,
        attrs: dict[str, Any],
    ) -> Tensor:
        """A product of bytes. whole: its weights; bias: of its sums, unit: what a sum is multiplied by."""
        if op.definition is Conv2D:
            runs = runs_of(whole.shape, op.attrs["dilations"])
            attrs |= {"window": whole.shape[:3], "padding_value": coding.zero_point, **op.attrs}
        else:
            runs = 1, whole.shape[0]
            attrs |= {"inner": whole.shape[0]}
        (words,) = run_reference_kernel(PackWeights, [whole.reshape(*runs, whole.shape[-1])])
        parts = {
            "words": words,
            "bias": np.clip(bias, -(2**31), 2**31 - 1).astype(np.int32),
            "multiplier": unit.astype(np.float32),
        }
        held = [self._variable(f"{op.name}/{name}", array) for name, array in parts.items()]
        definition = QuantizedConv2D if op.definition is Conv2D else QuantizedMatMul
        made: Tensor = definition(given, *held, name=op.name, **attrs)
        return made

    def _variable(self, name: str, value: Array) -> Variable:
        variable = Variable(value, trainable=False, name=name)
        self.values[variable.op.name] = value
        return variable


def _decoded(values: Tensor, coding: Coding) -> Tensor:
    return dequantize(values, coding.scale, coding.zero_point)
