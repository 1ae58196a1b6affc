"""Place: give every operation a device, by its scope, by colocation, or else the session's device.

White paper, section 3.2.1. An operation that reads or writes a variable's storage runs on the variable's
device, a slot lives with its variable, and an operation under `colocate_with` shares its target's device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tensorbow.devices import Device, DeviceName, available_devices, get_device
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph import OpDef, Operation
from tensorbow.kernels.backends import backend_for
from tensorbow.ops.state import VariableReference
from tensorbow.specs import DType, uncompiled

NAMED = 8  # operations named in one note


class DeviceSet:
    """Devices that steps may run on; the first takes the operations that request no device."""

    def __init__(self, home: Device, others: Sequence[Device] | None = None):
        """others: all further devices; None allows any device that this process can open by name.

        Raises InvalidArgumentError for two devices of one name.
        """
        self.home = home
        self._devices = [home]
        self._opens = others is None
        for device in others or ():
            if device is not home:
                self._devices.append(device)
        names = [str(device.name) for device in self._devices]
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"devices: expected different ones, got {', '.join(names)}")

    def known(self) -> list[Device]:
        """Devices given or opened so far, the session's own first."""
        return list(self._devices)

    def matching(self, wish: DeviceName) -> list[Device]:
        """Devices that match a full or partial name; opens one if no known device matches."""
        found = [device for device in self._devices if _satisfies(device.name, wish)]
        if found or not self._opens or wish.kind is None:
            return found
        names = [wish] if wish.is_complete else [DeviceName.parse(n) for n in self._names_to_open()]
        for name in names:
            if _satisfies(name, wish):
                try:
                    device = get_device(name)
                except NotFoundError:
                    continue
                self._devices.append(device)
                return [device]
        return []

    def _names_to_open(self) -> list[str]:
        return [row["name"] for row in available_devices()] if self._opens else []

    def __str__(self) -> str:
        names = [*(d.name for d in self._devices), *(DeviceName.parse(n) for n in self._names_to_open())]
        ordered = sorted(names, key=lambda name: (name.kind or "", name.index or 0))
        return ", ".join(dict.fromkeys(name.short for name in ordered))


def _satisfies(name: DeviceName, wish: DeviceName) -> bool:
    parts = (
        (wish.kind, name.kind),
        (wish.index, name.index),
        (wish.job, name.job),
        (wish.task, name.task),
    )
    return all(want in (None, have) for want, have in parts)


class Placer:
    """Placement of operations, kept between calls. `fixed`: variables that already have a device."""

    def __init__(self, devices: DeviceSet, *, soft: bool = False, fixed: Mapping[Operation, Device]):
        """soft: an operation whose device is missing, or has no kernel for it, runs elsewhere instead."""
        self._devices = devices
        self._soft = soft
        self._placement: dict[Operation, Device] = dict(fixed)
        self.notes: dict[Operation, str] = {}  # where an op is and why, if not where it was requested

    def place(self, ops: Iterable[Operation]) -> dict[Operation, Device]:
        """The device of each operation.

        Raises InvalidArgumentError for a request that no device satisfies, and for an operation that would
        have to be on two devices; both name the user's line.
        """
        return {op: self._place(op) for op in ops}

    def _place(self, op: Operation) -> Device:
        pending = [op]  # explicit stack instead of recursion: colocation chains can be long
        while pending:
            top = pending[-1]
            if top in self._placement:
                pending.pop()
                continue
            leaders = leaders_of(top)
            missing = [leader for leader in leaders if leader not in self._placement]
            if missing:
                pending.extend(missing)
            else:
                self._placement[top] = self._follow(top, leaders) if leaders else self._choose(top)
                pending.pop()
        return self._placement[op]

    def _follow(self, op: Operation, leaders: Sequence[Operation]) -> Device:
        self._candidates(op)  # an unsatisfiable request is an error even where colocation overrides it
        first = leaders[0]
        device = self._placement[first]
        for other in leaders[1:]:
            if self._placement[other] is not device:
                raise InvalidArgumentError(
                    f"{op.type} {op.name} must be where {first.name} is, on {device.name.short}, and where "
                    f"{other.name} is, on {self._placement[other].name.short}; give them one device scope, "
                    f"or colocate them (made at {op.source})"
                )
        if op.device and not _satisfies(device.name, DeviceName.parse(op.device)):
            self.notes[op] = f"on {device.name.short}, with {first.name}, not on {op.device}"
        return device

    def _choose(self, op: Operation) -> Device:
        candidates = self._candidates(op)
        if not candidates:
            candidates = [self._devices.home]
            self.notes[op] = (
                f"on {self._devices.home.name.short}, as there is no {op.device}; there are: {self._devices}"
            )
        definitions = _definitions(op, self._soft)
        foreign = uncompiled(tensor.dtype for tensor in (*op.inputs, *op.outputs))
        for device in candidates:
            if _has_kernels(device, definitions, foreign):
                return device
        why = op.definition.why_cpu or (f"only CPUs compute in {foreign.name}" if foreign else "")
        why = "" if op.device else why
        others = self._devices.known() if self._soft else []
        for device in self._devices.matching(DeviceName(kind="cpu")) if why else others:
            if _has_kernels(device, definitions, foreign):
                reason = why or f"{candidates[0].name.short} has no kernel"
                self.notes[op] = f"on {device.name.short}, as {reason}"
                return device
        return candidates[0]  # its backend reports the missing kernel, unless the op folds to a constant

    def _candidates(self, op: Operation) -> list[Device]:
        """Devices that match an operation's request; empty if none does and placement is soft."""
        if not op.device:
            return [self._devices.home]
        found = self._devices.matching(DeviceName.parse(op.device))
        if found or self._soft:
            return found
        raise InvalidArgumentError(
            f"{op.type} {op.name} requests device {op.device}, which does not exist; there are: "
            f"{self._devices}; correct or remove the device scope, or give a plain Session "
            f"allow_soft_placement=True (made at {op.source})"
        )


def leaders_of(op: Operation) -> list[Operation]:
    """Operations that determine an operation's device."""
    leaders = dict.fromkeys(op.colocation)
    if op.definition is VariableReference:
        if op.attrs["slot_of"] and not leaders:
            leaders[op.graph.get_operation_by_name(op.attrs["slot_of"])] = None
        return list(leaders)
    # The variable overrides other requests: its storage cannot be on two devices.
    touched = dict.fromkeys(t.op for t in op.inputs if t.op.definition is VariableReference)
    return list(touched or leaders)


def lines_of(notes: Mapping[Operation, str]) -> list[str]:
    """The placement notes, one line per reason, each with its operations."""
    names: dict[str, list[str]] = {}
    for op, reason in notes.items():
        names.setdefault(reason, []).append(op.name)
    return [
        f"{', '.join(them[:NAMED])}{f' and {len(them) - NAMED} more' if len(them) > NAMED else ''}: {reason}"
        for reason, them in names.items()
    ]


def _definitions(op: Operation, soft: bool) -> list[OpDef]:
    """Ops that need a kernel on the device of `op`; with `soft`, for a variable, the ops that use it."""
    if op.definition is VariableReference:
        return [user.definition for user in op.graph.consumers(op.outputs[0])] if soft else []
    return [op.definition]


def _has_kernels(device: Device, definitions: Sequence[OpDef], foreign: DType | None) -> bool:
    """True if the device's backend has the ops' kernels. foreign: a dtype that GPUs lack."""
    kind = backend_for(device).kernel_kind
    return (kind != "gpu" or foreign is None) and all(not d.kernels or kind in d.kernels for d in definitions)
