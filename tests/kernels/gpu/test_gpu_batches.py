"""Batches made on a GPU of a data set kept there: the host's bits, whatever its pictures and augmentation."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from scheduler.replicas.device_dataset import BatchMaker, DeviceDataset
from tensorbow.compiler import compile_batch
from tensorbow.data import BatchKey, BatchOrder, BatchRecipe, CropAndFlip, ImageDataset, PictureChanges
from tensorbow.devices import GpuDevice, StreamGroup
from tensorbow.devices.cuda_runtime import CopyKind, CudaError
from tensorbow.kernels import backend_for
from tensorbow.program import Executable, Ref, Region
from tensorbow.specs import TensorSpec, as_dtype, float32, int64
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler


def dataset(
    shape: tuple[int, int, int], augmentation: Any = None, mean: float = 0.4734, std: float = 0.2516
) -> ImageDataset:
    rng = np.random.default_rng(hash(shape) & 0xFFFF)
    images, labels = rng.integers(0, 256, (211, *shape), np.uint8), rng.integers(0, 10, 211)
    return ImageDataset(f"made {shape}", images, labels, 10, mean, std, augmentation)


DATASETS = {
    "digits": dataset((28, 28, 1), CropAndFlip(2, flip=False), 0.3056, 0.3768),
    "mnist": dataset((28, 28, 1), None, 0.1307, 0.3081),
    "cifar10": dataset((32, 32, 3), CropAndFlip()),
    "mirrored in place": dataset((6, 4, 2), CropAndFlip(0)),
    "moved out of sight": dataset((3, 5, 2), CropAndFlip(7)),
    "a pixel": dataset((1, 1, 1), CropAndFlip(1)),
    "hidden in part": dataset((9, 7, 3), PictureChanges(CropAndFlip(2), cutout=4, level=120)),
    "changed in all ways": dataset(
        (8, 7, 3), PictureChanges(CropAndFlip(2), True, 40, 0.5, 0.5, 0.9, erase=0.7)
    ),
    "rotated": dataset((6, 9, 1), PictureChanges(rotation=180)),
}
STATUS = Ref(Region.STATE, 0, (), int64)


class Bench:
    """A device with two replicas' stream groups, memory for their inputs, and what makes their batches."""

    def __init__(self, device: GpuDevice, data: ImageDataset, batch_size: int, ring: int = 2) -> None:
        self.device, self.data, self.ring = device, data, ring
        self.shape = (batch_size, *data.image_shape)
        images = Ref(Region.INPUT, 0, self.shape, float32)
        labels = Ref(Region.INPUT, -(-images.nbytes // 256) * 256, (batch_size,), int64)
        self.inputs = images, labels
        self.kept = DeviceDataset(device, data)
        self.groups = [device.stream_group(f"replica {n}") for n in range(2)]
        self.made_for = self._step()
        self.bases = [self._input_memory(group) for group in self.groups]
        self.makers = [
            BatchMaker(self.kept, group, self.made_for, bases, ring, "replica")
            for group, bases in zip(self.groups, self.bases, strict=True)
        ]

    def _step(self) -> Executable:
        """A step with these inputs: that of the batches themselves."""
        backend = backend_for(self.device)
        specs = [TensorSpec(each.shape, as_dtype(each.dtype)) for each in self.data.arrays]
        made = compile_batch(self.inputs, STATUS, specs, (1.0, 0.0), backend)
        object.__setattr__(made, "inputs", dict(zip(("images", "labels"), self.inputs, strict=True)))
        return made

    def _input_memory(self, group: StreamGroup) -> dict[Region, int]:
        labels = self.inputs[1]
        blocks = group.allocate(labels.offset + labels.nbytes), group.allocate(8)
        assert blocks[0] is not None
        assert blocks[1] is not None
        return {Region.INPUT: blocks[0].address, Region.STATE: blocks[1].address}

    def make(self, replica: int, recipe: BatchRecipe, step: int = 0) -> None:
        picks = recipe.picks()
        stream, maker = self.groups[replica].compute, self.makers[replica]
        stream.enqueue(lambda: maker.make(picks, step), label="make")
        picks.fill(0)  # what was enqueued does not look at it any more

    def made(self, replica: int) -> tuple[Any, Any]:
        self.groups[replica].compute.synchronize()
        base, (_, labels) = self.bases[replica][Region.INPUT], self.inputs
        read = self.device.read
        return read(base, self.shape, np.float32), read(base + labels.offset, labels.shape, np.int64)

    def close(self) -> None:
        for maker in self.makers:
            maker.close()
        self.makers.clear()
        self.kept.close()
        self.kept.close()
        gc.collect()  # pinned memory of the plans


def recipe(data: ImageDataset, batch_size: int, number: int, epoch: int = 0, seed: int = 3) -> BatchRecipe:
    order = BatchOrder(len(data), batch_size, seed)
    return BatchRecipe(data, order.indices(epoch, number), BatchKey(seed, epoch, number))


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize(("batch_size", "backwards"), [(1, False), (7, True), (128, False), (205, True)])
def test_the_bits_of_the_host(name: str, batch_size: int, backwards: bool) -> None:
    data = DATASETS[name]
    with emulated_runtime(backwards=backwards) as runtime, GpuDevice("/gpu:0", runtime) as device:
        bench = Bench(device, data, batch_size)
        before = runtime.counts.copy()
        for epoch in range(3):  # the second launch captures, the third is of the graph
            for replica in range(2):
                number = min(replica, 211 // batch_size - 1)
                wanted = recipe(data, batch_size, number, epoch, seed=replica)
                bench.make(replica, wanted, epoch)
                images, labels = bench.made(replica)
                expected_images, expected_labels = wanted.arrays()
                assert images.tobytes() == expected_images.tobytes()
                assert labels.tobytes() == expected_labels.tobytes()
        counts = runtime.counts - before
        assert (counts["launch"], counts["launch_graph"]) == (2 * 2, 2 * 2)  # each is captured at its second
        assert counts["copy"] == 6 + 2 * 6  # of a batch's picks, and of what this test reads
        bench.close()


@pytest.mark.slow
@needs_compiler
def test_batches_enqueued_ahead_do_not_mix() -> None:
    """Each launch has its own picks, whatever is enqueued before the GPU reaches it."""
    data = DATASETS["digits"]
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime) as device:
        bench = Bench(device, data, 4, ring=3)
        copies = []
        for number in range(12):
            bench.make(0, recipe(data, 4, number), number)
            copies.append(bench.device.host_array(bench.shape, np.float32))
            base, nbytes = bench.bases[0][Region.INPUT], copies[-1].nbytes
            runtime.copy(
                copies[-1].ctypes.data, base, nbytes, CopyKind.DEVICE_TO_HOST, bench.groups[0].compute.handle
            )
        bench.groups[0].compute.synchronize()
        for number, copied in enumerate(copies):
            assert copied.tobytes() == recipe(data, 4, number).arrays()[0].tobytes()
        bench.close()
        del copies, copied
        gc.collect()


def test_memory_comes_back_when_the_upload_fails() -> None:
    data = DATASETS["mnist"]
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime) as device:
        runtime.fail_next("copy")
        with pytest.raises(CudaError, match="injected"):
            DeviceDataset(device, data)
        gc.collect()  # the error's traceback holds the pinned memory that was copied from
        assert device.memory.held_nbytes == 0
        kept = DeviceDataset(device, data)
        granules = sum(-(-nbytes // 256) for nbytes in (data.images.nbytes, data.labels.nbytes))
        assert device.memory.held_nbytes == granules * 256
        kept.close()
        assert device.memory.held_nbytes == 0
        assert device.memory.partitions == {}
