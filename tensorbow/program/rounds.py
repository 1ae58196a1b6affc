"""Rounds of all replicas of a process as one launch: the border between the scheduler and backends.

Without it a round is two launches of each replica, and averaging further ones of z's stream. Where steps are
short that is much of what they cost; and on one processor the passes over memory can be shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorbow.devices import Event
from tensorbow.program.plan import BoundPlan, Executable
from tensorbow.specs import Array, DType

FAILED_WORKER = 1 << 32  # what a worker that has failed adds to `WorkerExchange.control`
OTHERS_FAILED = "another worker has failed"
NativeCall: TypeAlias = tuple[int, ...]
"""The address of a C function, and the integers or addresses that it is called with, `CALL_ARGUMENTS` of
them; it returns an int, 0 for success."""
CALL_ARGUMENTS = 8
STICKY = "sticky"  # a status of a launch: a replica whose status is set writes nothing more, and ends nothing


@dataclass(frozen=True)
class WorkerExchange:
    """Calls by which native code exchanges vectors with other processes, which run the same rounds.

    control: int64 [2]: a number that is summed over the workers before each exchange, 1 of each that has a
    replica whose status is set, and FAILED_WORKER of each that has failed; and how often it was.
    first: the number of this worker's first replica. counts: replicas by worker.
    sum_of: the call that sums a vector, given its address, size and dtype; None if there is none.
    share_of: the call that completes a vector of bytes, given its address and each worker's part.
    shared: memory of so many bytes of each worker, of zeros at first, which all workers read, and the worker
    itself writes; collective. None where sums are exchanged by calls. worker: the number of this one.
    halves: sums of float32 go to other workers as their upper 16 bits, and are added in float32.
    overlapped: the calls that begin to sum some vectors, given by address, size and dtype, and that wait for
    the end; None where that is not done beside other work. overlap_nbytes: of the smallest sum that is.
    may_share_central: whether all devices of all workers may have their z in the same memory.
    swap_of: the calls by which two workers begin to send each other a vector, and wait for the end, given the
    addresses of their own and of what comes, and its bytes; None where sums are not exchanged so.
    end_swap: gives back what these calls need, given the first one.
    """

    control: NDArray[np.int64]
    first: int
    counts: Sequence[int]
    sum_of: Callable[[int, int, DType], NativeCall | None]
    share_of: Callable[[int, Sequence[range]], NativeCall | None]
    shared: Callable[[int], Sequence[NDArray[np.uint8]]] | None = None
    worker: int = 0
    halves: bool = False
    overlapped: Callable[[Sequence[tuple[int, int, DType]]], tuple[NativeCall, NativeCall]] | None = None
    overlap_nbytes: int = 0
    may_share_central: bool = False
    swap_of: Callable[[int, int, int], tuple[NativeCall, NativeCall]] | None = None
    end_swap: Callable[[NativeCall], object] = lambda begin: None

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """Key of native code: all that it depends on."""
        later = None if self.overlapped is None else self.overlap_nbytes
        threads = max(self.counts) if self.may_share_central else 0
        return self.shares_memory, self.halves, later, threads, self.swap_of is not None

    @property
    def shares_memory(self) -> bool:
        """True if the workers read each other's sums."""
        return self.shared is not None

    def parts(self, nbytes: int) -> list[range]:
        """Ranges of the workers' bytes, with so many of each replica."""
        ends = [nbytes * end for end in accumulate(self.counts, initial=0)]
        return [range(first, end) for first, end in pairwise(ends)]


@dataclass(frozen=True)
class RoundProgramSpec:
    """Specification of the rounds of a process.

    step: with all segments. variants: by number, the variant of the step that a round may run. central: by
    device, the base addresses of what runs once per device, by number of region; empty where replicas never
    meet. replicas: by device, how many it has; replicas go by device. central_plans: by device, what runs
    once there. post: enqueues what devices exchange, by number of the exchange, behind an event of each;
    None where the program does that itself. fused: all replicas of a GPU in each of its kernels.
    """

    step: Executable
    variants: Sequence[str]
    central: Sequence[Sequence[int]]
    replicas: Sequence[int]
    central_plans: Sequence[BoundPlan] = ()
    post: Callable[[int, Sequence[Event]], Event] | None = None
    fused: bool = False
    workers: WorkerExchange | None = None


