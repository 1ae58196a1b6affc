"""Regions of the dynamic part of a replica that is on one device: bound plans on the replica's stream."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from scheduler.replicas.dynamic.executor_part import COMPILED, ExecutorPart
from tensorbow.compiler import Binding, RegionMemory
from tensorbow.devices import StreamGroup
from tensorbow.executor import RegionCall, StaticRegion
from tensorbow.graph import Tensor
from tensorbow.program import Executable, Ref, Region
from tensorbow.runtime.run_stop import RunStop
from tensorbow.specs import Array

VARIABLES = (Region.WEIGHTS, Region.SLOTS, Region.STATISTICS)
AGAIN = 1 << 40  # added to the counter of random ops for each further run of a region in a step


@dataclass(eq=False)
class RegionState:
    """Scalars of the regions of one step. stop: of the step. counter: of its random ops."""

    stop: RunStop
    scalars: Mapping[str, Any]
    counter: int
    _runs: dict[StaticRegion, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # guards the field above

    def of(self, region: StaticRegion, keys: Sequence[str], counters: Sequence[str]) -> dict[str, Any]:
        """The scalars of a run of a region that reads these; counters: its random ops."""
        state = {key: self.scalars[key] for key in keys if key in self.scalars}
        if counters:
            with self._lock:
                again = self._runs[region] = self._runs.get(region, -1) + 1
            state |= {f"counter:{name}": self.counter + again * AGAIN for name in counters}
        return state


class RegionRunner(Protocol):
    """Runs the regions of a replica's dynamic part, with the replica's variables."""

    def begin(self) -> None:
        """Prepares for a step, whose regions read the values that are on devices now."""

    def run(self, state: RegionState, region: StaticRegion, arrays: Sequence[Array]) -> Sequence[Array]:
        """The outputs of a region. Raises NeedsDynamicModeError for one that is not one plan."""

    def leave(self, tensor: Tensor, gradient: Ref, value: Array) -> None:
        """Leaves a gradient where the planned part reads it."""

    def move_to(self, bases: Mapping[Region, int]) -> None:
        """Takes other base addresses of the replica, while nothing runs."""

    def close(self) -> None:
        """Gives the memory back, while nothing runs; idempotent."""


class ReplicaRegions:
    """See RegionRunner; regions have memory of the replica's stream group."""

    def __init__(
        self, part: ExecutorPart[Executable], group: StreamGroup, bases: Mapping[Region, int], owner: str
    ):
        """bases: base addresses of the replica's variables and gradients."""
        self._part, self._group, self._owner = part, group, owner
        self._bases = {region: bases[region] for region in (*VARIABLES, Region.GRADIENTS)}
        self._memory = RegionMemory(group, f"{owner} between regions")
        self._on_cpu = group.device.kind == "cpu"
        self._calls: dict[object, RegionCall] = {}  # by region, shapes of its inputs, and which lie in homes
        self._homes: dict[Tensor, Array] = {}  # arrays of what lies in its home, where the host addresses it
        self._idle: dict[Executable, list[Binding]] = {}  # bound regions that no run uses
        self._lock = threading.Lock()  # guards all fields here, and the group's allocator

    def begin(self) -> None:
        """Makes the arrays of values that have homes, when the first step runs and after `move_to`."""
        part, device = self._part, self._group.device
        if not self._on_cpu or len(self._homes) == len(part.homes):
            return
        if Region.HANDED not in self._bases:
            with self._lock:
                self._bases[Region.HANDED] = self._memory.allocate(Region.HANDED, part.handed_nbytes)
        self._homes = {
            tensor: device.view(self._bases[ref.region] + ref.offset, ref.shape, ref.dtype.as_numpy_dtype)
            for tensor, ref in part.homes.items()
        }

    def leave(self, tensor: Tensor, gradient: Ref, value: Array) -> None:
        """See RegionRunner."""
        if value is not self._homes.get(tensor):
            self._group.device.write(self._bases[Region.GRADIENTS] + gradient.offset, value)

    def move_to(self, bases: Mapping[Region, int]) -> None:
        """See RegionRunner."""
        self._bases[Region.GRADIENTS] = bases[Region.GRADIENTS]
        self._homes = {}
        self._unbind()

    def run(self, state: RegionState, region: StaticRegion, arrays: Sequence[Array]) -> Sequence[Array]:
        """See RegionRunner."""
        homes = self._homes
        in_place = tuple(
            [homes.get(tensor) is array for tensor, array in zip(region.inputs, arrays, strict=True)]
        )
        key = (region, region.key(arrays), in_place)
        call = self._calls.get(key)
        if call is None:
            made = self._new_call(region, arrays, in_place)
            with self._lock:
                while len(self._calls) >= COMPILED:
                    del self._calls[next(iter(self._calls))]
                call = self._calls.setdefault(key, made)
        executable = call.executable
        scalars = state.of(region, call.state, executable.counters)
        binding = self._bound(executable)
        try:
            with state.stop.running(binding.plan) if executable.may_not_end else nullcontext():
                binding.write({name: arrays[index] for index, name in call.inputs}, scalars)
                return call.launch(binding.plan) if self._on_cpu else self._copied(binding)
        finally:
            self._give(binding)

    def _new_call(
        self, region: StaticRegion, arrays: Sequence[Array], in_place: Sequence[bool]
    ) -> RegionCall:
        """A call of a region for inputs of these shapes. in_place: of each whether it lies in its home."""
        lie = frozenset(tensor for tensor, is_home in zip(region.inputs, in_place, strict=True) if is_home)
        executable = self._part.compiled(region, arrays, lie if self._on_cpu else None)
        homes: list[tuple[Array, bool] | None] = []
        for tensor, source in zip(region.outputs, executable.fetch_sources, strict=True):
            home, ref = self._homes.get(tensor), self._part.homes.get(tensor)
            if home is None or ref is None or home.shape != source.shape:
                homes.append(None)
            else:
                homes.append((home, (ref.region, ref.offset) == (source.region, source.offset)))
        written = [
            (index, tensor.name)
            for index, tensor in enumerate(region.inputs)
            if tensor not in lie and tensor.name not in region.baked_names
        ]
        return RegionCall(executable, written, homes)

    def _copied(self, binding: Binding) -> list[Array]:
        """Launches a region; copies of its results."""
        for segment in range(len(binding.executable.segments)):
            binding.plan.launch(segment)
        if self._group.device.kind == "gpu":
            self._group.compute.synchronize()
        return [view.copy() for view in binding.plan.fetch_arrays(0)]

    def _bound(self, executable: Executable) -> Binding:
        with self._lock:
            idle = self._idle.get(executable)
            if idle:
                return idle.pop()
            while len(self._idle) >= COMPILED:
                for each in self._idle.pop(next(iter(self._idle))):
                    each.close()
            owner = f"{self._owner} region {len(self._idle)}"
            return Binding(executable, self._group, self._bases, ring=0 if self._on_cpu else 1, owner=owner)

    def _give(self, binding: Binding) -> None:
        with self._lock:
            self._idle.setdefault(binding.executable, []).append(binding)

    def close(self) -> None:
        """See RegionRunner."""
        self._unbind()
        self._homes = {}
        self._memory.free()

    def _unbind(self) -> None:
        self._calls.clear()
        with self._lock:
            bound, self._idle = self._idle, {}
        for bindings in bound.values():
            for binding in bindings:
                binding.close()
