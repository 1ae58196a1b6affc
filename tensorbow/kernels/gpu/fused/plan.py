"""A plan bound for all replicas of a device: about as many launches for k replicas as for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tensorbow.devices import StreamGroup
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import InternalError, TensorBowError, UnimplementedError
from tensorbow.graph import KernelCall, blame
from tensorbow.kernels.gpu.cupy_kernel import CupyKernel
from tensorbow.kernels.gpu.fused.context import FusedContext
from tensorbow.kernels.gpu.fused.memory import ReplicaMemory
from tensorbow.kernels.gpu.fusion.packed_filters import unpacked
from tensorbow.kernels.gpu.launches import launches_of
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall, call_of
from tensorbow.kernels.gpu.runtime.context import GpuContext
from tensorbow.kernels.gpu.source.copies_of_arrays import copy_arrays
from tensorbow.program.plan import DATA, Executable, Group, Ref, Region, Segment, SegmentKind
from tensorbow.program.swaps import SwapOut

SHARED = (Region.CENTRAL, Region.RESULTS, Region.CONSTANT, *DATA)


def why_not(executable: Executable) -> str:
    """Reason why the replicas of a step cannot be fused; empty where none is known before it is bound."""
    for segment in executable.segments:
        if segment.kind is not SegmentKind.REPLICA:
            continue
        if segment.receives:
            return f"segment {segment.name} receives from other parts of the replica"
        for launch in launches_of(segment.groups):
            if launch.reason:
                return launch.reason
            for group in launch.groups:
                reason = _why_not(group)
                if reason:
                    return f"{group.definition.name} {group.name}: {reason}"
    return ""


def _why_not(group: Group) -> str:
    if isinstance(group.kernel, CupyKernel):
        return "a Python function over CuPy arrays works on one replica at a time"
    if group.definition is SwapOut:
        return "values of a replica are swapped to host memory"
    shared = next((ref.region.name for ref in group.writes if ref.region in SHARED), "")
    return f"every replica writes {shared}, which they share" if shared else ""


class FusedPlan:
    """The replicas' segments of an executable, bound once for all replicas of a device, on one stream.

    Where it launches is the context's stream. Every kernel runs for all replicas, which read and write their
    own memory, as k plans of one replica each would.
    """

    def __init__(
        self,
        executable: Executable,
        bases: Sequence[Mapping[Region, int]],
        group: StreamGroup,
        context: GpuContext,
        *,
        gathers: bool = True,
        workspaces: Sequence[DeviceArray] = (),
    ):
        """bases: base addresses by replica. group: gives tables and workspaces. context: of that group.
        gathers: whether fetched values are copied to RING. workspaces: memory by replica that nothing else
        uses while the plan runs; by default the group's.

        Raises UnimplementedError with the reason for a step that cannot be fused; nothing stays allocated.
        """
        reason = why_not(executable)
        if reason:
            raise UnimplementedError(f"the replicas of this step cannot be fused: {reason}")
        self.executable = executable
        self._bases = dict(bases[0])
        self._gathers = gathers
        self._memory = ReplicaMemory(group, bases, _used_nbytes(executable))
        self._context = FusedContext(context, self._memory)
        try:
            if workspaces:
                self._context.take(workspaces)
            self._calls = [self._prepared(segment) for segment in executable.segments]
        except BaseException:
            self.close()
            raise

    def _array(self, ref: Ref) -> DeviceArray:
        return DeviceArray(self._bases[ref.region] + ref.offset, ref.shape, ref.dtype.as_numpy_dtype)

    def _prepared(self, segment: Segment) -> list[tuple[Group | None, Enqueue]]:
        """The calls of a segment, and the copies of what is fetched at its end."""
        if segment.kind is not SegmentKind.REPLICA:
            return []
        calls: list[tuple[Group | None, Enqueue]] = [
            (group, self._bound(group))
            for launch in launches_of(unpacked(segment.groups))
            for group in launch.groups
        ]
        if self._gathers and segment.fetches and self.executable.fetches:
            ends = zip(self.executable.fetches, self.executable.fetch_sources, strict=True)
            pairs = [(self._array(target), self._array(source)) for target, source in ends]
            calls.append((None, copy_arrays(self._context, pairs)))
        return calls

    def _bound(self, group: Group) -> Enqueue:
        status = self.executable.state["status"] if group.predicated else None
        call = call_of(group, self._array, self._context, status)
        self._context.given.clear()
        try:
            enqueue = group.kernel.bind(cast("KernelCall", call))
        except UnimplementedError as error:
            name = f"{group.definition.name} {group.name}"
            raise UnimplementedError(f"the replicas of this step cannot be fused: {name}: {error}") from error
        except TensorBowError as error:
            raise type(error)(_blame(group, error)) from error
        except Exception as error:
            raise InternalError(_blame(group, error)) from error
        self._check_launched(group, call)
        return enqueue

    def _check_launched(self, group: Group, call: GpuCall) -> None:
        """Raises for a kernel that fills its outputs by other means than the context, for one replica.

        Outputs in the memory of inputs do not count: an update of no rows has nothing to launch.
        """
        inputs = {array.address for array in call.inputs}
        for array in call.outputs:
            if array.nbytes and array.address not in inputs and not self._context.reaches(array):
                raise UnimplementedError(
                    f"the replicas of this step cannot be fused: {group.definition.name} {group.name}: "
                    "its kernel fills its outputs without a launch of its context"
                )

    def enqueue(self, segment: int) -> None:
        """Enqueues a segment of all replicas, and the copies of its fetches to slot 0 of each RING.

        Kernels only, which can be captured. Segments that run once per device are empty. Raises a launch's
        error with op name and user line.
        """
        for group, call in self._calls[segment]:
            try:
                call()
            except Exception as error:
                if group is None:
                    raise
                message = _blame(group, error)
                if isinstance(error, CudaError):
                    raise CudaError(message, error.status, error.sticky) from error
                kind = type(error) if isinstance(error, TensorBowError) else InternalError
                raise kind(message) from error

    def close(self) -> None:
        """Gives tables and workspaces back; nothing of the plan may be running. Idempotent."""
        self._memory.close()


def _used_nbytes(executable: Executable) -> dict[Region, int]:
    """Bytes from the base of each region to the end of what the replicas' segments use."""
    refs: list[Ref] = [*executable.fetches, *executable.fetch_sources, executable.state["status"]]
    for segment in executable.segments:
        if segment.kind is SegmentKind.REPLICA:
            for group in segment.groups:
                refs += [*group.inputs, *group.outputs, *group.scratch, *group.reads, *group.writes]
                refs += [ref for _, ref in group.state]
    nbytes: dict[Region, int] = {}
    for ref in refs:
        nbytes[ref.region] = max(nbytes.get(ref.region, 0), ref.offset + ref.nbytes)
    return nbytes


def _blame(group: Group, error: Exception) -> str:
    return blame(group.definition.name, group.name, error, group.source)
