"""Greedy placement of a session: its cost model, the memory of its devices, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from tensorbow.compiler import DeviceSet, NeedsDynamicModeError, Placer, fold_for_devices
from tensorbow.compiler.placement import (
    CostModel,
    Machine,
    NodeCost,
    Spread,
    spread_program,
    spread_variables,
)
from tensorbow.devices import Device, DeviceName
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor
from tensorbow.program import Executable
from tensorbow.program.nodes import Program
from tensorbow.specs import TensorSpec
from tensorbow.timeline import OP, StepStats

USABLE = 0.5  # of a device's free memory: allocators grow by doubling, so that as much may lie idle
Groups = Sequence[tuple[Sequence[Operation], Sequence[Device]]]


class GreedyPlacement:
    """Places steps and variables of a session on its devices by costs; keeps the measured ones.

    The caller does the locking.
    """

    def __init__(self, devices: DeviceSet, own_nbytes: Callable[[Device], int]):
        """own_nbytes: bytes on a device that the session gives up where a step needs them."""
        self.model = CostModel()
        self._devices = devices
        self._own_nbytes = own_nbytes

    def _machine(self, groups: Groups, kept: Mapping[str, int]) -> tuple[Machine, dict[Device, int]]:
        """The devices that groups may be on, home first. kept: bytes that are not free, by full name."""
        devices = list(dict.fromkeys([self._devices.home, *(d for _, options in groups for d in options)]))
        free = [
            d.memory.limit_nbytes - d.memory.held_nbytes + self._own_nbytes(d) - kept.get(str(d.name), 0)
            for d in devices
        ]
        machine = Machine(
            tuple(str(d.name) for d in devices),
            tuple(d.kind for d in devices),
            tuple(max(0, int(n * USABLE)) for n in free),
        )
        return machine, {device: number for number, device in enumerate(devices)}

    def place_variables(self, operations: Sequence[Operation], placer: Placer) -> dict[Operation, Device]:
        """The devices of a graph's variables; none if some of its operations cannot be placed."""
        try:
            groups = placer.options(operations)
        except InvalidArgumentError:  # reported by the step that needs them
            return {}
        machine, numbers = self._machine(groups, {})
        numbered = [(ops, [numbers[device] for device in options]) for ops, options in groups]
        found = spread_variables(numbered, machine, self.model)
        devices = list(numbers)
        return {variable: devices[number] for variable, number in found.items()}

    def place_step(
        self,
        needed: Sequence[Operation],
        fetches: Sequence[Tensor | Operation],
        feeds: Mapping[Tensor, TensorSpec],
        groups: Groups,
        kept: Mapping[str, int],
        compiles_loops: bool,
    ) -> tuple[Program, Spread] | None:
        """A step's program with the device of each node; None for one with a loop that stays whole.

        groups: of the needed operations, with their devices. kept: see `_machine`.
        """
        machine, numbers = self._machine(groups, kept)
        options: dict[int, tuple[Hashable, Sequence[int]]] = {}  # by id of an operation
        names: dict[Operation, str] = {}
        for ops, devices in groups:
            entry = ops[0], [numbers[device] for device in devices]
            options.update({op.id: entry for op in ops})
            names.update(dict.fromkeys(ops, str(devices[0].name) if len(devices) == 1 else ""))
        try:
            program = fold_for_devices(needed, fetches, feeds, names, compiles_loops)
        except NeedsDynamicModeError:
            return None
        return program, spread_program(program, options.__getitem__, machine, self.model)

    def measure(
        self, stats: StepStats, steps: Iterable[tuple[Sequence[Executable], Mapping[str, NodeCost]]]
    ) -> int:
        """Takes over the times of a run's ops and returns how many calls had some.

        steps: the session's, the latest first: their parts, and the costs of their nodes. The first that has
        all ops of the run is taken.
        """
        spans = [span for span in stats.tracer.spans if span.category == OP]
        for parts, known in steps:
            costs = known
            nodes = {
                f"{group.definition.name} {group.name}": group.nodes
                for part in parts
                for segment in part.segments
                for group in segment.groups
            }
            if spans and all(span.name in nodes for span in spans):
                break
        else:
            return 0
        taken = 0
        for span in spans:
            fused = [costs[name] for name in nodes[span.name] if name in costs]
            if fused:
                kind = (DeviceName.parse(span.track.device).kind or "").lower()
                self.model.add(fused, kind, span.end_s - span.start_s)
                taken += 1
        return taken
