"""Pinned-memory slots, used in turn, that carry small arrays to the device."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from tensorbow.devices import Device
from tensorbow.devices.cuda_runtime import CopyKind, CudaRuntime
from tensorbow.errors import TensorBowError
from tensorbow.program.plan import Ref, Region
from tensorbow.specs import Array


class PinnedSlots:
    """Pinned copies of some arrays of one region.

    A slot is refilled only after the copy from it has ended: with as many slots as steps are launched
    ahead, the host never waits for that.
    """

    def __init__(
        self, device: Device, runtime: CudaRuntime, stream: int, refs: Mapping[str, Ref], count: int
    ):
        """refs: of arrays of one region, by name; copied in one piece if all are given."""
        self._runtime = runtime
        self._stream = stream
        self._refs = dict(refs)
        self._first = min((ref.offset for ref in refs.values()), default=0)
        self._end = max((ref.offset + ref.nbytes for ref in refs.values()), default=0)
        self._blocks: list[Array] = []
        self._views: list[dict[str, Array]] = []
        self._left: list[int] = []  # the event after the last copy from each slot, or 0
        self._next = 0
        self._last: dict[str, Any] = {}
        if self._refs:
            for _ in range(count):
                block = device.host_array((self._end - self._first,), np.uint8)
                self._blocks.append(block)
                self._views.append({name: self._view(block, ref) for name, ref in self._refs.items()})
                self._left.append(0)

    def _view(self, block: Array, ref: Ref) -> Array:
        start = ref.offset - self._first
        return block[start : start + ref.nbytes].view(ref.dtype.as_numpy_dtype).reshape(ref.shape)

    def send(
        self, values: Mapping[str, Any], bases: Mapping[Region, int], *, only_changes: bool = False
    ) -> None:
        """Copies values to a slot, and enqueues the copy to the device. Empty arrays are skipped.

        only_changes: values are numbers; numbers equal to the last ones sent are not sent again.
        """
        if only_changes:
            values = {name: value for name, value in values.items() if self._last.get(name) != value}
            self._last.update(values)
        values = {name: value for name, value in values.items() if name in self._refs}
        if not values:
            return
        slot = self._next
        self._next = (slot + 1) % len(self._blocks)
        if self._left[slot]:
            self._runtime.synchronize_event(self._left[slot])
        else:
            self._left[slot] = self._runtime.make_event()
        for name, value in values.items():
            self._views[slot][name][...] = value
        if len(values) == len(self._refs):
            self._enqueue(slot, self._first, self._end, bases)
        else:
            for name in values:
                ref = self._refs[name]
                self._enqueue(slot, ref.offset, ref.offset + ref.nbytes, bases)
        self._runtime.record(self._left[slot], self._stream)

    def _enqueue(self, slot: int, start: int, end: int, bases: Mapping[Region, int]) -> None:
        region = next(iter(self._refs.values())).region
        source = self._blocks[slot].ctypes.data + start - self._first
        target = bases[region] + start
        self._runtime.copy(target, source, end - start, CopyKind.HOST_TO_DEVICE, self._stream)

    def forget(self) -> None:
        """Forgets what was sent, so that numbers are sent even if they are equal."""
        self._last.clear()

    def close(self) -> None:
        """Destroys the events; idempotent."""
        events, self._left = [event for event in self._left if event], [0] * len(self._left)
        for event in events:
            with suppress(TensorBowError):
                self._runtime.destroy_event(event)
