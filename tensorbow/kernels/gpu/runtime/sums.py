"""Sums of flat vectors on a GPU, outside of plans: between virtual GPUs, and of halves of float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.devices.cuda_runtime import CudaRuntime
from tensorbow.kernels.binary_cache import cache_folder
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue
from tensorbow.kernels.gpu.runtime.context import BLOCK, GpuContext, GpuOptions
from tensorbow.kernels.gpu.runtime.program import CudaSource, ProgramCache, c_type
from tensorbow.specs import DType

WORD = np.dtype(np.uint32)
ADD = """
extern "C" __global__ void add(${T}* total, const ${T}* vector, long long count) {
    TB_FOR_EACH(long long, i, count) total[i] += vector[i];
}
"""

HALVES = """
extern "C" __global__ void narrow_padded(unsigned short* out, const unsigned int* bits, long long count,
                                         long long padded) {
    TB_FOR_EACH(long long, i, padded) out[i] = i < count ? (unsigned short)(bits[i] >> 16) : 0;
}

extern "C" __global__ void add_halves(float* sums, const unsigned short* halves, long long count,
                                      long long stride, long long vectors) {
    TB_FOR_EACH(long long, i, count) {
        float sum = __uint_as_float((unsigned int)halves[i] << 16);
        for (long long n = 1; n < vectors; n++)
            sum += __uint_as_float((unsigned int)halves[n * stride + i] << 16);
        sums[i] = sum;
    }
}

extern "C" __global__ void copy_words(unsigned int* out, const unsigned int* words, long long count) {
    TB_FOR_EACH(long long, i, count) out[i] = words[i];
}
"""


class Adder:
    """Additions on one stream, prepared once and enqueued together."""

    def __init__(self, runtime: CudaRuntime, stream: int):
        self._context = _context(runtime, stream)
        self._calls: list[Enqueue] = []

    def prepare(self, total: int, vector: int, size: int, dtype: DType) -> None:
        """Adds `total += vector`, vectors of `size` elements at these addresses, to the work of `add`."""
        source = CudaSource.of("add", ADD, T=c_type(dtype))
        arrays = (DeviceArray(address, (size,), dtype.as_numpy_dtype) for address in (total, vector))
        blocks = self._context.blocks(size)
        self._calls.append(self._context.launch(source, "add", blocks, BLOCK, *arrays, np.int64(size)))

    def add(self) -> None:
        """Enqueues all additions in the order of their preparation."""
        for call in self._calls:
            call()


class Halves:
    """Kernels on one stream for the upper halves of float32 elements; each call gives what enqueues one."""

    def __init__(self, runtime: CudaRuntime, stream: int):
        self._context = _context(runtime, stream)

    def narrow(self, halves: int, vector: int, count: int, padded: int) -> Enqueue:
        """The upper halves of `count` float32 elements, uint16 [padded], with zeros behind them."""
        arrays = DeviceArray(halves, (padded,), np.dtype(np.uint16)), DeviceArray(vector, (count,), WORD)
        return self._launch("narrow_padded", padded, *arrays, np.int64(count), np.int64(padded))

    def add(self, sums: int, halves: int, count: int, stride: int, vectors: int) -> Enqueue:
        """float32 [count]: the sum, in order, of vectors whose halves lie `stride` elements apart."""
        arrays = (
            DeviceArray(sums, (count,), np.dtype(np.float32)),
            DeviceArray(halves, (vectors * stride,), np.dtype(np.uint16)),
        )
        numbers = np.int64(count), np.int64(stride), np.int64(vectors)
        return self._launch("add_halves", count, *arrays, *numbers)

    def copy(self, target: int, source: int, count: int) -> Enqueue:
        """A copy of 32-bit elements."""
        arrays = (DeviceArray(address, (count,), WORD) for address in (target, source))
        return self._launch("copy_words", count, *arrays, np.int64(count))

    def _launch(self, name: str, size: int, *arguments: Any) -> Enqueue:
        source = CudaSource.of(name, HALVES)
        return self._context.launch(source, name, self._context.blocks(size), BLOCK, *arguments)


def _context(runtime: CudaRuntime, stream: int) -> GpuContext:
    """A context for kernels without scratch memory."""
    nothing = DeviceArray(0, (0,), np.dtype(np.uint8))
    return GpuContext(runtime, stream, ProgramCache(runtime, cache_folder("cuda")), nothing, GpuOptions())
