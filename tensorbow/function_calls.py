"""`Call`: an operation that stands for a function's subgraph, which the compiler puts in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.gradients import gradients
from tensorbow.graph import REQUIRED, Attrs, Graph, Operation, Tensor, as_tensor
from tensorbow.graph.definition import OpDef
from tensorbow.graph.function import GraphFunction
from tensorbow.graph.function_def import CALL
from tensorbow.ops.broadcasting import zeros_like
from tensorbow.ops.constant import Const
from tensorbow.ops.control import Placeholder
from tensorbow.ops.definition import OPS
from tensorbow.ops.state import VariableReference
from tensorbow.specs import TensorSpec


def _called(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    function: GraphFunction = attrs["f"]
    return [TensorSpec(spec.shape, spec.dtype) for spec in function.infer(inputs)]


def _gradient(op: Operation, *grads: Tensor | None) -> Sequence[Tensor | None]:
    """A call of the function's derivative, which computes again what it needs: equal nodes are merged."""
    function: GraphFunction = op.attrs["f"]
    if function.gradient is not None:
        dense = [zeros_like(t) if g is None else g for t, g in zip(op.outputs, grads, strict=True)]
        found = function.gradient(op.inputs, *dense)
        given = list(found) if isinstance(found, (list, tuple)) else [found]
        return [None if each is None else as_tensor(each) for each in given]
    flows = tuple(grad is not None for grad in grads)
    if flows not in function.derivatives:
        function.derivatives[flows] = _derivative(function, flows)
    derivative, wanted = function.derivatives[flows]
    results: list[Tensor | None] = [None] * len(op.inputs)
    if wanted:
        made = Call(*op.inputs, *(grad for grad in grads if grad is not None), f=derivative)
        for index, result in zip(wanted, made if isinstance(made, tuple) else (made,), strict=True):
            results[index] = result
    return results


def _derivative(function: GraphFunction, flows: Sequence[bool]) -> tuple[GraphFunction, list[int]]:
    """The function of inputs and gradients that gives those of the inputs, and which inputs have one."""
    targets = [tensor for tensor in function.inputs if tensor.dtype.is_differentiable]
    outputs = [t for t, flow in zip(function.outputs, flows, strict=True) if flow]
    with function.graph.as_default():
        given = [Placeholder(dtype=tensor.dtype, shape=tensor.spec.shape) for tensor in outputs]
        found = gradients(outputs, targets, given) if outputs and targets else []
        dense = {t: as_tensor(g) for t, g in zip(targets, found, strict=True) if g is not None}
    wanted = [index for index, tensor in enumerate(function.inputs) if tensor in dense]
    results = tuple(dense[function.inputs[index]] for index in wanted)
    inputs = (*function.inputs, *given)
    return GraphFunction(f"{function.name}_grad", function.graph, inputs, results), wanted


Call = OpDef(  # not by define_op, as it has no kernel: no program has such a node
    name=CALL,
    spec=_called,
    gradient=_gradient,
    kernels={},
    input_names=("*args",),
    attrs={"f": REQUIRED},
    doc="The results of a function: the compiler puts the function's operations in its place.",
)
OPS[CALL] = Call


class FunctionGraph(Graph):
    """The graph of a function that is being made: what it reads of other graphs becomes an input.

    captured: tensors from outside, and the placeholders that stand for them. Constants are copied.
    """

    captures = True

    def __init__(self, what: str):
        """what: the function, as errors call it."""
        super().__init__()
        self.captured: dict[Tensor, Tensor] = {}
        self._copies: dict[Tensor, Tensor] = {}
        self._what = what

    def create_op(
        self, definition: Any, inputs: Sequence[Tensor], attrs: Attrs, name: str | None = None
    ) -> Operation:
        """See Graph.create_op."""
        return super().create_op(definition, [self.inside(tensor) for tensor in inputs], attrs, name)

    def inside(self, tensor: Tensor) -> Tensor:
        """A tensor of any graph as the function reads it. Raises InvalidArgumentError for what it cannot."""
        if tensor.graph is self:
            return tensor
        if tensor.op.definition is VariableReference:
            raise InvalidArgumentError(
                f"{self._what}: it writes or refers to variable {tensor.op.name}; a function computes "
                "values: return the new one, and write it outside"
            )
        other = next((t.graph for t in self.captured if t.graph is not tensor.graph), None)
        if other is not None and tensor.op.definition is not Const:
            raise InvalidArgumentError(
                f"{self._what}: it reads tensors of two other graphs; use those of one"
            )
        made = self.captured.get(tensor, self._copies.get(tensor))
        if made is None and tensor.op.definition is Const:
            (made,) = super().create_op(Const, (), tensor.op.attrs, tensor.op.name).outputs
            self._copies[tensor] = made
        elif made is None:
            attrs = {"dtype": tensor.dtype, "shape": tensor.spec.shape}
            (made,) = super().create_op(Placeholder, (), attrs, "captured").outputs
            self.captured[tensor] = made
        return made
