"""Storages that units read and write, and nodes for what the passes add."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from tensorbow.errors import InternalError
from tensorbow.graph import NOT_DIFFERENTIABLE, OpDef
from tensorbow.program.nodes import Node, Unit, Value, storage_of


def reads(unit: Unit) -> set[Value]:
    """Storages that a unit reads, variables that it writes included."""
    return set(map(storage_of, unit.inputs))


def writes(unit: Unit) -> set[Value]:
    """Storages of a unit's results, and of the variables that it writes."""
    written = (unit.inputs[index] for index in unit.head.definition.writes)
    return set(map(storage_of, (*unit.outputs, *written)))


class Effects:
    """Storages that some units read and write."""

    def __init__(self, units: Iterable[Unit] = ()):
        self.read = set[Value]()
        self.written = set[Value]()
        self.sets_status = self.writes_variables = False
        for unit in units:
            self.add(unit)

    def add(self, unit: Unit) -> None:
        """Adds a unit's."""
        self.read |= reads(unit)
        self.written |= writes(unit)
        self.sets_status |= unit.head.definition.sets_status
        self.writes_variables |= bool(unit.head.definition.writes)

    def clash(self, unit: Unit) -> bool:
        """True if the order of a unit and of these must stay."""
        definition = unit.head.definition
        return bool(
            self.written & reads(unit)
            or (self.read | self.written) & writes(unit)
            or (definition.sets_status and self.writes_variables)
            or (definition.writes and self.sets_status)
        )


def added_op(name: str, writes: Sequence[int] = (), *, sets_status: bool = False) -> OpDef:
    """An op for units that a pass makes of several nodes; it is in no graph."""
    state = ("status",) if sets_status else ()
    return OpDef(
        name,
        _no_spec,
        NOT_DIFFERENTIABLE,
        {},
        writes=tuple(writes),
        state=state,
        sets_status=sets_status,
    )


def added_node(definition: OpDef, nodes: Sequence[Node], inputs: list[Value]) -> Node:
    """The head of a unit that a pass makes of several nodes, whose values keep the nodes that made them."""
    last = nodes[-1]
    return Node(
        last.name, definition, {}, inputs, last.position, last.source, unconditional=last.unconditional
    )


def _no_spec(*_: object) -> NoReturn:
    raise InternalError("an op that a pass has added is in no graph")
