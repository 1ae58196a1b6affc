"""Place: give every operation a device, by its scope, by colocation, or else the session's device.

White paper, sections 3.2.1 and 4.3. An operation that reads or writes a variable's storage runs on the
variable's device, a slot lives with its variable, and an operation under `colocate_with` shares its target's
device. Groups of such operations are found first, by union-find; then each group gets one device that all of
their requests allow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tensorbow.devices import Device, DeviceName, available_devices, get_device
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.function_calls import Call
from tensorbow.graph import OpDef, Operation
from tensorbow.kernels.backends import backend_for
from tensorbow.missing_names import listed
from tensorbow.ops.host_variables import VARIABLES
from tensorbow.ops.state import VariableReference
from tensorbow.specs import DType, uncompiled

NAMED = 8  # operations named in one note


class DeviceSet:
    """Devices that steps may run on; the first takes the operations that request no device."""

    def __init__(
        self,
        home: Device,
        others: Sequence[Device] | None = None,
        allowed: Mapping[str, Collection[int]] | None = None,
    ):
        """others: all further devices; None allows any device that this process can open by name.
        allowed: the numbers of the devices that it then may open, by kind, such as CPU; any of other kinds.

        Raises InvalidArgumentError for two devices of one name.
        """
        self.home = home
        self._devices = [home]
        self._opens = others is None
        self._allowed = allowed or {}
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
        names = [wish] if wish.is_complete else self._names_to_open()
        for name in names:
            if _satisfies(name, wish) and self._may_open(name):
                try:
                    device = get_device(name)
                except NotFoundError:
                    continue
                self._devices.append(device)
                return [device]
        return []

    def candidates(self) -> list[Device]:
        """Devices for operations that request none, the session's own first.

        All that were given; else those that a table of devices lists, opened, less those that only record.
        """
        if self._opens:
            for name in self._names_to_open():
                self.matching(name)
        return [d for d in self._devices if d is self.home or not self._opens or d.kind != "null"]

    def _names_to_open(self) -> list[DeviceName]:
        if not self._opens:
            return []
        rows = [DeviceName.parse(row["name"]) for row in available_devices()]
        cpus = [DeviceName(kind="cpu", index=index) for index in self._allowed.get("CPU", ())]
        return [name for name in dict.fromkeys([*rows, *cpus]) if self._may_open(name)]

    def _may_open(self, name: DeviceName) -> bool:
        return name.index in self._allowed.get(name.kind or "", (name.index,))

    def __str__(self) -> str:
        names = [*(d.name for d in self._devices), *self._names_to_open()]
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
    """Placement of operations by colocation groups. `fixed`: variables that already have a device.

    A group is a set of operations that must share a device; its device satisfies the requests of all members
    that no variable overrides.
    """

    def __init__(
        self,
        devices: DeviceSet,
        *,
        soft: bool = False,
        fixed: Mapping[Operation, Device],
        spreads: bool = False,
    ):
        """soft: an operation whose device is missing, or has no kernel for it, runs elsewhere instead.
        spreads: an operation that requests no device may be on any, by preference on the session's own.
        """
        self._devices = devices
        self._soft = soft
        self._fixed = fixed
        self._spreads = spreads
        self.notes: dict[Operation, str] = {}  # where an op is and why, if not where it was requested

    def place(self, ops: Iterable[Operation]) -> dict[Operation, Device]:
        """The device of each operation.

        Raises InvalidArgumentError for a request that no device satisfies, and for operations that would have
        to be on two devices; both name the user's line.
        """
        wanted = list(ops)
        placement = {op: device for group, (device, *_) in self.options(wanted) for op in group}
        self.notes = self.notes_of(placement)
        return {op: placement[op] for op in wanted}

    def notes_of(self, placement: Mapping[Operation, Device]) -> dict[Operation, str]:
        """The notes, with those of operations that follow a leader elsewhere than they request."""
        notes = dict(self.notes)
        for op, device in placement.items():
            if op.device and leaders_of(op) and not _satisfies(device.name, _wish_of(op)):
                notes[op] = f"on {device.name.short}, with {leaders_of(op)[0].name}, not on {op.device}"
        return notes

    def options(self, ops: Iterable[Operation]) -> list[tuple[list[Operation], list[Device]]]:
        """The colocation groups of the operations, and the devices that each may be on, the preferred first.

        Raises what `place` raises.
        """
        return [(group, self._allowed(group)) for group in colocation_groups(ops)]

    def _allowed(self, group: Sequence[Operation]) -> list[Device]:
        wish, missing, fixed = None, list[Operation](), None
        if any(op.device or op in self._fixed for op in group):
            wish, missing = self._joint_wish(group)
            fixed = next((self._fixed[op] for op in group if op in self._fixed), None)
        if fixed is not None:
            candidates = [fixed]
        elif wish is None:
            candidates = self._devices.candidates() if self._spreads else [self._devices.home]
        else:
            candidates = self._devices.matching(wish)
        if not candidates and not self._soft:
            raise InvalidArgumentError(
                f"{_members(group)} share a device and together request {wish}, which does not exist; there "
                f"are: {self._devices}; correct their device scopes (made at {group[-1].source})"
            )
        candidates = candidates or [self._devices.home]
        for op in missing:
            self.notes[op] = (
                f"on {candidates[0].name.short}, as there is no {op.device}; there are: {self._devices}"
            )
        if fixed is not None:
            return candidates
        leaders = [op for op in group if not leaders_of(op)]
        definitions = [
            definition for op in leaders for definition in _definitions(op, self._soft or self._spreads)
        ]
        fitting = [device for device in candidates if _has_kernels(device, definitions, leaders)]
        if fitting:
            return fitting
        foreign = _uncompiled_of(leaders)
        why = next((op.definition.why_cpu for op in leaders if op.definition.why_cpu), "")
        why = why or (f"only CPUs compute in {foreign.name}" if foreign else "")
        why = "" if any(op.device for op in leaders) else why
        others = self._devices.known() if self._soft else []
        for device in self._devices.matching(DeviceName(kind="cpu")) if why else others:
            if _has_kernels(device, definitions, leaders):
                reason = why or f"{candidates[0].name.short} has no kernel"
                self.notes.update(dict.fromkeys(leaders, f"on {device.name.short}, as {reason}"))
                return [device]
        return candidates[:1]  # its backend reports the missing kernel, unless the op folds to a constant

    def _joint_wish(self, group: Sequence[Operation]) -> tuple[DeviceName | None, list[Operation]]:
        """The intersection of a group's requests, or None, and the group's leaders whose device is missing.

        Members with a fixed device request that. Raises InvalidArgumentError for a request that no device
        satisfies and for requests that exclude each other, unless placement is soft: then the first counts.
        """
        joint: DeviceName | None = None
        by: list[tuple[Operation, DeviceName]] = []
        missing = []
        for op in sorted(group, key=lambda each: (each not in self._fixed, each.id)):
            if op in self._fixed:
                wish = self._fixed[op].name
            elif not op.device:
                continue
            elif not self._exists(op):
                if not leaders_of(op):
                    missing.append(op)
                continue
            elif follows_variable(op):
                continue
            else:
                wish = _wish_of(op)
            both = _intersection(joint, wish)
            if both is not None:
                joint = both
                by.append((op, wish))
            elif not self._soft or op in self._fixed:
                other, its = next((o, w) for o, w in by if _intersection(w, wish) is None)
                joins = next((each for each in group if len(leaders_of(each)) > 1), group[-1])
                raise InvalidArgumentError(
                    f"{joins.type} {joins.name} must be where {other.name} is, on {its.short}, and where "
                    f"{op.name} is, on {wish.short}: {_members(group)} share a device; give them one device "
                    f"scope, or do not colocate them (made at {joins.source})"
                )
        return joint, missing

    def _exists(self, op: Operation) -> bool:
        """True if a device matches the op's request; raises InvalidArgumentError unless placement is soft."""
        if self._devices.matching(_wish_of(op)):
            return True
        if self._soft:
            return False
        raise InvalidArgumentError(
            f"{op.type} {op.name} requests device {op.device}, which does not exist; there are: "
            f"{self._devices}; correct or remove the device scope, or give a plain Session "
            f"allow_soft_placement=True (made at {op.source})"
        )


