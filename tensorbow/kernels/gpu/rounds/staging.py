"""Inputs of a device's rounds from the host, by slot: step scalars, picks, and batches from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorbow.devices import StreamGroup
from tensorbow.devices.cuda_runtime import CopyKind, CudaRuntime
from tensorbow.errors import InternalError
from tensorbow.kernels.gpu.plan import GpuPlan
from tensorbow.kernels.gpu.rounds.source import COPY
from tensorbow.program.plan import Ref
from tensorbow.program.rounds import STICKY, LaunchFeeds
from tensorbow.specs import Array

ALIGNED = 16  # bytes, of what is copied by the widest loads


class Staging:
    """Two rings of rows, one for each slot.

    Scalars and picks go to a ring in device memory, once for all rounds of a launch. Batches stay in pinned
    memory, where the round reads them.
    """

    def __init__(
        self,
        group: StreamGroup,
        runtime: CudaRuntime,
        plans: Sequence[GpuPlan],
        batch_plans: Sequence[GpuPlan],
        keys: Sequence[str],
        slots: int,
    ):
        """plans: of the device's replicas. batch_plans: of their batches, made from picks; empty for batches
        from outside. keys: of the step scalars that come with each launch.

        Raises ResourceExhaustedError.
        """
        self._group, self._runtime = group, runtime
        step = plans[0].executable
        width, batch_width = ALIGNED, 0  # the word that says whether a status ends the rounds comes first
        scalars: dict[str, _Column] = {}
        for key in keys:
            scalars[key] = _Column(width, plans, step.state[key])
            width += scalars[key].nbytes
        picks: list[_Column] = []
        batches: dict[str, _Column] = {}
        if batch_plans:
            picks.append(_Column(width, batch_plans, *batch_plans[0].executable.inputs.values()))
            width += picks[0].nbytes
        else:
            for name, ref in step.inputs.items():
                batches[name] = _Column(batch_width, plans, ref)
                batch_width += batches[name].nbytes
        self._row_nbytes = width
        self._rows = group.device.host_array((slots, width), np.uint8)
        self._batches = group.device.host_array((slots, batch_width), np.uint8)
        self._ring = group.allocate(slots * width, owner="rows of rounds")
        self.rows = 0 if self._ring is None else self._ring.address
        self.row_nbytes = width
        table = [copy for each in (*scalars.values(), *picks) for copy in each.copies(self.rows, width)]
        pinned = self._batches.ctypes.data
        table += [copy for each in batches.values() for copy in each.copies(pinned, batch_width)]
        self.copies: NDArray[Any] = np.array(table, COPY)
        self._ends = self._rows[:, :8].view(np.int64)
        self._scalars = {key: column.view(self._rows) for key, column in scalars.items()}
        self._picks = [column.view(self._rows) for column in picks]
        self._inputs = {name: column.view(self._batches) for name, column in batches.items()}

    def fill(
        self, slots: Sequence[range], feeds: LaunchFeeds, state: Mapping[str, Any], replicas: range
    ) -> None:
        """Writes what comes into the rounds of a launch.

        slots: theirs, in pieces without a gap. replicas: those of this device, among all.
        """
        begin = 0
        for piece in slots:
            rows, end = slice(piece.start, piece.stop), begin + len(piece)
            self._ends[rows] = "status" not in state
            for key, value in state.items():
                if value == STICKY:
                    continue
                own = np.asarray(value)
                if own.ndim == 2:  # by replica
                    own = own[slice_of(replicas), begin:end].T
                elif own.ndim:
                    own = own[begin:end, None]
                self._scalars[key][rows] = own
            for view in self._picks:
                if feeds.picks is None:
                    raise InternalError("rounds with batches from picks: got none")
                view[rows] = feeds.picks[feeds.first + begin : feeds.first + end, slice_of(replicas)]
            for number, replica in enumerate(replicas) if self._inputs else ():
                for slot, arrays in zip(piece, feeds.arrays[replica][begin:end], strict=True):
                    for name, view in self._inputs.items():
                        view[slot, number] = arrays[name]
            begin = end

    def send(self, slots: Sequence[range], stream: int) -> None:
        """Enqueues the copy of rows to the device."""
        for piece in slots:
            first, nbytes = piece.start * self.row_nbytes, len(piece) * self.row_nbytes
            ends = self.rows + first, self._rows.ctypes.data + first
            self._runtime.copy(*ends, nbytes, CopyKind.HOST_TO_DEVICE, stream)

    def close(self) -> None:
        """Gives the memory back; idempotent."""
        ring, self._ring = self._ring, None
        if ring is not None and not self._group.allocator.closed:
            self._group.allocator.free(ring)


class _Column:
    """A place in all rows: one array for each replica."""

    def __init__(self, offset: int, plans: Sequence[GpuPlan], ref: Ref):
        self._offset, self._plans, self._ref = offset, plans, ref
        self.nbytes = -(-ref.nbytes * len(plans) // ALIGNED) * ALIGNED

    def copies(self, base: int, step: int) -> Iterator[tuple[int, int, int, int, int]]:
        """The copies of each replica's array, from rows at an address, to where its plan reads it."""
        nbytes = self._ref.nbytes
        for number, plan in enumerate(self._plans if nbytes else ()):
            yield base + self._offset + number * nbytes, plan.address(self._ref), step, 0, nbytes

    def view(self, rows: NDArray[np.uint8]) -> Array:
        """The place as an array [slots, replicas, *shape]."""
        shape, dtype = (len(self._plans), *self._ref.shape), self._ref.dtype.as_numpy_dtype
        if not self._ref.nbytes:
            return np.empty((len(rows), *shape), dtype)
        strides = rows.strides[0], *np.empty(shape, dtype).strides
        view: Array = np.ndarray((len(rows), *shape), dtype, rows, self._offset, strides)
        return view


def slice_of(numbers: range) -> slice:
    """The slice that takes these numbers of an axis."""
    return slice(numbers.start, numbers.stop)
