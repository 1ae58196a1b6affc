"""The GPU backend: selects kernels, makes one context per stream group, binds plans."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence

from tensorbow.devices import Device, GpuDevice, StreamGroup
from tensorbow.devices.cuda_libraries import wheel_versions
from tensorbow.devices.cuda_runtime import CudaRuntime
from tensorbow.devices.gpu_stream import GpuStream
from tensorbow.errors import InternalError, UnimplementedError
from tensorbow.graph import Kernel, blame
from tensorbow.kernels.binary_cache import cache_folder
from tensorbow.kernels.gpu import kernels  # noqa: F401 - registers the kernels
from tensorbow.kernels.gpu.fused.plan import why_not
from tensorbow.kernels.gpu.fusion.fuse import fuse
from tensorbow.kernels.gpu.launches import launches_of
from tensorbow.kernels.gpu.plan import GpuPlan
from tensorbow.kernels.gpu.rounds.program import GpuRounds, why_not_whole
from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.kernels.gpu.runtime.context import GpuContext, GpuOptions
from tensorbow.kernels.gpu.runtime.program import ProgramCache
from tensorbow.program.backend import Backend
from tensorbow.program.nodes import Node, Unit
from tensorbow.program.plan import BoundPlan, Executable, PlannedLaunch, Region, Segment
from tensorbow.program.rounds import RoundProgram, RoundProgramSpec
from tensorbow.specs import COMPILED, uint8, uncompiled

HOPPER = 90
WORKSPACE_NBYTES = 8 << 20  # of cuBLAS and cuDNN, per stream group
HOPPER_WORKSPACE_NBYTES = 32 << 20  # NVIDIA's recommendation for cuBLAS on Hopper


class GpuBackend(Backend):
    """One program cache per physical GPU, one context per stream group."""

    kernel_kind = "gpu"
    title = "CUDA"

    def __init__(self) -> None:
        self.capture = True
        self._lock = threading.Lock()  # guards the two dictionaries
        self._programs: weakref.WeakKeyDictionary[CudaRuntime, ProgramCache] = weakref.WeakKeyDictionary()
        self._contexts: weakref.WeakKeyDictionary[StreamGroup, GpuContext] = weakref.WeakKeyDictionary()

    def made_with(self, device: Device) -> dict[str, str]:
        """See Backend.made_with. Versions of cuBLAS and cuDNN are known only if they come from wheels."""
        facts = {**super().made_with(device), **wheel_versions(), "precision": device.compute}
        if isinstance(device, GpuDevice):
            facts |= {"model": device.runtime.properties.name, "compiler": device.runtime.compiler}
        return facts

    def fuse(self, nodes: Sequence[Node]) -> list[Unit]:
        """Fuses element-wise nodes of one shape into one kernel, see `scalars.fuse_maps`.

        Raises UnimplementedError for an op without a GPU kernel.
        """
        return fuse(nodes, self._kernel)

    def _kernel(self, node: Node) -> Kernel:
        """See Backend._kernel. Raises UnimplementedError for a dtype that no GPU kernel computes with."""
        missing = uncompiled(value.spec.dtype for value in (*node.inputs, *node.outputs))
        if missing:
            error = UnimplementedError(
                f"GPU kernels have no {missing.name} (they have: {', '.join(d.name for d in COMPILED)}); "
                "tb.cast to one of them, or place the op on a CPU by tb.device"
            )
            raise UnimplementedError(blame(node.definition.name, node.name, error, node.source))
        return super()._kernel(node)

    def bind(
        self, executable: Executable, bases: Mapping[Region, int], group: StreamGroup, ring: int
    ) -> BoundPlan:
        """Prepares the launches; a segment is captured at its second launch."""
        return GpuPlan(executable, bases, group, ring, self.context_of(group), capture=self.capture)

    def round_program(self, plans: Sequence[BoundPlan], rounds: RoundProgramSpec) -> RoundProgram | None:
        """Rounds as CUDA graphs; None for a step with a call that cannot be captured."""
        if not self.capture or why_not_whole(rounds.step, rounds.variants):
            return None
        return GpuRounds([plan for plan in plans if isinstance(plan, GpuPlan)], rounds)

    def why_not_fused(self, step: Executable, variants: Sequence[str]) -> str:
        """See Backend.why_not_fused."""
        if not self.capture:
            return "steps are not captured"
        return why_not_whole(step, variants) or why_not(step)

    def launches(self, segment: Segment) -> Sequence[PlannedLaunch]:
        """Lists calls that are captured together, and calls that are not captured."""
        return launches_of(segment.groups)

    def workspaces(self, device: Device) -> Sequence[int]:
        """Bytes of the library workspaces of a stream group."""
        hopper = isinstance(device, GpuDevice) and device.runtime.properties.architecture >= HOPPER
        return (HOPPER_WORKSPACE_NBYTES if hopper else WORKSPACE_NBYTES,)

    def context_of(self, group: StreamGroup) -> GpuContext:
        """The context of a stream group, made with its first plan, closed with the group.

        It uses the device's float32 precision at that time (`Device.compute`).
        Raises ResourceExhaustedError for its workspace.
        """
        with self._lock:
            context = self._contexts.get(group)
            if context is None:
                device, stream = group.device, group.compute
                if not isinstance(device, GpuDevice) or not isinstance(stream, GpuStream):
                    raise InternalError(f"a GPU plan needs a GPU's stream group, got {group!r}")
                runtime = device.runtime
                programs = self._programs.get(runtime)
                if programs is None:
                    programs = self._programs[runtime] = ProgramCache(runtime, cache_folder("cuda"))
                (nbytes,) = self.workspaces(device)
                block = group.allocate(nbytes, owner=f"{group.name} library workspace")
                address = block.address if block is not None else 0
                workspace = DeviceArray(address, (nbytes,), uint8.as_numpy_dtype)
                options = GpuOptions(device.compute)
                context = GpuContext(
                    runtime, stream.handle, programs, workspace, options, allocator=group.allocator
                )
                self._contexts[group] = context
                group.at_close(context.close)
            return context