def colocation_groups(ops: Iterable[Operation]) -> list[list[Operation]]:
    """Sets of operations that must share a device, by union-find, each in program order.

    With the operations that these follow (see `leaders_of`); an operation that follows none is alone.
    """
    parents: dict[Operation, Operation] = {}

    def root_of(op: Operation) -> Operation:
        while parents[op] is not op:
            parents[op] = op = parents[parents[op]]
        return op

    pending, led = list(ops), []
    while pending:
        op = pending.pop()
        if op not in parents:
            parents[op] = op
            if leaders := leaders_of(op):
                pending += leaders
                led.append((op, leaders))
    for op, leaders in led:
        for leader in leaders:
            parents[root_of(op)] = root_of(leader)
    groups: dict[Operation, list[Operation]] = {}
    for op in sorted(parents, key=lambda each: each.id):
        groups.setdefault(root_of(op), []).append(op)
    return list(groups.values())


def follows_variable(op: Operation) -> bool:
    """True if an op touches a variable's storage, or is a slot's: it is there whatever it requests."""
    if op.definition is VariableReference:
        return bool(op.attrs["slot_of"]) and not op.colocation
    return any(t.op.definition in VARIABLES for t in op.inputs)


def _wish_of(op: Operation) -> DeviceName:
    return DeviceName.parse(op.device)


