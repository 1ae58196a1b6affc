"""Agreement of workers that train in lockstep: what they do next, and who has failed.

Each engine has one `Lockstep`. Its calls of the host come in the same order on all workers and begin with a
meeting, at which each tells where it is: workers that run different programs get an error, and do not wait
for each other for ever. A worker that fails tells so at the meeting that is next; the others are there, or
come there when what is in flight has ended.

An exchange between workers begins with the sum of one number, `control`: how many have a replica whose loss
or gradient is not finite, and how many have failed. So one that waits in an exchange is told, too.
"""

from __future__ import annotations

import ctypes
import os
import threading
import zlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar

import numpy as np

from scheduler.workers.group import WorkerGroup
from scheduler.workers.letters import Letters
from scheduler.workers.overlapped_sums import (
    OVERLAP,
    OVERLAP_NBYTES,
    OVERLAP_WORKERS,
    OverlappedSums,
    overlap_choice,
)
from scheduler.workers.shared_memory import (
    EXCHANGE,
    WHOLE,
    SharedPages,
    are_together,
    may_share_memory,
    shared_memory,
)
from tensorbow.errors import AbortedError, InvalidArgumentError, TensorBowError
from tensorbow.program import FAILED_WORKER, OTHERS_FAILED, NativeCall
from tensorbow.specs import Array, DType

T = TypeVar("T")


class Going(IntEnum):
    """A worker's state at a meeting."""

    ON = 0
    TO_STOP = 1  # before what is next
    WRONG = 2  # it has failed
    LEFT = 3  # it goes on without the others, unless these leave with it


