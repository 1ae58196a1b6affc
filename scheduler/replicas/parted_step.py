"""The step of a replica with several parts, one per logical device: a program for each part."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from scheduler.averaging.outer_progress import replica_layout
from scheduler.averaging.synchronisation import Synchronisation
from scheduler.averaging.synchronisers import Synchroniser
from scheduler.replicas.dynamic.divided_parts import PartVariables, compile_divided_parts
from scheduler.replicas.dynamic.divided_step import Divided
from scheduler.replicas.step_program import StepProgram, planned_or
from tensorbow.compiler import DeviceSet, PartedExecutable, PartSpec, Placer, VariableLayout, compile_parts
from tensorbow.devices import Device
from tensorbow.errors import InternalError, InvalidArgumentError
from tensorbow.graph import OpDef, Operation
from tensorbow.kernels import backend_for
from tensorbow.program import Backend, Executable
from tensorbow.specs import TensorSpec


class PartedStep:
    """A step whose ops are placed on the parts of a replica, by the devices of the first replica."""

    def __init__(self, program: StepProgram, devices: Sequence[Device], options: Synchronisation):
        """devices: of the first replica, by part.

        Raises InvalidArgumentError for an operation that requests another device.
        """
        self.program = program
        self.devices = devices
        self.names = [str(device.name) for device in devices]  # of the parts
        self._set = DeviceSet(devices[0], devices[1:])
        self._placer = Placer(self._set, fixed={})
        self._placed = self._placer.place(program.variables)
        variables = [[op for op, there in self._placed.items() if there is device] for device in devices]
        self.layouts = [replica_layout(own, options) for own in variables]
        self.parts = [StepPart(self, part, own) for part, own in enumerate(variables)]
        self._executable: PartedExecutable | None = None

    @property
    def executable(self) -> PartedExecutable:
        """The compiled step, once a part was compiled."""
        if self._executable is None:
            raise InternalError(f"{self.program.update.name} has not been compiled")
        return self._executable

    def compile(
        self, shapes: Sequence[TensorSpec], synchroniser: Synchroniser, replicas: int
    ) -> PartedExecutable:
        """The step and its variants, compiled once, for all parts. Raises as StepProgram.compile."""
        if self._executable is None:
            self._executable = self._compile(shapes, synchroniser, replicas)
        return self._executable

    def _compile(
        self, shapes: Sequence[TensorSpec], synchroniser: Synchroniser, replicas: int
    ) -> PartedExecutable:
        program, parts = self.program, []
        for name, device, layout in zip(self.names, self.devices, self.layouts, strict=True):
            rewriting = partial(synchroniser.rewrite, layout=layout, replicas=replicas)
            parts.append(PartSpec(name, layout, backend_for(device), rewriting))
        feeds, operations = program.feeds(shapes), [program.update, *program.others]

        def compiled(found: Divided | None) -> PartedExecutable:
            return compile_parts(
                [*program.fetches, *(operations if found is None else found.targets)],
                feeds if found is None else found.inputs,
                lambda op: str(self._placer.place([op])[op].name),
                parts,
                guard=program.loss,
                replicas=replicas,
                within=None if found is None else found.division.planned,
                copied=() if found is None else found.division.crossing,
            )

        executable = planned_or(
            program.mode,
            partial(compiled, None),
            lambda error: compile_divided_parts(
                program.fetches,
                operations,
                feeds,
                self._set,
                PartVariables(self._placed, dict(zip(self.names, self.layouts, strict=True)), {}),
                compiled,
                program.shared,
                error,
            ),
        )
        if program.loss is not None:
            part, index = executable.fetches[0]
            if shape := list(executable.parts[part].fetches[index].shape):
                raise InvalidArgumentError(
                    f"the loss {program.loss.name} must be a scalar, its shape is {shape}"
                )
        return executable


class StepPart:
    """One part of a step, which is compiled together with the others."""

    def __init__(self, step: PartedStep, number: int, variables: Sequence[Operation]):
        self._step, self._number, self.variables = step, number, variables

    @property
    def definitions(self) -> frozenset[OpDef]:
        """The ops of all parts."""
        return self._step.program.definitions

    @property
    def exchange_ops(self) -> frozenset[OpDef]:
        """The exchanges of all parts."""
        return self._step.program.exchange_ops

    @property
    def exchanges(self) -> list[str]:
        """Each exchange of all parts."""
        return self._step.program.exchanges

    @property
    def hyperparameters(self) -> list[str]:
        """Numbers that the optimisers of all parts read."""
        return self._step.program.hyperparameters

    def compile(
        self,
        shapes: Sequence[TensorSpec],
        layout: VariableLayout,
        backend: Backend,
        synchroniser: Synchroniser,
        replicas: int = 1,
    ) -> Executable:
        """The executable of this part; layout and backend are those of the part."""
        return self._step.compile(shapes, synchroniser, replicas).parts[self._number]


AnyProgram: TypeAlias = StepProgram | StepPart
"""A step of one replica, or of one part of it."""
