"""A round program of native code: what the driver gets, and what it says."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorbow.errors import AbortedError, InternalError
from tensorbow.kernels.native.plan import NativePlan
from tensorbow.kernels.native.rounds.code import Phase, RoundCode
from tensorbow.kernels.native.rounds.words import (
    LINE,
    OF_BATCH,
    OF_CHECK,
    CallResult,
    PhaseWord,
    ReplicaWord,
    RowWord,
    SharedWord,
    Stops,
    ThreadWord,
    TimesWord,
)
from tensorbow.ops.exchanges import Broadcast
from tensorbow.program.plan import BoundPlan, Group, Region
from tensorbow.program.rounds import (
    CALL_ARGUMENTS,
    OTHERS_FAILED,
    STICKY,
    ExchangeTimes,
    LaunchFeeds,
    NativeCall,
    RoundLaunch,
    RoundProgram,
    RoundProgramSpec,
    WorkerExchange,
)
from tensorbow.specs import Array, int64

_STOPPED, _STARTED, _BAD = int(SharedWord.STOPPED), int(SharedWord.STARTED), int(SharedWord.BAD)
# Words that are written for each launch; `pack_into` raises unless it gets a value for each.
_OF_THREAD = Struct(f"={ThreadWord.LAUNCH_NUMBER + 1 - ThreadWord.ARRIVALS}q")  # ARRIVALS to LAUNCH_NUMBER
# With one round, from DONE to the PICKS of the row behind.
_OF_REPLICA = Struct(f"={ReplicaWord.WORDS - ReplicaWord.DONE + RowWord.PICKS + 1}q")
_CALL = ctypes.c_int64 * (CALL_ARGUMENTS + 1)  # a NativeCall
_WAIT = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * CALL_ARGUMENTS)
_CALLED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)  # of base addresses, or of a thread's words


class NativeRounds(RoundProgram):
    """All replicas' bound steps; a launch is one native call for each thread."""

    def __init__(self, plans: Sequence[NativePlan], code: RoundCode, rounds: RoundProgramSpec):
        self._plans, self._code, self._workers = plans, code, rounds.workers
        self.shares_central = code.shares_central
        executable = plans[0].executable
        self._kept: list[Any] = []  # arrays that words point to
        self._swaps: list[NativeCall] = []  # those that begin one
        self._shared = shared = _aligned(SharedWord.WORDS)
        shared[SharedWord.COUNT] = len(plans)
        shared[SharedWord.BASES] = self._table([plan.bases_address for plan in plans])
        shared[SharedWord.DEVICES] = len(rounds.central)
        self._central = [self._table(bases) for bases in rounds.central]
        shared[SharedWord.CENTRAL] = self._table(self._central)
        shared[SharedWord.FIRST] = self._table([0, *np.cumsum(rounds.replicas)])
        shared[SharedWord.FUNCTIONS] = self._table(code.functions)
        ends = np.cumsum([0, *map(len, code.phases)])
        shared[SharedWord.VARIANTS] = self._table(np.stack([ends[:-1], ends[1:]], 1).ravel())
        phases = [phase for phases in code.phases for phase in phases]
        self._phases = _aligned(len(phases) * PhaseWord.WORDS).reshape(len(phases), PhaseWord.WORDS)
        for row, phase in zip(self._phases, phases, strict=True):
            row[: PhaseWord.CALLS] = phase.first, phase.end, phase.pass_address, phase.device_function
            row[PhaseWord.USES] = phase.uses_address
        if rounds.workers is not None:
            self._join_workers(rounds.workers, phases, rounds.central, ends.tolist())
        shared[SharedWord.PHASES] = self._phases.ctypes.data
        shared[SharedWord.INPUTS] = len(executable.inputs)
        shared[SharedWord.INPUT_TABLE] = self._table(
            [number for ref in executable.inputs.values() for number in (ref.offset, ref.nbytes)]
        )
        fetched = list(zip(executable.fetch_sources, executable.fetches, strict=True))
        shared[SharedWord.FETCHES] = len(fetched)
        shared[SharedWord.FETCH_TABLE] = self._table(
            [n for source, end in fetched for n in (source.region, source.offset, end.offset, end.nbytes)]
        )
        checks = [check.words for check in code.checks]
        shared[SharedWord.CHECKS] = self._table([len(checks), *chain.from_iterable(checks)])
        shared[SharedWord.STATE_NBYTES] = executable.region_nbytes.get(Region.STATE, 0)
        shared[SharedWord.STATUS] = executable.state["status"].offset
        self._arrivals = self._launched = 0  # threads at meetings, and launches, in all
        self._launches: dict[tuple[int, int], _LaunchPool] = {}  # by number of rounds and threads

    def _join_workers(
        self,
        workers: WorkerExchange,
        phases: Sequence[Phase],
        central: Sequence[Sequence[int]],
        ends: Sequence[int],
    ) -> None:
        """Has the rounds exchange with other workers. ends: of the phases of each variant."""
        shared, control = self._shared, workers.control
        sums = _aligned(0 if workers.shares_memory else -(-self._code.sums_nbytes // 8))
        self._kept += [sums, control]
        shared[SharedWord.CONTROL], shared[SharedWord.SUMS] = control.ctypes.data, sums.ctypes.data
        shared[SharedWord.WORKERS], shared[SharedWord.WORKER] = len(workers.counts), workers.worker
        shared[SharedWord.CONTROL_CALL] = self._table(
            [*_found(workers.sum_of(control.ctypes.data, 1, int64))]
        )
        shared[SharedWord.FIRST_REPLICA] = workers.first
        for row, phase in zip(self._phases, phases, strict=True):
            if phase.ends is not None and workers.overlapped is not None:
                vectors = [(sums.ctypes.data + offset, size, dtype) for offset, size, dtype in phase.sums]
                row[PhaseWord.POST], row[PhaseWord.WAIT] = map(self._table, workers.overlapped(vectors))
                row[PhaseWord.ENDS] = self._phases[ends[phase.ends]].ctypes.data
                continue
            if phase.pieces.parts and workers.swap_of is not None:
                swaps = [
                    workers.swap_of(sums.ctypes.data + own, sums.ctypes.data + theirs, nbytes)
                    for own, theirs, nbytes in phase.pieces.places()
                ]
                self._swaps += [begin for begin, _ in swaps]
                row[PhaseWord.CALLS] = self._table([*chain.from_iterable(chain.from_iterable(swaps))])
                row[PhaseWord.PIECES] = len(phase.pieces.parts)
                continue
            calls = [
                _found(workers.sum_of(sums.ctypes.data + offset, size, dtype))
                for offset, size, dtype in phase.sums
            ]
            for group in phase.copies:
                (result_ref,) = group.outputs
                parts = workers.parts(group.inputs[0].nbytes)
                if group.definition is Broadcast:
                    owner = group.attrs["source"]
                    firsts = [0, *np.cumsum(workers.counts)]
                    parts = [
                        range(result_ref.nbytes if first <= owner < end else 0)
                        for first, end in pairwise(firsts)
                    ]
                if result_ref.nbytes:
                    address = central[0][result_ref.region] + result_ref.offset
                    calls.append(_found(workers.share_of(address, parts)))
            row[PhaseWord.CALLS] = self._table(list(chain.from_iterable(calls)))
            row[PhaseWord.CALL_COUNT] = len(calls)

    def _settle(self) -> None:
        """Ends the exchanges that are under way. Raises AbortedError where another worker has failed."""
        under_way = [row for row in self._phases if row[PhaseWord.UNDER_WAY]]
        words = _aligned(ThreadWord.WORDS)
        words[ThreadWord.SHARED], words[ThreadWord.THREADS] = self._shared.ctypes.data, 1
        for row in sorted(under_way, key=lambda row: int(row[PhaseWord.UNDER_WAY])):
            row[PhaseWord.UNDER_WAY] = 0
            call = np.ctypeslib.as_array(_CALL.from_address(int(row[PhaseWord.WAIT]))).tolist()
            if _WAIT(call[0])(*call[1:]):
                raise AbortedError(OTHERS_FAILED)
            _CALLED(int(row[PhaseWord.USES]))(words.ctypes.data)
            if row[PhaseWord.DEVICE] >= 0:
                for bases in self._central:
                    _CALLED(self._code.functions[row[PhaseWord.DEVICE]])(bases)

    @property
    def may_refuse(self) -> bool:
        """See RoundProgram.may_refuse."""
        return self._code.may_refuse

    @property
    def index_ranges(self) -> Sequence[tuple[int, range]] | None:
        """See RoundProgram.index_ranges."""
        return self._code.index_ranges

    def connect(self) -> None:
        """See RoundProgram.connect: memory for the sums, which workers on one machine share."""
        workers, sums_nbytes = self._workers, self._code.sums_nbytes
        if workers is None or workers.shared is None or not sums_nbytes:
            return
        flags_nbytes = self._code.flags * LINE * 8
        memory = workers.shared(sums_nbytes + flags_nbytes + LINE * 8)
        self._kept.append(memory)
        sums = [each.ctypes.data for each in memory]
        self._shared[SharedWord.WORKER_SUMS] = self._table(sums)
        flags = [address + sums_nbytes for address in sums]
        self._shared[SharedWord.WORKER_FLAGS] = self._table(flags)
        self._shared[SharedWord.WORKER_THREADS] = self._table([address + flags_nbytes for address in flags])

    def _table(self, numbers: Sequence[int] | NDArray[np.int64]) -> int:
        """The address of an array of numbers that stays."""
        table = np.array([*numbers, 0], np.int64)
        self._kept.append(table)
        return table.ctypes.data

    def reset(self) -> None:
        """See RoundProgram.reset: exchanges that are under way end."""
        self._settle()
        self._shared[SharedWord.ARRIVED :] = 0
        self._arrivals = self._launched = 0
        self._launches.clear()

    def close(self) -> None:
        """See RoundProgram.close: what exchanges with another worker need."""
        while self._swaps and self._workers is not None:
            self._workers.end_swap(self._swaps.pop())

    @property
    def stopped(self) -> bool:
        """See RoundProgram.stopped."""
        item = self._shared.item
        return bool(item(_STOPPED) or item(_BAD) or item(_STARTED) & 1)

    @property
    def ended(self) -> bool:
        """See RoundProgram.ended."""
        item = self._shared.item
        return bool(item(_STOPPED) or item(_STARTED) & 1)

    def stop(self) -> None:
        """See RoundProgram.stop."""
        self._shared[SharedWord.STOPPED] = 1

    def launch(
        self,
        first: int,
        variants: Sequence[int],
        feeds: LaunchFeeds,
        state: Mapping[str, Any],
        threads: int,
    ) -> RoundLaunch:
        """See RoundProgram.launch."""
        threads = min(threads, len(self._plans))
        key = len(variants), threads
        launches = self._launches.get(key)
        if launches is None:
            launches = self._launches[key] = _LaunchPool(self._shared, self._code, self._plans, *key)
        launch = launches.next()
        self._launched += 1
        launch.fill(first, variants, self._arrivals, self._launched, feeds, state)
        self._arrivals += threads * sum(map(self._code.meetings.__getitem__, variants))
        return launch

    def fetched(self, replica: int, first: int, count: int) -> list[Array]:
        """See RoundProgram.fetched."""
        return self._plans[replica].fetch_runs(first, count)


class _LaunchPool:
    """Pool of launches with equal numbers of rounds and threads; so large that none is reused in flight."""

    def __init__(
        self,
        shared: NDArray[np.int64],
        code: RoundCode,
        plans: Sequence[NativePlan],
        rounds: int,
        threads: int,
    ):
        self._make = partial(_NativeLaunch, shared, code, plans, threads)
        scalars = np.stack([plan.state_bytes() for plan in plans])
        self._states = np.repeat(scalars[:, None], rounds, 1)
        self._most = -(-plans[0].ring // rounds)
        self._launches: deque[_NativeLaunch] = deque()

    def next(self) -> _NativeLaunch:
        """A new one, or the one used longest ago."""
        if len(self._launches) < self._most:
            self._launches.append(self._make(self._states.copy()))
        else:
            self._launches.rotate(-1)
        return self._launches[-1]


class _NativeLaunch(RoundLaunch):
    """One call of the driver for each thread, and the memory that it reads."""

    def __init__(
        self,
        shared: NDArray[np.int64],
        code: RoundCode,
        plans: Sequence[NativePlan],
        threads: int,
        states: NDArray[np.uint8],
    ):
        """shared: the words of all replicas. states: the bytes of STATE at the beginning of each round,
        [replicas, rounds, bytes]."""
        self._code, self._plans = code, plans
        executable, (count, rounds, _) = plans[0].executable, states.shape
        self._ring, self._ring_nbytes = plans[0].ring, executable.ring_nbytes
        self._inputs = tuple(executable.inputs)
        self._scalars = {
            key: states[:, :, ref.offset : ref.offset + ref.nbytes].view(ref.dtype.as_numpy_dtype)[..., 0]
            for key, ref in executable.state.items()
        }
        width = RowWord.SOURCES + len(self._inputs)
        used = ReplicaWord.WORDS + rounds * width
        stride = -(-used // LINE) * LINE
        self._words = words = _aligned(count * stride).reshape(count, stride)
        self._rows = rows = words[:, ReplicaWord.WORDS : used].reshape(count, rounds, width)
        self._steps, self._replicas = np.arange(rounds), np.arange(count)[:, None]
        for replica, plan in enumerate(plans):
            row = words[replica]
            row[ReplicaWord.BASES] = plan.bases_address
            row[ReplicaWord.ROWS], row[ReplicaWord.ROW_WORDS] = rows[replica].ctypes.data, width
            rows[replica, :, RowWord.STATE] = states[replica].ctypes.data + self._steps * states.shape[2]
        self._threads = [
            range(thread * count // threads, (thread + 1) * count // threads) for thread in range(threads)
        ]
        table = np.array([row.ctypes.data for row in words], np.int64)
        self._thread_words = own = _aligned(threads * 2 * LINE).reshape(threads, 2 * LINE)
        for thread, replicas in enumerate(self._threads):
            own[thread, ThreadWord.SHARED], own[thread, ThreadWord.COUNT] = shared.ctypes.data, len(replicas)
            own[thread, ThreadWord.REPLICAS] = table[replicas.start :].ctypes.data
            own[thread, ThreadWord.ALL] = table.ctypes.data
            own[thread, ThreadWord.NUMBER], own[thread, ThreadWord.THREADS] = thread, threads
            own[thread, ThreadWord.ROUNDS] = rounds
        self._addresses = [row.ctypes.data for row in own]
        self._of_threads = [row[ThreadWord.ARRIVALS :].data for row in own]
        self._of_replicas = [row[ReplicaWord.DONE :].data for row in words]
        self._driver = code.driver
        self._variants: Sequence[int] = ()
        self._times: list[NDArray[np.int64]] = []  # by thread, if they are measured
        self._refused: list[int] = []  # rounds in which threads have had an input refused
        self._alive: list[Any] = [None, table, shared, states]  # what words point to; first what rows do
        self._written: dict[str, Any] = {}  # of the step scalars: by name what was last written
        self._filled: tuple[int, Sequence[int]] | None = None  # the first RING slot, and the variants
        self._batch_plans: Sequence[BoundPlan] = ()  # which make batches from picks, by replica
        self._batch_bases = np.zeros((0, len(Region)), np.int64)  # base addresses of these
        self._picks: tuple[Any, int, int, int] = None, 0, 0, 0  # the last, where they are, and their strides

    def fill(
        self,
        first: int,
        variants: Sequence[int],
        arrivals: int,
        number: int,
        feeds: LaunchFeeds,
        state: Mapping[str, Any],
    ) -> None:
        """Fills the words for other rounds; see RoundProgram.launch."""
        for key, value in state.items():
            if value != STICKY and self._written.get(key) != value:
                self._scalars[key][...] = self._written[key] = value
        self._alive[0] = feeds
        self._variants = variants
        if self._times:
            self._times = []
        stops = {None: Stops.ENDS, STICKY: Stops.STICKY}.get(state.get("status"), Stops.NEVER)
        for words in self._of_threads:
            _OF_THREAD.pack_into(words, 0, arrivals, stops, number)
        slot = first % self._ring
        begin, to_next, to_replica = self._picks_of(feeds)
        if len(variants) == 1:
            for words in self._of_replicas:
                _OF_REPLICA.pack_into(words, 0, 0, 0, 0, variants[0], slot * self._ring_nbytes, begin)
                begin += to_replica
        else:
            rows = self._rows
            self._words[:, ReplicaWord.DONE] = 0
            if self._filled != (slot, variants):
                self._filled = slot, variants
                rows[:, :, RowWord.VARIANT] = variants
                rows[:, :, RowWord.RING] = (slot + self._steps) % self._ring * self._ring_nbytes
            rows[:, :, RowWord.PICKS] = begin + self._steps * to_next + self._replicas * to_replica
        if feeds.picks is None:
            self._feed(feeds.arrays)

    def _picks_of(self, feeds: LaunchFeeds) -> tuple[int, int, int]:
        """Address of the first picks, and bytes to the next round's and replica's; 0 without picks."""
        _, batch_plans, picks, first = feeds
        last, begin, to_next, to_replica = self._picks
        if picks is None:
            return 0, 0, 0
        if self._batch_plans is not batch_plans:
            self._use(batch_plans)
        if last is not picks:
            begin, (to_next, to_replica, *_) = picks.ctypes.data, picks.strides
            self._picks = picks, begin, to_next, to_replica
        return begin + first * to_next, to_next, to_replica

    def _use(self, batch_plans: Sequence[BoundPlan]) -> None:
        """Points the replicas' words to the functions that make their batches, and to base addresses of the
        launch's own: the driver has PICKS point to the picks of the round."""
        own = self._batch_bases = np.zeros((len(batch_plans), len(Region)), np.int64)
        for words, bases, plan in zip(self._words, own, batch_plans, strict=True):
            name = plan.segments.function_of(0) if isinstance(plan, NativePlan) else None
            if not isinstance(plan, NativePlan) or name is None:
                raise InternalError("a round program of native code: expected batches made by native code")
            words[ReplicaWord.BATCH] = plan.segments.code().address(name)
            ctypes.memmove(bases.ctypes.data, plan.bases_address, bases.nbytes)
            words[ReplicaWord.BATCH_BASES] = bases.ctypes.data
        self._batch_plans = batch_plans

    def _feed(self, feeds: Sequence[Sequence[Mapping[str, Array]]]) -> None:
        """Has the rows point to arrays, which lie in one piece."""
        kept: list[Array] = []
        for rows, rounds in zip(self._rows, feeds, strict=True):
            for row, arrays in zip(rows, rounds, strict=True):
                for number, name in enumerate(self._inputs, RowWord.SOURCES):
                    array = np.ascontiguousarray(arrays[name])
                    kept.append(array)
                    row[number] = array.ctypes.data
        self._alive[0] = kept

    @property
    def threads(self) -> Sequence[range]:
        """See RoundLaunch.threads."""
        return self._threads

    def run(self, thread: int) -> None:
        """See RoundLaunch.run."""
        result = self._driver(self._addresses[thread])
        if self._times:
            self._thread_words[thread, ThreadWord.TIMES] = 0
        if result == CallResult.OTHERS_FAILED:
            raise AbortedError("the task of another replica in the same rounds has failed")
        if result == CallResult.WORKER_FAILED:
            raise AbortedError(OTHERS_FAILED)
        if result == CallResult.CALL_FAILED:
            raise AbortedError(
                "an exchange between workers failed; another may have ended, or the network be cut: start "
                "the job again, it goes on from its last checkpoint"
            )
        if result == CallResult.INPUT_REFUSED:
            replica, done = self.at(thread)
            self._refused.append(done)
            words = self._words[replica]
            which, call = int(words[ReplicaWord.REFUSED_BY]), int(words[ReplicaWord.REFUSED])
            if which == OF_CHECK:
                self._refuse_fed(replica, done, self._code.checks[call].group)
            if which == OF_BATCH:
                self._refuse_batch(replica)
            self._plans[replica].refuse(self._code.calls[which][call])
        if result not in (CallResult.ALL_DONE, CallResult.NOT_BEGUN):
            raise InternalError(f"native code of rounds gave {result}, which it never does")

    def time_exchanges(self) -> None:
        """See RoundLaunch.time_exchanges."""
        rows = len(self._exchanges)
        self._times = [np.zeros((rows, TimesWord.WORDS), np.int64) for _ in self._threads]
        for own, times in zip(self._thread_words, self._times, strict=True):
            own[ThreadWord.TIMES], own[ThreadWord.TIMED] = times.ctypes.data, 0

    @property
    def _exchanges(self) -> list[tuple[int, str]]:
        """Round and name of each exchange, in their order."""
        phases = self._code.phases
        return [(r, phase.name) for r, v in enumerate(self._variants) for phase in phases[v] if phase.name]

    def exchange_times(self, thread: int) -> Sequence[ExchangeTimes]:
        """See RoundLaunch.exchange_times."""
        if not self._times:
            return ()
        done = self._times[thread][: self._thread_words[thread, ThreadWord.TIMED]]
        times = (done[:, ::2] + done[:, 1::2] * 1e-9).tolist()
        return [ExchangeTimes(*which, *row) for which, row in zip(self._exchanges, times, strict=False)]

    def _refuse_batch(self, replica: int) -> None:
        """Raises the error of a batch that cannot be made of its picks."""
        _, _, picks, first = self._alive[0]
        plan = self._batch_plans[replica]
        if isinstance(plan, NativePlan):
            (name,), (group,) = plan.executable.inputs, plan.executable.segments[0].groups
            plan.write({name: picks[first + self.done(replica), replica]}, {})
            plan.refuse(group)

    def _refuse_fed(self, replica: int, round: int, group: Group) -> None:
        """Raises the error of a call that would refuse what is fed."""
        self.is_whole = True
        count = len(self._inputs)
        first = (replica * len(self._variants) + round) * count
        plan, arrays = self._plans[replica], self._alive[0][first : first + count]
        plan.write(dict(zip(self._inputs, arrays, strict=True)), {})
        plan.refuse(group)

    def at(self, thread: int) -> tuple[int, int]:
        """See RoundLaunch.at."""
        replica = self._threads[thread].start + int(self._thread_words[thread, ThreadWord.AT])
        return replica, self.done(replica)

    def done(self, replica: int) -> int:
        """See RoundLaunch.done."""
        return int(self._words[replica, ReplicaWord.DONE])

    @property
    def whole_rounds(self) -> int:
        """See RoundLaunch.whole_rounds."""
        return min(self._refused, default=0)

    def let_go(self) -> None:
        """See RoundLaunch.let_go."""
        self._alive[0] = None


def _found(call: NativeCall | None) -> NativeCall:
    """A call that is there, as `RoundCode.is_possible` says."""
    if call is None:
        raise InternalError("an exchange between workers: expected a native call, got none")
    return call


def _aligned(words: int) -> NDArray[np.int64]:
    """Zeros that begin with a cache line."""
    memory = np.zeros(words + LINE, np.int64)
    first = -(memory.ctypes.data // memory.itemsize) % LINE
    return memory[first : first + words]
