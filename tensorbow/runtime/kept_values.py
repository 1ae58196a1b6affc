"""Values that stay on a GPU between the regions of a dynamic step, and do not pass through the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, TypeAlias

from tensorbow.compiler import Binding
from tensorbow.devices import DeviceValue, StreamGroup
from tensorbow.specs import Array

Keep: TypeAlias = "Callable[[StreamGroup, tuple[int, ...], Any], DeviceValue | None]"
"""Gives memory of a stream group for a value of this shape and dtype; None if there is none left."""

MOST_TO_HOST = 4096  # elements of a value that comes to the host at once, where a condition may read it


class KeptValues:
    """The values that one run of a bound plan takes from its device's memory, and leaves there."""

    __slots__ = ("_binding", "given", "host", "left")

    def __init__(self, binding: Binding, inputs: Mapping[str, Any], keep: Keep):
        """inputs: arrays and DeviceValues by name; those that the plan does not take are left out."""
        known, device, plan = binding.executable.inputs, binding.group.device, binding.plan
        self._binding = binding
        self.host: dict[str, Array] = {}  # inputs
        self.given: dict[str, Any] = {}  # inputs that lie on the device
        for name, value in inputs.items():
            if name not in known:
                continue
            if not isinstance(value, DeviceValue):
                self.host[name] = value
            elif value.device is device and plan.keeps_values:
                self.given[name] = value
            else:
                self.host[name] = value.host()
        self.left: dict[int, DeviceValue] = {}  # fetched values, by number
        if plan.keeps_values:
            for number, ref in enumerate(binding.executable.fetches):
                if prod(ref.shape) > MOST_TO_HOST:
                    value = keep(binding.group, ref.shape, ref.dtype.as_numpy_dtype)
                    if value is not None:
                        self.left[number] = value

    def write(self, state: Mapping[str, Any]) -> None:
        """Writes the inputs, on the stream, before the plan's first launch."""
        self._binding.write(self.host, state)
        for name, value in self.given.items():
            self._binding.plan.copy_in(name, value)

    def fetched(self, number: int, view: Array) -> Any:
        """A fetched value: the one that is left on the device, or a copy of the view."""
        if number in self.left:
            return self.left[number]
        return view.copy() if view.shape else view[()]
