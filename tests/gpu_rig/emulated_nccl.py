"""The module `cupy.cuda.nccl` over emulated GPUs: several ranks, each on a stream of its GPU.

Stricter than NCCL where NCCL would wait for ever or corrupt memory: calls of several ranks need a group, in
which all ranks make the same calls; a rank's memory and stream must be its GPU's; nothing of several ranks
may be captured.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.gpu_rig.emulated_calls import CURRENT
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.emulated_memory import MEMORY, host_array

INVALID_ARGUMENT, INVALID_USAGE = 4, 5
NAMES = ("SUCCESS", "UNHANDLED_CUDA_ERROR", "SYSTEM_ERROR", "INTERNAL_ERROR", "INVALID_ARGUMENT",
         "INVALID_USAGE", "REMOTE_ERROR")  # fmt: skip
DTYPES = {2: np.int32, 4: np.int64, 7: np.float32, 8: np.float64, 1: np.uint8}


class NcclError(RuntimeError):
    """As CuPy's: its table of names ends at 6."""

    def __init__(self, status: int):
        super().__init__(f"NCCL_ERROR_{dict(enumerate(NAMES))[status]}: emulated")
        self.status = status


class _Call(NamedTuple):
    """One rank's call: what must be equal in all ranks, and what is its own."""

    what: tuple[Any, ...]  # kind, count, dtype, root or operation
    address: int
    stream: int
    source: int = 0  # where it is another


class _Clique:
    """Communicators that were made together."""

    def __init__(self, nccl: EmulatedNccl, gpus: Sequence[EmulatedCuda]):
        self.nccl, self.gpus, self.total = nccl, gpus, len(gpus)
        self.waiting: dict[int, list[_Call]] = {rank: [] for rank in range(len(gpus))}

    def of_all_processes(self, own: list[Any]) -> list[Any]:
        """The vectors of all ranks: these alone."""
        return own

    def launch(self) -> None:
        """Enqueues the calls of a group, if all ranks have made the same ones."""
        calls, self.waiting = self.waiting, {rank: [] for rank in self.waiting}
        if any(call.what[0] in ("send", "recv") for own in calls.values() for call in own):
            self._enqueue_mail(calls)
            return
        together = [*zip(*calls.values(), strict=False)]
        for ranks in together:
            if len({call.what for call in ranks}) > 1:
                raise NcclError(INVALID_USAGE)
        if len({len(own) for own in calls.values()}) > 1:
            raise NcclError(INVALID_USAGE)
        for ranks in together:
            self._enqueue(ranks)

    def _enqueue(self, ranks: Sequence[_Call]) -> None:
        kind, count, dtype, root = ranks[0].what
        all_of_them = self.of_all_processes
        nbytes = count * np.dtype(dtype).itemsize
        gathers = kind == "all-gather"  # count elements of each rank, from `source`, to all
        written = nbytes * (self.total if gathers else 1)
        for gpu, call in zip(self.gpus, ranks, strict=True):
            for address, size in ((call.address, written), (call.source or call.address, nbytes)):
                block = MEMORY.block_of(address)
                if block is None or block.owner is not gpu or address + size > block.end:
                    raise NcclError(INVALID_ARGUMENT)
            if len(ranks) > 1 and gpu.is_capturing(call.stream):
                raise NcclError(INVALID_USAGE)
        met, own = threading.Barrier(len(ranks), timeout=30), [np.empty(0)] * len(ranks)
        every: list[Any] = []

        def run(rank: int) -> None:
            source = ranks[rank].source or ranks[rank].address
            vector = host_array(ranks[rank].address, written).view(dtype)
            own[rank] = host_array(source, nbytes).view(dtype).copy()
            met.wait()
            if rank == 0:
                every.extend(all_of_them(own))
            met.wait()
            if gathers:
                vector[...] = np.concatenate(every)
            else:
                vector[...] = every[root] if kind == "broadcast" else np.sum(every, axis=0, dtype=dtype)

        self.nccl.posted.append((kind, count, np.dtype(dtype).name))
        self.nccl.threads.add(threading.get_ident())
        for rank, (gpu, call) in enumerate(zip(self.gpus, ranks, strict=True)):
            gpu.enqueue(call.stream, "launch", f"NCCL {kind}", lambda rank=rank: run(rank))

    def _enqueue_mail(self, calls: dict[int, list[_Call]]) -> None:
        """Enqueues the calls of a group that has nothing but sends and receipts, of one rank here."""
        ((gpu, own),) = zip(self.gpus, calls.values(), strict=True)
        if {call.what[0] for call in own} != {"send", "recv"} or len({call.stream for call in own}) > 1:
            raise NcclError(INVALID_USAGE)
        for call in own:
            block = MEMORY.block_of(call.address)
            if block is None or block.owner is not gpu or call.address + call.what[1] > block.end:
                raise NcclError(INVALID_ARGUMENT)

        def run() -> None:
            sends = [call for call in own if call.what[0] == "send"]
            mail = {call.what[3]: host_array(call.address, call.what[1]).copy() for call in sends}
            every = self.of_all_processes([mail])
            mine = self.first_rank
            for call in own:
                if call.what[0] == "recv":
                    host_array(call.address, call.what[1])[...] = every[call.what[3]][mine]

        self.nccl.posted.append(("all-to-all", own[0].what[1], "uint8"))
        gpu.enqueue(own[0].stream, "launch", "NCCL sends and receipts", run)

    @property
    def first_rank(self) -> int:
        """The rank of the first GPU here."""
        return 0


