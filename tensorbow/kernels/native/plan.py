"""A plan whose segments are native functions, with reference kernels between them where there is no other."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tensorbow.devices import Device
from tensorbow.errors import InternalError, TensorBowError
from tensorbow.graph import KernelCall, NodeSpec, blame
from tensorbow.kernels.averaged_updates import merge_averaging
from tensorbow.kernels.merging import merge_updates
from tensorbow.kernels.native.compiler import NativeCode
from tensorbow.kernels.native.functions import compile_groups
from tensorbow.kernels.native.kernel import NativeKernel
from tensorbow.kernels.native.maps import averaged_kernel
from tensorbow.kernels.native.target import Target
from tensorbow.kernels.plan import Executable, Group, PlannedLaunch, Region
from tensorbow.kernels.reference import ReferencePlan
from tensorbow.ops.definition import kernel_for
from tensorbow.specs import TensorSpec

NATIVE = "one native function"


class NativeSegments:
    """An executable as it is run: updates merged, runs of native calls compiled.

    Shared by all bindings. executable: with the merged calls. runs: by segment, the first call and the end of
    each run.
    """

    def __init__(self, executable: Executable, target: Target, folder: Path | None):
        merged = (replace(s, groups=tuple(_merged(s.groups))) for s in executable.segments)
        self.executable = replace(executable, segments=tuple(merged))
        self.runs = [_runs(segment.groups) for segment in self.executable.segments]
        self._target = target
        self._folder = folder
        self._lock = threading.Lock()  # owns the code; held while compiling, so that nobody compiles twice
        self._code: NativeCode | None = None

    def code(self) -> NativeCode:
        """The functions `run0`, `run1`, ... of all runs in order, compiled by who comes first."""
        with self._lock:
            if self._code is None:
                step = self.executable
                runs = [
                    segment.groups[first:end]
                    for segment, places in zip(step.segments, self.runs, strict=True)
                    for first, end in places
                ]
                self._code = compile_groups(runs, step.state["status"], self._target, self._folder)
            return self._code


def launches_of(groups: Sequence[Group]) -> list[PlannedLaunch]:
    """A segment's calls, updates merged: runs of native ones, and each other one by itself."""
    merged = _merged(groups)
    launches: list[PlannedLaunch] = []
    place = 0
    for first, end in [*_runs(merged), (len(merged), len(merged))]:
        for group in merged[place:first]:
            reason = f"{group.definition.name} {group.name} has no native code: its reference kernel runs"
            launches.append(PlannedLaunch((group,), reason))
        if first < end:
            launches.append(PlannedLaunch(tuple(merged[first:end]), form=NATIVE))
        place = end
    return launches


def _merged(groups: Sequence[Group]) -> list[Group]:
    """Neighbouring updates, and the averaging around them, as single passes."""
    return merge_averaging(merge_updates(groups), averaged_kernel)


def _runs(groups: Sequence[Group]) -> list[tuple[int, int]]:
    """First and end of each run of groups with native code."""
    runs: list[tuple[int, int]] = []
    for place, group in enumerate(groups):
        if isinstance(group.kernel, NativeKernel):
            if runs and runs[-1][1] == place:
                runs[-1] = (runs[-1][0], place + 1)
            else:
                runs.append((place, place + 1))
    return runs


class NativePlan(ReferencePlan):
    """Calls of native functions with the bindings' base addresses, and of reference kernels."""

    def __init__(self, segments: NativeSegments, bases: Mapping[Region, int], device: Device, ring: int):
        super().__init__(segments.executable, bases, device, ring)
        self._code = segments.code()  # owns the functions
        self._array_of_bases = (ctypes.c_void_p * len(Region))()
        for region, base in bases.items():
            self._array_of_bases[region] = base
        address = ctypes.addressof(self._array_of_bases)
        self._refused: Group | None = None  # whose input the error is about that is on its way
        self._single: list[list[Callable[[], None]]] = [list(calls) for calls in self._calls]
        self._places = [list(range(len(calls))) for calls in self._calls]  # the first group of each call
        self._is_native = [
            runs == [(0, len(segment.groups))]
            for runs, segment in zip(segments.runs, self.executable.segments, strict=True)
        ]
        number = sum(map(len, segments.runs))
        for segment in range(len(segments.runs) - 1, -1, -1):
            calls, single, places = self._calls[segment], self._single[segment], self._places[segment]
            groups = self.executable.segments[segment].groups
            for first, end in reversed(segments.runs[segment]):
                number -= 1
                calls[first:end] = [self._step(f"run{number}", address, groups[first:end])]
                places[first:end] = [first]
                single[first:end] = [
                    self._step(f"call{number}_{place}", address, (group,))
                    for place, group in enumerate(groups[first:end])
                ]

    def launch(self, segment: int, step: int = 0) -> None:
        """See ReferencePlan.launch; a segment that is native as a whole is one call, and little else."""
        calls = self._calls[segment]
        if not self._is_native[segment]:
            super().launch(segment, step)
            return
        try:
            calls[0]()
        except TensorBowError as error:
            raise type(error)(self._blame(segment, 0, error)) from error
        self._fetch(segment, step)

    def _step(self, name: str, address: int, groups: Sequence[Group]) -> Callable[[], None]:
        """A native call of groups, and the error of the one that refuses its input."""
        function = self._code.function(name)

        def step() -> None:
            place = function(address)
            if place >= 0:
                self._refused = groups[place]
                self._raise_of(groups[place])

        return step

    def _raise_of(self, group: Group) -> None:
        """Runs the reference kernel of a call that was refused, which raises."""
        node = NodeSpec(
            group.attrs,
            *(
                tuple(TensorSpec(ref.shape, ref.dtype) for ref in refs)
                for refs in (group.inputs, group.outputs)
            ),
        )
        kernel = kernel_for(group.definition, "cpu")
        scratch = [np.empty(s.extents, s.dtype.as_numpy_dtype) for s in kernel.scratch_specs(node)]
        inputs, outputs = (tuple(map(self._shared_array, refs)) for refs in (group.inputs, group.outputs))
        with np.errstate(all="ignore"):
            kernel.bind(KernelCall(group.attrs, inputs, outputs, tuple(scratch)))()
        raise InternalError(f"native {group.definition.name} refused what its reference kernel takes")

    def _blame(self, segment: int, place: int, error: Exception) -> str:
        group, self._refused = self._refused, None
        if group is None:
            group = self.executable.segments[segment].groups[self._places[segment][place]]
        return blame(group.definition.name, group.name, error, group.source)

    def launches(self, segment: int) -> list[PlannedLaunch]:
        """Which calls are one native function, and which run their reference kernels."""
        return launches_of(self.executable.segments[segment].groups)

    def _one_by_one(self, segment: int) -> Sequence[Callable[[], None]]:
        return self._single[segment]

    def _prepare(self, group: Group) -> Callable[[], None]:
        return _nothing if isinstance(group.kernel, NativeKernel) else super()._prepare(group)


def _nothing() -> None:
    """In the place of a native call, until the functions are bound."""
