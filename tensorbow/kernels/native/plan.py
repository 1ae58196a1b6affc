"""A plan whose segments are native functions, with reference kernels for ops without native code."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorbow.devices import Device
from tensorbow.errors import InternalError, TensorBowError
from tensorbow.graph import KernelCall, NodeSpec
from tensorbow.kernels.averaged_updates import AveragedUpdate, merge_averaging
from tensorbow.kernels.merging import merge_updates
from tensorbow.kernels.native.codegen.blocks import program_of, raise_refused
from tensorbow.kernels.native.codegen.compiler import NativeCode
from tensorbow.kernels.native.codegen.functions import compile_groups
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import lowering_for
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.fusion.factored_gradients import factor_gradients, overflowing
from tensorbow.kernels.native.ops.maps import averaged_kernel
from tensorbow.kernels.reference import ReferencePlan
from tensorbow.kernels.rounded_products import FULL, ROUNDED
from tensorbow.ops.definition import kernel_for
from tensorbow.program.plan import Executable, Group, PlannedLaunch, Region
from tensorbow.specs import TensorSpec

NATIVE = "one native function"


class NativeSegments:
    """An executable prepared for running: updates merged, runs of native calls compiled.

    Shared by all bindings. executable: with the merged calls. runs: per segment, the first call and the end
    of each run.
    """

    def __init__(self, executable: Executable, target: Target, folder: Path | None):
        is_rounded = any(
            isinstance(group.kernel, NativeKernel) and group.kernel.rounds
            for segment in executable.segments
            for group in segment.groups
        )  # fixed when the scratch was planned, whatever the device's precision is now
        target = replace(target, compute=ROUNDED if is_rounded else FULL)
        averaged: dict[Hashable, AveragedUpdate] = {}
        merged = (replace(s, groups=tuple(_merged(s.groups, target, averaged))) for s in executable.segments)
        whole = replace(executable, segments=tuple(merged))
        self.executable = whole
        if target.switches.factored_gradients:
            self.executable = factor_gradients(whole, averaged)
        self.runs = [_runs(segment.groups) for segment in self.executable.segments]
        self.target = target
        self.folder = folder
        self._lock = threading.Lock()  # guards the code; held while compiling, so nothing is compiled twice
        self._code: NativeCode | None = None
        # Of `rounds.code.code_of`. A weak table with segments as keys would keep them, since codes have them.
        self.round_codes: dict[Hashable, Any] = {}

    def code(self) -> NativeCode:
        """The functions `run0`, `run1`, ... of all runs in order, compiled on first use."""
        with self._lock:
            if self._code is None:
                step = self.executable
                runs = [
                    segment.groups[first:end]
                    for segment, bounds in zip(step.segments, self.runs, strict=True)
                    for first, end in bounds
                ]
                self._code = compile_groups(runs, step.state["status"], self.target, self.folder)
            return self._code

    def function_of(self, segment: int) -> str | None:
        """Name of the function that covers a whole segment; None if it has reference kernels."""
        if self.runs[segment] != [(0, len(self.executable.segments[segment].groups))]:
            return None
        return f"run{self.first_run(segment)}"

    def first_run(self, segment: int) -> int:
        """Number of a segment's first run."""
        return sum(map(len, self.runs[:segment]))


def launches_of(groups: Sequence[Group], target: Target) -> list[PlannedLaunch]:
    """A segment's launches, updates merged: runs of native calls, and each other call by itself."""
    merged = _merged(groups, target)
    launches: list[PlannedLaunch] = []
    start = 0
    for first, end in [*_runs(merged), (len(merged), len(merged))]:
        for group in merged[start:first]:
            reason = f"{group.definition.name} {group.name} has no native code: its reference kernel runs"
            launches.append(PlannedLaunch((group,), reason))
        if first < end:
            launches.append(PlannedLaunch(tuple(merged[first:end]), form=NATIVE))
        start = end
    return launches


