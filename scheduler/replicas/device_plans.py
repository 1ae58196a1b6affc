"""Compiled steps of one device and the memory they need, known before anything is allocated."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from scheduler.averaging.gradient_mean import with_gradient_sum
from scheduler.averaging.sma_segments import central_executable
from scheduler.averaging.synchronisation import Synchronisation
from scheduler.replicas.central import CentralModel
from scheduler.replicas.memory import Blocks, count_that_fits, require_room
from scheduler.replicas.replica import Replica
from scheduler.replicas.step_program import StepProgram
from tensorbow.compiler import VariableLayout
from tensorbow.devices import Device
from tensorbow.kernels import backend_for
from tensorbow.program import Executable, Region
from tensorbow.specs import TensorSpec

Compiled = dict[tuple[Hashable, ...], tuple[StepProgram, Executable]]
"""Steps that are compiled already, by program, inputs, kind of device and way of being kept together."""


MOST_STEPS = 64  # of a launch, where their number is found while training


def most_steps(steps_per_launch: int | None) -> int:
    """For how many steps of a launch there is to be room; None: their number is found while training."""
    return MOST_STEPS if steps_per_launch is None else steps_per_launch


class DevicePlans:
    """The plans of a device that is one of several."""

    def __init__(
        self,
        program: StepProgram,
        specs: Sequence[TensorSpec],
        device: Device,
        options: Synchronisation,
        replicas: int,
        results: int,
        layout: VariableLayout | None = None,
        compiled: Compiled | None = None,
    ):
        """replicas: on all devices; it matters only whether that is one, which needs no z, or more.

        layout: of the replicas' variables, by default of all that the program's graph has. compiled: where
        steps are looked for, and put.
        """
        self.device = device
        self._program, self._specs, self._results = program, specs, results
        self._averages, self._aggregates = options.averages(replicas), options.aggregates(replicas)
        self._slots = options.staleness + 1 if self._averages else 0
        self._backend = backend_for(device)
        self._layout = layout or VariableLayout.of_graph(program.graph)
        self._has_momentum = bool(options.mu)
        self._clear_velocity = options.clear_velocity
        self._apart = options.first_come
        self._compiled = {} if compiled is None else compiled
        self.step = self.compile(program, specs)

    def with_count(self, options: Synchronisation, replicas: int) -> DevicePlans:
        """The plans of this device for so many replicas on all."""
        return DevicePlans(
            self._program,
            self._specs,
            self.device,
            options,
            replicas,
            self._results,
            self._layout,
            self._compiled,
        )

    def compile(self, program: StepProgram, specs: Sequence[TensorSpec]) -> Executable:
        """A step over these variables, compiled or found among those that are."""
        how = self._slots, self._clear_velocity, self._aggregates, self._apart
        key = (id(program), *specs, self.device.kind, *how)
        if key not in self._compiled:
            executable = program.compile(specs, self._layout, self._backend, *how)
            self._compiled[key] = program, executable  # alive, so that its id is not another's
        return self._compiled[key][1]

    def central(self, on_device: int, replicas: int) -> Executable | None:
        """z's work for so many replicas on this device and on all; None where there is no z."""
        if not (self._averages or self._aggregates):
            return None
        executable = central_executable(
            self._layout, self._backend, on_device, self._slots, self._has_momentum
        )
        if self._aggregates:
            executable = with_gradient_sum(executable, self._layout, self._backend, on_device, replicas)
        return executable

    @property
    def replica_blocks(self) -> Blocks:
        """Bytes of each allocation of a replica."""
        shared: tuple[Region, ...] = ()
        if self._averages or self._aggregates:
            shared = (Region.CENTRAL, Region.CORRECTIONS)
        if self._aggregates:
            shared = (*shared, Region.GRADIENTS)
        blocks = Replica.blocks(self.step, self._layout, shared, self._results)
        return [*blocks, *self._backend.workspaces(self.device)]

    def central_blocks(self, on_device: int, replicas: int) -> Blocks:
        """Bytes of each allocation of z for so many replicas on this device and on all."""
        executable = self.central(on_device, replicas)
        if executable is None:
            return []
        return [*CentralModel.blocks(executable), *self._backend.workspaces(self.device)]

    def most_that_fit(self, most: int, devices: int, regained_nbytes: int = 0) -> int:
        """How many replicas, up to `most`, fit on this device of several; 0 if not even one does.

        regained_nbytes: what will be free beside what is free.
        """
        return count_that_fits(
            self.device,
            most,
            self.replica_blocks,
            lambda count: self.central_blocks(count, count * devices),
            regained_nbytes,
        )

    def require_room(self, on_device: int, replicas: int, regained_nbytes: int = 0) -> None:
        """Raises ResourceExhaustedError when not so many fit on this device, of so many on all."""
        require_room(
            self.device,
            on_device,
            self.replica_blocks,
            lambda count: self.central_blocks(count, replicas),
            regained_nbytes,
        )