class Lockstep:
    """The agreements of one engine with those of the other workers; one thread at a time.

    exchanges: the group for exchanges of replicas, whose calls streams and native code make.
    control: int64 [2]: the number that workers sum at the begin of an exchange, and how often they have.
    shares_memory: whether they exchange sums by memory that they share. swaps: whether two workers, with no
    link between them, send each other their sums piece by piece. overlap_nbytes: of the smallest sum that is
    exchanged beside other work, None where none is.
    """

    def __init__(self, workers: WorkerGroup):
        """Collective, as all else here. workers: more than one."""
        self.rank, self.size, self.name = workers.rank, workers.size, workers.name
        self._host, self.exchanges = workers.duplicate(), workers.duplicate(by_streams=True)
        self.control = np.zeros(2, np.int64)
        self._names: list[str] = self._host.all_gather(workers.name)
        self.shares_memory = may_share_memory(self._host)
        together = are_together(self._host)
        by_calls = together and not self.shares_memory
        self.swaps = self.size == 2 and by_calls and os.environ.get(EXCHANGE) != WHOLE
        choices = self._host.all_gather(overlap_choice())
        if len({*choices}) > 1:
            raise InvalidArgumentError(
                f"{OVERLAP}: expected the same on all workers, got {', '.join(map(repr, choices))}"
            )
        waits = together or self.size > OVERLAP_WORKERS
        by_default = None if waits else OVERLAP_NBYTES
        self.overlap_nbytes = {"always": 1, "never": None}.get(choices[0], by_default)
        self._summing, self._sums = workers.duplicate(by_streams=True), OverlappedSums()
        self._has_parted = self._is_apart = False  # workers have failed; they have gone different ways
        self._has_ended = False  # well, on all workers
        self._workers = workers
        self._letters: Letters | None = None  # made when they are first asked for

    @property
    def is_apart(self) -> bool:
        """True if workers have gone different ways, so that collective calls raise AbortedError."""
        return self._is_apart

    def overlapped(
        self, vectors: Sequence[tuple[int, int, DType]], halves: bool
    ) -> tuple[NativeCall, NativeCall]:
        """Native calls that begin to sum vectors over the workers, given by address, size and dtype, and that
        wait for the end; meanwhile the caller goes on. halves: see WorkerGroup.all_sum.
        """
        arrays = [
            np.ctypeslib.as_array((ctypes.c_uint8 * (size * dtype.size)).from_address(address)).view(
                dtype.as_numpy_dtype
            )
            for address, size, dtype in vectors
        ]
        return self._sums.calls([partial(self._summing.all_sum_patiently, array, halves) for array in arrays])

    def letters(self) -> Letters:
        """Messages of one worker to another; the first call is collective."""
        if self._letters is None:
            self._letters = Letters(self._workers.duplicate(by_streams=True))
        return self._letters

    def meet(self, what: str, number: int = 0, going: Going = Going.ON) -> Going:
        """Meets the other workers before something that all do; the worst state of any of them.

        After WRONG, `part` must follow when nothing is in flight. After LEFT, they are apart where not all
        have left at this place: no worker makes further collective calls.
        Raises InvalidArgumentError, on all of them, where they are about to do different things, and
        AbortedError where others have left.
        """
        if self._is_apart:
            raise AbortedError(f"{what}: the workers have gone different ways before; start the job again")
        rows = np.zeros((self.size, 3), np.int64)
        rows[self.rank] = zlib.crc32(what.encode()), number, going
        parts = [range(3 * rank, 3 * rank + 3) for rank in range(self.size)]
        self._host.share(rows.reshape(-1), parts)
        worst = Going(int(rows[:, 2].max()))
        if worst is Going.LEFT:
            self._is_apart = bool((rows != rows[0]).any())
            if going <= Going.TO_STOP:
                leavers = [self._names[rank] for rank in np.flatnonzero(rows[:, 2] == Going.LEFT)]
                raise AbortedError(
                    f"{', '.join(leavers)} has ended its training, by an error of its program or by leaving "
                    f"a loop, while this worker goes on ({what}); end loops at the same step on all workers"
                )
        elif worst is not Going.WRONG and (rows[:, :2] != rows[0, :2]).any():
            self._refuse_difference("next call", [what, f"number {number}"])
        return worst

    def require_equal(self, what: str, items: Sequence[str]) -> None:
        """Raises InvalidArgumentError, on all workers, that names the first difference between two of them.

        Raises AbortedError where one has failed before. items: the same on all workers, if all is well.
        """
        self._meet_well(what)
        self._refuse_difference(what, items)

    def _refuse_difference(self, what: str, items: Sequence[str]) -> None:
        first, *others = self._host.all_gather(list(items))
        for rank, other in enumerate(others, 1):
            if other != first:
                differ = [n for n, pair in enumerate(zip(first, other, strict=False)) if pair[0] != pair[1]]
                number = differ[0] if differ else min(len(first), len(other))
                self._is_apart = True
                ours, theirs = (own[number] if number < len(own) else "nothing" for own in (first, other))
                raise InvalidArgumentError(
                    f"{what}: expected the same on all workers; {self._names[0]} has {ours}, "
                    f"{self._names[rank]} has {theirs}; run the same program everywhere: steps, evaluations, "
                    "central_values() and save() are calls of all workers, not of worker 0 alone"
                )

    def _meet_well(self, what: str) -> None:
        """Meets; raises AbortedError where a worker has failed. Nothing is in flight."""
        if self.meet(what) is Going.WRONG:
            raise self.part()

    def all_sum(self, what: str, array: Array) -> None:
        """Replaces an array by its sum over the workers. Raises as `require_equal`."""
        self._meet_well(what)
        self._host.all_sum(array)

    def all_gather(self, what: str, value: Any) -> list[Any]:
        """The value that each worker gives, by rank. Raises as `require_equal`."""
        self._meet_well(what)
        return self._host.all_gather(value)

    def gather(self, what: str, value: Any) -> list[Any] | None:
        """The value that each worker gives, by rank, on worker 0. Raises as `require_equal`."""
        self._meet_well(what)
        return self._host.gather(value)

    def broadcast(self, what: str, value: Any) -> Any:
        """The value of worker 0. Raises as `require_equal`."""
        self._meet_well(what)
        return self._host.broadcast(value)

    def together(self, what: str, function: Callable[[], T]) -> T:
        """Calls a function on each worker; the library's error of one, the first by number, is that of all.

        Raises also as `require_equal`.
        """
        value: Any = None
        error: TensorBowError | None = None
        try:
            value = function()
        except TensorBowError as raised:
            error = raised
        told = self.all_gather(what, None if error is None else (type(error), str(error)))
        for name, found in zip(self._names, told, strict=True):
            if found is not None:
                kind, text = found
                raise error if name == self.name and error is not None else kind(f"{name}: {text}")
        result: T = value
        return result

    def share_memory(self, nbytes: int) -> Sequence[Array]:
        """Memory of so many bytes of each worker, see `shared_memory`. Raises as `require_equal`."""
        self._meet_well("shared memory")
        return shared_memory(self._host, nbytes)

    def share_pages(self, addresses: Sequence[int], nbytes: int) -> SharedPages:
        """Makes blocks of all workers one, see `SharedPages`. Raises as `require_equal`."""
        self._meet_well("shared pages")
        return SharedPages(self._host, addresses, nbytes)

    def begin_exchange(self, failed: bool = False, bad: bool = False) -> bool:
        """Sums `control` over the workers; True if some worker's replica is bad. May be called by any thread.

        Raises AbortedError if a worker has failed.
        """
        self.control[0] = FAILED_WORKER if failed else int(bad)
        self.control[1] += 1
        self.exchanges.all_sum(self.control[:1])
        if self.control[0] >= FAILED_WORKER:
            raise AbortedError(OTHERS_FAILED)
        return bool(self.control[0])

    def part(self, reason: str = "", *, follows: bool = False, told: bool = True) -> AbortedError:
        """Has all workers know who has failed, and why; to be called while nothing is in flight.

        reason: of this worker, if it has failed. follows: as others have. told: the others have been told so,
        or have told this worker, at a meeting.
        Returns the error of those that have not failed. Afterwards all may go on.
        """
        text = reason and f"{self.name}: {reason}"
        if self._is_apart:
            return AbortedError(text)
        self._has_parted = True
        helper: threading.Thread | None = None
        if not told:
            # Others may wait for this worker in an exchange; otherwise they join it below.
            helper = threading.Thread(target=self._fail_exchange, daemon=True)
            self.control[1] += 1
            helper.start()
            self.meet("failure", going=Going.WRONG)
            if self._is_apart:
                return AbortedError(text)
        known: list[tuple[bool, str, int]] = self._host.all_gather((follows, text, int(self.control[1])))
        most = max(count for *_, count in known)
        while self.control[1] < most:
            self.control[1] += 1
            self._fail_exchange()
        if helper is not None:
            helper.join()
        return AbortedError(min((follows, text) for follows, text, _ in known if text)[1])

    def leave(self, what: str, number: int = 0) -> bool:
        """Meets at an end of what all do; False where the others are not there, and go on alone, too.

        Never raises: others are told, where this worker's program leaves a loop with an error.
        """
        return not self._is_apart and self.meet(what, number, Going.LEFT) is Going.LEFT and not self._is_apart

    def close(self, error: BaseException | None = None) -> None:
        """Meets for the last time, unless all know that workers have failed.

        error: of the program, which others are told.
        """
        self._sums.close()
        if self._letters is not None:
            self._letters.end()
        if self._has_parted or self._is_apart:
            return
        if error is None:
            self._has_ended = self.leave("the end of the engine")
        else:
            self.part(f"{type(error).__name__}: {error}", told=False)

    def free(self) -> None:
        """Gives back what it needs of MPI, if all workers have met in `close`, and no launch is under way."""
        if self._has_ended:
            self._sums.join()
            for group in (self._host, self.exchanges, self._summing):  # letters may still come
                group.free()

    def _fail_exchange(self) -> None:
        self.exchanges.all_sum(np.array([FAILED_WORKER]))