def _merged(
    groups: Sequence[Group], target: Target, averaged: dict[Hashable, AveragedUpdate] | None = None
) -> list[Group]:
    """Merges neighbouring updates, and the averaging around them, into single passes, with native code.

    averaged: receives the expressions of the passes, by the form of their kernels.
    """

    def kernel_of(update: AveragedUpdate) -> NativeKernel:
        kernel = averaged_kernel(update)
        if averaged is not None:
            averaged[kernel.form] = update
        return kernel

    merged = merge_updates(groups) if target.switches.merged_updates else groups
    if target.switches.averaged_updates:
        merged = merge_averaging(merged, kernel_of)
    return [native_call(group, target) for group in merged]


def native_call(group: Group, target: Target) -> Group:
    """A call planned with its reference kernel, with native code instead if there is some."""
    if isinstance(group.kernel, NativeKernel) or group.scratch:
        return group
    node = _node(group)
    lowering = lowering_for(group.definition, node, target)
    if lowering is None or lowering.scratch(node, target):
        return group
    return replace(group, kernel=NativeKernel(emit=lowering.emit, pointwise=lowering.pointwise))


def _node(group: Group) -> NodeSpec:
    inputs, outputs = (
        tuple(TensorSpec(ref.shape, ref.dtype) for ref in refs) for refs in (group.inputs, group.outputs)
    )
    return NodeSpec(group.attrs, inputs, outputs)


def _runs(groups: Sequence[Group]) -> list[tuple[int, int]]:
    """First call and end of each run of calls with native code."""
    runs: list[tuple[int, int]] = []
    for number, group in enumerate(groups):
        if isinstance(group.kernel, NativeKernel):
            if runs and runs[-1][1] == number:
                runs[-1] = (runs[-1][0], number + 1)
            else:
                runs.append((number, number + 1))
    return runs


