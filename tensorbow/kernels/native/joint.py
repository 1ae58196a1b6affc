"""Joint steps by native code: what `joint_driver` gets, and what it says."""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorbow.errors import AbortedError
from tensorbow.kernels.joint import JointAveraging, JointInputs, JointLaunch, JointSteps
from tensorbow.kernels.merging import touch
from tensorbow.kernels.native.compiler import NativeCode, compile_module
from tensorbow.kernels.native.examples import NativeExamples
from tensorbow.kernels.native.functions import compile_groups
from tensorbow.kernels.native.joint_driver import STEPS, add_yield, driver_module
from tensorbow.kernels.native.joint_pass import PASS, has_parts, is_averaged, pass_module
from tensorbow.kernels.native.joint_words import LINE, REFUSED, STOPPED, LaunchWord, RowWord, SharedWord
from tensorbow.kernels.native.kernel import NativeKernel
from tensorbow.kernels.native.plan import NativePlan, NativeSegments
from tensorbow.kernels.native.target import Target
from tensorbow.kernels.plan import Group, Region
from tensorbow.specs import Array

Words: TypeAlias = "ctypes.Array[ctypes.c_int64]"
GRADIENT, UPDATE = 0, 1  # segments of every step


class JointCode:
    """The functions of a step's joint launches, shared by all bindings of it."""

    def __init__(self, segments: NativeSegments, averaging: int | None, has_momentum: bool):
        """averaging: the segment of the update with averaging."""
        target, folder, step = segments.target, segments.folder, segments.executable
        plain = segments.code()
        self._alive: list[NativeCode] = [plain]
        runs = segments.run_of(GRADIENT), segments.run_of(UPDATE)
        self.is_possible = None not in runs and add_yield()
        if not self.is_possible:
            return
        # The calls of each function, by the word that holds its address: one of them may refuse its input.
        self.calls: dict[SharedWord, Sequence[Group]] = {}
        self.functions: dict[SharedWord, int] = {}
        for which, segment, name in zip(
            (SharedWord.GRADIENT, SharedWord.UPDATE), (GRADIENT, UPDATE), runs, strict=True
        ):
            self.functions[which] = plain.address(str(name))
            self.calls[which] = step.segments[segment].groups
        self.driver = self._add(_driver_of(target, folder)).function(STEPS)
        if averaging is not None:
            self._add_averaging(segments, averaging, has_momentum, target, folder)

    def _add(self, code: NativeCode) -> NativeCode:
        self._alive.append(code)
        return code

    def _add_averaging(
        self,
        segments: NativeSegments,
        averaging: int,
        has_momentum: bool,
        target: Target,
        folder: Path | None,
    ) -> None:
        step = segments.executable
        groups = step.segments[averaging].groups
        averaged = [group for group in groups if is_averaged(group)]
        self.is_possible = _may_be_joint(groups)
        if not self.is_possible:
            return
        first = groups.index(averaged[0])
        before = groups[:first]
        after = [group for group in groups[first:] if not is_averaged(group)]
        status = step.state["status"]
        around = self._add(compile_groups([before, after], status, target, folder))
        module = pass_module(averaged, status, has_momentum, target)
        self.functions[SharedWord.PASS] = self._add(compile_module(module, target, folder)).address(PASS)
        for which, name, calls in ((SharedWord.BEFORE, "run0", before), (SharedWord.AFTER, "run1", after)):
            self.functions[which], self.calls[which] = around.address(name), calls


@cache
def _driver_of(target: Target, folder: Path | None) -> NativeCode:
    """The driver is the same for all steps."""
    return compile_module(driver_module(target), target, folder)


def _may_be_joint(groups: Sequence[Group]) -> bool:
    """Whether updates with averaging can be a pass of their own, and the other calls come before or after."""
    averaged = [group for group in groups if is_averaged(group)]
    if not averaged or not all(map(has_parts, averaged)):
        return False
    first = groups.index(averaged[0])
    for place, group in enumerate(groups):
        if not isinstance(group.kernel, NativeKernel):
            return False
        if place < first or is_averaged(group):
            continue
        for later in groups[place + 1 :]:
            if is_averaged(later) and (
                touch(group.writes, (*later.reads, *later.writes)) or touch(group.reads, later.writes)
            ):
                return False
    return True


