"""The group of workers that a process belongs to: an interface, and the group of one."""

from __future__ import annotations

import os
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

from tensorbow.errors import InternalError
from tensorbow.program import NativeCall
from tensorbow.specs import Array, DType


class WorkerGroup(ABC):
    """Processes of one job, each of which makes the same calls in the same order.

    rank: the number of this worker, from 0. size: how many there are. A collective call returns when all
    workers have made it; it raises AbortedError when the job falls apart. Several groups of the same workers
    (`duplicate`) do not disturb each other; one group belongs to one thread at a time.
    `post`, `posted`, `give` and `take` are no collective calls; one thread may call `posted` while another
    sends or takes.
    """

    rank: int
    size: int

    @property
    def name(self) -> str:
        """The worker in messages: number, host and process."""
        return f"worker {self.rank} of {self.size} ({socket.gethostname()}, process {os.getpid()})"

    @abstractmethod
    def all_sum(self, array: Array, halves: bool = False) -> None:
        """Replaces an array, which lies in one piece, by its sum over the workers; all get the same bits.

        halves: of float32, the upper half of each worker's elements (bfloat16) is sent, and added in float32,
        by worker; other dtypes ignore it.
        """

    @abstractmethod
    def all_sum_patiently(self, array: Array, halves: bool = False) -> None:
        """`all_sum` of numbers that MPI can add, by a thread that leaves the cores to others meanwhile.

        The sums of three or more workers may differ from those of `all_sum` by rounding; halves: not by that.
        """

    @abstractmethod
    def share(self, array: Array, parts: Sequence[range]) -> None:
        """Completes a vector, of which each worker has the elements of its part, on all workers.

        parts: by worker; they follow one another without gaps, and may be empty.
        """

    @abstractmethod
    def all_gather(self, value: Any) -> list[Any]:
        """The value that each worker gives, by rank; anything that can be pickled."""

    @abstractmethod
    def gather(self, value: Any) -> list[Any] | None:
        """The value that each worker gives, by rank, on worker 0; None on the others."""

    @abstractmethod
    def broadcast(self, value: Any, root: int = 0) -> Any:
        """The value that the worker `root` gives; the others' are ignored."""

    @abstractmethod
    def barrier(self) -> None:
        """Waits until all workers have come here."""

    @abstractmethod
    def duplicate(self, by_streams: bool = False) -> WorkerGroup:
        """Another group of the same workers, for calls that are made beside those of this one. Collective.

        by_streams: its calls are made by streams and other threads, while the program may do something else:
        for the watch of the job (`pulse`) the program does not wait in them.
        """

    @abstractmethod
    def free(self) -> None:
        """Gives back what a group made by `duplicate` needs; no call follows. Collective."""

    @abstractmethod
    def native_sum(self, address: int, size: int, dtype: DType, halves: bool = False) -> NativeCall | None:
        """`all_sum` of a vector as a call for native code; None for a dtype or size that it cannot do."""

    @abstractmethod
    def native_swap(self, own: int, theirs: int, nbytes: int) -> tuple[NativeCall, NativeCall]:
        """Calls for native code of one of two workers: one begins to send the other a vector and to receive
        its, the other waits for the end. own, theirs: addresses, where nothing else is done between the two.
        `end_swap` gives back what they need.
        """

    @abstractmethod
    def end_swap(self, begin: NativeCall) -> None:
        """Frees what the calls of `native_swap` need, given the first one; not while they are under way."""

    @abstractmethod
    def native_share(self, address: int, parts: Sequence[range]) -> NativeCall | None:
        """`share` of a vector of bytes as a call for native code; None for sizes that it cannot do.

        The group keeps what the call refers to.
        """

    @abstractmethod
    def post(self, worker: int, value: Any) -> None:
        """Sends another worker something that can be pickled, for its `posted`; returns at once."""

    @abstractmethod
    def posted(self) -> tuple[int, Any] | None:
        """The next thing that a worker has posted, and its number; None if there is nothing yet."""

    @abstractmethod
    def give(self, worker: int, array: Array) -> None:
        """Sends the elements of an array, which lies in one piece, to a worker that calls `take`."""

    @abstractmethod
    def take(self, worker: int, array: Array) -> None:
        """Fills an array, which lies in one piece, with what a worker gives."""

    @abstractmethod
    def abort(self, reason: str) -> NoReturn:
        """Ends the processes of all workers, with one line on stderr that names this one and the reason."""


class LoneWorker(WorkerGroup):
    """The group of a process that was started by itself."""

    rank, size = 0, 1

    def all_sum(self, array: Array, halves: bool = False) -> None:
        """See WorkerGroup."""

    def all_sum_patiently(self, array: Array, halves: bool = False) -> None:
        """See WorkerGroup."""

    def share(self, array: Array, parts: Sequence[range]) -> None:
        """See WorkerGroup."""

    def all_gather(self, value: Any) -> list[Any]:
        """See WorkerGroup."""
        return [value]

    def gather(self, value: Any) -> list[Any] | None:
        """See WorkerGroup."""
        return [value]

    def broadcast(self, value: Any, root: int = 0) -> Any:
        """See WorkerGroup."""
        return value

    def barrier(self) -> None:
        """See WorkerGroup."""

    def duplicate(self, by_streams: bool = False) -> WorkerGroup:
        """See WorkerGroup."""
        return self

    def free(self) -> None:
        """See WorkerGroup: it needs nothing."""

    def native_sum(self, address: int, size: int, dtype: DType, halves: bool = False) -> NativeCall | None:
        """See WorkerGroup: there is nothing to call."""
        return None

    def native_swap(self, own: int, theirs: int, nbytes: int) -> tuple[NativeCall, NativeCall]:
        """See WorkerGroup: there is no other."""
        raise InternalError(f"{self.name} has no other worker to exchange anything with")

    def end_swap(self, begin: NativeCall) -> None:
        """See WorkerGroup: there is none."""

    def native_share(self, address: int, parts: Sequence[range]) -> NativeCall | None:
        """See WorkerGroup: there is nothing to call."""
        return None

    def post(self, worker: int, value: Any) -> None:
        """See WorkerGroup: there is no other."""
        raise InternalError(f"{self.name} has no worker {worker} to write to")

    def posted(self) -> tuple[int, Any] | None:
        """See WorkerGroup: nobody posts anything."""
        return None

    def give(self, worker: int, array: Array) -> None:
        """See WorkerGroup: there is no other."""
        raise InternalError(f"{self.name} has no worker {worker} to give anything to")

    def take(self, worker: int, array: Array) -> None:
        """See WorkerGroup: there is no other."""
        raise InternalError(f"{self.name} has no worker {worker} to take anything from")

    def abort(self, reason: str) -> NoReturn:
        """Ends this process."""
        print(f"tensorbow: {self.name}: {reason}", file=sys.stderr, flush=True)
        os._exit(1)
