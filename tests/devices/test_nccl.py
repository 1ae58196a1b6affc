"""NCCL between two emulated GPUs: sums and copies, statuses, communicators that are kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tensorbow.devices import nccl as product
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.devices.nccl import STATUSES, NcclCommunicators
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.emulated_memory import host_array
from tests.gpu_rig.emulated_nccl import INVALID_USAGE, EmulatedNccl
from tests.gpu_rig.runtimes import emulated_runtime


class TwoGpus:
    """A vector and a stream on each of two GPUs."""

    def __init__(self, gpus: list[EmulatedCuda], nccl: EmulatedNccl):
        self.gpus, self.nccl = gpus, nccl
        self.addresses = [gpu.allocate(32) for gpu in gpus]
        self.streams = [gpu.make_stream() for gpu in gpus]

    def fill(self) -> None:
        for number, address in enumerate(self.addresses):
            host_array(address, 32).view(np.float32)[...] = 10**number * np.arange(8, dtype=np.float32)

    def vectors(self) -> list[list[float]]:
        for gpu, stream in zip(self.gpus, self.streams, strict=True):
            gpu.synchronize_stream(stream)
        return [host_array(address, 32).view(np.float32).tolist() for address in self.addresses]

    def close(self) -> None:
        for gpu, address, stream in zip(self.gpus, self.addresses, self.streams, strict=True):
            gpu.free(address)
            gpu.destroy_stream(stream)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoGpus]:
    with emulated_runtime() as first, emulated_runtime() as second:
        second.index = 1
        nccl = EmulatedNccl([first, second])
        nccl.show(monkeypatch)
        two = TwoGpus([first, second], nccl)
        yield two
        two.close()


def test_sums_and_copies_between_gpus(two: TwoGpus) -> None:
    communicators = NcclCommunicators([0, 1])
    two.fill()
    communicators.all_reduce(two.addresses, 8, "float32", two.streams)
    assert two.vectors() == [[11.0 * n for n in range(8)]] * 2
    two.fill()
    communicators.broadcast(two.addresses, 32, 1, two.streams)
    assert two.vectors() == [[10.0 * n for n in range(8)]] * 2
    communicators.close()
    communicators.close()
    assert two.nccl.ended == {"destroy": 2, "abort": 0}


@pytest.mark.parametrize("status", range(1, len(STATUSES)))
def test_every_status_has_its_name_and_ends_the_communicators(two: TwoGpus, status: int) -> None:
    """CuPy has no names for 7 and 8 and raises KeyError."""
    communicators = NcclCommunicators.taken([0, 1])
    two.nccl.failing = status
    with pytest.raises(CudaError, match=f"NCCL: {STATUSES[status]}") as caught:
        communicators.all_reduce(two.addresses, 8, "float32", two.streams)
    assert caught.value.status == STATUSES[status]
    communicators.give_back()
    assert two.nccl.ended == {"destroy": 0, "abort": 2}
    assert product._idle == {}


def test_a_status_that_nobody_knows_keeps_its_number(two: TwoGpus) -> None:
    communicators = NcclCommunicators([0, 1])
    two.nccl.failing = 99
    with pytest.raises(CudaError, match="NCCL: status 99"):
        communicators.broadcast(two.addresses, 32, 0, two.streams)


def test_communicators_are_kept_by_the_set_of_gpus(two: TwoGpus) -> None:
    first, second = NcclCommunicators.taken([0, 1]), NcclCommunicators.taken([0, 1])
    assert first is not second  # both are in use
    first.give_back()
    assert NcclCommunicators.taken([0, 1]) is first
    assert NcclCommunicators.taken([1, 0]) is not first
    assert two.nccl.made == [(0, 1), (0, 1), (1, 0)]


def test_what_would_wait_for_ever_is_refused(two: TwoGpus) -> None:
    """Outside a group, with a rank missing, with different counts, with another GPU's memory, captured."""
    one, other = two.nccl.NcclCommunicator.initAll([0, 1])
    call = (8, two.nccl.NCCL_FLOAT32, two.nccl.NCCL_SUM)
    a, b = two.addresses
    with pytest.raises(two.nccl.NcclError, match="INVALID_USAGE"):
        one.allReduce(a, a, *call, two.streams[0])
    for wrong in ((), ((b, b, 4, *call[1:]),), ((a, a, *call),)):
        two.nccl.groupStart()
        one.allReduce(a, a, *call, two.streams[0])
        for arguments in wrong:
            other.allReduce(*arguments, two.streams[1])
        with pytest.raises(two.nccl.NcclError, match="INVALID"):
            two.nccl.groupEnd()
    two.gpus[0].begin_capture(two.streams[0])
    with pytest.raises(CudaError) as caught:
        NcclCommunicators([0, 1]).all_reduce(two.addresses, 8, "float32", two.streams)
    assert caught.value.status == STATUSES[INVALID_USAGE]
    two.gpus[0].destroy_graph(two.gpus[0].end_capture(two.streams[0]))
