"""Fusion on a GPU: one map kernel for element-wise nodes of one shape, or for an update and the averaging
around it (see `kernels.averaged_updates`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from tensorbow.graph import Kernel, KernelCall
from tensorbow.kernels.averaged_updates import KEYS, AveragedUpdate
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall
from tensorbow.kernels.gpu.source.maps import prepare_map
from tensorbow.kernels.scalars import FusedMap, fuse_maps
from tensorbow.program.nodes import Node, Unit


def fuse(nodes: Sequence[Node], kernel_of: Callable[[Node], Kernel]) -> list[Unit]:
    """The units of a segment; `kernel_of` gives the GPU kernel of a node that is not fused."""
    return fuse_maps(nodes, kernel_of, _kernel)


def _kernel(fused: FusedMap) -> Kernel:
    def prepare(call: GpuCall) -> Enqueue:
        targets = call.inputs[:1] if fused.assigns else call.outputs
        predicated = fused.assigns or call.predicate is not None
        return prepare_map(
            call.context, fused.name, [fused.result], call.inputs, targets, call.predicate, predicated
        )

    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare))


def averaged_kernel(averaged: AveragedUpdate) -> Kernel:
    """The kernel of an update and the averaging around it."""

    def prepare(call: GpuCall) -> Enqueue:
        arrays = (*call.inputs, *(call.state[key] for key in KEYS))
        targets = (*call.outputs, *(call.inputs[number] for number in averaged.written))
        return prepare_map(call.context, f"averaged {averaged.name}", averaged.results, arrays, targets)

    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare), pointwise=True)
