"""z on one device: its memory, its sync stream, and what is enqueued there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.averaging.all_reduce import FlatVector
from scheduler.averaging.sma_segments import MOVE, REDUCE, RESTART, central_segment
from scheduler.replicas.memory import planned_nbytes
from tensorbow.compiler import Binding, RegionMemory, VariableLayout
from tensorbow.devices import Device, Event
from tensorbow.kernels import backend_for
from tensorbow.program import Executable, Region
from tensorbow.specs import Array

OWNED = (Region.CENTRAL, Region.CORRECTIONS, Region.GRADIENTS, Region.SLOTS, Region.SLAB)


class CentralModel:
    """The central average model on one device, with its momentum u and the replicas' corrections.

    All of it lives in a partition of its own and is worked on by one stream, ordered by events.
    """

    def __init__(
        self,
        device: Device,
        layout: VariableLayout,
        executable: Executable,
        slots: int,
        mu: float,
        name: str,
        priority: int = 0,
    ):
        """executable: of `central_executable`, for this device's replicas. priority: of its streams.

        Raises ResourceExhaustedError; nothing stays open then.
        """
        self.device = device
        self.layout = layout
        self.slots = slots
        self._stride = layout.region_nbytes[Region.WEIGHTS]
        self._aggregates = bool(executable.region_nbytes.get(Region.GRADIENTS))
        blocks = [*self.blocks(executable), *backend_for(device).workspaces(device)]
        self.group = device.stream_group(
            f"{name} z", planned_nbytes=planned_nbytes(blocks), priority=priority
        )
        try:
            self._memory = RegionMemory(self.group, f"{name} z")
            for region in OWNED:
                nbytes = executable.region_nbytes.get(region, 0)
                base = self._memory.allocate(region, nbytes)
                device.clear(base, nbytes)
            self._binding = Binding(executable, self.group, self._memory.bases, ring=1, owner=f"{name} z")
        except BaseException:
            self.group.close()
            raise
        self._binding.write({}, {"mu": mu})

    @staticmethod
    def blocks(executable: Executable) -> list[int]:
        """Sizes of what one allocates, in bytes, in order: for the dry run of `scheduler.replicas.memory`."""
        owned = [executable.region_nbytes.get(region, 0) for region in OWNED]
        return [*owned, *Binding.blocks(executable, OWNED, ring=1)]

    @property
    def executable(self) -> Executable:
        """Its work."""
        return self._binding.executable

    @property
    def bases(self) -> dict[Region, int]:
        """The base addresses that z's own work is bound to."""
        return self._binding.bases

    def bases_for(self, replica: int) -> dict[Region, int]:
        """Base addresses that the replica of that number on this device is bound to."""
        bases = self._memory.bases
        result = {
            Region.CENTRAL: bases[Region.CENTRAL],
            Region.CORRECTIONS: bases[Region.CORRECTIONS] + replica * self.slots * self._stride,
        }
        if self._aggregates:
            result[Region.GRADIENTS] = bases[Region.GRADIENTS] + replica * self._stride
        return result

    def vectors(self) -> list[FlatVector]:
        """The device's sum of corrections, for the all-reduce."""
        base = self._memory.bases[Region.SLAB]
        return [
            FlatVector(self.device, base + ref.offset, ref.shape[0], ref.dtype)
            for ref in self.layout.flat(Region.WEIGHTS)
            if ref.dtype.is_floating
        ]

    def reduce(self, slot: int, finished: Sequence[Event]) -> Event:
        """Enqueues the sum over this device's replicas, after their tasks."""
        for event in finished:
            self.group.compute.wait(event)
        return self._enqueue(central_segment(slot, REDUCE))

    def move(self, slot: int, reduced: Event | None) -> Event:
        """Enqueues the update of z, after the sum over devices if there are several."""
        if reduced is not None:
            self.group.compute.wait(reduced)
        return self._enqueue(central_segment(slot, MOVE))

    def sum_gradients(self, computed: Sequence[Event]) -> Event:
        """Enqueues the sum of this device's gradients, after they are computed."""
        for event in computed:
            self.group.compute.wait(event)
        return self._enqueue(central_segment(self.slots, 0))

    def mean_gradient(self, reduced: Event | None) -> Event:
        """Enqueues the division, after the sum over devices if there are several."""
        if reduced is not None:
            self.group.compute.wait(reduced)
        return self._enqueue(central_segment(self.slots, 0) + 1)

    def restart(self, slot: int, finished: Sequence[Event]) -> Event:
        """Enqueues u = 0, and z in all slots, after tasks that touch z themselves."""
        for event in finished:
            self.group.compute.wait(event)
        return self._enqueue(central_segment(slot, RESTART))

    def _enqueue(self, segment: int) -> Event:
        plan = self._binding.plan
        reads, writes = plan.accesses(segment)
        label = plan.executable.segments[segment].name
        self.group.compute.enqueue(lambda: plan.launch(segment), label=label, reads=reads, writes=writes)
        return self.group.compute.record()

    # Values, while nothing runs -----------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The variables that are averaged."""
        return [name for name, ref in self.layout.refs().items() if ref.region is Region.WEIGHTS]

    def weights(self, slot: int) -> dict[str, Array]:
        """z by variable name, copied from a slot."""
        return {name: self._read(name, Region.CENTRAL, slot) for name in self.names}

    def velocity(self) -> dict[str, Array]:
        """u by variable name, copied."""
        return {name: self._read(name, Region.SLOTS) for name in self.names}

    def write_weights(self, slot: int, values: Mapping[str, Array]) -> None:
        """Sets variables of z in a slot."""
        for name, value in values.items():
            self.device.write(self._address(name, Region.CENTRAL, slot), value)

    def write_velocity(self, values: Mapping[str, Array]) -> None:
        """Sets u of variables."""
        for name, value in values.items():
            self.device.write(self._address(name, Region.SLOTS), value)

    def fill(self, values: Mapping[str, Array]) -> None:
        """Sets z in all slots, and u = 0."""
        for slot in range(self.slots):
            self.write_weights(slot, {name: values[name] for name in self.names})
        for name in self.names:
            self.device.clear(self._address(name, Region.SLOTS), self.layout.ref(name).nbytes)

    def _address(self, name: str, region: Region, slot: int = 0) -> int:
        return self._memory.bases[region] + slot * self._stride + self.layout.ref(name).offset

    def _read(self, name: str, region: Region, slot: int = 0) -> Array:
        ref = self.layout.ref(name)
        return self.device.read(self._address(name, region, slot), ref.shape, ref.dtype.as_numpy_dtype)

    def close(self) -> None:
        """Closes the stream and gives the memory back."""
        self.group.close()
        self._binding.close()
        self._memory.free()
