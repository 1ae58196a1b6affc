"""Rounds of divided steps as one launch: dynamic parts, then the planned ones as one native call.

There is a thread for each replica if functions may wait for another replica, or else for each core. All meet
twice in each round: once their dynamic parts have ended, and once the planned ones have. So a function that
fails in one replica has changed none in its round, and all have done the rounds before. What a dynamic part
writes itself is undone (`KeptState`), and so are planned parts where one of them can fail. On a GPU there is
one thread, which enqueues the planned parts and waits for their end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from threading import Barrier, BrokenBarrierError
from typing import Any, TypeAlias

from scheduler.replicas.dynamic.executor_part import ExecutorPart
from scheduler.replicas.dynamic.kept_state import KeptState
from scheduler.replicas.dynamic.replica_executor import ReplicaExecutor
from tensorbow.devices import usable_cores
from tensorbow.errors import AbortedError, TensorBowError
from tensorbow.program import STICKY, Executable, LaunchFeeds, RoundLaunch, RoundProgram
from tensorbow.specs import Array

RunDynamicPart: TypeAlias = "Callable[[int, Mapping[str, Array], Mapping[str, Any]], Mapping[str, Array]]"
"""(round, batch, step scalars) -> inputs of the planned part: runs one replica's dynamic part."""


def scalars_of_round(state: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The step scalars of one round of a launch; a list of lists where they differ by replica."""
    return {key: _of_round(value, index) for key, value in state.items()}


def _of_round(value: Any, index: int) -> Any:
    if not isinstance(value, (list, range)):
        return value
    if isinstance(value, list) and isinstance(value[0], list):
        return [[own[index]] for own in value]
    return value[index]


def scalars_of_replica(state: Mapping[str, Any], replica: int) -> dict[str, Any]:
    """A replica's step scalars in one round; one with a sticky status keeps what it has."""
    own: dict[str, Any] = {}
    for key, value in state.items():
        if value != STICKY:
            own[key] = value[replica][0] if isinstance(value, list) else value
    return own


class DividedRounds(RoundProgram):
    """The planned rounds of all replicas, with their dynamic parts in between."""

    def __init__(
        self,
        planned: RoundProgram,
        scalars: Collection[str],
        part: ExecutorPart[Executable],
        executors: Sequence[ReplicaExecutor],
        run: Sequence[RunDynamicPart],
        kept: KeptState,
        await_planned: Callable[[], object],
    ):
        """planned: of the planned parts, which have these step scalars. executors, run: by replica.
        await_planned: waits for the end of what planned parts have enqueued."""
        self.scalars, self.kept, self.await_planned = scalars, kept, await_planned
        self.planned, self.part, self.executors, self.run = planned, part, executors, run
        self.chooses_threads = planned.chooses_threads and not part.may_wait
        self.shares_central = planned.shares_central
        self.failed = False  # a thread has failed, or the run is given up
        self._meetings: dict[int, Meetings] = {}  # by number of threads

    def connect(self) -> None:
        """See RoundProgram.connect."""
        self.planned.connect()

    def launch(
        self,
        first: int,
        variants: Sequence[int],
        feeds: LaunchFeeds,
        state: Mapping[str, Any],
        threads: int,
    ) -> RoundLaunch:
        """See RoundProgram.launch."""
        count = len(self.run)
        threads = count if self.part.may_wait else min(threads, count)
        threads = threads if self.planned.chooses_threads else 1
        return DividedLaunch(self, first, variants, feeds, state, threads)

    def meetings_of(self, threads: int) -> Meetings:
        """Meeting points of a number of threads."""
        found = self._meetings.get(threads)
        if found is None:
            found = self._meetings[threads] = Meetings(threads, self.kept.forget)
        return found

    def let_others_go(self) -> None:
        """Ends the launches: threads that wait for one that does not come go on."""
        for meetings in [*self._meetings.values()]:
            meetings.abort()

    def fetched(self, replica: int, first: int, count: int) -> list[Array]:
        """See RoundProgram.fetched."""
        return self.planned.fetched(replica, first, count)

    @property
    def stopped(self) -> bool:
        """See RoundProgram.stopped."""
        return self.failed or self.planned.stopped

    @property
    def ended(self) -> bool:
        """See RoundProgram.ended."""
        return self.failed or self.planned.ended

    def stop(self) -> None:
        """See RoundProgram.stop."""
        self.failed = True
        self.planned.stop()
        for executor in self.executors:
            executor.cancel()
        self.let_others_go()

    def reset(self) -> None:
        """See RoundProgram.reset: a round that has not ended is undone."""
        self.failed = False
        self.kept.restore()
        self._meetings.clear()
        self.planned.reset()
        for executor in self.executors:
            executor.reset()

    def close(self) -> None:
        """See RoundProgram.close."""
        self.planned.close()


class Meetings:
    """Meeting points of threads in each round: before the planned parts, and behind them."""

    def __init__(self, threads: int, when_done: Callable[[], None]):
        """when_done: called once all are behind the planned parts."""
        self._before = Barrier(threads, lambda: self._call())
        self._behind = Barrier(threads, when_done)
        self._call: Callable[[], None] = self.abort

    def before(self, call: Callable[[], None]) -> None:
        """Waits for all threads; one of them then calls the function. Raises BrokenBarrierError."""
        self._call = call
        self._before.wait()

    def behind(self) -> None:
        """Waits for all threads. Raises BrokenBarrierError."""
        self._behind.wait()

    def abort(self) -> None:
        """Ends all waits."""
        self._before.abort()
        self._behind.abort()


class DividedLaunch(RoundLaunch):
    """Some rounds of all replicas, one after the other."""

    is_whole = True  # a round in which an op fails is undone

    def __init__(
        self,
        program: DividedRounds,
        first: int,
        variants: Sequence[int],
        feeds: LaunchFeeds,
        state: Mapping[str, Any],
        threads: int,
    ):
        self._program, self._first, self._variants, self._state = program, first, variants, state
        self._batches: Sequence[Sequence[Mapping[str, Array]]] = feeds.arrays
        count = len(program.run)
        self._threads = [range(n * count // threads, (n + 1) * count // threads) for n in range(threads)]
        self._meetings = program.meetings_of(threads)
        self._planned_threads = min(threads, usable_cores())
        self._made: list[Mapping[str, Array]] = [{}] * count  # by the dynamic parts of a round
        self._launched: list[RoundLaunch] = []  # the planned parts, by round
        self._done, self._at = [0] * count, [replicas.start for replicas in self._threads]

    @property
    def threads(self) -> Sequence[range]:
        """See RoundLaunch.threads."""
        return self._threads

    def run(self, thread: int) -> None:
        """See RoundLaunch.run."""
        program = self._program
        try:
            for index in range(len(self._variants)):
                if program.ended or not self._run_round(thread, index):
                    break
        except BaseException:
            program.stop()
            raise
        if program.ended:
            program.let_others_go()
        if program.failed:
            raise AbortedError("the task of another replica in the same rounds has failed")

    def _run_round(self, thread: int, index: int) -> bool:
        """False if the rounds have ended meanwhile."""
        program = self._program
        scalars = scalars_of_round(self._state, index)
        for replica in self._members(thread):
            self._at[thread] = replica
            batch = self._batches[replica][index]
            own = scalars_of_replica(scalars, replica)
            program.kept.keep_replica(replica)
            self._made[replica] = program.run[replica](self._first + index, batch, own)
        try:
            self._meetings.before(partial(self._begin_planned, index, scalars))
        except BrokenBarrierError:
            if len(self._launched) <= index:
                return False  # else all have come, and the waits were ended before this thread went on
        try:
            self._run_planned(thread, self._launched[index])
            self._meetings.behind()
        except BrokenBarrierError:
            return False
        return True

    def _begin_planned(self, index: int, scalars: Mapping[str, Any]) -> None:
        """Prepares the planned parts of a round, once all dynamic ones have ended."""
        program, feeds = self._program, LaunchFeeds([[made] for made in self._made])
        program.kept.keep_devices()
        state = {key: value for key, value in scalars.items() if key in program.scalars}
        round, variants = self._first + index, [self._variants[index]]
        self._launched.append(program.planned.launch(round, variants, feeds, state, self._planned_threads))

    def _members(self, thread: int) -> Sequence[int]:
        """Replicas whose dynamic parts a thread runs: all of them in one, where their order shows."""
        if self._program.part.ordered_by is None:
            return self._threads[thread]
        return range(len(self._made)) if thread == 0 else ()

    def _run_planned(self, thread: int, launch: RoundLaunch) -> None:
        """Runs a thread's share of the planned parts of a round."""
        if thread >= len(launch.threads):
            return
        try:
            launch.run(thread)
            self._program.await_planned()
        except TensorBowError:
            self._at[thread], _ = launch.at(thread)
            raise
        for replica in launch.threads[thread]:
            self._done[replica] += launch.done(replica)

    def at(self, thread: int) -> tuple[int, int]:
        """See RoundLaunch.at."""
        return self._at[thread], self._done[self._at[thread]]

    def done(self, replica: int) -> int:
        """See RoundLaunch.done."""
        return self._done[replica]

    @property
    def whole_rounds(self) -> int:
        """See RoundLaunch.whole_rounds."""
        return min(self._done)

    def let_go(self) -> None:
        """See RoundLaunch.let_go."""
        self._batches = ()
        while self._launched:
            self._launched.pop().let_go()
