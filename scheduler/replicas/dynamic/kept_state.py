"""Memory that a round changes, copied before it, so that a round in which an op fails can be undone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from scheduler.replicas.dynamic.divided_step import DividedExecutable
from scheduler.replicas.dynamic.replica_executor import VARIABLES
from tensorbow.compiler import VariableLayout
from tensorbow.devices import Device
from tensorbow.program import Ref, Region
from tensorbow.specs import Array


class KeptState:
    """Copies of what a round may change before an op of it can fail: of each replica, and of each device.

    Each replica is copied by one thread, before its dynamic part; what devices have, while none runs.
    """

    def __init__(self, replicas: Sequence[Sequence[Array]], devices: Sequence[Array]):
        """replicas: bytes of each, none where nothing has to be copied. devices: bytes of all devices."""
        self._replicas = [[(view, np.empty_like(view)) for view in own] for own in replicas]
        self._devices = [(view, np.empty_like(view)) for view in devices]
        self._kept: list[tuple[Array, Array]] = []  # of the round that is under way; appended by any thread

    def keep_replica(self, number: int) -> None:
        """Copies a replica's memory."""
        self._keep(self._replicas[number])

    def keep_devices(self) -> None:
        """Copies the memory of all devices."""
        self._keep(self._devices)

    def _keep(self, pairs: Sequence[tuple[Array, Array]]) -> None:
        for view, copy in pairs:
            copy[...] = view
        self._kept.extend(pairs)

    def forget(self) -> None:
        """Drops the copies: the round is done."""
        self._kept.clear()

    def restore(self) -> None:
        """Sets what was copied since `forget`, while nothing runs."""
        for view, copy in self._kept:
            view[...] = copy
        self._kept.clear()


def kept_state(
    step: DividedExecutable,
    layout: VariableLayout,
    replicas: Sequence[tuple[Device, Mapping[Region, int]]],
    devices: Sequence[tuple[Device, Mapping[Region, int]]],
    may_refuse: bool,
) -> KeptState:
    """What has to be copied in a step's rounds. replicas, devices: base addresses of each.

    may_refuse: calls of the planned part may refuse their input; else it does all of a round, or nothing.
    """
    refs = [layout.ref(name) for name in step.part.writes]
    if may_refuse:
        refs += [ref for each in step.segments for group in each.groups for ref in group.writes]
    own = _spans(ref for ref in refs if ref.region in VARIABLES)
    shared = _spans(ref for ref in refs if ref.region is Region.CENTRAL)
    return KeptState(
        [_views(*replica, own) for replica in replicas],
        [view for device in devices for view in _views(*device, shared)],
    )


def _spans(refs: Iterable[Ref]) -> list[tuple[Region, int, int]]:
    """Region, first byte and end of pieces that cover the refs."""
    spans: list[tuple[Region, int, int]] = []
    for region, first, end in sorted((ref.region, ref.offset, ref.offset + ref.nbytes) for ref in refs):
        if spans and spans[-1][0] is region and first <= spans[-1][2]:
            spans[-1] = region, spans[-1][1], max(end, spans[-1][2])
        elif first < end:
            spans.append((region, first, end))
    return spans


def _views(
    device: Device, bases: Mapping[Region, int], spans: Sequence[tuple[Region, int, int]]
) -> list[Array]:
    """The bytes of the spans on a device."""
    return [device.view(bases[region] + first, (end - first,), np.uint8) for region, first, end in spans]
