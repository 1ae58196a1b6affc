"""z on one device: its memory, its stream, and what the device does once for all of its replicas."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from scheduler.averaging.synchronisers import Synchroniser, central_ref
from scheduler.averaging.transport import DeviceExchange, FlatVector
from scheduler.replicas.memory import planned_nbytes
from tensorbow.compiler import AVERAGING_STATE, Binding, RegionMemory, VariableLayout
from tensorbow.devices import Access, Device, Event
from tensorbow.errors import InternalError, TensorBowError
from tensorbow.kernels import backend_for
from tensorbow.ops.exchanges import AllGather, AllSum, Broadcast
from tensorbow.program import BoundPlan, Executable, Group, Ref, Region
from tensorbow.specs import Array

OF_STEPS = (Region.EXCHANGE, Region.GRADIENTS, Region.RESULTS)  # not needed after a step


class CentralModel:
    """z on one device, its momentum u and moving average, what replicas hand to exchanges, and the results.

    All of it lies in a partition of its own. One stream runs the segments of steps that run once per device.
    """

    def __init__(
        self,
        device: Device,
        layout: VariableLayout,
        number: int,
        executable: Executable,
        replicas: range,
        synchroniser: Synchroniser,
        name: str,
        priority: int = 0,
    ):
        """number, executable: the first step to bind. replicas: the numbers of this device's replicas.
        priority: of its streams.

        Raises ResourceExhaustedError; nothing stays open then.
        """
        self.device, self.layout, self.z_copies = device, layout, synchroniser.z_copies
        self._has_momentum = synchroniser.has_momentum  # whether mu is not 0: without, there is no u
        self._average = None if synchroniser.ema is None else synchroniser.copies - 1  # of CENTRAL's vectors
        self._replicas, self._owner = replicas, f"{name} z"
        self._stride = layout.region_nbytes[Region.WEIGHTS]
        blocks = [
            *self.blocks(executable, layout, synchroniser, len(replicas)),
            *backend_for(device).workspaces(device),
        ]
        self.group = device.stream_group(
            self._owner, planned_nbytes=planned_nbytes(blocks), priority=priority
        )
        self._bound: dict[int, tuple[Executable, Binding]] = {}  # by number of the step
        self._blocks: dict[Region, list[tuple[int, RegionMemory]]] = {region: [] for region in OF_STEPS}
        try:
            self._memory = RegionMemory(self.group, self._owner)
            nbytes = self._central_nbytes(layout, synchroniser)
            address = self._memory.allocate(Region.CENTRAL, nbytes)  # the first one: it begins a page
            self.pages = address, nbytes  # that hold all copies of z, u and the moving average
            device.clear(address, nbytes)
            self.add(number, executable)
        except BaseException:
            self.group.close()
            raise
        self.select(number)

    @staticmethod
    def _central_nbytes(layout: VariableLayout, synchroniser: Synchroniser) -> int:
        """Bytes of the copies of z, of u, if z has momentum, and of its moving average, if there is one.

        Whole pages: several workers may share them.
        """
        nbytes = layout.region_nbytes[Region.WEIGHTS] * synchroniser.copies
        return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE

    @classmethod
    def blocks(
        cls, executable: Executable, layout: VariableLayout, synchroniser: Synchroniser, replicas: int
    ) -> list[int]:
        """Sizes of what one allocates, in bytes, in order: for the dry run of `scheduler.replicas.memory`."""
        work = executable.for_device(0, replicas)
        owned = [work.region_nbytes.get(region, 0) for region in OF_STEPS]
        own = Binding.blocks(work, (Region.CENTRAL, *OF_STEPS), ring=1)
        return [cls._central_nbytes(layout, synchroniser), *owned, *own]

    def add(self, number: int, executable: Executable) -> None:
        """Binds what a further step runs once per device, for `select`. Raises ResourceExhaustedError."""
        work = executable.for_device(self._replicas.start, len(self._replicas))
        bases = self._memory.bases | {
            region: self._block(region, work.region_nbytes.get(region, 0)) for region in OF_STEPS
        }
        binding = Binding(work, self.group, bases, ring=1, owner=self._owner)
        if self._bound:
            _, other = next(iter(self._bound.values()))
            scalars = other.scalars
            binding.write({}, {key: scalars[key] for key in AVERAGING_STATE if key in scalars})
        self._bound[number] = executable, binding

    def _block(self, region: Region, nbytes: int) -> int:
        """A block that is large enough: steps do not run at the same time, so they share it."""
        for size, memory in self._blocks[region]:
            if size >= nbytes:
                return memory.bases[region]
        memory = RegionMemory(self.group, self._owner)
        address = memory.allocate(region, nbytes)
        self.device.clear(address, nbytes)
        self._blocks[region].append((nbytes, memory))
        return address

    def forget(self, number: int) -> None:
        """Unbinds the steps from a number on."""
        for each in [each for each in self._bound if each >= number]:
            self._bound.pop(each)[1].close()

    def select(self, number: int) -> None:
        """Selects a bound step for `launch`, while nothing is in flight. Others have nothing to do here."""
        if number not in self._bound:
            return
        self.executable, self._binding = self._bound[number]
        self._labels = [f"{segment.name} of {self.device.name.short}" for segment in self.executable.segments]

    def set_state(self, state: Mapping[str, float]) -> None:
        """Sets scalars of all steps; while nothing runs."""
        for _, binding in self._bound.values():
            binding.write({}, state)

    @property
    def plan(self) -> BoundPlan:
        """The bound plan of what the selected step runs once on this device."""
        return self._binding.plan

    @property
    def bases(self) -> dict[Region, int]:
        """The base addresses that z's own work is bound to."""
        return self._binding.bases

    def bases_for(self, number: int, replica: int) -> dict[Region, int]:
        """Base addresses to which a step binds the replica of that number on this device."""
        executable, binding = self._bound[number]
        result = {region: binding.bases[region] for region in (Region.CENTRAL, Region.RESULTS)}
        for region in executable.exchange_inputs:
            result[region] = binding.bases[region] + replica * executable.region_nbytes[region]
        return result

    def crossings(self) -> list[list[tuple[FlatVector, range | None]]]:
        """Results of the selected step's exchanges, and the range of their elements that this device has.

        None for AllSum: every device contributes to all elements.
        """
        return [
            [
                (self._vector(group.outputs[0]), self._own_elements(group))
                for group in self._binding.executable.segments[number].groups
            ]
            for number in self.executable.exchange_segments
        ]

    def _vector(self, ref: Ref) -> FlatVector:
        address = self.bases[ref.region] + ref.offset
        return FlatVector(self.device, address, math.prod(ref.shape), ref.dtype)

    def _own_elements(self, group: Group) -> range | None:
        size = math.prod(group.outputs[0].shape)
        if group.definition is AllSum:
            return None
        if group.definition is AllGather:
            row = size // group.attrs["replicas"]
            return range(self._replicas.start * row, self._replicas.stop * row)
        if group.definition is Broadcast:
            return range(size if group.attrs["source"] in self._replicas else 0)
        raise InternalError(f"{group.definition.name} {group.name}: no transport knows how to carry it")

    def withhold(self, replicas: Sequence[int]) -> None:
        """Enqueues zeros in place of what some of the device's replicas hand to exchanges.

        replicas: by their index on this device.
        """
        for region in self.executable.exchange_inputs:
            nbytes = self.executable.region_nbytes[region]
            for replica in replicas:
                address = self.bases[region] + replica * nbytes
                clear = partial(self.device.clear, address, nbytes)
                written = [Access(address, nbytes)]
                self.group.compute.enqueue(clear, label="nothing handed in", writes=written)

    def launch(self, segment: int, round: int, after: Sequence[Event]) -> Event:
        """Enqueues a segment of a round, after some events."""
        for event in after:
            self.group.compute.wait(event)
        plan = self.plan
        reads, writes = plan.accesses(segment)
        run = partial(self._run, plan, segment, round)
        self.group.compute.enqueue(run, label=self._labels[segment], reads=reads, writes=writes)
        return self.group.compute.record()

    def _run(self, plan: BoundPlan, segment: int, round: int) -> None:
        """Runs a segment; an error says at which step it was."""
        try:
            plan.launch(segment)
        except TensorBowError as error:
            where = f"all replicas of {self.device.name.short}"
            raise type(error)(f"{where} at step {round}: {error}") from error

    # Values, while nothing runs -----------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The variables that are averaged."""
        return [name for name, ref in self.layout.refs().items() if ref.region is Region.WEIGHTS]

    def weights(self, copy: int) -> dict[str, Array]:
        """z by variable name, from a copy of its memory."""
        return {name: self._read(name, copy) for name in self.names}

    def velocity(self) -> dict[str, Array]:
        """u by variable name, copied; zeros where z has no momentum."""
        if not self._has_momentum:
            refs = self.layout.refs()
            return {name: np.zeros(refs[name].shape, refs[name].dtype.as_numpy_dtype) for name in self.names}
        return {name: self._read(name, self.z_copies) for name in self.names}

    def write_weights(self, copy: int, values: Mapping[str, Array]) -> None:
        """Sets variables of a copy of z."""
        for name, value in values.items():
            self.device.write(self._address(name, copy), value)

    def write_velocity(self, values: Mapping[str, Array]) -> None:
        """Sets u of variables; ignored where z has no momentum, for there it is 0."""
        if self._has_momentum:
            self.write_weights(self.z_copies, values)

    def average(self) -> dict[str, Array]:
        """The moving average of z by variable name, copied; empty where there is none."""
        return {} if self._average is None else self.weights(self._average)

    def write_average(self, values: Mapping[str, Array]) -> None:
        """Sets variables of the moving average, if there is one."""
        if self._average is not None:
            self.write_weights(self._average, values)

    def fill(self, values: Mapping[str, Array]) -> None:
        """Sets all copies of z and its moving average, and u = 0."""
        for copy in range(self.z_copies):
            self.write_weights(copy, {name: values[name] for name in self.names})
        self.write_average({name: values[name] for name in self.names})
        for name in self.names if self._has_momentum else ():
            self.device.clear(self._address(name, self.z_copies), self.layout.ref(name).nbytes)

    def _address(self, name: str, copy: int) -> int:
        """Address of a variable in a copy of z; u lies behind the last copy."""
        ref = central_ref(self.layout.ref(name), copy * self._stride)
        return self._memory.bases[ref.region] + ref.offset

    def _read(self, name: str, copy: int) -> Array:
        ref = self.layout.ref(name)
        return self.device.read(self._address(name, copy), ref.shape, ref.dtype.as_numpy_dtype)

    def close(self) -> None:
        """Closes the stream and gives the memory back."""
        self.group.close()
        self.forget(0)
        self._memory.free()
        for blocks in self._blocks.values():
            while blocks:
                blocks.pop()[1].free()


def device_exchanges(central: Sequence[CentralModel]) -> list[list[DeviceExchange]]:
    """Exchanges between devices, by exchange segment of the step that they have selected."""
    result = []
    for exchange in zip(*(model.crossings() for model in central), strict=True):
        crossings = []
        for column in zip(*exchange, strict=True):
            owned = [elements for _, elements in column if elements is not None]
            crossings.append(DeviceExchange([vector for vector, _ in column], owned or None))
        result.append(crossings)
    return result