class JointCodes:
    """The codes of a backend, by executable and the way of averaging; each is compiled once."""

    def __init__(self) -> None:
        self._codes: weakref.WeakKeyDictionary[NativeSegments, dict[tuple[int | None, bool], JointCode]]
        self._codes = weakref.WeakKeyDictionary()

    def find(self, segments: NativeSegments, averaging: JointAveraging | None) -> JointCode:
        """The code of a step."""
        codes = self._codes.setdefault(segments, {})
        how = (None, False) if averaging is None else (averaging.segment, averaging.has_momentum)
        if how not in codes:
            codes[how] = JointCode(segments, *how)
        return codes[how]


class NativeJoint(JointSteps):
    """All replicas' bound steps, as launches of one native call each."""

    def __init__(self, plans: Sequence[NativePlan], code: JointCode, averaging: JointAveraging | None):
        self._plans, self._code = plans, code
        executable = plans[0].executable
        self._kept: list[Any] = []  # arrays that words point to
        self._shared = shared = _aligned(SharedWord.WORDS)
        shared[SharedWord.COUNT] = len(plans)
        shared[SharedWord.BASES] = self._table([plan.bases_address for plan in plans])
        if averaging is not None:
            shared[SharedWord.CENTRAL] = self._table(averaging.central)
        for which, address in code.functions.items():
            shared[which] = address
        shared[SharedWord.INPUTS] = len(executable.inputs)
        shared[SharedWord.INPUT_TABLE] = self._table(
            [number for ref in executable.inputs.values() for number in (ref.offset, ref.nbytes)]
        )
        fetched = list(zip(executable.fetch_sources, executable.fetches, strict=True))
        shared[SharedWord.FETCHES] = len(fetched)
        shared[SharedWord.FETCH_TABLE] = self._table(
            [n for source, end in fetched for n in (source.region, source.offset, end.offset, end.nbytes)]
        )
        shared[SharedWord.STATE_NBYTES] = executable.region_nbytes.get(Region.STATE, 0)
        shared[SharedWord.STATUS] = executable.state["status"].offset
        self._meetings = [0] * len(plans)
        self._launches: list[dict[int, _Slots]] = [{} for _ in plans]  # by replica and number of steps

    def _table(self, numbers: Sequence[int]) -> int:
        """The address of an array of numbers that stays."""
        table = np.array([*numbers, 0], np.int64)
        self._kept.append(table)
        return table.ctypes.data

    def reset(self) -> None:
        """See JointSteps.reset."""
        for word in (SharedWord.ARRIVED, SharedWord.STOPPED, SharedWord.BAD):
            self._shared[word] = 0
        self._meetings = [0] * len(self._plans)
        for launches in self._launches:
            launches.clear()

    def stop(self) -> None:
        """See JointSteps.stop."""
        self._shared[SharedWord.STOPPED] = 1

    def launch(
        self,
        replica: int,
        first: int,
        averages: Sequence[bool],
        inputs: JointInputs,
        state: Mapping[str, Any],
    ) -> JointLaunch:
        """See JointSteps.launch."""
        steps = len(averages)
        launches = self._launches[replica].get(steps)
        if launches is None:
            plan = self._plans[replica]
            launches = self._launches[replica][steps] = _Slots(self, plan, replica, steps)
        launch = launches.next()
        launch.fill(first, averages, self._meetings[replica], inputs, state)
        self._meetings[replica] += 2 * sum(averages)
        return launch

    def fetched(self, replica: int, first: int, count: int) -> list[Array]:
        """See JointSteps.fetched."""
        return self._plans[replica].fetch_runs(first, count)

    @property
    def shared_address(self) -> int:
        """Where the words of all replicas are."""
        return self._shared.ctypes.data

    def run(self, plan: NativePlan, words: Words) -> None:
        """Runs the launch of these words; see JointLaunch."""
        code = self._code.driver(ctypes.addressof(words))
        if code == STOPPED:
            raise AbortedError("the task of another replica in the same rounds has failed")
        if code == REFUSED:
            plan.refuse(self._code.calls[SharedWord(words[LaunchWord.REFUSED_BY])][words[LaunchWord.REFUSED]])


