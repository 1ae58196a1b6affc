"""A plan bound to a GPU: each segment is captured as CUDA graphs at its second launch.

The first launch runs the kernels one by one, which also warms up the libraries, as capture requires. Data
that change in every step (feeds, step scalars, the address of the results) stay outside the graphs: they pass
through slots of pinned memory, used in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from tensorbow.devices import Access, DeviceValue, StreamGroup
from tensorbow.devices.cuda_runtime import CopyKind, CudaError
from tensorbow.devices.gpu import PeerArray
from tensorbow.errors import InternalError, ResourceExhaustedError, TensorBowError
from tensorbow.graph import KernelCall, blame
from tensorbow.kernels.gpu.fusion.packed_filters import unpacked
from tensorbow.kernels.gpu.launches import launches_of
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, call_of
from tensorbow.kernels.gpu.runtime.context import GpuContext
from tensorbow.kernels.gpu.runtime.slots import PinnedSlots
from tensorbow.kernels.gpu.source.copies_of_arrays import copy_arrays
from tensorbow.program.plan import BoundPlan, Executable, Group, PlannedLaunch, Ref, Region, access_ranges
from tensorbow.program.swaps import SwapIn, SwapOut
from tensorbow.specs import Array

EAGER_LAUNCHES = 1  # launches of a segment before it is captured


@dataclass
class _Piece:
    """Neighbouring groups of a segment that can be captured together, or one group that cannot.

    graph: handle once captured. reason: why it is not captured.
    """

    groups: list[Group] = field(default_factory=list)
    calls: list[Enqueue] = field(default_factory=list)
    graph: int = 0
    reason: str = ""


class GpuPlan(BoundPlan):
    """The prepared launches of every segment, and their graphs."""

    keeps_values = True

    def __init__(
        self,
        executable: Executable,
        bases: Mapping[Region, int],
        group: StreamGroup,
        ring: int,
        context: GpuContext,
        *,
        capture: bool = True,
    ):
        """capture: False always launches the kernels one by one."""
        self.executable = executable
        self.bases = dict(bases)
        self._device = group.device
        self.group, self.context, self.stream = group, context, context.stream
        self._runtime = context.runtime
        self.ring = ring
        self._capture = capture
        self._launches = [0] * len(executable.segments)
        self._pieces = [self._prepare(number) for number in range(len(executable.segments))]
        self._feeds = PinnedSlots(self._device, self._runtime, self.stream, self._refs_of_feeds(), ring + 1)
        self._status = self.address(executable.state["status"])
        self._scalars = {key: ref for key, ref in executable.state.items() if key != "status"}
        self._state = PinnedSlots(self._device, self._runtime, self.stream, self._scalars, ring + 1)
        nbytes = max(executable.ring_nbytes, 1)
        self._results = self._device.host_array((ring, nbytes), np.uint8)
        self._columns = [self._column(ref) for ref in executable.fetches]
        self._fetched = [tuple(column[step, ...] for column in self._columns) for step in range(ring)]

    def _column(self, ref: Ref) -> Array:
        """A fetched value of all steps in the pinned RING: [ring, *shape]."""
        dtype = ref.dtype.as_numpy_dtype
        if not ref.nbytes:
            return np.empty((self.ring, *ref.shape), dtype)
        strides = self._results.strides[0], *np.empty(ref.shape, dtype).strides
        column: Array = np.ndarray((self.ring, *ref.shape), dtype, self._results, ref.offset, strides)
        return column

    def _refs_of_feeds(self) -> dict[str, Ref]:
        inputs = self.executable.inputs.items()  # those in the slab are received, see `copy_in`
        return {name: ref for name, ref in inputs if ref.nbytes and ref.region is not Region.SLAB}

    # Preparing ----------------------------------------------------------------------------------

    def address(self, ref: Ref) -> int:
        """Address of memory that the plan is bound to."""
        return self.bases[ref.region] + ref.offset

    def _array(self, ref: Ref) -> DeviceArray:
        return DeviceArray(self.address(ref), ref.shape, ref.dtype.as_numpy_dtype)

    def _prepare(self, number: int) -> list[_Piece]:
        """Prepares the pieces of a segment; the last one also gathers the fetches."""
        segment = self.executable.segments[number]
        pieces: list[_Piece] = []
        gathers = self.context.gathers_convolutions
        for launch in launches_of(unpacked(segment.groups) if gathers else segment.groups):
            calls = [self._bound(group) for group in launch.groups]
            pieces.append(_Piece(list(launch.groups), calls, reason=launch.reason))
        if segment.fetches and self.executable.fetches:
            if not pieces or pieces[-1].reason:
                pieces.append(_Piece())
            ends = zip(self.executable.fetches, self.executable.fetch_sources, strict=True)
            pairs = [(self._array(target), self._array(source)) for target, source in ends]
            pieces[-1].calls.append(copy_arrays(self.context, pairs))
        return pieces

    def _bound(self, group: Group) -> Enqueue:
        is_predicated = group.predicated or _writes_central(group)
        status = self.executable.state["status"] if is_predicated else None
        call = call_of(group, self._array, self.context, status)
        try:
            return group.kernel.bind(cast("KernelCall", call))
        except TensorBowError as error:
            raise type(error)(self._blame(group, error)) from error
        except Exception as error:
            raise InternalError(self._blame(group, error)) from error

    def _blame(self, group: Group, error: Exception) -> str:
        return blame(group.definition.name, group.name, error, group.source)

    # Running ------------------------------------------------------------------------------------

    def write(self, inputs: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        """Copies feeds and step scalars to pinned memory at once, and enqueues the copies to the device."""
        self._feeds.send(inputs, self.bases)
        if state:
            scalars = {key: value for key, value in state.items() if key != "status"}
            self._state.send(scalars, self.bases, only_changes=True)
            if "status" in state:
                byte = int(bool(state["status"]))  # of each of its eight: any other than 0 sets it
                self._runtime.fill(self._status, byte, 8, self.stream)

    def copy_out(self, ref: Ref, target: Array) -> None:
        """Enqueues a copy to pinned memory, or to the other GPU that a mailbox is on."""
        if isinstance(target, PeerArray):
            if ref.nbytes:
                peer, source = target.device.runtime.index, self.address(ref)
                self._runtime.copy_to_peer(peer, target.address, source, ref.nbytes, self.stream)
        elif ref.nbytes:
            ends = target.ctypes.data, self.address(ref)
            self._runtime.copy(*ends, ref.nbytes, CopyKind.DEVICE_TO_HOST, self.stream)

    def copy_in(self, name: str, source: Array) -> None:
        """Enqueues a copy from pinned memory, or from a mailbox or value on this GPU, to an input."""
        ref = self.executable.inputs[name]
        if isinstance(source, (PeerArray, DeviceValue)):
            if ref.nbytes:
                ends = self.address(ref), source.address
                self._runtime.copy(*ends, ref.nbytes, CopyKind.DEVICE_TO_DEVICE, self.stream)
        elif ref.nbytes:
            ends = self.address(ref), source.ctypes.data
            self._runtime.copy(*ends, ref.nbytes, CopyKind.HOST_TO_DEVICE, self.stream)

    def launch(self, segment: int, step: int = 0) -> None:
        """Enqueues a segment, then the copy of its fetches to the pinned RING.

        Raises a launch's error with op name and user line, or a graph's error with the segment's name.
        """
        self._compute(segment)
        if self.executable.segments[segment].fetches and self.executable.ring_nbytes:
            target = self._results.ctypes.data + step % self.ring * self._results.strides[0]
            source, nbytes = self.bases[Region.RING], self.executable.ring_nbytes
            self._runtime.copy(target, source, nbytes, CopyKind.DEVICE_TO_HOST, self.stream)

    def launch_keeping(self, segment: int, kept: Mapping[int, DeviceValue]) -> None:
        """Copies only the other fetches to the pinned RING; see BoundPlan.launch_keeping."""
        if not (self.executable.segments[segment].fetches and kept):
            self.launch(segment)
            return
        self._compute(segment)
        for number, ref in enumerate(self.executable.fetches):
            if number in kept:
                ends, kind = (kept[number].address, self.address(ref)), CopyKind.DEVICE_TO_DEVICE
            else:
                ends = self._results.ctypes.data + ref.offset, self.address(ref)
                kind = CopyKind.DEVICE_TO_HOST
            if ref.nbytes:
                self._runtime.copy(*ends, ref.nbytes, kind, self.stream)

    def _compute(self, segment: int) -> None:
        """Enqueues a segment up to the call that gathers its fetches in the RING."""
        captures = self._capture and self._launches[segment] >= EAGER_LAUNCHES
        self._launches[segment] += 1
        for piece in self._pieces[segment]:
            if captures and not piece.reason and not piece.graph:
                self._capture_piece(segment, piece)
            if piece.graph:
                self._launch_graph(segment, piece.graph)
            else:
                self._run(piece)

    def enqueue(self, segment: int) -> None:
        """Enqueues the calls of a segment one by one, without those that gather the fetches.

        Raises a call's error with op name and user line.
        """
        for piece in self._pieces[segment]:
            self._run(piece, len(piece.groups))

    def _run(self, piece: _Piece, most: int | None = None) -> None:
        number = 0
        try:
            for number, call in enumerate(piece.calls[:most]):  # noqa: B007 - tells which call failed
                call()
        except Exception as error:
            if number >= len(piece.groups):  # a call that gathers fetches
                raise
            message = self._blame(piece.groups[number], error)
            if isinstance(error, CudaError):
                raise CudaError(message, error.status, error.sticky) from error
            kind = type(error) if isinstance(error, TensorBowError) else InternalError
            raise kind(message) from error

    def _capture_piece(self, segment: int, piece: _Piece) -> None:
        """Captures a piece as a graph; if CUDA refuses, it runs call by call, and `reason` says why."""
        runtime, stream = self._runtime, self.stream
        runtime.begin_capture(stream)
        try:
            self._run(piece)
        except BaseException as error:
            with suppress(TensorBowError):
                runtime.destroy_graph(runtime.end_capture(stream))
            if isinstance(error, CudaError) and not error.sticky:
                piece.reason = f"its capture failed: {error}"
                return
            raise
        try:
            piece.graph = runtime.end_capture(stream)
        except ResourceExhaustedError as error:
            name = self.executable.segments[segment].name
            raise ResourceExhaustedError(
                f"no memory to capture segment {name} of {len(piece.calls)} calls: {error}"
            ) from error
        except CudaError as error:
            if error.sticky:
                raise
            piece.reason = f"its capture failed: {error}"

    def _launch_graph(self, segment: int, graph: int) -> None:
        try:
            self._runtime.launch_graph(graph, self.stream)
        except TensorBowError as error:
            message = f"segment {self.executable.segments[segment].name}: {error}"
            if isinstance(error, CudaError):
                raise CudaError(message, error.status, error.sticky) from error
            raise type(error)(message) from error

    def fetch_arrays(self, step: int) -> tuple[Array, ...]:
        """Views of the pinned RING; valid when an event recorded after the launch is done."""
        return self._fetched[step % self.ring]

    def fetch_runs(self, first: int, count: int) -> list[Array]:
        """Copies of the fetched values of consecutive steps: by fetch, [count, *shape]."""
        steps = np.arange(first, first + count) % self.ring
        return [column[steps] for column in self._columns]

    def fetch_copies(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Copies of the fetched values to the pinned RING, see `rounds.source.COPY`."""
        target, step = self._results.ctypes.data, self._results.strides[0]
        for source, ref in zip(self.executable.fetch_sources, self.executable.fetches, strict=True):
            if ref.nbytes:
                yield self.address(source), target + ref.offset, 0, step, ref.nbytes

    def forget_sent(self) -> None:
        """Has all step scalars sent anew: others may have written them on the device."""
        self._state.forget()

    def accesses(self, segment: int) -> tuple[Sequence[Access], Sequence[Access]]:
        """Memory that a segment reads and writes, without the plan's pinned memory."""
        groups = self.executable.segments[segment].groups
        reads = access_ranges((ref for group in groups for ref in group.reads), self.bases)
        writes = access_ranges((ref for group in groups for ref in group.writes), self.bases)
        return reads, writes

    def find_nonfinite(self, segment: int) -> str | None:
        """Runs a segment call by call; names the first op with a NaN or infinite output, and its line."""
        for piece in self._pieces[segment]:
            for group, call in zip(piece.groups, piece.calls, strict=False):
                call()
                self._runtime.synchronize_stream(self.stream)
                if group.definition in (SwapOut, SwapIn):  # copies that have not ended, of what was checked
                    continue
                for ref in group.outputs:
                    if ref.dtype.is_floating and ref.nbytes:
                        value = self._device.read(self.address(ref), ref.shape, ref.dtype.as_numpy_dtype)
                        if not np.isfinite(value).all():
                            note = f"; {group.note}" if group.note else ""
                            return f"{group.definition.name} {group.name} (made at {group.source}{note})"
        return None

    def launches(self, segment: int) -> list[PlannedLaunch]:
        """Lists calls that are captured together, and calls that are not, as far as known by now."""
        return [
            PlannedLaunch(tuple(piece.groups), piece.reason)
            for piece in self._pieces[segment]
            if piece.groups
        ]

    def close(self) -> None:
        """Destroys the graphs; nothing of the plan may be running."""
        for pieces in self._pieces:
            for piece in pieces:
                graph, piece.graph = piece.graph, 0
                if graph:
                    with suppress(TensorBowError):
                        self._runtime.destroy_graph(graph)
        self._feeds.close()
        self._state.close()


def _writes_central(group: Group) -> bool:
    """True for what moves z, once for all replicas: not in rounds behind one whose status ends them."""
    return any(ref.region is Region.CENTRAL for ref in group.writes)