class NativePlan(ReferencePlan):
    """A bound plan: calls of native functions with its base addresses, and of reference kernels."""

    def __init__(self, segments: NativeSegments, bases: Mapping[Region, int], device: Device, ring: int):
        super().__init__(segments.executable, bases, device, ring)
        self._target = segments.target
        self._code = segments.code()  # keeps the functions alive
        self._array_of_bases = (ctypes.c_void_p * len(Region))()
        for region, base in bases.items():
            self._array_of_bases[region] = base
        address = ctypes.addressof(self._array_of_bases)
        self._refused: Group | None = None  # whose input is being refused
        self._prepared = [list(calls) for calls in self._calls]  # by group; None entries for native code
        self._single: dict[int, list[Callable[[], None]]] = {}  # by segment, made on first use: by group
        self._words: dict[int, NDArray[np.int64]] = {}  # argument of their native functions, see `add_run`
        self._first_groups = [list(range(len(calls))) for calls in self._calls]  # of each call
        self.segments = segments
        self._is_native = [segments.function_of(number) is not None for number in range(len(segments.runs))]
        self.is_one_call = self._is_native == [True]
        for segment, runs in enumerate(segments.runs):
            calls, first_groups = self._calls[segment], self._first_groups[segment]
            groups = self.executable.segments[segment].groups
            for number, (first, end) in reversed([*enumerate(runs, segments.first_run(segment))]):
                calls[first:end] = [self._step(f"run{number}", address, groups[first:end])]
                first_groups[first:end] = [first]

    def _run(self, segment: int) -> None:
        """See ReferencePlan._run; a fully native segment is one call with little overhead."""
        calls = self._calls[segment]
        if not self._is_native[segment]:
            super()._run(segment)
            return
        try:
            calls[0]()
        except TensorBowError as error:
            raise type(error)(self._blame(segment, 0, error)) from error

    @property
    def bases_address(self) -> int:
        """Address of the array of the regions' base addresses, for native code."""
        return ctypes.addressof(self._array_of_bases)

    @property
    def ring(self) -> int:
        """Number of RING slots."""
        return self._ring

    def state_bytes(self) -> NDArray[np.uint8]:
        """A copy of STATE with the status cleared."""
        nbytes = self.executable.region_nbytes.get(Region.STATE, 0)
        copied = np.array(self._device.view(self._bases[Region.STATE], (nbytes,), np.uint8))
        status = self.executable.state["status"]
        copied[status.offset : status.offset + status.nbytes] = 0
        return copied

    def refuse(self, group: Group) -> None:
        """Raises the error of a call that refuses its input, with the op's name and the user's line."""
        try:
            self._raise_of(group)
        except TensorBowError as error:
            raise type(error)(self._blame_group(group, error)) from error

    def _step(self, name: str, address: int, groups: Sequence[Group]) -> Callable[[], None]:
        """Calls the native function of a run; raises the error of a group that refuses its input."""
        function = self._code.function(name)
        weak_plan = weakref.ref(self)  # avoids a cycle that would keep the memory until the collector runs

        def step() -> None:
            number = function(address)
            if number >= 0 and (plan := weak_plan()) is not None:
                plan._refused = groups[number]
                plan._raise_of(groups[number])

        return step

    def _raise_of(self, group: Group) -> None:
        """Runs the reference kernel of a refused call, which raises."""
        program = program_of(group.attrs)
        if program is not None:
            operands = (*group.inputs, *group.outputs, *group.scratch)
            raise_refused(program, self._target, [self._shared_array(ref) for ref in operands])
        node = _node(group)
        kernel = kernel_for(group.definition, "cpu")
        scratch = [np.empty(s.extents, s.dtype.as_numpy_dtype) for s in kernel.scratch_specs(node)]
        own = group.inputs[:-1] if group.definition.random else group.inputs  # without the seeds
        inputs, outputs = (tuple(map(self._shared_array, refs)) for refs in (own, group.outputs))
        state = {key: self._shared_array(ref) for key, ref in group.state}
        with np.errstate(all="ignore"):
            kernel.bind(KernelCall(group.attrs, inputs, outputs, tuple(scratch), state))()
        raise InternalError(f"native {group.definition.name} refused what its reference kernel takes")

    def _blame(self, segment: int, call: int, error: Exception) -> str:
        group, self._refused = self._refused, None
        if group is None:
            group = self.executable.segments[segment].groups[self._first_groups[segment][call]]
        return self._blame_group(group, error)

    def _blame_group(self, group: Group, error: Exception) -> str:
        self._refused = None
        return super()._blame_group(group, error)

    def launches(self, segment: int) -> list[PlannedLaunch]:
        """Lists runs of calls that are one native function, and calls of reference kernels."""
        return launches_of(self.executable.segments[segment].groups, self._target)

    def find_nonfinite(self, segment: int) -> str | None:
        """See ReferencePlan.find_nonfinite; factored products are checked last."""
        found = super().find_nonfinite(segment)
        return found or overflowing(self.executable.segments[segment].groups, self._shared_array)

    def _one_by_one(self, segment: int) -> Sequence[Callable[[], None]]:
        single = self._single.get(segment)
        if single is None:
            single = self._single[segment] = list(self._prepared[segment])
            groups, runs = self.executable.segments[segment].groups, self.segments.runs[segment]
            words = self._words[segment] = np.zeros((len(groups), 2), np.int64)
            words[:, 0] = self.bases_address
            for number, (first, end) in enumerate(runs, self.segments.first_run(segment)):
                words[first:end, 1] = range(end - first)
                for call in range(first, end):
                    address = words[call].ctypes.data
                    single[call] = self._step(f"call{number}", address, groups[first:end])
        return single

    def _prepare(self, group: Group) -> Callable[[], None]:
        return _nothing if isinstance(group.kernel, NativeKernel) else super()._prepare(group)


def _nothing() -> None:
    """Placeholder of a native call until the functions are bound."""
