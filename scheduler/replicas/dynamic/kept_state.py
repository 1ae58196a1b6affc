"""Memory that a round changes, copied before it, so that a round in which an op fails can be undone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from scheduler.replicas.dynamic.divided_step import DividedExecutable
from scheduler.replicas.dynamic.replica_regions import VARIABLES
from tensorbow.compiler import VariableLayout
from tensorbow.devices import Device
from tensorbow.program import Ref, Region
from tensorbow.specs import Array


class MemoryPiece(NamedTuple):
    """Some bytes of a device's memory."""

    device: Device
    address: int
    nbytes: int


class KeptState:
    """Copies of what a round may change before an op of it can fail: of each replica, and of each device.

    Each replica is copied by one thread, before its dynamic part; what devices have, while none runs.
    """

    def __init__(self, replicas: Sequence[Sequence[MemoryPiece]], devices: Sequence[MemoryPiece]):
        """replicas: what to copy of each, which may be nothing. devices: what to copy of all devices."""
        self._replicas, self._devices = replicas, devices
        self._kept: list[
            tuple[MemoryPiece, Array]
        ] = []  # of the round that is under way; appended by any thread

    def keep_replica(self, number: int) -> None:
        """Copies a replica's memory."""
        self._keep(self._replicas[number])

    def keep_devices(self) -> None:
        """Copies the memory of all devices."""
        self._keep(self._devices)

    def _keep(self, pieces: Sequence[MemoryPiece]) -> None:
        for piece in pieces:
            self._kept.append((piece, piece.device.read(piece.address, (piece.nbytes,), np.uint8)))

    def forget(self) -> None:
        """Drops the copies: the round is done."""
        self._kept.clear()

    def restore(self) -> None:
        """Sets what was copied since `forget`, while nothing runs."""
        for piece, copy in self._kept:
            piece.device.write(piece.address, copy)
        self._kept.clear()


def kept_state(
    step: DividedExecutable,
    layout: VariableLayout,
    replicas: Sequence[tuple[Device, Mapping[Region, int]]],
    devices: Sequence[tuple[Device, Mapping[Region, int]]],
    may_refuse: bool,
) -> KeptState:
    """Copies for a step's rounds, of all that they may change before an op of them fails.

    replicas, devices: base addresses of each.
    may_refuse: calls of the planned part may refuse their input; else it does all of a round, or nothing.
    """
    refs = [layout.ref(name) for name in step.part.writes]
    if may_refuse:
        refs += [ref for each in step.segments for group in each.groups for ref in group.writes]
    own = _spans(ref for ref in refs if ref.region in VARIABLES)
    shared = _spans(ref for ref in refs if ref.region is Region.CENTRAL)
    return KeptState(
        [_pieces(*replica, own) for replica in replicas],
        [piece for device in devices for piece in _pieces(*device, shared)],
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


def _pieces(
    device: Device, bases: Mapping[Region, int], spans: Sequence[tuple[Region, int, int]]
) -> list[MemoryPiece]:
    """The spans on a device."""
    return [MemoryPiece(device, bases[region] + first, end - first) for region, first, end in spans]