class _Slots:
    """The launches of a replica, so many that none is filled again while it is in flight."""

    def __init__(self, joint: NativeJoint, plan: NativePlan, replica: int, steps: int):
        self._make = partial(_NativeLaunch, joint, plan, replica)
        self._scalars, self._steps = plan.state_bytes(), steps
        self._most = -(-plan.ring // steps)
        self._launches: deque[_NativeLaunch] = deque()

    def next(self) -> _NativeLaunch:
        """A new one, or the one used longest ago."""
        if len(self._launches) < self._most:
            self._launches.append(self._make(np.repeat(self._scalars[None], self._steps, 0)))
        else:
            self._launches.rotate(-1)
        return self._launches[-1]


class _NativeLaunch(JointLaunch):
    """One call of the driver, and the memory that it reads."""

    def __init__(self, joint: NativeJoint, plan: NativePlan, replica: int, states: NDArray[np.uint8]):
        """states: the bytes of STATE at the beginning of each step, [steps, bytes]."""
        self._joint, self._plan, self._states = joint, plan, states
        executable, steps = plan.executable, len(states)
        self._inputs = tuple(executable.inputs)
        self._scalars = {
            key: states[:, ref.offset : ref.offset + ref.nbytes].view(ref.dtype.as_numpy_dtype)[:, 0]
            for key, ref in executable.state.items()
        }
        self._width = RowWord.SOURCES + len(self._inputs)
        self._rows = (ctypes.c_int64 * (steps * self._width))()
        for step in range(steps):
            self._rows[step * self._width + RowWord.STATE] = states.ctypes.data + step * states.shape[1]
        words = self._words = (ctypes.c_int64 * LaunchWord.WORDS)()
        words[LaunchWord.SHARED], words[LaunchWord.BASES] = joint.shared_address, plan.bases_address
        words[LaunchWord.INDEX], words[LaunchWord.STEPS] = replica, steps
        words[LaunchWord.ROWS], words[LaunchWord.ROW_WORDS] = ctypes.addressof(self._rows), self._width
        self._alive: Any = None  # what the rows point to
        self._examples: tuple[NativeExamples, int, tuple[int, int], Any] | None = None

    def fill(
        self,
        first: int,
        averages: Sequence[bool],
        meetings: int,
        inputs: JointInputs,
        state: Mapping[str, Any],
    ) -> None:
        """Makes it the launch of other steps; see JointSteps.launch."""
        words, rows, width = self._words, self._rows, self._width
        words[LaunchWord.DONE] = 0
        words[LaunchWord.STOPS] = 0 if "status" in state else -1
        words[LaunchWord.MEETINGS] = meetings
        for key, value in state.items():
            self._scalars[key][:] = value
        ring, nbytes = self._plan.ring, self._plan.executable.ring_nbytes
        for step, average in enumerate(averages):
            rows[step * width + RowWord.AVERAGES] = average
            rows[step * width + RowWord.RING] = (first + step) % ring * nbytes
        if inputs.picks is not None and isinstance(inputs.examples, NativeExamples):
            self._make_batches(inputs.picks, inputs.examples, inputs.targets)
            return
        self._alive = kept = []
        for step, feeds in enumerate(inputs.feeds):
            place = step * width
            rows[place + RowWord.PICKS] = 0
            for number, name in enumerate(self._inputs):
                array = np.ascontiguousarray(feeds[name])
                kept.append(array)
                rows[place + RowWord.SOURCES + number] = array.ctypes.data

    def _make_batches(self, picks: NDArray[Any], examples: NativeExamples, targets: tuple[int, int]) -> None:
        known = self._examples
        if known is None or known[:3] != (examples, picks.shape[1], targets):
            known = examples, picks.shape[1], targets, examples.words(picks.shape[1], *targets)
            self._examples = known
            self._words[LaunchWord.MAKE], self._words[LaunchWord.EXAMPLES] = (
                examples.address,
                ctypes.addressof(known[3]),
            )
        self._alive = picks
        start, stride = picks.ctypes.data, picks.strides[0]
        for step in range(len(picks)):
            self._rows[step * self._width + RowWord.PICKS] = start + step * stride

    def __call__(self) -> None:
        """See JointLaunch."""
        self._joint.run(self._plan, self._words)

    @property
    def done(self) -> int:
        """See JointLaunch."""
        return self._words[LaunchWord.DONE]


def _aligned(words: int) -> NDArray[np.int64]:
    """Zeros that begin with a cache line."""
    memory = np.zeros(words + LINE, np.int64)
    first = -(memory.ctypes.data // memory.itemsize) % LINE
    return memory[first : first + words]
