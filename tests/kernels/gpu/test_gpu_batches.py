"""Batches made on a GPU of a data set kept there: the host's bits, whatever its pictures and augmentation."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from tensorbow.data import BatchKey, BatchOrder, BatchRecipe, CropAndFlip, Dataset, example_arrays
from tensorbow.devices import GpuDevice, StreamGroup
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.devices.cupy_runtime import compile_with_nvrtc, nvrtc_identity
from tensorbow.errors import NotFoundError
from tensorbow.kernels import backend_for
from tensorbow.kernels.gpu.batches import GpuExamples
from tensorbow.program.examples import KeptExamples
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.recording import RecordingCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler


def dataset(
    shape: tuple[int, int, int], augmentation: Any = None, mean: float = 0.4734, std: float = 0.2516
) -> Dataset:
    rng = np.random.default_rng(hash(shape) & 0xFFFF)
    images, labels = rng.integers(0, 256, (211, *shape), np.uint8), rng.integers(0, 10, 211)
    return Dataset(f"made {shape}", images, labels, 10, mean, std, augmentation)


DATASETS = {
    "digits": dataset((28, 28, 1), CropAndFlip(2, flip=False), 0.3056, 0.3768),
    "mnist": dataset((28, 28, 1), None, 0.1307, 0.3081),
    "cifar10": dataset((32, 32, 3), CropAndFlip()),
    "mirrored in place": dataset((6, 4, 2), CropAndFlip(0)),
    "moved out of sight": dataset((3, 5, 2), CropAndFlip(7)),
    "a pixel": dataset((1, 1, 1), CropAndFlip(1)),
}


class Bench:
    """A device with two replicas' stream groups and places for their inputs."""

    def __init__(self, device: GpuDevice, data: Dataset, batch_size: int) -> None:
        self.device, self.data, self.batch_size = device, data, batch_size
        kept = backend_for(device).keep_examples(device, example_arrays(data))
        assert kept is not None
        self.kept: KeptExamples = kept
        self.groups = [device.stream_group(f"replica {n}") for n in range(2)]
        self.places = [self.place(group) for group in self.groups]
        self.makers = [
            kept.batches(group, batch_size, *place)
            for group, place in zip(self.groups, self.places, strict=True)
        ]

    def place(self, group: StreamGroup) -> tuple[int, int]:
        pixels = int(np.prod(self.data.image_shape))
        blocks = group.allocate(4 * self.batch_size * pixels), group.allocate(8 * self.batch_size)
        return blocks[0].address, blocks[1].address  # type: ignore[union-attr]  # no sizes are 0

    def make(self, replica: int, recipe: BatchRecipe) -> None:
        picks = recipe.picks()
        stream, maker = self.groups[replica].compute, self.makers[replica]
        stream.enqueue(lambda: maker(picks), label="make")
        picks.fill(0)  # what was enqueued does not look at it any more

    def made(self, replica: int) -> tuple[Any, Any]:
        self.groups[replica].compute.synchronize()
        images, labels = self.places[replica]
        shape = (self.batch_size, *self.data.image_shape)
        return self.device.read(images, shape, np.float32), self.device.read(labels, shape[:1], np.int64)


def recipe(data: Dataset, batch_size: int, number: int, epoch: int = 0, seed: int = 3) -> BatchRecipe:
    order = BatchOrder(len(data), batch_size, seed)
    return BatchRecipe(data, order.indices(epoch, number), BatchKey(seed, epoch, number))


@pytest.mark.sampled(8)
@needs_compiler
@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize(("batch_size", "backwards"), [(1, False), (7, True), (128, False), (205, True)])
def test_the_bits_of_the_host(name: str, batch_size: int, backwards: bool) -> None:
    data = DATASETS[name]
    with emulated_runtime(backwards=backwards) as runtime, GpuDevice("/gpu:0", runtime) as device:
        bench = Bench(device, data, batch_size)
        before = runtime.counts["launch"], runtime.counts["copy"]
        for epoch in range(2):
            for replica in range(2):
                number = min(replica, 211 // batch_size - 1)
                wanted = recipe(data, batch_size, number, epoch, seed=replica)
                bench.make(replica, wanted)
                images, labels = bench.made(replica)
                expected_images, expected_labels = wanted.arrays()
                assert images.tobytes() == expected_images.tobytes()
                assert labels.tobytes() == expected_labels.tobytes()
        launches = 1 if batch_size <= 128 else 2
        made = 4 * launches
        read = 4 * 2  # by this test
        assert (runtime.counts["launch"], runtime.counts["copy"]) == (before[0] + made, before[1] + read)
        bench.kept.close()
        bench.kept.close()


@needs_compiler
def test_batches_enqueued_ahead_do_not_mix() -> None:
    """Each launch has its own picks, whatever is enqueued before the GPU reaches it."""
    data = DATASETS["digits"]
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime) as device:
        bench = Bench(device, data, 4)
        copies = [bench.place(bench.groups[0]) for _ in range(5)]
        for number, (images, labels) in enumerate(copies):
            maker = bench.kept.batches(bench.groups[0], 4, images, labels)
            for last in (number + 9, number):
                maker(recipe(data, 4, last).picks())
        bench.groups[0].compute.synchronize()
        for number, (images, _) in enumerate(copies):
            expected, _ = recipe(data, 4, number).arrays()
            assert device.read(images, expected.shape, np.float32).tobytes() == expected.tobytes()
        bench.kept.close()


def test_memory_comes_back_when_the_upload_fails() -> None:
    data = DATASETS["mnist"]
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime) as device:
        backend = backend_for(device)
        runtime.fail_next("copy")
        with pytest.raises(CudaError, match="injected"):
            backend.keep_examples(device, example_arrays(data))
        gc.collect()  # the error's traceback holds the pinned memory that was copied from
        assert device.memory.held_nbytes == 0
        kept = backend.keep_examples(device, example_arrays(data))
        granules = sum(-(-nbytes // 256) for nbytes in (data.images.nbytes, data.labels.nbytes))
        assert device.memory.held_nbytes == granules * 256
        assert kept is not None
        kept.close()
        assert device.memory.held_nbytes == 0
        assert device.memory.partitions == {}


@pytest.mark.parametrize("architecture", [80, 90])
def test_the_kernel_compiles_by_nvrtc(architecture: int) -> None:
    try:
        nvrtc_identity(architecture)
    except (NotFoundError, RuntimeError, OSError) as error:  # CuPy raises its own where NVRTC is missing
        pytest.skip(f"no NVRTC: {str(error).splitlines()[0]:.150}")
    runtime = RecordingCuda()
    try:
        with GpuDevice("/gpu:0", runtime) as device, GpuBench(runtime) as bench:
            kept = GpuExamples(device, example_arrays(DATASETS["cifar10"]), lambda group: bench.context)
            kept.batches(device.stream_group("replica"), 205, 0, 0)
            kept.close()
    finally:
        runtime.close()
    assert len(runtime.sources) == 2
    for text, name in runtime.sources.items():
        assert compile_with_nvrtc(text, name, architecture).startswith(b"\x7fELF")
