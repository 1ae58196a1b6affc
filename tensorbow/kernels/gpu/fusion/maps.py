"""Element-wise kernels of fused units, and of an update with the averaging around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from tensorbow.graph import Kernel, KernelCall
from tensorbow.kernels.averaged_updates import KEYS, AveragedUpdate
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall
from tensorbow.kernels.gpu.source.maps import prepare_map
from tensorbow.kernels.scalars import ASSIGNMENTS, RULES, FusedMap, is_fusable, symbols
from tensorbow.program.nodes import Unit


@dataclass(frozen=True)
class MapKernel(Kernel):
    """The kernel of a fused unit, which knows its expression."""

    fused: FusedMap | None = None


def map_kernel(fused: FusedMap) -> Kernel:
    """The kernel of a fused unit."""

    def prepare(call: GpuCall) -> Enqueue:
        targets = call.inputs[:1] if fused.assigns else call.outputs
        predicated = fused.assigns or call.predicate is not None
        return prepare_map(
            call.context, fused.name, [fused.result], call.inputs, targets, call.predicate, predicated
        )

    return MapKernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare), fused=fused)


def map_of(unit: Unit) -> FusedMap | None:
    """The expression of an element-wise unit with one result; None for any other."""
    if isinstance(unit.kernel, MapKernel):
        return unit.kernel.fused
    head = unit.head
    assigns = head.definition in ASSIGNMENTS
    if len(unit.nodes) > 1 or not (assigns or is_fusable(head)):
        return None
    inputs = symbols(value.spec.dtype for value in unit.inputs)
    return FusedMap(head.name, RULES[head.definition](inputs, head.attrs, {})[0], assigns)


def averaged_kernel(averaged: AveragedUpdate) -> Kernel:
    """The kernel of an update and the averaging around it."""

    def prepare(call: GpuCall) -> Enqueue:
        arrays = (*call.inputs, *(call.state[key] for key in KEYS))
        targets = (*call.outputs, *(call.inputs[number] for number in averaged.written))
        return prepare_map(call.context, f"averaged {averaged.name}", averaged.results, arrays, targets)

    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare), pointwise=True)
