"""NCCL over CuPy: collective calls between several GPUs, of this process or of several.

Making communicators takes NCCL seconds: those of one process are kept, by the set of GPUs, for the next user.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tensorbow.devices.cuda_runtime import CudaError, CudaRuntime
from tensorbow.errors import InternalError

__all__ = ["NcclCommunicators", "NcclRanks", "nccl_id", "nccl_is_there"]

# NCCL's statuses up to 2.32 by number; CuPy's own table ends at 6, and raises KeyError for the others.
STATUSES = (
    "ncclSuccess",
    "ncclUnhandledCudaError",
    "ncclSystemError",
    "ncclInternalError",
    "ncclInvalidArgument",
    "ncclInvalidUsage",
    "ncclRemoteError",
    "ncclInProgress",
    "ncclTimeout",
)

_lock = threading.Lock()  # guards the following
_idle: dict[tuple[int, ...], list[NcclCommunicators]] = {}  # given back, by the GPUs' numbers


@dataclass(frozen=True)
class NcclRanks:
    """GPUs of several processes: of this one those from rank `first` on, of `total`.

    unique_id: of `nccl_id`, from the process of rank 0.
    """

    first: int
    total: int
    unique_id: Any


def nccl_is_there() -> bool:
    """True if CuPy has NCCL."""
    try:
        from cupy.cuda import nccl
    except ImportError:
        return False
    return nccl is not None


def nccl_id() -> Any:
    """An id by which processes find each other, and which may be pickled. Raises ImportError without NCCL."""
    from cupy.cuda import nccl

    return nccl.get_unique_id()


class NcclCommunicators:
    """One NCCL communicator per GPU of this process. One thread posts all calls, in one order.

    State: `_failed` once a call has failed; then NCCL allows nothing but to abort the communicators.
    """

    def __init__(
        self, indices: Sequence[int], ranks: NcclRanks | None = None, runtimes: Sequence[CudaRuntime] = ()
    ):
        """indices: CUDA's numbers of the GPUs. ranks, runtimes: with GPUs of other processes, collective.

        Raises CudaError naming NCCL's status.
        """
        from cupy.cuda import nccl

        self._nccl: Any = nccl
        self._indices, self._is_joined = tuple(indices), ranks is not None
        self._total = len(indices) if ranks is None else ranks.total
        self._failed = False
        self._dtypes = {
            "float32": nccl.NCCL_FLOAT32,
            "float64": nccl.NCCL_FLOAT64,
            "int32": nccl.NCCL_INT32,
            "int64": nccl.NCCL_INT64,
            "uint8": nccl.NCCL_UINT8,
        }
        self._communicators: list[Any] = []
        if ranks is None:
            self._communicators = self._checked(nccl.NcclCommunicator.initAll, list(indices))
        else:
            self._join(ranks, runtimes)

    def _join(self, ranks: NcclRanks, runtimes: Sequence[CudaRuntime]) -> None:
        self._checked(self._nccl.groupStart)
        try:
            for rank, runtime in enumerate(runtimes, ranks.first):
                runtime.make_current()
                arguments = ranks.total, ranks.unique_id, rank
                self._communicators.append(self._checked(self._nccl.NcclCommunicator, *arguments))
        finally:
            self._checked(self._nccl.groupEnd)

    @classmethod
    def taken(cls, indices: Sequence[int]) -> NcclCommunicators:
        """Communicators of these GPUs that were given back, or new ones. Raises CudaError."""
        with _lock:
            idle = _idle.get(tuple(indices))
            if idle:
                return idle.pop()
        return cls(indices)

    def give_back(self) -> None:
        """Keeps the communicators, which must be idle, for the next to take them.

        Failed ones are closed, and so are those with other processes.
        """
        if self._failed or self._is_joined:
            self.close()
            return
        with _lock:
            _idle.setdefault(self._indices, []).append(self)

    def all_reduce(self, addresses: Sequence[int], size: int, dtype: str, streams: Sequence[int]) -> None:
        """Enqueues the sum over all GPUs of one vector per GPU, in place, on one stream per GPU."""
        if dtype not in self._dtypes:
            raise InternalError(f"all-reduce: no sum of {dtype}")
        kind, add = self._dtypes[dtype], self._nccl.NCCL_SUM
        calls = [partial(c.allReduce, a, a, size, kind, add) for c, a in self._pairs(addresses)]
        self._together(calls, streams)

    def broadcast(self, addresses: Sequence[int], nbytes: int, root: int, streams: Sequence[int]) -> None:
        """Enqueues copies of one GPU's bytes, by its rank `root`, to all others, on one stream per GPU."""
        kind = self._dtypes["uint8"]
        calls = [partial(c.broadcast, a, a, nbytes, kind, root) for c, a in self._pairs(addresses)]
        self._together(calls, streams)

    def all_gather(
        self, sources: Sequence[int], targets: Sequence[int], nbytes: int, streams: Sequence[int]
    ) -> None:
        """Enqueues the gathering of so many bytes of each rank, by rank, on all GPUs.

        A source may lie in its target, where its rank's bytes belong.
        """
        kind = self._dtypes["uint8"]
        calls = [
            partial(communicator.allGather, source, target, nbytes, kind)
            for (communicator, source), target in zip(self._pairs(sources), targets, strict=True)
        ]
        self._together(calls, streams)

    def all_to_all(
        self, sources: Sequence[int], targets: Sequence[int], nbytes: int, streams: Sequence[int]
    ) -> None:
        """Enqueues that each rank sends its n-th part, of so many bytes, to rank n, in the order of ranks."""
        kind = self._dtypes["uint8"]
        calls: list[Callable[[int], Any]] = []
        own = list[int]()
        for (communicator, source), target, stream in zip(
            self._pairs(sources), targets, streams, strict=True
        ):
            for rank in range(self._total):
                place = rank * nbytes
                calls.append(partial(communicator.send, source + place, nbytes, kind, rank))
                calls.append(partial(communicator.recv, target + place, nbytes, kind, rank))
                own += [stream, stream]
        self._together(calls, own)

    def _pairs(self, addresses: Sequence[int]) -> list[tuple[Any, int]]:
        return [*zip(self._communicators, addresses, strict=True)]

    def _together(self, calls: Sequence[Callable[[int], Any]], streams: Sequence[int]) -> None:
        """One call for each GPU, with its stream, as a group."""
        self._checked(self._nccl.groupStart)
        try:
            for call, stream in zip(calls, streams, strict=True):
                self._checked(call, stream)
        finally:
            self._checked(self._nccl.groupEnd)

    def _checked(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._nccl.NcclError as error:
            self._failed, number, text = True, error.status, str(error)
        except KeyError as error:
            self._failed, number, text = True, error.args[0], ""
        known = isinstance(number, int) and 0 <= number < len(STATUSES)
        name = STATUSES[number] if known else f"status {number}"
        raise CudaError(f"NCCL: {name}{text and f': {text}'}", name)

    def close(self) -> None:
        """Destroys the communicators, which must be idle, or aborts those that failed; idempotent."""
        while self._communicators:
            communicator = self._communicators.pop()
            communicator.abort() if self._failed else communicator.destroy()
