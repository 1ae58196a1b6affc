"""Workers that MPI has started: `mpirun -n 4 python train.py`."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NoReturn

import numpy as np

from scheduler.workers.group import WorkerGroup
from scheduler.workers.joining import joined_mpi
from scheduler.workers.overlapped_sums import NATIVE_SIGNATURE
from scheduler.workers.pulse import waiting
from tensorbow.errors import AbortedError, FailedPreconditionError
from tensorbow.program import CALL_ARGUMENTS, NativeCall
from tensorbow.specs import Array, DType

LARGEST = (1 << 31) - 1  # of a count in C's MPI_Allreduce
SWAPPED = 1 << 24  # elements that two workers send each other at a time
LETTER, VECTOR, PIECE = 1, 2, 3  # tags of what one worker sends another
HALVES_CHUNK = 1 << 20  # elements whose upper halves are sent at a time
SHORTEST_REST_S, LONGEST_REST_S = 5e-5, 5e-4  # between two looks whether a call that does not wait has ended
REST = 0.01  # of the time that has been waited, within these limits
MOST_GATHERED = 3  # workers; among more of them, each adds up a part of the elements
MESSAGE_NBYTES = 1 << 15  # MPI libraries send so few bytes at once, without asking the receiver first
WINDOW, MOST_SENT = 4, 64  # messages that are on their way to a worker at first, and at most
PASSED_ON_S = 0.2  # before an abort: MPICH's mpiexec drops the output that it has not read until then


class MpiWorkers(WorkerGroup):
    """The processes of an MPI communicator, by default all of the job.

    Sums have equal bits on all workers, and run after run for the same number of them. They are
    `MPI_Allreduce`'s; beside other work those of two workers that send each other all, or `MPI_Iallreduce`'s.
    """

    def __init__(self, communicator: Any = None, by_streams: bool = False):
        """communicator: of mpi4py, for this group alone; default: one of all processes of the job.
        by_streams: see `duplicate`.

        Raises NotFoundError without mpi4py, FailedPreconditionError for an MPI without threads."""
        MPI = joined_mpi()  # noqa: N806
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise FailedPreconditionError(
                "workers: expected an MPI with MPI_THREAD_MULTIPLE, since streams and the program make "
                f"calls at the same time; {MPI.Get_library_version().splitlines()[0]} offers less"
            )
        self._mpi = MPI
        self._waits: Callable[[], AbstractContextManager[None]] = nullcontext if by_streams else waiting
        # The calls of the user's program, on COMM_WORLD, stay apart from ours.
        self._communicator: Any = communicator
        if communicator is None:
            with waiting():
                self._communicator = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._communicator.Get_rank(), self._communicator.Get_size()
        self._library = ctypes.CDLL(MPI.__file__)  # finds the functions of the MPI library that it loads
        self._kept: list[Any] = []  # what native calls refer to
        self._swaps: dict[NativeCall, tuple[Any, ...]] = {}  # their requests, and what calls refer to
        self._sent: list[Any] = []  # letters that are on their way

    def all_sum(self, array: Array, halves: bool = False) -> None:
        """See WorkerGroup."""
        if halves and array.dtype == np.float32:
            flat = array.reshape(-1)
            for start in range(0, flat.size, HALVES_CHUNK):
                self._sum_halves(flat[start : start + HALVES_CHUNK])
            return
        kind = self._kind_of(array.dtype)
        if kind is None:  # MPI cannot add these
            parts = np.empty((self.size, *array.shape), array.dtype)
            self._called("Allgather", self._bytes(array), self._bytes(parts))
            np.copyto(array, parts[0])
            for part in parts[1:]:
                np.add(array, part, out=array)
            return
        flat = array.reshape(-1)
        for start in range(0, flat.size, LARGEST):
            self._called("Allreduce", self._mpi.IN_PLACE, [flat[start : start + LARGEST], kind])

    def all_sum_patiently(self, array: Array, halves: bool = False) -> None:
        """See WorkerGroup."""
        flat = array.reshape(-1)
        if halves and array.dtype == np.float32:
            for start in range(0, flat.size, HALVES_CHUNK):
                self._sum_halves(flat[start : start + HALVES_CHUNK], patient=True)
            return
        if self.size == 2:
            for start in range(0, flat.size, SWAPPED):
                own = flat[start : start + SWAPPED]
                np.add(own, self._swap(own), out=own)
            return
        for start in range(0, flat.size, LARGEST):
            vector = [flat[start : start + LARGEST], self._kind_of(array.dtype)]
            self._patiently("Allreduce", self._mpi.IN_PLACE, vector)

    def _swap(self, own: Array) -> Array:
        """The other worker's array like this one, of two workers.

        Both directions of a link are in use at once. `MPI_Iallreduce` of two uses one after the other, and so
        do long messages, since what a worker sends goes before its consent to receive. Few messages are on
        their way at a time, so that the workers' meetings are not behind all of them: a worker sends as many
        as it has got, and WINDOW more, or twice that each time when it finds that all have come.
        """
        other, theirs = 1 - self.rank, np.empty_like(own)
        (sent, byte), (received, _) = self._bytes(own), self._bytes(theirs)
        parts = [slice(start, start + MESSAGE_NBYTES) for start in range(0, own.nbytes, MESSAGE_NBYTES)]
        coming = [self._called("Irecv", [received[part], byte], other) for part in parts]
        going, arrived, window = list[Any](), 0, WINDOW
        for _ in _looks():
            for part in parts[len(going) : arrived + window]:
                going.append(self._called("Isend", [sent[part], byte], other))
            arrived += len(self._tested("Testsome", coming) or ())
            if arrived >= len(going):
                window = min(2 * window, MOST_SENT)
            if min(arrived, len(going)) == len(parts):
                break
        self._look_until_ended(going)
        return theirs

    def _patiently(self, function: str, *arguments: Any) -> None:
        """Calls a method of the communicator in its form that does not wait, and looks until it has ended."""
        self._look_until_ended([self._called(f"I{function.lower()}", *arguments)])

    def _look_until_ended(self, requests: list[Any]) -> None:
        for _ in _looks():
            if self._tested("Testall", requests):
                return

    def _tested(self, function: str, requests: list[Any]) -> Any:
        try:
            return getattr(self._mpi.Request, function)(requests)
        except self._mpi.Exception as error:
            raise self._failure(function, error) from error

    def _sum_halves(self, vector: Array, patient: bool = False) -> None:
        """`all_sum` of a float32 vector by halves.

        Few workers send all elements to all: half the bytes of Allreduce for two. Of more workers each gets
        one part of the elements, and sends its sums in full: three quarters of the bytes. The bits are equal.
        patient: as `all_sum_patiently`.
        """
        called = self._patiently if patient else self._called
        size, count = self.size, vector.size
        part = -(-count // size)
        own = np.zeros(part * size, np.uint16)
        own[:count] = vector.view(np.uint32) >> 16
        if size <= MOST_GATHERED:
            every = np.empty((size, own.size), np.uint16)
            if size == 2 and patient:
                every[self.rank], every[1 - self.rank] = own, self._swap(own)
            else:
                called("Allgather", self._bytes(own), self._bytes(every))
            vector[:] = _sum_of_halves(every)[:count]
            return
        every = np.empty((size, part), np.uint16)
        called("Alltoall", self._bytes(own), self._bytes(every))
        sums = np.empty(part * size, np.float32)
        called("Allgather", self._bytes(_sum_of_halves(every)), self._bytes(sums))
        vector[:] = sums[:count]

    def share(self, array: Array, parts: Sequence[range]) -> None:
        """See WorkerGroup."""
        owners = [rank for rank, part in enumerate(parts) if part]
        if len(owners) == 1:
            part = parts[owners[0]]
            self._called("Bcast", self._bytes(array[part.start : part.stop]), owners[0])
        elif owners:
            counts, offsets = _counts_and_offsets(parts, array.itemsize)
            whole, byte = self._bytes(array)
            self._called("Allgatherv", self._mpi.IN_PLACE, [whole, counts, offsets, byte])

    def all_gather(self, value: Any) -> list[Any]:
        """See WorkerGroup."""
        result: list[Any] = self._called("allgather", value)
        return result

    def gather(self, value: Any) -> list[Any] | None:
        """See WorkerGroup."""
        result: list[Any] | None = self._called("gather", value)
        return result

    def broadcast(self, value: Any, root: int = 0) -> Any:
        """See WorkerGroup."""
        return self._called("bcast", value, root)

    def barrier(self) -> None:
        """See WorkerGroup."""
        self._called("Barrier")

    def duplicate(self, by_streams: bool = False) -> MpiWorkers:
        """See WorkerGroup."""
        return MpiWorkers(self._called("Dup"), by_streams)

    def free(self) -> None:
        """See WorkerGroup. MPICH has 2,048 communicators."""
        self._called("Free")

    def native_sum(self, address: int, size: int, dtype: DType, halves: bool = False) -> NativeCall | None:
        """See WorkerGroup."""
        if halves and dtype.as_numpy_dtype == np.float32:
            call = self._native_halves(address, size)
            self._kept.append(call)
            return ctypes.cast(call, ctypes.c_void_p).value or 0, *[0] * CALL_ARGUMENTS
        kind = self._kind_of(np.dtype(dtype.as_numpy_dtype))
        if kind is None or size > LARGEST:
            return None
        return self._native_call(
            "MPI_Allreduce",
            int(self._mpi.IN_PLACE),
            address,
            size,
            self._handle(kind),
            self._handle(self._mpi.SUM),
            self._handle(self._communicator),
        )

    def native_swap(self, own: int, theirs: int, nbytes: int) -> tuple[NativeCall, NativeCall]:
        """See WorkerGroup: requests that are started again and again."""
        sizeof, kind = self._mpi._sizeof, ctypes.c_uint8 * nbytes
        requests = [
            self._called(
                function, self._bytes(np.ctypeslib.as_array(kind.from_address(address))), other, PIECE
            )
            for other in [1 - self.rank]
            for function, address in (("Recv_init", theirs), ("Send_init", own))
        ]
        width = sizeof(self._mpi.Request)
        handles = np.array([self._handle(each) % (1 << 8 * width) for each in requests], f"u{width}")
        statuses = np.zeros(2 * sizeof(self._mpi.Status), np.uint8)
        arguments = len(requests), handles.ctypes.data, statuses.ctypes.data
        begin = self._native_call("MPI_Startall", *arguments[:2])
        self._swaps[begin] = requests, handles, statuses
        return begin, self._native_call("MPI_Waitall", *arguments)

    def end_swap(self, begin: NativeCall) -> None:
        """See WorkerGroup."""
        requests, *_ = self._swaps.pop(begin)
        for request in requests:
            with suppress(self._mpi.Exception):  # after a failure it may be under way
                request.Free()

    def _native_halves(self, address: int, size: int) -> Any:
        """A C function that calls `all_sum` of halves: packing takes longer than a call from native code."""
        kind = ctypes.c_float * size

        def called(*_: int) -> int:
            try:
                self.all_sum(np.ctypeslib.as_array(kind.from_address(address)), halves=True)
            except AbortedError:  # the caller tells that other workers have failed
                return 1
            return 0

        return NATIVE_SIGNATURE(called)

    def native_share(self, address: int, parts: Sequence[range]) -> NativeCall | None:
        """See WorkerGroup."""
        if max(part.stop for part in parts) > LARGEST:
            return None
        owners = [rank for rank, part in enumerate(parts) if part]
        communicator, byte = self._handle(self._communicator), self._handle(self._mpi.BYTE)
        if len(owners) == 1:
            part = parts[owners[0]]
            return self._native_call(
                "MPI_Bcast", address + part.start, len(part), byte, owners[0], communicator
            )
        counts, offsets = _counts_and_offsets(parts)
        self._kept += [counts, offsets]
        own = int(self._mpi.IN_PLACE), 0, self._handle(self._mpi.DATATYPE_NULL)
        others = address, counts.ctypes.data, offsets.ctypes.data, byte, communicator
        return self._native_call("MPI_Allgatherv", *own, *others)

    def post(self, worker: int, value: Any) -> None:
        """See WorkerGroup."""
        self._sent = [request for request in self._sent if not self._tested("Testall", [request])]
        self._sent.append(self._called("isend", value, worker, LETTER))

    def posted(self) -> tuple[int, Any] | None:
        """See WorkerGroup."""
        status = self._mpi.Status()
        message = self._called("improbe", self._mpi.ANY_SOURCE, LETTER, status)
        if message is None:
            return None
        try:
            return status.Get_source(), message.recv()
        except self._mpi.Exception as error:
            raise self._failure("Mrecv", error) from error

    def give(self, worker: int, array: Array) -> None:
        """See WorkerGroup."""
        self._in_pieces("Send", worker, array)

    def take(self, worker: int, array: Array) -> None:
        """See WorkerGroup."""
        self._in_pieces("Recv", worker, array)

    def _in_pieces(self, function: str, worker: int, array: Array) -> None:
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, LARGEST):
            self._patiently(function, [flat[start : start + LARGEST], self._mpi.BYTE], worker, VECTOR)

    def abort(self, reason: str) -> NoReturn:
        """See WorkerGroup."""
        print(f"tensorbow: {self.name}: {reason}", file=sys.stderr, flush=True)
        time.sleep(PASSED_ON_S)
        self._mpi.COMM_WORLD.Abort(1)
        os._exit(1)

    def _called(self, function: str, *arguments: Any) -> Any:
        """The result of a method of the communicator. Raises AbortedError for errors of MPI."""
        try:
            with self._waits():
                return getattr(self._communicator, function)(*arguments)
        except self._mpi.Exception as error:
            raise self._failure(function, error) from error

    def _failure(self, function: str, error: Exception) -> AbortedError:
        return AbortedError(
            f"{self.name}: MPI's {function} failed: {error}; another worker may have ended, or the "
            "network be cut: start the job again, it goes on from its last checkpoint"
        )

    def _native_call(self, function: str, *arguments: int) -> NativeCall:
        address = ctypes.cast(getattr(self._library, function), ctypes.c_void_p).value or 0
        signed = [(each + (1 << 63)) % (1 << 64) - (1 << 63) for each in arguments]  # MPICH's IN_PLACE is -1
        return address, *signed, *[0] * (CALL_ARGUMENTS - len(arguments))

    def _handle(self, handle: Any) -> int:
        """A handle as native code passes it: an address or a number, as the MPI library has them."""
        handle_of: int = self._mpi._handleof(handle)
        return handle_of

    def _bytes(self, array: Array) -> list[Any]:
        return [array.reshape(-1).view(np.uint8), self._mpi.BYTE]

    def _kind_of(self, dtype: np.dtype[Any]) -> Any:
        """MPI's type of numbers that it can add; None for others, as float16 and bool."""
        names = {"float32": "FLOAT", "float64": "DOUBLE"}
        if dtype.kind in "iu":
            names[dtype.name] = f"{dtype.name.upper()}_T"
        return getattr(self._mpi, names[dtype.name]) if dtype.name in names else None


def rest_s(waited_s: float) -> float:
    """Seconds until the next look whether a call has ended for which so many have been waited."""
    return min(max(REST * waited_s, SHORTEST_REST_S), LONGEST_REST_S)


def _looks() -> Iterator[None]:
    """Turns of a loop that looks whether something has ended, with rests between them."""
    began = time.perf_counter()
    while True:
        yield
        time.sleep(rest_s(time.perf_counter() - began))


def _sum_of_halves(every: Array) -> Array:
    """Sum of float32 whose upper halves are given, `[workers, elements]`, by worker."""
    total: Array = (every[0].astype(np.uint32) << 16).view(np.float32)
    for halves in every[1:]:
        total += (halves.astype(np.uint32) << 16).view(np.float32)
    return total


def _counts_and_offsets(parts: Sequence[range], itemsize: int = 1) -> tuple[Array, Array]:
    """Bytes of each worker's part, and where they begin, as C's MPI takes them."""
    table = np.array([[len(part), part.start] for part in parts], np.int32) * itemsize
    counts, offsets = (np.ascontiguousarray(column, np.int32) for column in table.T)
    return counts, offsets