def _intersection(first: DeviceName | None, second: DeviceName) -> DeviceName | None:
    """The request that both make; None if they exclude each other. first: None for any device."""
    if first is None:
        return second
    parts: dict[str, Any] = {}
    for part in ("job", "task", "kind", "index"):
        values = {getattr(name, part) for name in (first, second)} - {None}
        if len(values) > 1:
            return None
        parts[part] = next(iter(values), None)
    return DeviceName(**parts)


def _members(group: Sequence[Operation]) -> str:
    """The members of a group and their requests, as text."""
    return listed([f"{op.name} ({op.device})" if op.device else op.name for op in group], NAMED)


def leaders_of(op: Operation) -> list[Operation]:
    """Operations that determine an operation's device."""
    if op.definition is VariableReference:
        if op.attrs["slot_of"] and not op.colocation:
            return [op.graph.get_operation_by_name(op.attrs["slot_of"])]
        return list(dict.fromkeys(op.colocation))
    # The variable overrides other requests: its storage cannot be on two devices.
    touched = [t.op for t in op.inputs if t.op.definition in VARIABLES]
    leaders = touched or op.colocation
    return list(dict.fromkeys(leaders)) if len(leaders) > 1 else list(leaders)


def lines_of(notes: Mapping[Operation, str]) -> list[str]:
    """The placement notes, one line per reason, each with its operations."""
    names: dict[str, list[str]] = {}
    for op, reason in notes.items():
        names.setdefault(reason, []).append(op.name)
    return [f"{listed(them, NAMED)}: {reason}" for reason, them in names.items()]


def _definitions(op: Operation, soft: bool) -> list[OpDef]:
    """Ops that need a kernel on the device of `op`; with `soft`, for a variable, the ops that use it."""
    if op.definition is VariableReference:
        return [user.definition for user in op.graph.consumers(op.outputs[0])] if soft else []
    if op.definition is Call:
        return [each for inner in op.attrs["f"].ops for each in _definitions(inner, soft)]
    return [op.definition]


def _has_kernels(device: Device, definitions: Sequence[OpDef], ops: Sequence[Operation]) -> bool:
    """True if the backend of a device has kernels for definitions. ops: of which GPUs may lack a dtype."""
    kind = backend_for(device).kernel_kind
    for definition in definitions:
        if definition.kernels and kind not in definition.kernels:
            return False
    return kind != "gpu" or _uncompiled_of(ops) is None


def _uncompiled_of(ops: Sequence[Operation]) -> DType | None:
    return uncompiled(tensor.dtype for op in ops for tensor in (*op.inputs, *op.outputs))
