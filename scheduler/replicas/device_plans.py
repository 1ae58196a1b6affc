"""Compiled steps of one device and the memory they need, known before anything is allocated."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from allocators import format_nbytes
from scheduler.averaging.outer_progress import replica_layout
from scheduler.averaging.synchronisation import Synchronisation
from scheduler.averaging.synchronisers import Synchroniser
from scheduler.replicas.central import CentralModel
from scheduler.replicas.dynamic.replica_regions import VARIABLES
from scheduler.replicas.memory import Blocks, count_that_fits, planned_nbytes, remedy_for, require_room
from scheduler.replicas.parted_step import AnyProgram
from scheduler.replicas.replica import Replica
from tensorbow.compiler import VariableLayout
from tensorbow.devices import Device
from tensorbow.devices.host_memory import available_memory_nbytes
from tensorbow.errors import ResourceExhaustedError
from tensorbow.kernels import backend_for
from tensorbow.ops.exchanges import AllSum
from tensorbow.program import Executable
from tensorbow.specs import TensorSpec

Compiled = dict[tuple[Hashable, ...], tuple[AnyProgram, Executable]]
"""Steps that are compiled already, by program, inputs, kind of device and way of being kept together."""


MOST_STEPS = 64  # of a launch, where their number is found while training


def results_kept(launch_ahead: int, steps_per_launch: int) -> int:
    """Number of each replica's results kept in memory: of launches in flight, and one that is handed on."""
    return (launch_ahead + 1) * steps_per_launch


class DevicePlans:
    """The plans of a device that is one of several."""

    def __init__(
        self,
        program: AnyProgram,
        specs: Sequence[TensorSpec],
        device: Device,
        options: Synchronisation,
        replicas: int,
        results: int,
        layout: VariableLayout | None = None,
        compiled: Compiled | None = None,
    ):
        """replicas: on all devices.

        layout: of the replicas' variables, by default of all that the program's graph has. compiled: where
        steps are looked for, and put.
        """
        self.device = device
        self._program, self._specs, self._results = program, specs, results
        self._replicas, self._synchroniser = replicas, Synchroniser.of(options, replicas)
        self._backend = backend_for(device)
        self._layout = layout or replica_layout(program.variables, options)
        self._compiled = {} if compiled is None else compiled
        self.step = self.compile(program, specs)

    def with_count(
        self, options: Synchronisation, replicas: int, specs: Sequence[TensorSpec] | None = None
    ) -> DevicePlans:
        """Plans of this device for another number of replicas. specs: of the inputs, by default the same."""
        return DevicePlans(
            self._program,
            self._specs if specs is None else specs,
            self.device,
            options,
            replicas,
            self._results,
            self._layout,
            self._compiled,
        )

    def compile(self, program: AnyProgram, specs: Sequence[TensorSpec]) -> Executable:
        """A step over these variables, newly compiled or found among the compiled ones."""
        in_shapes = program.exchange_ops - {AllSum} or any(
            map(self._synchroniser.averages_rows, program.definitions)
        )
        replicas = self._replicas if in_shapes else 1
        key = (id(program), *specs, self._backend, self._synchroniser, replicas)
        if key not in self._compiled:
            executable = program.compile(specs, self._layout, self._backend, self._synchroniser, replicas)
            self._compiled[key] = program, executable  # alive, so that its id is not another's
        return self._compiled[key][1]

    @property
    def replica_blocks(self) -> Blocks:
        """Bytes of each allocation of a replica."""
        blocks = Replica.blocks(self.step, self._layout, self._results)
        return [*blocks, *self._backend.workspaces(self.device)]

    @property
    def variables_nbytes(self) -> int:
        """Bytes of a replica's variables, slots included."""
        return sum(self._layout.region_nbytes[region] for region in VARIABLES)

    def central_blocks(self, on_device: int) -> Blocks:
        """Bytes of each allocation of z for a number of replicas here; none where replicas never meet."""
        if not self.step.shares_memory:
            return []
        blocks = CentralModel.blocks(self.step, self._layout, self._synchroniser, on_device)
        return [*blocks, *self._backend.workspaces(self.device)]

    def most_that_fit(self, most: int, regained_nbytes: int = 0) -> int:
        """Number of replicas, up to `most`, that fit on this device; 0 if none does.

        regained_nbytes: what will be free beside what is free.
        """
        return count_that_fits(
            self.device,
            most,
            self.replica_blocks,
            self.central_blocks,
            regained_nbytes,
        )

    def require_room(self, on_device: int, regained_nbytes: int = 0) -> None:
        """Raises ResourceExhaustedError if the replicas do not fit on this device."""
        require_room(
            self.device,
            on_device,
            self.replica_blocks,
            self.central_blocks,
            self.variables_nbytes,
            regained_nbytes,
        )

    def nbytes(self, on_device: int) -> int:
        """Bytes of a number of replicas on this device, z included."""
        return on_device * planned_nbytes(self.replica_blocks) + planned_nbytes(
            self.central_blocks(on_device)
        )


def require_host_memory(plans: Sequence[DevicePlans], per_device: Sequence[int]) -> None:
    """Raises ResourceExhaustedError when the replicas of all CPU devices need more memory than is free.

    Virtual CPU devices share the machine's memory, which is the limit of each of them.
    """
    here = [(each, count) for each, count in zip(plans, per_device, strict=True) if each.device.kind == "cpu"]
    nbytes, available = sum(each.nbytes(count) for each, count in here), available_memory_nbytes()
    if available is not None and nbytes > available:
        variables = sum(
            each.variables_nbytes * count + sum(each.central_blocks(count)) for each, count in here
        )
        raise ResourceExhaustedError(
            f"{sum(count for _, count in here)} replicas on {len(here)} CPU devices need "
            f"{format_nbytes(nbytes)}, of which {format_nbytes(available)} are free on this machine; "
            f"{remedy_for('fewer', variables, available)}"
        )
