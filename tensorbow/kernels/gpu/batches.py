"""Batches made on a GPU from a data set in its memory: gathered, shifted, mirrored and normalised.

The picks of a batch are kernel parameters, which CUDA copies when the launch is enqueued: they need no
memory, copy or event. Each launch makes up to 128 examples. Images equal the host's bit for bit:
products and differences are rounded separately, never fused.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocators import GRANULE_NBYTES
from tensorbow.devices import Device, StreamGroup
from tensorbow.errors import InternalError
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue
from tensorbow.kernels.gpu.runtime.context import BLOCK, GpuContext
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.program.examples import PICK, ExampleArrays, KeptExamples, MakeBatch

MOST_PICKS = 128  # per launch: 3 KiB of the 4 KiB of kernel parameters

MAKE_BATCH = """
struct Pick { long long row; int down; int right; int mirrored; int reserved; };
struct Picks { Pick of[$PICKS]; };

// A column of blocks for each example.
extern "C" __global__ void make_batch(
    const unsigned char* pictures, const long long* labels, float scale, float shift,
    float* images_out, long long* labels_out, const Picks picks)
{
    const Pick pick = picks.of[blockIdx.y];
    const unsigned char* picture = pictures + pick.row * (long long)$PIXELS;
    float* image = images_out + blockIdx.y * (long long)$PIXELS;
    TB_FOR_EACH($I, i, $PIXELS) {
        const $I row = i / ($WIDTH * $CHANNELS) - pick.down;
        $I column = i / $CHANNELS % $WIDTH - pick.right;
        unsigned char pixel = 0;
        if (row >= 0 && row < $HEIGHT && column >= 0 && column < $WIDTH) {
            if (pick.mirrored) column = $WIDTH - 1 - column;
            pixel = picture[(row * $WIDTH + column) * $CHANNELS + i % $CHANNELS];
        }
        image[i] = __fsub_rn(__fmul_rn((float)pixel, scale), shift);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) labels_out[blockIdx.y] = labels[pick.row];
}
"""

_numbers = itertools.count()


class GpuExamples(KeptExamples):
    """Images and labels of a data set, in its own format, in the memory of one GPU."""

    def __init__(
        self, device: Device, arrays: ExampleArrays, context_of: Callable[[StreamGroup], GpuContext]
    ):
        """Uploads the arrays.

        Raises ResourceExhaustedError, or InvalidArgumentError if other partitions leave too little memory.
        """
        self._arrays = arrays
        self._context_of = context_of
        planned = sum(-(-nbytes // GRANULE_NBYTES) for nbytes in arrays.blocks) * GRANULE_NBYTES
        name = f"{arrays.name} on device {next(_numbers)}"
        self._group = device.stream_group(name, planned_nbytes=planned)
        try:
            self._images = self._upload(arrays.images, f"{arrays.name} images")
            self._labels = self._upload(arrays.labels, f"{arrays.name} labels")
        except BaseException:
            self._group.close()
            raise

    def _upload(self, array: NDArray[Any], owner: str) -> DeviceArray:
        block = self._group.allocate(array.nbytes, owner=owner)
        if block is None:
            raise InternalError(f"{owner}: the array is empty")
        self._group.device.write(block.address, array)
        return DeviceArray(block.address, array.shape, array.dtype)

    def batches(self, group: StreamGroup, batch_size: int, images: int, labels: int) -> MakeBatch:
        """See KeptExamples.batches."""
        parts = [
            self._part(self._context_of(group), start, min(MOST_PICKS, batch_size - start), images, labels)
            for start in range(0, batch_size, MOST_PICKS)
        ]

        def make(picks: NDArray[Any]) -> None:
            start = 0
            for sent, launch in parts:
                sent[...] = picks[start : start + sent.size]
                start += sent.size
                launch()

        return make

    def _part(
        self, context: GpuContext, start: int, count: int, images: int, labels: int
    ) -> tuple[NDArray[Any], Enqueue]:
        """The picks of one launch, and the launch."""
        shape, pixels = self._images.shape[1:], self._images.size // self._images.shape[0]
        height, width, channels = map(str, shape)
        values = {"PICKS": str(count), "PIXELS": str(pixels), "I": "int" if pixels < 2**30 else "long long"}
        source = CudaSource.of(
            "make_batch", MAKE_BATCH, HEIGHT=height, WIDTH=width, CHANNELS=channels, **values
        )
        parameter = ctypes.create_string_buffer(count * PICK.itemsize)
        image = np.dtype(np.float32).itemsize * pixels
        launch = context.launch(
            source,
            "make_batch",
            (context.blocks(pixels), count),
            BLOCK,
            self._images,
            self._labels,
            self._arrays.scale,
            self._arrays.shift,
            DeviceArray(images + start * image, (count, *shape), np.dtype(np.float32)),
            DeviceArray(labels + start * self._labels.dtype.itemsize, (count,), self._labels.dtype),
            parameter,
        )
        return np.frombuffer(memoryview(parameter), PICK), launch

    def close(self) -> None:
        """Frees the memory; idempotent."""
        self._group.close()
