"""Joint steps by native code: what `joint_driver` gets, and what it says."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorbow.errors import AbortedError, InternalError
from tensorbow.kernels.native.plan import NativePlan
from tensorbow.kernels.native.rounds.code import JointCode
from tensorbow.kernels.native.rounds.examples import NativeExamples
from tensorbow.kernels.native.rounds.words import (
    DONE,
    LINE,
    REFUSED,
    STOPPED,
    LaunchWord,
    RoundsWord,
    RowWord,
    SharedWord,
)
from tensorbow.program.joint import JointAveraging, JointInputs, JointLaunch, JointSteps, MadeBatches
from tensorbow.program.plan import Region
from tensorbow.specs import Array

_CHANGING = Struct("=8q")  # of a launch of one step: from MEETINGS on to the PICKS of its row
_STOPPED = int(SharedWord.STOPPED)


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
        self._meetings = 0
        self._launches: dict[int, _Launches] = {}  # by number of steps

    def _table(self, numbers: Sequence[int]) -> int:
        """The address of an array of numbers that stays."""
        table = np.array([*numbers, 0], np.int64)
        self._kept.append(table)
        return table.ctypes.data

    def reset(self) -> None:
        """See JointSteps.reset."""
        for word in (SharedWord.ARRIVED, SharedWord.STOPPED, SharedWord.BAD):
            self._shared[word] = 0
        self._meetings = 0
        self._launches.clear()

    @property
    def stopped(self) -> bool:
        """See JointSteps.stopped."""
        return bool(self._shared.item(_STOPPED))

    def stop(self) -> None:
        """See JointSteps.stop."""
        self._shared[SharedWord.STOPPED] = 1

    def launch(
        self, first: int, averages: Sequence[bool], inputs: JointInputs, state: Mapping[str, Any]
    ) -> JointLaunch:
        """See JointSteps.launch."""
        steps = len(averages)
        launches = self._launches.get(steps)
        if launches is None:
            launches = self._launches[steps] = _Launches(self._shared, self._code, self._plans, steps)
        launch = launches.next()
        launch.fill(first, averages, self._meetings, inputs, state)
        self._meetings += 2 * sum(averages)
        return launch

    def fetched(self, replica: int, first: int, count: int) -> list[Array]:
        """See JointSteps.fetched."""
        return self._plans[replica].fetch_runs(first, count)


class _Launches:
    """Launches of so many steps, as many that none is filled again while it is in flight."""

    def __init__(self, shared: NDArray[np.int64], code: JointCode, plans: Sequence[NativePlan], steps: int):
        self._make = partial(_NativeLaunch, shared, code, plans)
        scalars = np.stack([plan.state_bytes() for plan in plans])
        self._states = np.repeat(scalars[:, None], steps, 1)
        self._most = -(-plans[0].ring // steps)
        self._launches: deque[_NativeLaunch] = deque()

    def next(self) -> _NativeLaunch:
        """A new one, or the one used longest ago."""
        if len(self._launches) < self._most:
            self._launches.append(self._make(self._states.copy()))
        else:
            self._launches.rotate(-1)
        return self._launches[-1]


class _NativeLaunch(JointLaunch):
    """One call of the driver for each replica, or for all, and the memory that it reads."""

    def __init__(
        self,
        shared: NDArray[np.int64],
        code: JointCode,
        plans: Sequence[NativePlan],
        states: NDArray[np.uint8],
    ):
        """shared: the words of all replicas. states: the bytes of STATE at the beginning of each step,
        [replicas, steps, bytes]."""
        self._code, self._plans, self._states = code, plans, states
        executable, (count, steps, _) = plans[0].executable, states.shape
        self._ring, self._ring_nbytes = plans[0].ring, executable.ring_nbytes
        self._inputs = tuple(executable.inputs)
        self._scalars = {
            key: states[:, :, ref.offset : ref.offset + ref.nbytes].view(ref.dtype.as_numpy_dtype)[..., 0]
            for key, ref in executable.state.items()
        }
        width = RowWord.SOURCES + len(self._inputs)
        used = LaunchWord.WORDS + steps * width
        stride = -(-used // LINE) * LINE
        self._words = words = _aligned(count * stride).reshape(count, stride)
        self._rows = rows = words[:, LaunchWord.WORDS : used].reshape(count, steps, width)
        self._steps, self._replicas = np.arange(steps), np.arange(count)[:, None]
        self._addresses = [words[replica].ctypes.data for replica in range(count)]
        self._changing = [row[LaunchWord.MEETINGS :].data for row in words]
        for replica, plan in enumerate(plans):
            row = words[replica]
            row[LaunchWord.SHARED], row[LaunchWord.BASES] = shared.ctypes.data, plan.bases_address
            row[LaunchWord.INDEX], row[LaunchWord.STEPS] = replica, steps
            row[LaunchWord.ROWS], row[LaunchWord.ROW_WORDS] = rows[replica].ctypes.data, width
            rows[replica, :, RowWord.STATE] = states[replica].ctypes.data + self._steps * states.shape[2]
        table = np.array(self._addresses, np.int64)
        rounds = self._rounds = np.zeros(RoundsWord.WORDS, np.int64)
        rounds[RoundsWord.COUNT], rounds[RoundsWord.LAUNCHES] = count, table.ctypes.data
        self._rounds_address = rounds.ctypes.data
        self._driver, self._rounds_driver = code.driver, code.rounds_driver
        self._alive: list[Any] = [None, table, shared]  # pointed to: by the rows, by `rounds`, by the words
        self._written: dict[str, Any] = {}  # of the step scalars: by name what was last written
        self._filled: tuple[int, Sequence[bool]] | None = None  # the first RING slot, and which steps average
        self._made: MadeBatches | None = None  # how batches are made,
        self._examples: Sequence[Any] = ()  # and the words that say it, by replica
        self._picks: tuple[Any, int, int, int] = None, 0, 0, 0  # the last, where they are, and their strides

    def fill(
        self,
        first: int,
        averages: Sequence[bool],
        meetings: int,
        inputs: JointInputs,
        state: Mapping[str, Any],
    ) -> None:
        """Makes it the launch of other steps; see JointSteps.launch."""
        stops = 0 if "status" in state else -1
        for key, value in state.items():
            if self._written.get(key) != value:
                self._scalars[key][...] = self._written[key] = value
        self._alive[0] = inputs
        begin, to_next, to_replica = self._picks_of(inputs)
        if len(self._steps) == 1:
            ring = first % self._ring * self._ring_nbytes
            for changing in self._changing:
                _CHANGING.pack_into(changing, 0, meetings, stops, 0, 0, 0, averages[0], ring, begin)
                begin += to_replica
        else:
            words, rows = self._words, self._rows
            words[:, LaunchWord.MEETINGS], words[:, LaunchWord.STOPS] = meetings, stops
            words[:, LaunchWord.DONE] = 0
            if self._filled != (first % self._ring, averages):
                self._filled = first % self._ring, averages
                slots = (first % self._ring + self._steps) % self._ring
                rows[:, :, RowWord.AVERAGES], rows[:, :, RowWord.RING] = averages, slots * self._ring_nbytes
            rows[:, :, RowWord.PICKS] = begin + self._steps * to_next + self._replicas * to_replica
        if inputs.made is None:
            self._feed(inputs.feeds)

    def _picks_of(self, inputs: JointInputs) -> tuple[int, int, int]:
        """Where the first picks are, and how far to the next step's and replica's; 0 where there are none."""
        made, picks, first, (last, begin, to_next, to_replica) = *inputs[1:], self._picks
        if made is None or picks is None:
            return 0, 0, 0
        if self._made is not made:
            self._make_words(made)
        if last is not picks:
            begin, (to_next, to_replica, _) = picks.ctypes.data, picks.strides
            self._picks = picks, begin, to_next, to_replica
        return begin + first * to_next, to_next, to_replica

    def _make_words(self, made: MadeBatches) -> None:
        if not isinstance(made.examples, NativeExamples):
            raise InternalError(f"a joint launch: expected examples of native code, got {made.examples!r}")
        self._examples = [made.examples.words(made.batch_size, *targets) for targets in made.targets]
        self._made = made
        self._words[:, LaunchWord.MAKE] = made.examples.address
        self._words[:, LaunchWord.EXAMPLES] = [ctypes.addressof(words) for words in self._examples]

    def _feed(self, feeds: Sequence[Sequence[Mapping[str, Array]]]) -> None:
        """Has the rows point to arrays, which lie in one piece."""
        kept: list[Array] = []
        for rows, steps in zip(self._rows, feeds, strict=True):
            for row, arrays in zip(rows, steps, strict=True):
                for number, name in enumerate(self._inputs, RowWord.SOURCES):
                    array = np.ascontiguousarray(arrays[name])
                    kept.append(array)
                    row[number] = array.ctypes.data
        self._alive[0] = kept

    def run(self, replica: int) -> None:
        """See JointLaunch.run."""
        code = self._driver(self._addresses[replica])
        if code != DONE:
            self._raise_for(code, replica)

    def run_all(self) -> None:
        """See JointLaunch.run_all."""
        code = self._rounds_driver(self._rounds_address)
        if code != DONE:
            self._raise_for(code, self.at)

    def let_go(self) -> None:
        """See JointLaunch.let_go."""
        self._alive[0] = None

    def _raise_for(self, code: int, replica: int) -> None:
        """Raises the error that ended a replica's launch, if one did. code: what the driver gave."""
        if code == STOPPED:
            raise AbortedError("the task of another replica in the same rounds has failed")
        if code == REFUSED:
            words = self._words[replica]
            calls = self._code.calls[SharedWord(words[LaunchWord.REFUSED_BY])]
            self._plans[replica].refuse(calls[words[LaunchWord.REFUSED]])

    @property
    def at(self) -> int:
        """See JointLaunch.at."""
        return int(self._rounds[RoundsWord.AT])

    def done(self, replica: int) -> int:
        """See JointLaunch.done."""
        return int(self._words[replica, LaunchWord.DONE])


def _aligned(words: int) -> NDArray[np.int64]:
    """Zeros that begin with a cache line."""
    memory = np.zeros(words + LINE, np.int64)
    first = -(memory.ctypes.data // memory.itemsize) % LINE
    return memory[first : first + words]
