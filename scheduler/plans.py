"""What one device compiles for its replicas, and the memory it takes, before anything is allocated."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.averaging import central_executable
from scheduler.central import CentralModel
from scheduler.gradient_mean import with_gradient_sum
from scheduler.memory import Blocks, count_that_fits
from scheduler.options import Synchronisation
from scheduler.replica import Replica
from scheduler.step import StepProgram
from tensorbow.compiler import VariableLayout
from tensorbow.devices import Device
from tensorbow.kernels import Executable, Region, backend_for
from tensorbow.specs import TensorSpec


class DevicePlans:
    """The plans of a device that is one of several, with the same number of replicas on each."""

    def __init__(
        self,
        program: StepProgram,
        specs: Sequence[TensorSpec],
        device: Device,
        options: Synchronisation,
        replicas: int,
        launch_ahead: int,
    ):
        """replicas: on all devices; it matters only whether that is one, which needs no z, or more."""
        self.device = device
        self._averages, self._aggregates = options.averages(replicas), options.aggregates(replicas)
        self._slots = options.staleness + 1 if self._averages else 0
        self._backend = backend_for(device)
        self._layout = VariableLayout.of_graph(program.graph)
        self._ring = launch_ahead + 1
        self.step: Executable = program.compile(
            specs,
            self._layout,
            self._backend,
            self._slots,
            options.clear_velocity,
            self._aggregates,
        )

    def central(self, on_device: int, replicas: int) -> Executable | None:
        """z's work for so many replicas on this device and on all; None where there is no z."""
        if not (self._averages or self._aggregates):
            return None
        executable = central_executable(self._layout, self._backend, on_device, self._slots)
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
        blocks = Replica.blocks(self.step, self._layout, shared, self._ring)
        return [*blocks, *self._backend.workspaces(self.device)]

    def central_blocks(self, on_device: int, replicas: int) -> Blocks:
        """Bytes of each allocation of z for so many replicas on this device and on all."""
        executable = self.central(on_device, replicas)
        if executable is None:
            return []
        return [*CentralModel.blocks(executable), *self._backend.workspaces(self.device)]

    def most_that_fit(self, most: int, devices: int) -> int:
        """How many replicas, up to `most`, fit on this device of several; 0 if not even one does."""
        return count_that_fits(
            self.device, most, self.replica_blocks, lambda count: self.central_blocks(count, count * devices)
        )
