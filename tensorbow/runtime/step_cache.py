"""Cache of a session's compiled steps, their bindings and stream groups."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from tensorbow.compiler import Binding, MultiDeviceExecutable, Scratch
from tensorbow.devices import Device, StreamGroup
from tensorbow.errors import InternalError, TensorBowError
from tensorbow.program import Executable, Region
from tensorbow.runtime.multi_device_step import MultiDeviceBinding


@dataclass(eq=False)
class Step:
    """A compiled step and its idle bindings.

    layout_version: the session's when the step was compiled; in another version its addresses are wrong.
    A retired step is out of the cache: bindings given back to it are closed.
    """

    executable: Executable | MultiDeviceExecutable
    layout_version: int
    idle: list[Binding] = field(default_factory=list)
    retired: bool = False
    idle_multi_device: list[MultiDeviceBinding] = field(
        default_factory=list
    )  # of a step over several devices


class Run:
    """What one run of a session holds; `give` and the session's lock take back whatever is left of it.

    An interrupt may come between any two calls of the main thread, so each thing taken is recorded here in
    the same moment.
    """

    __slots__ = ("binding", "over_devices", "step")

    def __init__(self) -> None:
        self.step: Step | None = None
        self.binding: Binding | None = None
        self.over_devices: MultiDeviceBinding | None = None


class StepCache:
    """Compiled steps by key, least recently used dropped first, and a pool of stream groups.

    A binding belongs to a stream group; only one thread at a time runs on a group, so a failing step
    affects no other. All methods are thread-safe.
    """

    def __init__(self, device: Device, name: str, capacity: int):
        """name: prefix of the stream groups' names. capacity: number of steps."""
        self._device = device
        self._name = name
        self._capacity = capacity
        self._steps: OrderedDict[Hashable, Step] = OrderedDict()
        self._busy: set[StreamGroup] = set()
        self._scratches: dict[StreamGroup, Scratch] = {}  # shared by the bindings on a group
        self._lock = threading.RLock()  # guards the fields above, and the groups' allocators
        self.groups: list[StreamGroup] = [device.stream_group(f"{name}/0")]

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

    def take(self, step: Step, shared: Mapping[Region, int], run: Run) -> Binding:
        """A binding of a step on one device, the run's until `give`. shared: the variables' bases."""
        if isinstance(step.executable, MultiDeviceExecutable):
            raise InternalError("a step over several devices is taken by take_multi_device")
        with self._lock:
            run.step = step
            for binding in step.idle:
                if binding.group not in self._busy:
                    run.binding = binding
                    self._busy.add(binding.group)
                    step.idle.remove(binding)
                    return binding
            group = self._free_group(self._device)
            scratch = self._scratch_for(step.executable, group, shared)
            run.binding = Binding(
                step.executable, group, shared, ring=1, owner=f"{self._name} step", scratch=scratch
            )
            self._busy.add(group)
            return run.binding

    def _scratch_for(
        self, executable: Executable, group: StreamGroup, shared: Mapping[Region, int]
    ) -> Scratch:
        """The scratch block of an idle group; replaces one that is too small and closes its bindings."""
        nbytes = Scratch.nbytes_for(executable, shared, ring=1)
        scratch = self._scratches.get(group)
        if scratch is None or scratch.nbytes < nbytes:
            self._drop_scratch(group)
            group.allocator.trim()  # makes room for the larger block
            scratch = self._scratches[group] = Scratch(group, f"{self._name} steps", nbytes, apart=True)
        return scratch

    def _drop_scratches(self) -> None:
        for group in self.groups:
            if group not in self._busy:
                self._drop_scratch(group)

    def _drop_scratch(self, group: StreamGroup) -> None:
        """Frees the scratch block of an idle group and closes the group's bindings."""
        for step in self._steps.values():
            _close_idle(step, group)
        scratch = self._scratches.pop(group, None)
        if scratch is not None:
            scratch.free()

    def _free_group(self, device: Device) -> StreamGroup:
        for group in self.groups:
            if group.device is device and group not in self._busy:
                return group
        group = device.stream_group(f"{self._name}/{len(self.groups)}")
        self.groups.append(group)
        return group

    def group_of(self, device: Device) -> StreamGroup:
        """The first stream group on a device; it holds the device's variables."""
        with self._lock:
            return next((g for g in self.groups if g.device is device), None) or self._free_group(device)

    def take_multi_device(
        self, step: Step, bases: Callable[[str], Mapping[Region, int] | None], run: Run
    ) -> MultiDeviceBinding:
        """A binding of a step over several devices. bases: gives the addresses of a device's variables."""
        if isinstance(step.executable, Executable):
            raise InternalError("a step on one device is taken by take")
        with self._lock:
            run.step = step
            for binding in step.idle_multi_device:
                if self._busy.isdisjoint(binding.groups):
                    run.over_devices = binding
                    self._busy.update(binding.groups)
                    step.idle_multi_device.remove(binding)
                    return binding
            groups = {name: self._free_group(d) for name, d in step.executable.devices.items()}
            scratches = {
                name: self._scratch_for(part, groups[name], bases(name) or {})
                for name, part in step.executable.parts.items()
            }
            run.over_devices = MultiDeviceBinding(
                step.executable, groups, bases, f"{self._name} step", scratches
            )
            self._busy.update(run.over_devices.groups)
            return run.over_devices

    def give(self, run: Run) -> None:
        """Puts back everything a run has taken; idempotent."""
        with self._lock:
            step, binding, over_devices = run.step, run.binding, run.over_devices
            if step is None:
                return
            if binding is not None:
                if step.retired:
                    binding.close()
                elif binding not in step.idle:
                    step.idle.append(binding)
                run.binding = None  # together with the next call, which lets others use it
                self._busy.discard(binding.group)
            if over_devices is not None:
                if step.retired:
                    over_devices.close()
                elif over_devices not in step.idle_multi_device:
                    step.idle_multi_device.append(over_devices)
                run.over_devices = None
                self._busy.difference_update(over_devices.groups)

    def trim(self) -> int:
        """Frees the memory of idle bindings and returns its bytes; compiled steps stay."""
        with self._lock:
            for step in self._steps.values():
                _close_idle(step)
            self._drop_scratches()
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
            for group in self.groups:
                group.close()
            self._scratches.clear()


def _close_idle(step: Step, group: StreamGroup | None = None) -> None:
    """Frees the idle bindings of a step, on one group or all. The caller holds the cache's lock."""
    for binding in [b for b in step.idle if group in (None, b.group)]:
        step.idle.remove(binding)
        binding.close()
    for over_devices in [s for s in step.idle_multi_device if group is None or group in s.groups]:
        step.idle_multi_device.remove(over_devices)
        over_devices.close()
