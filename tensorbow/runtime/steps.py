"""The compiled steps of a session, their bindings, and the stream groups these run on."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from tensorbow.compiler import Binding, SpreadExecutable
from tensorbow.devices import Device, StreamGroup
from tensorbow.errors import InternalError, TensorBowError
from tensorbow.kernels import Executable, Region
from tensorbow.runtime.spread import SpreadBinding


@dataclass(eq=False)
class Step:
    """A compiled step and its bindings that nobody runs on at the moment.

    `layout_version` is the session's when it was compiled: with another one its addresses are wrong.
    A retired step is out of the cache: bindings that come back to it are closed.
    """

    executable: Executable | SpreadExecutable
    layout_version: int
    idle: list[Binding] = field(default_factory=list)
    retired: bool = False
    idle_spread: list[SpreadBinding] = field(default_factory=list)  # of a step over several devices


class StepCache:
    """Compiled steps by key, the least recently used going first, and a pool of stream groups.

    A binding belongs to a stream group; one thread at a time runs on a group, so that a failing step is
    its own affair. Every method is safe to call from several threads.
    """

    def __init__(self, device: Device, name: str, capacity: int):
        """`name` goes before the names of stream groups; `capacity` counts steps."""
        self._device = device
        self._name = name
        self._capacity = capacity
        self._steps: OrderedDict[Hashable, Step] = OrderedDict()
        self._busy: set[StreamGroup] = set()
        self._lock = threading.RLock()  # owns the tables above, and the groups' allocators
        self.groups: list[StreamGroup] = [device.stream_group(f"{name}/0")]

    @property
    def lock(self) -> threading.RLock:
        """To be held by whoever allocates from one of the groups."""
        return self._lock

    def __len__(self) -> int:
        return len(self._steps)

    def get(self, key: Hashable, make: Callable[[], Step]) -> Step:
        """The step of that key, made if it is not there; other threads wait meanwhile."""
        with self._lock:
            step = self._steps.get(key)
            if step is not None:
                self._steps.move_to_end(key)
                return step
            step = self._steps[key] = make()
            while len(self._steps) > self._capacity:
                self._retire(self._steps.popitem(last=False)[1])
            return step

    def take(self, step: Step, shared: Mapping[Region, int]) -> Binding:
        """A binding of a step on one device, for the caller alone until `give`. `shared`: the variables."""
        if isinstance(step.executable, SpreadExecutable):
            raise InternalError("a step over several devices is taken by take_spread")
        with self._lock:
            for place, binding in enumerate(step.idle):
                if binding.group not in self._busy:
                    del step.idle[place]
                    self._busy.add(binding.group)
                    return binding
            group = self._free_group(self._device)
            binding = Binding(step.executable, group, shared, ring=1, owner=f"{self._name} step")
            self._busy.add(group)
            return binding

    def _free_group(self, device: Device) -> StreamGroup:
        for group in self.groups:
            if group.device is device and group not in self._busy:
                return group
        group = device.stream_group(f"{self._name}/{len(self.groups)}")
        self.groups.append(group)
        return group

    def group_of(self, device: Device) -> StreamGroup:
        """The first stream group on a device: where its variables are."""
        with self._lock:
            return next((g for g in self.groups if g.device is device), None) or self._free_group(device)

    def take_spread(self, step: Step, bases: Callable[[str], Mapping[Region, int] | None]) -> SpreadBinding:
        """A binding of a step over several devices; `bases` gives those of a device's variables."""
        if isinstance(step.executable, Executable):
            raise InternalError("a step on one device is taken by take")
        with self._lock:
            for place, binding in enumerate(step.idle_spread):
                if self._busy.isdisjoint(binding.groups):
                    del step.idle_spread[place]
                    self._busy.update(binding.groups)
                    return binding
            groups = {name: self._free_group(d) for name, d in step.executable.devices.items()}
            binding = SpreadBinding(step.executable, groups, bases, f"{self._name} step")
            self._busy.update(binding.groups)
            return binding

    def give_spread(self, step: Step, binding: SpreadBinding) -> None:
        """Puts a binding of a step over several devices back."""
        with self._lock:
            self._busy.difference_update(binding.groups)
            if step.retired:
                binding.close()
            else:
                step.idle_spread.append(binding)

    def give(self, step: Step, binding: Binding) -> None:
        """Puts a binding back."""
        with self._lock:
            self._busy.discard(binding.group)
            if step.retired:
                binding.close()
            else:
                step.idle.append(binding)

    def trim(self) -> int:
        """Gives back the memory of bindings that nobody runs on, compiled steps stay; how many bytes."""
        with self._lock:
            for step in self._steps.values():
                _close_idle(step)
            return sum(group.allocator.trim() for group in self.groups)

    def clear(self) -> None:
        """Forgets all steps, for example because addresses of variables have changed."""
        with self._lock:
            for step in self._steps.values():
                self._retire(step)
            self._steps.clear()

    def _retire(self, step: Step) -> None:
        step.retired = True
        _close_idle(step)

    def close(self) -> None:
        """Waits for what runs, then gives all memory and threads back."""
        with self._lock:
            for group in self.groups:
                with suppress(TensorBowError):
                    group.synchronize()
            self.clear()
            for group in self.groups:
                group.close()


def _close_idle(step: Step) -> None:
    """Frees what a step's idle bindings hold. The caller has the cache's lock."""
    for binding in step.idle:
        binding.close()
    for spread in step.idle_spread:
        spread.close()
    step.idle.clear()
    step.idle_spread.clear()
