"""Functions of a graph: subgraphs with arguments and results, which operations `Call` stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.graph.definition import OpDef
from tensorbow.graph.graph import Graph
from tensorbow.graph.operation import Operation, Tensor
from tensorbow.graph.user_lines import blame
from tensorbow.specs import TensorSpec

OPAQUE = ("Placeholder", "StepScalar", "Variable", "HostVariable")  # not in a function that is kept as one
KEPT = 32  # results of inference that a function keeps, by what is known of its inputs
SHAPE_ONLY = ("Shape", "Size", "Rank")  # ops whose results are known once the shape of the input is


def is_plain(definition: OpDef) -> bool:
    """True for an op that may stand in a function that is kept as one: static, without effects or state."""
    return not (
        definition.is_dynamic
        or definition.stateful
        or definition.random
        or definition.state
        or definition.exchange
        or definition.writes
        or definition.fetched is not None
        or definition.name in OPAQUE
    )


@dataclass(eq=False)
class GraphFunction:
    """A subgraph: its inputs are placeholders of a graph of its own, its outputs tensors of that graph.

    gradient: replaces the derivative; called with the inputs of a call, and a gradient for each output, it
    returns one for each input.
    """

    name: str
    graph: Graph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    gradient: Callable[..., Sequence[Any]] | None = None
    _inferred: dict[object, list[TensorSpec]] = field(default_factory=dict)
    derivatives: dict[tuple[bool, ...], tuple[GraphFunction, list[int]]] = field(default_factory=dict)

    @cached_property
    def ops(self) -> list[Operation]:
        """The operations that the outputs need, in program order, without the inputs."""
        needed: set[Operation] = set()
        inputs = {tensor.op for tensor in self.inputs}
        pending = [tensor.op for tensor in self.outputs]
        while pending:
            op = pending.pop()
            if op not in needed and op not in inputs:
                needed.add(op)
                pending += [*(t.op for t in op.inputs), *op.control_inputs]
        return sorted(needed, key=lambda op: op.id)

    @cached_property
    def is_plain(self) -> bool:
        """True if a call may stand as one operation: the rest is expanded when it is called."""
        functions = [op.attrs["f"] for op in self.ops if isinstance(op.attrs.get("f"), GraphFunction)]
        return all(is_plain(op.definition) for op in self.ops) and all(each.is_plain for each in functions)

    @cached_property
    def size(self) -> int:
        """The number of operations that a call stands for."""
        called = (op.attrs.get("f") for op in self.ops)
        return sum(each.size if isinstance(each, GraphFunction) else 1 for each in called)

    @cached_property
    def shape_arguments(self) -> tuple[int, ...]:
        """Positions of the inputs whose values shapes depend on."""
        pending = [
            op.inputs[index]
            for op in self.ops
            for index in (
                op.attrs["f"].shape_arguments
                if isinstance(op.attrs.get("f"), GraphFunction)
                else op.definition.shape_inputs
            )
            if index < len(op.inputs)
        ]
        found: set[Tensor] = set()
        while pending:
            tensor = pending.pop()
            if tensor not in found:
                found.add(tensor)
                if tensor.op.definition.name not in SHAPE_ONLY:
                    pending += tensor.op.inputs
        return tuple(index for index, tensor in enumerate(self.inputs) if tensor in found)

    def infer(self, inputs: Sequence[TensorSpec]) -> list[TensorSpec]:
        """The specs of the outputs for specs of the inputs. Raises InvalidArgumentError."""
        if [spec.dtype for spec in inputs] != [tensor.dtype for tensor in self.inputs]:
            expected = ", ".join(tensor.dtype.name for tensor in self.inputs)
            got = ", ".join(str(spec) for spec in inputs)
            raise InvalidArgumentError(f"function {self.name} takes ({expected}), got ({got})")
        values = (None if spec.value is None else spec.value.tobytes() for spec in inputs)
        key = (*((spec.shape, value) for spec, value in zip(inputs, values, strict=True)),)
        if key not in self._inferred:
            while len(self._inferred) >= KEPT:
                self._inferred.pop(next(iter(self._inferred)))
            self._inferred[key] = self._infer(inputs)
        return self._inferred[key]

    def _infer(self, inputs: Sequence[TensorSpec]) -> list[TensorSpec]:
        known = dict(zip(self.inputs, inputs, strict=True))
        for op in self.ops:
            if op.inputs:
                try:
                    specs = op.definition.infer([known[tensor] for tensor in op.inputs], op.attrs)
                except TensorBowError as error:
                    raise type(error)(blame(op.type, op.name, error, op.source)) from None
            else:
                specs = tuple(tensor.spec for tensor in op.outputs)
            known.update(zip(op.outputs, specs, strict=True))
        return [known[tensor] for tensor in self.outputs]

    def __repr__(self) -> str:
        return f"<function {self.name} of {len(self.ops)} ops>"