class _JoinedClique(_Clique):
    """The ranks of this process of a clique over several, which give each other their vectors by MPI."""

    def __init__(self, nccl: EmulatedNccl, first: int, total: int):
        super().__init__(nccl, [])
        self.first, self.total = first, total
        self._communicator: Any = None

    @property
    def first_rank(self) -> int:
        """The rank of the first GPU here."""
        return self.first

    def add(self, gpu: EmulatedCuda) -> None:
        """Adds a rank."""
        self.gpus = [*self.gpus, gpu]
        self.waiting[len(self.gpus) - 1] = []

    def of_all_processes(self, own: list[Any]) -> list[Any]:
        """The vectors of the ranks of all processes."""
        if self.total == len(own):  # of this one alone
            return own
        from mpi4py import MPI

        if self._communicator is None:
            self._communicator = MPI.COMM_WORLD.Dup()
        told = self._communicator.allgather((self.first, self.total, own))
        every = [vector for _, _, vectors in sorted(told, key=lambda each: each[0]) for vector in vectors]
        if {total for _, total, _ in told} != {len(every)}:
            raise NcclError(INVALID_USAGE)
        return every


class EmulatedNccl(ModuleType):
    """made: sets of GPUs, one for each time that communicators were made; posted: calls of all ranks.

    failing: status that the next call of a group gives; ended: numbers of destroyed and aborted ones.
    """

    NCCL_UINT8, NCCL_INT32, NCCL_INT64, NCCL_FLOAT32, NCCL_FLOAT64 = 1, 2, 4, 7, 8
    NCCL_SUM = 0
    NcclError = NcclError

    def __init__(self, gpus: Sequence[EmulatedCuda]):
        super().__init__("cupy.cuda.nccl")
        self.gpus = {gpu.index: gpu for gpu in gpus}
        self.made: list[tuple[int, ...]] = []
        self.posted: list[tuple[str, int, str]] = []
        self.threads: set[int] = set()
        self.ended = {"destroy": 0, "abort": 0}
        self.failing = 0
        self._group = threading.local()
        nccl = self

        class NcclCommunicator(_Communicator):
            def __init__(self, total: int, unique_id: Any, rank: int):  # of GPUs of several processes
                super().__init__(nccl.joining(total, unique_id, rank), len(nccl.joined[unique_id].gpus) - 1)

            @staticmethod
            def initAll(devices: list[int]) -> list[_Communicator]:  # noqa: N802
                nccl.made.append(tuple(devices))
                clique = _Clique(nccl, [nccl.gpus[index] for index in devices])
                return [_Communicator(clique, rank) for rank in range(len(devices))]

        self.NcclCommunicator = NcclCommunicator
        self.joined: dict[Any, _JoinedClique] = {}

    def get_unique_id(self) -> tuple[int, ...]:
        """An id that no other process has made."""
        return os.getpid(), time.monotonic_ns()

    def joining(self, total: int, unique_id: Any, rank: int) -> _JoinedClique:
        """Adds the current GPU to the ones that are joined by an id."""
        if getattr(self._group, "cliques", None) is None:
            raise NcclError(INVALID_USAGE)  # this rank would wait for the others, which come later
        clique = self.joined.setdefault(unique_id, _JoinedClique(self, rank, total))
        if rank != clique.first + len(clique.gpus):
            raise NcclError(INVALID_ARGUMENT)
        clique.add(CURRENT.gpu)
        return clique

    def show(self, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        """Makes it what `from cupy.cuda import nccl` gives; forgets communicators of others.

        monkeypatch: takes it back behind a test; without, it lasts as long as the process.
        """
        from tensorbow.devices import nccl

        patch = monkeypatch or pytest.MonkeyPatch()
        cuda = ModuleType("cupy.cuda")
        cuda.nccl = self  # type: ignore[attr-defined]
        for name, module in (("cupy", ModuleType("cupy")), ("cupy.cuda", cuda)):
            patch.setitem(sys.modules, name, module)
        patch.setattr(nccl, "_idle", {})

    def groupStart(self) -> None:  # noqa: N802
        """Begins a group of the calling thread."""
        self._group.cliques = {}

    def groupEnd(self) -> None:  # noqa: N802
        """Enqueues what the group's calls have asked for."""
        cliques, self._group.cliques = self._group.cliques, None
        for clique in cliques.values():
            clique.launch()

    def call(self, clique: _Clique, rank: int, call: _Call) -> None:
        """Takes one rank's call."""
        if self.failing:
            status, self.failing = self.failing, 0
            raise NcclError(status)
        cliques = getattr(self._group, "cliques", None)
        if cliques is None and len(clique.gpus) > 1:
            raise NcclError(INVALID_USAGE)  # this rank would wait for the others, which come later
        clique.waiting[rank].append(call)
        if cliques is None:
            clique.launch()
        else:
            cliques[id(clique)] = clique


class _Communicator:
    """One rank."""

    def __init__(self, clique: _Clique, rank: int):
        self._clique, self._rank = clique, rank

    def allReduce(self, source: int, target: int, count: int, kind: int, add: int, stream: int) -> None:  # noqa: N802
        """Sum in place, as the product calls it."""
        if source != target or add != EmulatedNccl.NCCL_SUM:
            raise NcclError(INVALID_ARGUMENT)
        self._call(("all-reduce", count, DTYPES[kind], add), target, stream)

    def broadcast(self, source: int, target: int, count: int, kind: int, root: int, stream: int) -> None:
        """Copies of the root's vector, in place."""
        if source != target or not 0 <= root < self._clique.total:
            raise NcclError(INVALID_ARGUMENT)
        self._call(("broadcast", count, DTYPES[kind], root), target, stream)

    def allGather(self, source: int, target: int, count: int, kind: int, stream: int) -> None:  # noqa: N802
        """The ranks' vectors, by rank."""
        nbytes = count * np.dtype(DTYPES[kind]).itemsize
        place = self._clique.first_rank + self._rank
        if target <= source < target + nbytes * self._clique.total and source != target + place * nbytes:
            raise NcclError(INVALID_ARGUMENT)  # in place is one place alone
        self._call(("all-gather", count, DTYPES[kind], None), target, stream, source)

    def send(self, source: int, count: int, kind: int, peer: int, stream: int) -> None:
        """A message to a rank."""
        self._call(("send", count, DTYPES[kind], peer), source, stream)

    def recv(self, target: int, count: int, kind: int, peer: int, stream: int) -> None:
        """A message of a rank."""
        self._call(("recv", count, DTYPES[kind], peer), target, stream)

    def _call(self, what: tuple[Any, ...], address: int, stream: int, source: int = 0) -> None:
        self._clique.nccl.call(self._clique, self._rank, _Call(what, address, stream, source))

    def destroy(self) -> None:
        """Ends an idle communicator."""
        self._clique.nccl.ended["destroy"] += 1

    def abort(self) -> None:
        """Ends a failed one."""
        self._clique.nccl.ended["abort"] += 1
