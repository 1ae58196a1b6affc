"""Spread: the ops of a step, or the variables of a graph, over devices, by the greedy placement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorbow.compiler.placement.cost_model import CostModel, NodeCost
from tensorbow.compiler.placement.greedy import Assignment, PlacedGroup, SimulatedOp, place_greedily
from tensorbow.graph import OpDef, Operation, Tensor
from tensorbow.ops.state import Assign, VariableReference
from tensorbow.program.nodes import Node, Program, Value, storage_of
from tensorbow.specs import TensorSpec

ASSUMED_EXTENT = 32  # of dimensions that no graph knows, as of a batch, when variables are placed


@dataclass(frozen=True)
class Machine:
    """Devices of a step: names, kinds, and the bytes that it may use of each."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    free_nbytes: tuple[int, ...]


@dataclass(frozen=True)
class Spread:
    """A greedy placement with what it is compared with: as much as may be on the first device.

    devices: number of ops by device. free: how many of the ops could be placed, and measured: how many of all
    have measured costs. single: the other placement.
    """

    machine: Machine
    found: Assignment
    single: Assignment
    devices: tuple[int, ...]
    free: int
    measured: int
    costs: Mapping[str, NodeCost] = field(default_factory=dict, repr=False)  # by node

    def lines(self) -> list[str]:
        """The reasons, for `explain`."""
        names, found, single = self.machine.names, self.found, self.single
        total = sum(self.devices)
        counts = ", ".join(
            f"{count} on {name}" for name, count in zip(names, self.devices, strict=True) if count
        )
        measured = f"{self.measured} of {total} by measured costs" if self.measured else "by estimated costs"
        lines = [
            f"placement: greedy, {measured}: {counts}; {self.free} had a choice, the others are where "
            "they are requested or their variables lie",
            f"placement: simulated {found.makespan_s * 1e3:.3g} ms with {found.sent} values of "
            f"{found.sent_nbytes:,} bytes sent; as much as may be on {names[0]}: "
            f"{single.makespan_s * 1e3:.3g} ms",
        ]
        if not single.fits:
            lines.append(
                f"placement: {names[0]} alone has {self.machine.free_nbytes[0]:,} bytes left, and would need "
                f"{single.peaks[0]:,}"
            )
        if not found.fits:
            lines.append("placement: none found that fits; the step may run out of memory")
        return lines


class _Draft:
    """Tasks under construction, with keys of their own."""

    def __init__(self, machine: Machine, model: CostModel):
        self._machine, self._model = machine, model
        self.tasks: list[SimulatedOp] = []
        self.groups: list[PlacedGroup] = []
        self.numbers: dict[Hashable, int] = {}  # of tasks, by key
        self._groups: dict[Hashable, int] = {}

    def group(self, key: Hashable, devices: Sequence[int], nbytes: int = 0) -> int:
        """The number of the group of that key."""
        if key not in self._groups:
            self._groups[key] = len(self.groups)
            self.groups.append(PlacedGroup(tuple(devices), nbytes))
        return self._groups[key]

    def add(
        self,
        key: Hashable,
        name: str,
        group: int,
        cost: NodeCost | None,
        inputs: Iterable[tuple[int, int]] = (),
        nbytes: int = 0,
    ) -> None:
        """Adds a task; without a cost a variable."""
        seconds: tuple[float, ...] = ()
        if cost is not None:
            seconds = tuple(self._model.seconds(cost, kind) for kind in self._machine.kinds)
        self.numbers[key] = len(self.tasks)
        self.tasks.append(SimulatedOp(name, group, seconds, tuple(inputs), nbytes))

    def placed(self) -> tuple[Assignment, Assignment]:
        """See `place_greedily`."""
        kinds = self._machine.kinds

        def transfer(sender: int, receiver: int, nbytes: int) -> tuple[float, float]:
            return self._model.transfer_s(kinds[sender], kinds[receiver], nbytes)

        return place_greedily(self.tasks, self.groups, transfer, self._machine.free_nbytes)


def spread_program(
    program: Program,
    options: Callable[[int], tuple[Hashable, Sequence[int]]],
    machine: Machine,
    model: CostModel,
) -> Spread:
    """Sets the device of every node; returns what was chosen and estimated.

    options: by the id of an operation, its colocation group and the devices that it may be on, by number; the
    group of a variable has one. Views go with what they are views of.
    """
    draft = _Draft(machine, model)
    costs: dict[str, NodeCost] = {}
    gradients = {
        storage_of(node.inputs[node.definition.update[1]])
        for node in program.nodes
        if node.definition.update is not None
    }
    nodes = [node for node in program.nodes if not node.definition.is_view]
    for node in nodes:
        inputs: list[tuple[int, int]] = []
        for value in node.inputs:
            root = _made_by(value)
            if root.variable is not None and root not in draft.numbers:
                key, devices = options(root.variable.id)
                draft.add(root, root.name, draft.group(key, devices), None)
            source = root if root.variable is not None else root.node
            if source is not None:
                inputs.append((draft.numbers[source], value.spec.nbytes))
        inputs += [(draft.numbers[other], 0) for other in node.after if other in draft.numbers]
        made = [v for v in node.outputs if storage_of(v) is v and v not in gradients]
        cost = costs[node.name] = _cost(node.definition, node.attrs, node.inputs, node.outputs)
        key, devices = options(node.position)
        nbytes = sum(value.spec.nbytes for value in made)
        draft.add(node, node.name, draft.group(key, devices), cost, inputs, nbytes)
    found, single = draft.placed()
    counts: Counter[int] = Counter()
    for node in nodes:
        device = found.devices[draft.tasks[draft.numbers[node]].group]
        counts[device] += 1
        node.device = machine.names[device]
    _place_views(program, machine)
    where = [machine.kinds[found.devices[task.group]] for task in draft.tasks]
    measured = (model.is_measured(costs[n.name], where[draft.numbers[n]]) for n in nodes)
    return Spread(
        machine,
        found,
        single,
        tuple(counts[number] for number in range(len(machine.names))),
        sum(len(draft.groups[draft.tasks[draft.numbers[node]].group].devices) > 1 for node in nodes),
        sum(measured),
        costs,
    )


