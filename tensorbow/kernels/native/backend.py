"""The native backend: native code where there is some, reference kernels elsewhere."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path

import llvmlite.binding as llvm

from tensorbow.devices import StreamGroup
from tensorbow.graph import Kernel, NodeSpec
from tensorbow.kernels.native import lowerings  # noqa: F401 - registers the templates
from tensorbow.kernels.native.contraction_fusion import fuse_epilogues
from tensorbow.kernels.native.kernel import NativeKernel
from tensorbow.kernels.native.lowering import LOWERINGS, Lowering
from tensorbow.kernels.native.maps import fused_kernel
from tensorbow.kernels.native.plan import NativePlan, NativeSegments, launches_of
from tensorbow.kernels.native.target import Target, host_target
from tensorbow.kernels.plan import BoundPlan, Executable, PlannedLaunch, Region, Segment
from tensorbow.kernels.program import Node, Unit
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.kernels.scalars import FusedMap, fuse_maps
from tensorbow.specs import TensorSpec


class NativeBackend(ReferenceBackend):
    """Compiles each executable once; all its bindings share the code."""

    def __init__(self, target: Target | None = None, folder: Path | None = None, *, fuses: bool = True):
        """target: by default this machine. folder: for object code; None keeps none.

        fuses: whether element-wise nodes become one pass; without, each op is a call of its own.
        """
        self.target = target or host_target()
        self.title = (
            f"native code, LLVM {llvm.llvm_version_info[0]}, {8 * self.target.vector_nbytes}-bit vectors"
        )
        self.fuses = fuses
        self._folder = folder
        self._lock = threading.Lock()  # owns the table
        self._segments: weakref.WeakKeyDictionary[Executable, NativeSegments] = weakref.WeakKeyDictionary()

    def fuse(self, nodes: Sequence[Node]) -> list[Unit]:
        """Element-wise nodes of one shape become one pass (`scalars.fuse_maps`), or the end of a contraction.

        Raises UnimplementedError for an op without any CPU kernel.
        """
        maps: dict[Hashable, FusedMap] = {}

        def kernel_of(fused: FusedMap) -> NativeKernel:
            kernel = fused_kernel(fused)
            maps[kernel.form] = fused
            return kernel

        units = fuse_maps(nodes, self._kernel, kernel_of, self._joins)
        return fuse_epilogues(units, maps, self.target) if self.fuses else units

    def _joins(self, node: Node) -> bool:
        return self.fuses and self._lowering(node) is not None

    def _lowering(self, node: Node) -> Lowering | None:
        lowering = LOWERINGS.get(node.definition)
        inputs, outputs = (tuple(v.spec for v in values) for values in (node.inputs, node.outputs))
        if lowering is None or not lowering.takes(NodeSpec(node.attrs, inputs, outputs), self.target):
            return None
        return lowering

    def _kernel(self, node: Node) -> Kernel:
        """Native code for a node where there is some, or its reference kernel."""
        reference = super()._kernel(node)
        lowering = self._lowering(node)
        if lowering is None:
            return reference
        return NativeKernel(
            emit=lowering.emit,
            scratch=partial(_scratch, lowering, self.target),
            inplace=lowering.inplace,
            pointwise=lowering.pointwise,
        )

    def bind(
        self, executable: Executable, bases: Mapping[Region, int], group: StreamGroup, ring: int
    ) -> BoundPlan:
        """Compiles at the first binding."""
        return NativePlan(self.segments_of(executable), bases, group.device, ring)

    def segments_of(self, executable: Executable) -> NativeSegments:
        """The code of an executable, shared by its bindings."""
        with self._lock:
            segments = self._segments.get(executable)
            if segments is None:
                segments = NativeSegments(executable, self.target, self._folder)
                self._segments[executable] = segments
            return segments

    def launches(self, segment: Segment) -> Sequence[PlannedLaunch]:
        """Which calls are one native function, and which run their reference kernels."""
        return launches_of(segment.groups)


def _scratch(lowering: Lowering, target: Target, node: NodeSpec) -> Sequence[TensorSpec]:
    return lowering.scratch(node, target)
