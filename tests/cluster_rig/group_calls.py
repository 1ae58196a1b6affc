"""Calls of a worker group, each checked on every worker; the program of a test."""

from __future__ import annotations

import ctypes
import os

import numpy as np

from scheduler.workers import mpi
from scheduler.workers.find import worker_group
from scheduler.workers.pulse import PULSE
from tensorbow.program import NativeCall
from tensorbow.specs import DTYPES


def called(call: NativeCall | None) -> None:
    assert call is not None
    address, *arguments = call
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * len(arguments))(address)
    assert function(*arguments) == 0


workers = worker_group()
assert worker_group() is workers
assert workers.size == 3
assert os.environ["TENSORBOW_WORKERS"] == "none"
rank, size = workers.rank, workers.size
total = sum(range(1, size + 1))
other = workers.duplicate(by_streams=True)
for group in (workers, other):
    calls = PULSE.calls
    for name in ("float32", "float64", "float16", "int64", "uint8"):
        array = np.full((2, 3), rank + 1, name)
        group.all_sum(array)
        assert (array == total).all(), (name, array)
    assert group.all_gather({"rank": rank}) == [{"rank": each} for each in range(size)]
    assert group.broadcast(rank, 1) == 1
    assert group.gather(rank) == (None if rank else [0, 1, 2])
    group.barrier()
    assert (PULSE.calls > calls) == (group is workers)  # the watch sees that the program waits
    assert not PULSE.waits_for_others

numbers = np.full(5, rank + 1, np.float32)
called(other.native_sum(numbers.ctypes.data, 5, DTYPES["float32"]))
assert (numbers == total).all()
assert other.native_sum(numbers.ctypes.data, 5, DTYPES["bool"]) is None
assert other.native_sum(numbers.ctypes.data, 1 << 31, DTYPES["float32"]) is None

# Sums of bfloat16: more elements than are sent at a time, and both ways of sending them.
size_of_part, every = mpi.HALVES_CHUNK + 7, np.random.default_rng(3)
handed = [every.normal(size=size_of_part).astype(np.float32) for _ in range(size)]
expected = np.zeros(size_of_part, np.float32)
for each in handed:
    expected += (each.view(np.uint32) & 0xFFFF0000).view(np.float32)
exact = np.sum(handed, axis=0, dtype=np.float64)
assert np.abs(expected - exact).max() <= 2**-7 * np.abs(handed).sum(axis=0).max()
for mpi.MOST_GATHERED in (2, 3):
    array = handed[rank].copy()
    other.all_sum(array, halves=True)
    assert (array == expected).all()
    array = handed[rank].copy()
    called(other.native_sum(array.ctypes.data, array.size, DTYPES["float32"], halves=True))
    assert (array == expected).all()
numbers = np.full(5, rank + 1, np.int64)
other.all_sum(numbers, halves=True)
assert (numbers == total).all()

for parts in ([range(0, 2), range(2, 2), range(2, 7)], [range(0), range(7), range(0)]):
    whole = np.arange(7) * 10.0
    for natively in (False, True):
        vector = np.full(7, -1.0)
        vector[parts[rank].start : parts[rank].stop] = whole[parts[rank].start : parts[rank].stop]
        if natively:
            called(other.native_share(vector.ctypes.data, [range(8 * p.start, 8 * p.stop) for p in parts]))
        else:
            other.share(vector, parts)
        assert (vector == whole).all(), (parts, natively, vector)
workers.barrier()
if rank == 1:
    workers.abort("as the test asked")
workers.barrier()