def _place_views(program: Program, machine: Machine) -> None:
    """Puts views of what nobody sends, such as feeds, where they are first read."""
    readers: dict[Node, str] = {}
    for node in reversed(program.nodes):
        if node.definition.is_view and not node.device:
            root = storage_of(node.outputs[0])
            node.device = readers.get(node, machine.names[0]) if root.node is None else root.node.device
        for value in node.inputs:
            if value.node is not None:
                readers[value.node] = node.device


def _made_by(value: Value) -> Value:
    """The value that a value is, or is a view of; a written variable stays the node's that writes it."""
    while value.node is not None and value.node.definition.is_view:
        value = value.node.inputs[value.node.definition.alias[0][1]]
    return value


def _cost(
    definition: OpDef, attrs: Mapping[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]
) -> NodeCost:
    return NodeCost.of(definition.name, attrs, [x.spec for x in inputs], [x.spec for x in outputs])


def spread_variables(
    groups: Sequence[tuple[Sequence[Operation], Sequence[int]]], machine: Machine, model: CostModel
) -> dict[Operation, int]:
    """The device number of each variable, by a simulated run of the whole graph.

    groups: the graph's operations by colocation group, with the devices that each may be on.

    Dimensions that the graph does not know count as 32. A weight counts twice, as steps have its gradient.
    Initialisers and what only they need take no part.
    """
    draft = _Draft(machine, model)
    members: dict[Operation, int] = {}
    for ops, devices in groups:
        number = draft.group(ops[0], devices, sum(map(_kept_nbytes, ops)))
        members.update(dict.fromkeys(ops, number))
    ordered = sorted(members, key=lambda op: op.id)
    left_out = _of_initialisation(ordered)
    gradients = {op.inputs[op.definition.update[1]] for op in ordered if op.definition.update is not None}
    sources: dict[Tensor, Tensor] = {}  # of views

    def made_by(tensor: Tensor) -> Tensor:
        while tensor in sources:
            tensor = sources[tensor]
        return tensor

    for op in ordered:
        definition = op.definition
        if definition is VariableReference:
            draft.add(op, op.name, members[op], None)
        elif definition.is_view:
            sources.update({op.outputs[made]: op.inputs[source] for made, source in definition.alias})
        elif definition.kernels and op not in left_out:
            specs = [_assumed(tensor.spec) for tensor in op.inputs], [_assumed(t.spec) for t in op.outputs]
            cost = NodeCost.of(definition.name, op.attrs, *specs)
            inputs = [
                (draft.numbers[made_by(tensor).op], spec.nbytes)
                for tensor, spec in zip(op.inputs, specs[0], strict=True)
                if made_by(tensor).op in draft.numbers
            ]
            aliased = {made for made, _ in definition.alias}
            made = [
                spec.nbytes
                for index, (tensor, spec) in enumerate(zip(op.outputs, specs[1], strict=True))
                if index not in aliased and tensor not in gradients
            ]
            draft.add(op, op.name, members[op], cost, inputs, sum(made))
    found, _ = draft.placed()
    return {op: found.devices[members[op]] for op in ordered if op.definition is VariableReference}


def _assumed(spec: TensorSpec) -> TensorSpec:
    """A spec whose unknown extents are assumed."""
    extents = tuple(ASSUMED_EXTENT if extent is None else extent for extent in spec.shape or ())
    return TensorSpec(extents, spec.dtype)


def _kept_nbytes(op: Operation) -> int:
    """Bytes that an op's variable takes on its device for good, with room for its gradient."""
    if op.definition is not VariableReference:
        return 0
    spec = op.outputs[0].spec
    return math.prod(spec.extents) * spec.dtype.size * (2 if op.attrs["role"] == "weights" else 1)


def _of_initialisation(ops: Sequence[Operation]) -> set[Operation]:
    """Plain assignments to variables, and the ops whose results only these read. ops: in graph order."""
    found: set[Operation] = set()
    for op in reversed(ops):
        readers = [reader for tensor in op.outputs for reader in op.graph.consumers(tensor)]
        if op.definition is Assign or (readers and found.issuperset(readers)):
            found.add(op)
    return found
