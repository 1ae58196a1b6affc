"""Variables of a session by device: the session's own container, and one for each further device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from tensorbow.compiler import DeviceSet, Placer, VariableLayout
from tensorbow.devices import Device, StreamGroup
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation
from tensorbow.program import Region
from tensorbow.runtime.container import Container
from tensorbow.runtime.spreading import GreedyPlacement
from tensorbow.specs import Array


def _joins(op: Operation) -> bool:
    """True for an operation that makes others share a device, or gives those before it one."""
    if not op.colocation:
        return False
    return len(op.colocation) > 1 or bool(op.device and not op.leading_device)


class DeviceVariables:
    """Assigns each variable a device when it first appears, and keeps it there.

    `home` is the container on the session's device. The caller does the locking, as for a `Container`.
    """

    def __init__(
        self,
        home: Container,
        devices: DeviceSet,
        group_of: Callable[[Device], StreamGroup],
        *,
        soft: bool,
        greedy: GreedyPlacement | None = None,
    ):
        """group_of: gives the stream group whose allocator holds a further device's variables.
        greedy: places by costs the variables that request no device.
        """
        self._greedy = greedy
        self._home = home
        self._devices = devices
        self._group_of = group_of
        self._soft = soft
        self._containers: dict[str, Container] = {str(devices.home.name): home}
        self._elsewhere: dict[str, Container] = {}  # by variable, for those not at home
        self.placement: dict[Operation, Device] = {}
        self.notes: dict[Operation, str] = {}  # variables not on the requested device

    def grow(self, variables: Iterable[Operation]) -> bool:
        """Allocates new variables; True if addresses changed. See `Container.grow`.

        A variable whose device does not exist is left out: compiling a step that needs it raises.
        """
        by_device: dict[Device, list[Operation]] = {self._devices.home: []}
        variables = list(variables)
        joins = list(filter(_joins, variables[0].graph.get_operations())) if variables else []
        if self._greedy is not None and any(variable not in self.placement for variable in variables):
            placer = Placer(self._devices, soft=self._soft, fixed=self.placement, spreads=True)
            found = self._greedy.place_variables(variables[0].graph.get_operations(), placer)
            self.placement.update({v: found[v] for v in variables if v in found})
            self.notes.update({v: note for v, note in placer.notes.items() if v in found})
        for variable in variables:
            device = self.placement.get(variable) or self._place(variable, joins)
            if device is not None:
                self.placement[variable] = device
                by_device.setdefault(device, []).append(variable)
        grown = False
        for device, members in by_device.items():
            name = str(device.name)
            if name not in self._containers:
                self._containers[name] = Container(
                    self._group_of(device), f"variables on {device.name.short}"
                )
            container = self._containers[name]
            grown |= container.grow(members)
            if container is not self._home:
                self._elsewhere.update({variable.name: container for variable in members})
        return grown

    def _place(self, variable: Operation, joins: Sequence[Operation]) -> Device | None:
        """The device of a new variable. joins: operations that join groups, or bring a device into one."""
        placer = Placer(self._devices, soft=self._soft, fixed=self.placement)
        try:
            device = placer.place([variable, *joins])[variable]
        except InvalidArgumentError:
            return self._place(variable, ()) if joins else None
        self.notes.update(placer.notes)
        return device

    @property
    def layouts(self) -> dict[str, VariableLayout]:
        """The variable layout of each device, by the device's full name."""
        return {name: container.layout for name, container in self._containers.items()}

    def bases(self, device: str) -> Mapping[Region, int] | None:
        """Base addresses of a device's variables, or None if it has none."""
        return self._containers[device].bases if device in self._containers else None

    def of(self, name: str) -> Container:
        """The container that holds a variable; the session's own for an unknown name."""
        return self._elsewhere.get(name, self._home)

    def values(self, names: Iterable[str]) -> dict[str, Array]:
        """Copies of these variables' values, by name."""
        return {name: self.of(name).read(name) for name in names}

    def _split(self, names: Iterable[str]) -> dict[Container, list[str]]:
        split: dict[Container, list[str]] = {}
        for name in names:
            split.setdefault(self.of(name), []).append(name)
        return split

    def load(self, values: Mapping[str, Any]) -> None:
        """Sets variables. Raises NotFoundError or InvalidArgumentError before changing any."""
        fitting = [
            (container, container.fitting({name: values[name] for name in names}))
            for container, names in self._split(values).items()
        ]
        for container, arrays in fitting:
            container.load(arrays)

    def require_initialized(self, names: Collection[str]) -> None:
        """Raises FailedPreconditionError if any of these variables has no value yet."""
        if self._home.initialized.issuperset(names):
            return
        missing = [n for n in set(names) - self._home.initialized if n not in self.of(n).initialized]
        if missing:
            self._home.require_initialized(missing)

    def without_value(self, names: Iterable[str]) -> list[str]:
        """The given variables that have no value yet."""
        return sorted(name for name in names if name not in self.of(name).initialized)

    def mark_initialized(self, names: Iterable[str]) -> None:
        """Marks these variables as having a value."""
        if not self._elsewhere:
            self._home.initialized.update(names)
            return
        for name in names:
            self.of(name).initialized.add(name)

    def close(self) -> None:
        """Frees all memory; idempotent."""
        for container in self._containers.values():
            container.close()
