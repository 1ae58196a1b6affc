"""The native backend: native code for ops that have it, reference kernels for the others."""

from __future__ import annotations

import os
import threading
import weakref
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from tensorbow.devices import Device, StreamGroup
from tensorbow.errors import FailedPreconditionError
from tensorbow.graph import Kernel, NodeSpec
from tensorbow.kernels.native import lowerings  # noqa: F401 - registers the templates
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import Lowering, lowering_for
from tensorbow.kernels.native.codegen.target import Target, host_target, may_use_tiles
from tensorbow.kernels.native.ops.maps import fused_kernel
from tensorbow.kernels.native.ops.random import with_seeds
from tensorbow.kernels.native.plan import NativePlan, NativeSegments, launches_of
from tensorbow.kernels.native.rounds.code import code_of
from tensorbow.kernels.native.rounds.program import NativeRounds
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.kernels.rounded_products import FULL, ROUNDED, TITLE, explain_rounding, rounds_inside
from tensorbow.kernels.scalars import fuse_maps
from tensorbow.ops.quantization import Quantize
from tensorbow.program.backend import Backend
from tensorbow.program.nodes import Node, Unit
from tensorbow.program.plan import BoundPlan, Executable, PlannedLaunch, Region, Segment
from tensorbow.program.rounds import RoundProgram, RoundProgramSpec
from tensorbow.specs import TensorSpec

EMULATION_VARIABLE = "TENSORBOW_EMULATE_BF16"  # 1: bf16 also on processors without its instructions


class NativeBackend(ReferenceBackend):
    """Compiles each executable once; all its bindings share the code."""

    def __init__(self, target: Target | None = None, folder: Path | None = None):
        """target: by default this machine, with all mechanisms. folder: cache of object code."""
        self.target = target or host_target()
        self.title = (
            f"native code, LLVM {llvm.llvm_version_info[0]}, {8 * self.target.vector_nbytes}-bit vectors"
        )
        self.compute = self.target.compute
        if self.compute == ROUNDED:
            how = "AMX" if self.target.tiles else "AVX-512" if self.target.has_bfloat16 else "emulated"
            self.title += f", {TITLE} ({how})"
        self._folder = folder
        self._lock = threading.Lock()  # guards the table
        self._segments: weakref.WeakKeyDictionary[Executable, NativeSegments] = weakref.WeakKeyDictionary()

    def made_with(self, device: Device) -> dict[str, str]:
        """See Backend.made_with. Ops without native code run reference kernels."""
        features = zlib.crc32(self.target.features.encode())
        return {
            **super().made_with(device),
            "llvmlite": llvmlite.__version__,
            "processor": f"{self.target.processor} (features {features:08x})",
        }

    @cached_property
    def _rounding(self) -> Backend:
        """See ReferenceBackend.computing."""
        if not self.target.has_bfloat16 and os.environ.get(EMULATION_VARIABLE) != "1":
            raise FailedPreconditionError(
                f"compute {ROUNDED}: expected a processor with AVX-512 BF16, got {self.target.processor}, "
                f"which has none; compute in {FULL}, or set {EMULATION_VARIABLE}=1 for the same bits, slower"
            )
        target = replace(self.target, compute=ROUNDED, tiles=may_use_tiles(self.target))
        return NativeBackend(target, self._folder)

    def fuse(self, nodes: Sequence[Node]) -> list[Unit]:
        """Makes a unit of each node, and one of a quantisation with the maps before it.

        Other chains of maps are not fused: their results are in the cache when they are read, and each chain
        would be compiled anew.
        """
        return with_seeds(
            fuse_maps(
                nodes,
                self._kernel,
                fused_kernel,
                joins=lambda node: self._lowering(node) is not None,
                begins=lambda node: node.definition is Quantize,
            )
        )

    def _lowering(self, node: Node) -> Lowering | None:
        inputs, outputs = (tuple(v.spec for v in values) for values in (node.inputs, node.outputs))
        return lowering_for(node.definition, NodeSpec(node.attrs, inputs, outputs), self.target)

    def _kernel(self, node: Node) -> Kernel:
        """The native kernel of a node if there is one, else its reference kernel."""
        reference = super()._kernel(node)
        lowering = self._lowering(node)
        if lowering is None:
            return reference
        rounded = self.compute == ROUNDED and rounds_inside(node)
        return NativeKernel(
            rounds=rounded,
            explain=explain_rounding if rounded else reference.explain,
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

    def round_program(self, plans: Sequence[BoundPlan], rounds: RoundProgramSpec) -> RoundProgram | None:
        """See Backend.round_program; needs fully native segments, and exchanges that are passes."""
        native = [plan for plan in plans if isinstance(plan, NativePlan)]
        if len(native) < len(plans) or len({plan.segments.target for plan in native}) > 1:
            return None
        if not self.target.switches.whole_rounds:
            return None
        with self._lock:
            code = code_of(native[0].segments, rounds)
        return NativeRounds(native, code, rounds) if code.is_possible else None

    def launches(self, segment: Segment) -> Sequence[PlannedLaunch]:
        """Lists runs of calls that are one native function, and calls of reference kernels."""
        return launches_of(segment.groups, self.target)


def _scratch(lowering: Lowering, target: Target, node: NodeSpec) -> Sequence[TensorSpec]:
    return lowering.scratch(node, target)
