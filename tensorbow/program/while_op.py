"""A loop compiled as one op of a plan: its condition and body are nodes with every shape known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Kernel, KernelCall, NodeSpec, OpDef, blame
from tensorbow.graph.definition import read_only
from tensorbow.program.nodes import Node, Value, storage_of
from tensorbow.specs import Array, TensorSpec, uint8

ALIGNMENT = 64  # bytes
OperandPlace: TypeAlias = (
    "tuple[int, int]"  # an operand of the op, counted inputs, outputs, scratch; offset in bytes
)
ScratchOf: TypeAlias = "Callable[[Node], Sequence[TensorSpec]]"


class LoopProgram:
    """Condition and body of a loop; `variables` and `captured` are its inputs, in this order.

    In each iteration `condition` computes `holds`, a bool scalar; while it is true, `body` computes
    `results`, the next values of `variables`.
    """

    def __init__(
        self,
        variables: Sequence[Value],
        captured: Sequence[Value],
        condition: Sequence[Node],
        holds: Value,
        body: Sequence[Node],
        results: Sequence[Value],
    ):
        self.variables = tuple(variables)
        self.captured = tuple(captured)
        self.condition = tuple(node for node in condition if not node.definition.is_view)
        self.holds = holds
        self.body = tuple(node for node in body if not node.definition.is_view)
        self.results = tuple(results)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes that compute something."""
        return (*self.condition, *self.body)

    def memory(self, scratch_of: ScratchOf) -> LoopMemory:
        """Where each value lies; the variables are in the op's outputs."""
        return LoopMemory(self, scratch_of)

    def __repr__(self) -> str:
        return f"<LoopProgram of {len(self.condition)} + {len(self.body)} nodes>"


def node_spec(node: Node) -> NodeSpec:
    """A node as kernels see it."""
    return NodeSpec(node.attrs, *(tuple(v.spec for v in values) for values in (node.inputs, node.outputs)))


@dataclass
class LoopMemory:
    """Places of a loop's values: variables in outputs, captured in inputs, all others in a scratch array."""

    loop: LoopProgram
    scratch_of: ScratchOf
    nbytes: int = 0
    scratch: dict[Node, list[tuple[OperandPlace, TensorSpec]]] = field(default_factory=dict)
    moved: dict[int, OperandPlace] = field(
        default_factory=dict
    )  # results that overwritten variables hold, by number
    _places: dict[Value, OperandPlace] = field(default_factory=dict)

    def __post_init__(self) -> None:
        loop = self.loop
        count, kept = len(loop.variables), len(loop.captured)
        self._last = 2 * count + kept  # number of the scratch array
        for number, value in enumerate(loop.variables):
            self._places[value] = (count + kept + number, 0)
        for number, value in enumerate(loop.captured):
            self._places[value] = (count + number, 0)
        for node in loop.nodes:
            for value in node.outputs:
                if storage_of(value) is value:
                    self._places[value] = self._take(value.spec)
            self.scratch[node] = [(self._take(spec), spec) for spec in self.scratch_of(node)]
        for number, (variable, result) in enumerate(zip(loop.variables, loop.results, strict=True)):
            root = storage_of(result)
            if root is not variable and root in loop.variables:
                self.moved[number] = self._take(result.spec)

    def _take(self, spec: TensorSpec) -> OperandPlace:
        place = (self._last, self.nbytes)
        self.nbytes += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
        return place

    def place(self, value: Value) -> OperandPlace:
        """Where a value lies."""
        return self._places[storage_of(value)]

    @property
    def spec(self) -> TensorSpec:
        """The scratch array."""
        return TensorSpec((max(1, self.nbytes),), uint8)


def _reference_scratch(node: Node) -> Sequence[TensorSpec]:
    return node.definition.kernels["cpu"].scratch_specs(node_spec(node))


def _scratch(node: NodeSpec) -> Sequence[TensorSpec]:
    loop: LoopProgram = node.attrs["loop"]
    return [loop.memory(_reference_scratch).spec]


def _prepare(call: KernelCall) -> Callable[[], None]:
    """The reference: kernels of condition and body, called in turn."""
    loop: LoopProgram = call.attrs["loop"]
    memory = loop.memory(_reference_scratch)
    operands = (*call.inputs, *call.outputs, *call.scratch)

    def array(place: OperandPlace, spec: TensorSpec) -> Array:
        operand, offset = place
        if operand < len(operands) - 1:
            return operands[operand].reshape(spec.extents)
        taken = operands[-1][offset : offset + spec.nbytes]
        viewed: Array = taken.view(spec.dtype.as_numpy_dtype).reshape(spec.extents)
        return viewed

    def prepared(node: Node) -> Callable[[], None]:
        spec = node_spec(node)
        inputs = tuple(read_only(array(memory.place(v), v.spec)) for v in node.inputs)
        outputs = tuple(array(memory.place(v), v.spec) for v in node.outputs)
        scratch = tuple(array(*each) for each in memory.scratch[node])
        bound = node.definition.kernels["cpu"].bind(KernelCall(spec.attrs, inputs, outputs, scratch))

        def run() -> None:
            try:
                bound()
            except Exception as error:
                kind = type(error) if isinstance(error, TensorBowError) else InvalidArgumentError
                raise kind(blame(node.definition.name, node.name, error, node.source)) from error

        return run

    condition, body = ([prepared(node) for node in nodes] for nodes in (loop.condition, loop.body))
    holds = array(memory.place(loop.holds), loop.holds.spec)
    results = [array(memory.place(v), v.spec) for v in loop.results]
    moved = {number: array(place, loop.results[number].spec) for number, place in memory.moved.items()}
    initial = call.inputs[: len(loop.variables)]

    def run() -> None:
        for output, value in zip(call.outputs, initial, strict=True):
            np.copyto(output, value)
        while True:
            for each in condition:
                each()
            if not holds:
                return
            for each in body:
                each()
            for number, kept in moved.items():
                np.copyto(kept, results[number])
            for number, output in enumerate(call.outputs):
                np.copyto(output, moved.get(number, results[number]))

    return run


While = OpDef(
    "While",
    spec=lambda inputs, attrs: [v.spec for v in attrs["loop"].variables],
    gradient=NOT_DIFFERENTIABLE,
    kernels={"cpu": Kernel(prepare=_prepare, scratch=_scratch)},
    input_names=("*values",),
    attrs={"loop": REQUIRED},
    doc="Runs a LoopProgram on initial variables and what it reads. Only the compiler makes it.",
)
