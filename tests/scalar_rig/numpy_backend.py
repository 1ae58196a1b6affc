"""CPU backend that runs fused ops and updates of variables by the NumPy form of their rules.

It plans like a GPU's backend: maps without scratch, fused; neighbouring updates and their averaging merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tensorbow.devices import get_device
from tensorbow.graph import Kernel, KernelCall, OpDef
from tensorbow.kernels import backend_for, register_backend
from tensorbow.kernels.averaged_updates import KEYS, AveragedUpdate, merge_averaging
from tensorbow.kernels.merging import merge_updates
from tensorbow.kernels.reference import ReferenceBackend, ReferencePlan
from tensorbow.kernels.scalars import RULES, FusedMap, fuse_maps, results_of
from tensorbow.program import Executable
from tensorbow.program.nodes import Node, Unit
from tensorbow.specs import as_dtype
from tests.scalar_rig.numpy_form import to_numpy


def run_fused(fused: FusedMap) -> Callable[[KernelCall], Callable[[], None]]:
    """Kernel of a fused unit, for its `prepare=`."""

    def prepare(call: KernelCall) -> Callable[[], None]:
        def step() -> None:
            (result,) = to_numpy([fused.result], call.inputs)
            np.copyto(call.inputs[0] if fused.assigns else call.outputs[0], result)

        return step

    return prepare


def run_rule(definition: OpDef) -> Callable[[KernelCall], Callable[[], None]]:
    """Kernel of an op of the table."""

    def prepare(call: KernelCall) -> Callable[[], None]:
        state = [call.state[key] for key in definition.state]
        dtypes = [as_dtype(array.dtype) for array in call.inputs]
        results = results_of(definition, call.attrs, dtypes, [as_dtype(a.dtype) for a in state])
        aliased = {output for output, _ in definition.alias}
        targets = [array for index, array in enumerate(call.outputs) if index not in aliased]
        targets += [call.inputs[index] for index in definition.writes]

        def step() -> None:
            for target, value in zip(targets, to_numpy(results, [*call.inputs, *state]), strict=True):
                np.copyto(target, value)

        return step

    return prepare


def run_averaged(averaged: AveragedUpdate) -> Callable[[KernelCall], Callable[[], None]]:
    """Kernel of an update with its averaging, for `prepare=`."""

    def prepare(call: KernelCall) -> Callable[[], None]:
        arrays = [*call.inputs, *(call.state[key] for key in KEYS)]
        targets = [*call.outputs, *(call.inputs[number] for number in averaged.written)]

        def step() -> None:
            for target, value in zip(targets, to_numpy(averaged.results, arrays), strict=True):
                np.copyto(target, value)

        return step

    return prepare


def averaged_kernel(averaged: AveragedUpdate) -> Kernel:
    """Registered kernel of an update with its averaging."""
    return Kernel(prepare=run_averaged(averaged), pointwise=True)


class NumpyRulesBackend(ReferenceBackend):
    """Backend with fusion and merging switched by `fuses` and `merges`."""

    def __init__(self, fuses: bool = True, merges: bool = True):
        self.fuses, self.merges = fuses, merges
        self.bound: list[Executable] = []

    def fuse(self, nodes: Sequence[Node]) -> list[Unit]:
        if not self.fuses:
            nodes = [node for node in nodes if not node.definition.is_view]
            return [Unit((n,), self._rule_kernel(n), n.inputs, n.outputs) for n in nodes]
        return fuse_maps(nodes, self._rule_kernel, lambda fused: Kernel(prepare=run_fused(fused)))

    def _rule_kernel(self, node: Node) -> Kernel:
        if node.definition.writes and node.definition in RULES:
            return Kernel(prepare=run_rule(node.definition), pointwise=True)
        return self._kernel(node)

    def bind(self, executable: Executable, bases: Any, group: Any, ring: int) -> ReferencePlan:
        if self.merges:
            segments = []
            for segment in executable.segments:
                merged = merge_averaging(merge_updates(segment.groups), averaged_kernel)
                segments.append(replace(segment, groups=tuple(merged)))
            executable = replace(executable, segments=tuple(segments))
        self.bound.append(executable)
        return ReferencePlan(executable, bases, group.device, ring)


@contextmanager
def used(backend: NumpyRulesBackend) -> Iterator[NumpyRulesBackend]:
    """Registers the backend for CPU devices while the context lasts."""
    before = backend_for(get_device("/cpu:0"))
    register_backend("cpu", backend)
    try:
        yield backend
    finally:
        register_backend("cpu", before)
