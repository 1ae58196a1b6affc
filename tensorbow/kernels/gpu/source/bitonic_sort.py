"""Sort of 64-bit keys for random permutations: Batcher's bitonic network (1968).

Exchanges within one block of threads are done in shared memory, in one launch; only exchanges over longer
distances are separate launches. The number of launches grows with the square of log2(n / CHUNK).
"""

from __future__ import annotations

import numpy as np

from tensorbow.graph import NodeSpec
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.specs import TensorSpec, int64

CHUNK = 1024  # keys that a block of half as many threads sorts: 8 KiB of shared memory

_SORT = """\
static __device__ inline void tb_exchange(unsigned long long& a, unsigned long long& b, bool rising) {
    if ((a > b) == rising) { const unsigned long long c = a; a = b; b = c; }
}
// Within chunks: every run from first_run to last_run long, by exchanges over less than a chunk.
extern "C" __global__ void tb_sort_chunks(
        unsigned long long* keys, long long first_run, long long last_run) {
    __shared__ unsigned long long part[$CHUNK];
    const long long start = blockIdx.x * (long long)$CHUNK;
    const int half = $CHUNK / 2, thread = threadIdx.x;
    part[thread] = keys[start + thread];
    part[thread + half] = keys[start + thread + half];
    for (long long run = first_run; run <= last_run; run *= 2) {
        for (int distance = (int)(run < $CHUNK ? run : $CHUNK) / 2; distance > 0; distance /= 2) {
            __syncthreads();
            const int low = 2 * thread - (thread & (distance - 1));
            tb_exchange(part[low], part[low + distance], ((start + low) & run) == 0);
        }
    }
    __syncthreads();
    keys[start + thread] = part[thread];
    keys[start + thread + half] = part[thread + half];
}
// One exchange of runs over a distance of at least a chunk.
extern "C" __global__ void tb_exchange_far(
        unsigned long long* keys, long long run, long long distance, long long pairs) {
    TB_FOR_EACH(long long, pair, pairs) {
        const long long low = 2 * pair - (pair & (distance - 1));
        tb_exchange(keys[low], keys[low + distance], (low & run) == 0);
    }
}
extern "C" __global__ void tb_positions(
        const unsigned long long* keys, long long* order, unsigned long long low, long long count) {
    TB_FOR_EACH(long long, i, count) order[i] = (long long)(keys[i] & low);
}
"""


def permutation_scratch(node: NodeSpec) -> list[TensorSpec]:
    """One 64-bit key per element, rounded up to a power of two and at least a chunk."""
    size = node.outputs[0].size
    return [TensorSpec((max(CHUNK, 1 << max(size - 1, 0).bit_length()),), int64)]


def prepare_sort(call: GpuCall, keys: DeviceArray, order: DeviceArray, low: np.uint64) -> Enqueue:
    """Sorts the keys, uint64 [a power of two], and writes the bits `low` of the smallest keys to `order`."""
    source = CudaSource.of("permutation", _SORT, CHUNK=str(CHUNK))
    launch, chunks = call.context.launch, keys.size // CHUNK
    number = np.int64
    launches = [
        launch(source, "tb_sort_chunks", chunks, CHUNK // 2, keys, number(2), number(CHUNK)),
    ]
    run = 2 * CHUNK
    while run <= keys.size:
        distance = run // 2
        while distance >= CHUNK:
            pairs = keys.size // 2
            far = (keys, number(run), number(distance), number(pairs))
            launches.append(launch(source, "tb_exchange_far", call.context.blocks(pairs), 256, *far))
            distance //= 2
        launches.append(launch(source, "tb_sort_chunks", chunks, CHUNK // 2, keys, number(run), number(run)))
        run *= 2
    size = order.size
    launches.append(
        launch(source, "tb_positions", call.context.blocks(size), 256, keys, order, low, number(size))
    )

    def enqueue() -> None:
        for one in launches:
            one()

    return enqueue
