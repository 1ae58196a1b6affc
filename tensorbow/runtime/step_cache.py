"""Cache of a session's compiled steps, bound steps and stream groups."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from allocators import Allocation, OutOfMemory
from tensorbow.compiler import Binding, MultiDeviceExecutable, Scratch
from tensorbow.compiler.partition import Send
from tensorbow.compiler.placement import NodeCost
from tensorbow.devices import Device, DeviceValue, StreamGroup
from tensorbow.errors import TensorBowError
from tensorbow.program import Executable, Region
from tensorbow.runtime.multi_device_step import MultiDeviceStep
from tensorbow.runtime.single_device_step import SingleDeviceStep

CACHED_STEPS = 64  # steps that a session keeps; the least recently used one is dropped first
SHARE_OF_VALUES = 0.5  # of a device's memory, for values between regions
BoundStep: TypeAlias = SingleDeviceStep | MultiDeviceStep


@dataclass(eq=False)
class Step:
    """A compiled step and its idle bound steps.

    layout_version: the session's when the step was compiled; in another version its addresses are wrong.
    costs: of its ops, by name, if they were placed by costs.
    A retired step is out of the cache: bound steps given back to it are closed.
    """

    executable: Executable | MultiDeviceExecutable
    layout_version: int
    idle: list[BoundStep] = field(default_factory=list)
    retired: bool = False
    costs: Mapping[str, NodeCost] = field(default_factory=dict)

    @property
    def parts(self) -> list[Executable]:
        """Its executables."""
        whole = self.executable
        return [whole] if isinstance(whole, Executable) else [*whole.parts.values()]

    def devices(self, home: str) -> dict[str, str]:
        """The device of each node of its kernel calls, by name. home: the session's device."""
        whole = self.executable
        parts = {home: whole} if isinstance(whole, Executable) else whole.parts
        return {
            name: device
            for device, part in parts.items()
            for segment in part.segments
            for group in segment.groups
            for name in group.nodes
            if group.definition is not Send
        }


class Run:
    """A run of a session: the bound step that it holds, given back by `give` and the session's lock.

    An interrupt may come between any two calls of the main thread, so each thing taken is recorded here in
    the same moment.
    """

    __slots__ = ("bound", "step")

    def __init__(self) -> None:
        self.step: Step | None = None
        self.bound: BoundStep | None = None


