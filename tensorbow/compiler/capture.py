"""Inputs of a block from outside, and the nodes that it may have."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.compiler.dynamic_mode import NeedsDynamicModeError
from tensorbow.compiler.merge import merge
from tensorbow.compiler.protect import protect
from tensorbow.compiler.prune import drop_unused
from tensorbow.ops.checks import AssertOp, CheckNumerics
from tensorbow.program.blocks import StackFrame
from tensorbow.program.control_forms import Cond, While
from tensorbow.program.draws import NextDraw
from tensorbow.program.nodes import Node, Program, Value, storage_of
from tensorbow.specs import TensorSpec

CHECKS = (AssertOp, CheckNumerics)  # may fail, but do nothing else


class Capture:
    """Inputs of a block from outside. Values that nodes outside make have stand-ins inside."""

    def __init__(self, own: Sequence[Value]):
        """own: values of the block that no node makes."""
        self._own = set(own)
        self._inside: dict[Value, Value] = {}  # by value outside
        self._outside: dict[Value, Value] = {}

    def _of(self, value: Value) -> Value:
        """An outer value as it is inside."""
        if value.node is None:
            return value
        if value not in self._inside:
            stand_in = Value(value.name, TensorSpec(value.spec.shape, value.spec.dtype))
            self._inside[value], self._outside[stand_in] = stand_in, value
        return self._inside[value]

    def program(self, nodes: Sequence[Node], fetches: Sequence[Value]) -> Program:
        """The nodes, cleaned; fetches: what they are for."""
        made = {value for node in nodes for value in node.outputs}

        def inside(value: Value) -> Value:
            return value if value in made or value in self._own else self._of(value)

        for node in nodes:
            node.inputs = [inside(value) for value in node.inputs]
            node.state = tuple((key, inside(value)) for key, value in node.state)
        program = Program(list(nodes), [inside(value) for value in fetches], {})
        return protect(drop_unused(merge(program)), "cpu")

    def is_outer(self, value: Value) -> bool:
        """True if a value inside is one from outside."""
        return value.node is None and value not in self._own

    def outside(self, value: Value) -> Value:
        """The outer value of one inside."""
        return self._outside.get(value, value)

    def captured(
        self, nodes: Sequence[Node], results: Sequence[Value], outer: Sequence[Value] = ()
    ) -> list[Value]:
        """All outer values that nodes and results read, and those of `outer`, as they are inside."""
        read = [*(v for node in nodes for v in node.reads), *results]
        read += [v if v in self._own else self._of(v) for v in outer]
        made = {value for node in nodes for value in node.outputs}
        return [v for v in dict.fromkeys(map(storage_of, read)) if v not in made and v not in self._own]

    def frame(self, frame: StackFrame) -> StackFrame:
        """A frame whose parts are named as they are inside."""

        def inside(value: Value) -> Value:
            return value if value in self._own else self._of(value)

        number = None if frame.number is None else inside(frame.number)
        return StackFrame(inside(frame.handle), inside(frame.begin), number, frame.nbytes, frame.offsets)


def check_node(node: Node) -> None:
    """Raises NeedsDynamicModeError for a node that no block may have."""
    definition = node.definition
    if definition.form_of is not None or definition in (While, Cond, NextDraw):
        return
    reason = ""
    if definition.exchange:
        reason = "replicas meet in it"
    elif definition.state and not definition.random:
        reason = "it reads state of the step"
    elif not definition.kernels and not definition.is_view:
        reason = "it has no kernel"
    elif definition.stateful and not definition.writes and definition not in CHECKS:
        reason = "it has an effect"
    if reason:
        message = f"{definition.name} {node.name} is in a loop or cond that depends on data, and {reason}"
        raise NeedsDynamicModeError(f"{message} (made at {node.source})", message)