class LaunchFeeds(NamedTuple):
    """Inputs of all replicas in some rounds: arrays, or picks from which the device makes them.

    arrays: by replica and round, arrays by input name. picks: int64 [rounds, replicas, batch_size, ...], of
    which those from `first` on are for these rounds. batch_plans: by replica, the bound step that makes a
    batch from its picks, and writes it to the replica's inputs.
    """

    arrays: Sequence[Sequence[Mapping[str, Array]]] = ()
    batch_plans: Sequence[BoundPlan] = ()
    picks: NDArray[np.int64] | None = None
    first: int = 0


class ExchangeTimes(NamedTuple):
    """An exchange in a thread: its round in the launch, its name, and times by `time.perf_counter`: when the
    thread came to it, when all had come, and when it ended.
    """

    round: int
    name: str
    arrived_s: float
    all_arrived_s: float
    ended_s: float


class RoundLaunch(ABC):
    """Some rounds of all replicas: `run` once for each of `threads`, each on a thread of its own."""

    @property
    @abstractmethod
    def threads(self) -> Sequence[range]:
        """Replicas that each thread runs in turn."""

    @abstractmethod
    def run(self, thread: int) -> None:
        """Does one thread's part. Raises the error of an op, and AbortedError where another thread failed."""

    def time_exchanges(self) -> None:  # noqa: B027 - not all can
        """Has `run` measure the exchanges, for `exchange_times`, where the backend can; for one run."""

    def exchange_times(self, thread: int) -> Sequence[ExchangeTimes]:
        """Times of the exchanges of a thread's part that has ended, in their order."""
        return ()

    @abstractmethod
    def at(self, thread: int) -> tuple[int, int]:
        """The replica that a thread has failed at, and in which of the rounds."""

    @abstractmethod
    def done(self, replica: int) -> int:
        """A replica's rounds done: fewer than asked for after an error, or a status that is set."""

    @property
    def whole_rounds(self) -> int:
        """Rounds before the first one in which a thread has failed, as far as known; see `is_whole`."""
        return 0

    is_whole = False  # whether all replicas have done `whole_rounds` of a launch that failed, and no more

    @abstractmethod
    def let_go(self) -> None:
        """Holds the inputs no more; after its end."""


class RoundProgram(ABC):
    """The bound steps of all replicas of a process, exchanges included. One thread at a time launches."""

    chooses_threads = True  # whether a launch may be run by several threads
    shares_central = False  # whether all workers have to have one z, of which each moves a part

    @property
    def may_refuse(self) -> bool:
        """False if no call of a round refuses any input, so that a round is done whole or not begun."""
        return True

    @property
    def index_ranges(self) -> Sequence[tuple[int, range]] | None:
        """Inputs, by number, and the range in which their integers have to be, if calls refuse nothing else;
        arrays that are fed are checked before a launch begins. None if calls may refuse other numbers.
        """
        return None

    def connect(self) -> None:  # noqa: B027 - most need no more than they are given
        """Takes what it shares with other workers; collective, once all have one and before they launch."""

    @abstractmethod
    def launch(
        self,
        first: int,
        variants: Sequence[int],
        feeds: LaunchFeeds,
        state: Mapping[str, Any],
        threads: int,
    ) -> RoundLaunch:
        """Prepares rounds of all replicas, one for each of `variants`, by their numbers.

        first: the number of the first round, which chooses the RING slot. state: step scalars, one value, one
        for each round, or by replica one for each round; with a status every round begins with it, and none
        ends the launch; without, the launch ends after the exchange at which some replica's status is set;
        with STICKY none ends it either, and a replica whose status is set writes nothing more. threads: at
        most so many do the work, and all meet at each exchange. The returned object is used again when as
        many rounds have followed as RING has slots.
        """

    @abstractmethod
    def fetched(self, replica: int, first: int, count: int) -> list[Array]:
        """Values fetched by finished rounds: by fetch, [rounds, ...]."""

    @property
    @abstractmethod
    def stopped(self) -> bool:
        """True if a launch since `reset` has ended, or is to end, before its last round."""

    @property
    def ended(self) -> bool:
        """True if no round is begun any more until `reset`. With other workers rounds go on after a status is
        set, until all meet in an exchange."""
        return self.stopped

    @abstractmethod
    def stop(self) -> None:
        """Lets those go that wait for a thread that will not come; from any thread."""

    @abstractmethod
    def reset(self) -> None:
        """Clears `stop`, and reads the step scalars again; while nothing runs."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Gives back what it holds beside the plans, while nothing runs; idempotent."""