class StepCache:
    """Compiled steps by key, least recently used dropped first, and a pool of stream groups.

    A bound step belongs to stream groups; only one thread at a time runs on a group, so a failing step
    affects no other. All methods are thread-safe.
    """

    def __init__(self, device: Device, name: str, capacity: int, gpu_fraction: float = 0.0):
        """name: prefix of the stream groups' names. capacity: number of steps.

        gpu_fraction: of a GPU's memory, the most that a stream group takes; 0 for no limit.
        """
        self._gpu_fraction = gpu_fraction
        self._device = device
        self._name = name
        self._capacity = capacity
        self._steps: OrderedDict[Hashable, Step] = OrderedDict()
        self._busy: set[StreamGroup] = set()
        self._scratches: dict[StreamGroup, Scratch] = {}  # shared by the bindings on a group
        self._dropped: deque[tuple[StreamGroup, Allocation, int]] = deque()  # of values that are garbage
        self._values_nbytes: Counter[Device] = Counter()  # of values that stay on devices
        self._lock = threading.RLock()  # guards the fields above, and the groups' allocators
        self.groups: list[StreamGroup] = [self._new_group(device, 0)]

    @property
    def lock(self) -> threading.RLock:
        """The lock to hold while allocating from one of the groups."""
        return self._lock

    def __len__(self) -> int:
        return len(self._steps)

    def get(self, key: Hashable, make: Callable[[], Step]) -> Step:
        """The step of that key; made if missing, while other threads wait."""
        with self._lock:
            step = self._steps.get(key)
            if step is not None:
                self._steps.move_to_end(key)
                return step
            step = self._steps[key] = make()
            while len(self._steps) > self._capacity:
                self._retire(self._steps.popitem(last=False)[1])
            return step

    def take(self, step: Step, bases: Callable[[str], Mapping[Region, int] | None], run: Run) -> BoundStep:
        """A bound step, the run's until `give`. bases: gives the addresses of a device's variables, if any.

        Raises ResourceExhaustedError.
        """
        with self._lock:
            run.step = step
            for bound in step.idle:
                if self._busy.isdisjoint(bound.groups):
                    run.bound = bound
                    self._busy.update(bound.groups)
                    step.idle.remove(bound)
                    return bound
            run.bound = self._bind(step.executable, bases)
            self._busy.update(run.bound.groups)
            return run.bound

    def _bind(
        self,
        executable: Executable | MultiDeviceExecutable,
        bases: Callable[[str], Mapping[Region, int] | None],
    ) -> BoundStep:
        parts: dict[str, Binding] = {}

        def bind(part: Executable, device: Device, owner: str) -> Binding:
            group, shared = self._free_group(device), bases(str(device.name)) or {}
            scratch = self._scratch_for(part, group, shared)
            return Binding(part, group, shared, ring=1, owner=owner, scratch=scratch)

        owner = f"{self._name} step"
        if isinstance(executable, Executable):
            return SingleDeviceStep(bind(executable, self._device, owner), self._name)
        try:
            for name, part in executable.parts.items():
                parts[name] = bind(part, executable.devices[name], f"{owner} {name}")
            return MultiDeviceStep(executable, parts, owner)
        except BaseException:
            for binding in parts.values():
                binding.close()
            raise

    def _scratch_for(
        self, executable: Executable, group: StreamGroup, shared: Mapping[Region, int]
    ) -> Scratch:
        """The scratch block of an idle group; replaces one that is too small, and closes the steps in it."""
        nbytes = Scratch.nbytes_for(executable, shared, ring=1)
        scratch = self._scratches.get(group)
        if scratch is None or scratch.nbytes < nbytes:
            self._drop_scratch(group)
            self._free_dropped()
            group.allocator.trim()  # makes room for the larger block
            scratch = self._scratches[group] = Scratch(group, f"{self._name} steps", nbytes, apart=True)
        return scratch

    def new_value(self, group: StreamGroup, shape: tuple[int, ...], dtype: Any) -> DeviceValue | None:
        """Memory of a group for a value that stays on its device; None if there is none left.

        At most `SHARE_OF_VALUES` of the device: plans that run later need memory, too.
        """
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        with self._lock:
            self._free_dropped()
            taken = self._values_nbytes[group.device] + nbytes
            if taken > SHARE_OF_VALUES * group.device.memory.limit_nbytes:
                return None
            try:
                allocation = group.allocator.allocate(nbytes, owner=f"{self._name} values between regions")
            except OutOfMemory:
                return None
            if allocation is None:
                return None
            self._values_nbytes[group.device] = taken
        dropped = partial(self._dropped.append, (group, allocation, nbytes))
        return DeviceValue(group.device, allocation.address, shape, dtype, dropped)

    def _free_dropped(self) -> None:
        """Frees the blocks of values that are garbage. The caller holds the lock."""
        while self._dropped:
            group, allocation, nbytes = self._dropped.popleft()
            self._values_nbytes[group.device] -= nbytes
            if not group.allocator.closed:
                group.allocator.free(allocation)

    def scratch_nbytes(self, device: Device) -> int:
        """Bytes of the scratch blocks on a device, which are given up where a larger one is needed."""
        with self._lock:
            return sum(s.nbytes for group, s in self._scratches.items() if group.device is device)

    def latest(self) -> list[Step]:
        """The steps, the last used one first."""
        with self._lock:
            return [*reversed(self._steps.values())]

    def _drop_scratches(self) -> None:
        for group in self.groups:
            if group not in self._busy:
                self._drop_scratch(group)

    def _drop_scratch(self, group: StreamGroup) -> None:
        """Frees the scratch block of an idle group and closes the group's bound steps."""
        for step in self._steps.values():
            _close_idle(step, group)
        scratch = self._scratches.pop(group, None)
        if scratch is not None:
            scratch.free()

    def _free_group(self, device: Device) -> StreamGroup:
        for group in self.groups:
            if group.device is device and group not in self._busy:
                return group
        group = self._new_group(device, len(self.groups))
        self.groups.append(group)
        return group

    def _new_group(self, device: Device, number: int) -> StreamGroup:
        limit = None
        if self._gpu_fraction and device.kind == "gpu":
            limit = int(device.memory.limit_nbytes * self._gpu_fraction)
        return device.stream_group(f"{self._name}/{number}", limit)

    def group_of(self, device: Device) -> StreamGroup:
        """The first stream group on a device; it holds the device's variables."""
        with self._lock:
            return next((g for g in self.groups if g.device is device), None) or self._free_group(device)

    def give(self, run: Run) -> None:
        """Puts back everything a run has taken; idempotent."""
        with self._lock:
            step, bound = run.step, run.bound
            if step is None or bound is None:
                return
            if step.retired:
                bound.close()
            elif bound not in step.idle:
                step.idle.append(bound)
            run.bound = None  # together with the next call, which lets others use it
            self._busy.difference_update(bound.groups)

    def trim(self) -> int:
        """Frees the memory of idle bound steps and returns its bytes; compiled steps stay."""
        with self._lock:
            for step in self._steps.values():
                _close_idle(step)
            self._drop_scratches()
            self._free_dropped()
            return sum(group.allocator.trim() for group in self.groups)

    def clear(self) -> None:
        """Drops all steps, for example after addresses of variables have changed."""
        with self._lock:
            for step in self._steps.values():
                self._retire(step)
            self._steps.clear()
            self._drop_scratches()

    def _retire(self, step: Step) -> None:
        step.retired = True
        _close_idle(step)

    def close(self) -> None:
        """Waits for running steps, then frees all memory and ends all threads."""
        with self._lock:
            for group in self.groups:
                with suppress(TensorBowError):
                    group.synchronize()
            self.clear()
            self._free_dropped()
            for group in self.groups:
                group.close()
            self._scratches.clear()


def _close_idle(step: Step, group: StreamGroup | None = None) -> None:
    """Frees the idle bound steps of a step, on one group or all. The caller holds the cache's lock."""
    for bound in [b for b in step.idle if group is None or group in b.groups]:
        step.idle.remove(bound)
        bound.close()
