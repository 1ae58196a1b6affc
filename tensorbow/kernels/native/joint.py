"""Joint steps by native code: what `joint_driver` gets, and what it says."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorbow.errors import AbortedError
from tensorbow.kernels.joint import JointAveraging, JointInputs, JointLaunch, JointRounds, JointSteps
from tensorbow.kernels.native.examples import NativeExamples
from tensorbow.kernels.native.joint_code import JointCode
from tensorbow.kernels.native.joint_words import (
    DONE,
    LINE,
    REFUSED,
    STOPPED,
    LaunchWord,
    RoundsWord,
    RowWord,
    SharedWord,
)
from tensorbow.kernels.native.plan import NativePlan
from tensorbow.kernels.plan import Region
from tensorbow.specs import Array

Words: TypeAlias = "ctypes.Array[ctypes.c_int64]"


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
        self._rounds: dict[tuple[int, ...], _NativeRounds] = {}  # by the addresses of the launches
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
        self._rounds.clear()
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

    def rounds(self, launches: Sequence[JointLaunch]) -> JointRounds:
        """See JointSteps.rounds."""
        natives = [launch for launch in launches if isinstance(launch, _NativeLaunch)]
        addresses = tuple(launch.address for launch in natives)
        rounds = self._rounds.get(addresses)
        if rounds is None:
            rounds = self._rounds[addresses] = _NativeRounds(self._code.rounds_driver, natives)
        return rounds

    def fetched(self, replica: int, first: int, count: int) -> list[Array]:
        """See JointSteps.fetched."""
        return self._plans[replica].fetch_runs(first, count)

    @property
    def shared_address(self) -> int:
        """Where the words of all replicas are."""
        return self._shared.ctypes.data

    @property
    def driver(self) -> Callable[[int], int]:
        """Runs the launch whose words are at an address; see `raise_for` for what it gives."""
        return self._code.driver

    def raise_for(self, code: int, plan: NativePlan, words: Words) -> None:
        """Raises the error that ended the launch of these words, if one did."""
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
        self._rows = np.zeros((steps, self._width), np.int64)
        self._steps = np.arange(steps)
        self._rows[:, RowWord.STATE] = states.ctypes.data + self._steps * states.shape[1]
        words = self._words = (ctypes.c_int64 * LaunchWord.WORDS)()
        words[LaunchWord.SHARED], words[LaunchWord.BASES] = joint.shared_address, plan.bases_address
        words[LaunchWord.INDEX], words[LaunchWord.STEPS] = replica, steps
        words[LaunchWord.ROWS], words[LaunchWord.ROW_WORDS] = self._rows.ctypes.data, self._width
        self._driver, self.address = joint.driver, ctypes.addressof(words)
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
        words, rows = self._words, self._rows
        words[LaunchWord.DONE] = 0
        words[LaunchWord.STOPS] = 0 if "status" in state else -1
        words[LaunchWord.MEETINGS] = meetings
        for key, value in state.items():
            self._scalars[key][:] = value
        ring, nbytes = self._plan.ring, self._plan.executable.ring_nbytes
        if len(rows) == 1:  # NumPy takes longer for one number than Python does
            rows[0, RowWord.AVERAGES], rows[0, RowWord.RING] = averages[0], first % ring * nbytes
        else:
            rows[:, RowWord.AVERAGES] = averages
            rows[:, RowWord.RING] = (first % ring + self._steps) % ring * nbytes
        if inputs.picks is not None and isinstance(inputs.examples, NativeExamples):
            self._make_batches(inputs.picks, inputs.examples, inputs.targets)
            return
        self._alive = kept = []
        rows[:, RowWord.PICKS] = 0
        for row, feeds in zip(rows, inputs.feeds, strict=True):
            for number, name in enumerate(self._inputs):
                array = np.ascontiguousarray(feeds[name])
                kept.append(array)
                row[RowWord.SOURCES + number] = array.ctypes.data

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
        rows, begin = self._rows, picks.ctypes.data
        if len(rows) == 1:
            rows[0, RowWord.PICKS] = begin
        else:
            rows[:, RowWord.PICKS] = begin + self._steps * picks.strides[0]

    def __call__(self) -> None:
        """See JointLaunch."""
        self.raise_for(self._driver(self.address))

    def raise_for(self, code: int) -> None:
        """Raises the error that a driver has ended with, if any."""
        if code != DONE:
            self._joint.raise_for(code, self._plan, self._words)

    @property
    def done(self) -> int:
        """See JointLaunch."""
        return self._words[LaunchWord.DONE]


class _NativeRounds(JointRounds):
    """One call of the driver for all replicas. It is used again for the same launches, filled anew."""

    def __init__(self, driver: Callable[[int], int], launches: Sequence[_NativeLaunch]):
        self._driver, self._launches = driver, launches
        self._table = (ctypes.c_int64 * len(launches))(*(launch.address for launch in launches))
        words = self._words = (ctypes.c_int64 * RoundsWord.WORDS)()
        words[RoundsWord.COUNT], words[RoundsWord.LAUNCHES] = len(launches), ctypes.addressof(self._table)
        self._address = ctypes.addressof(words)

    def __call__(self) -> None:
        """See JointRounds."""
        code = self._driver(self._address)
        self._launches[self.at].raise_for(code)

    @property
    def at(self) -> int:
        """See JointRounds."""
        return self._words[RoundsWord.AT]


def _aligned(words: int) -> NDArray[np.int64]:
    """Zeros that begin with a cache line."""
    memory = np.zeros(words + LINE, np.int64)
    first = -(memory.ctypes.data // memory.itemsize) % LINE
    return memory[first : first + words]
