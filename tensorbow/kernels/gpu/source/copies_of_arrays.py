"""Copies of several arrays in one launch."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, in_order
from tensorbow.kernels.gpu.runtime.context import BLOCK, POINTERS, GpuContext, PointerTable
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.kernels.gpu.source.words import QUAD, WORDS, elements_per_word

MOST = 32  # arrays of a launch

# A row of blocks for each array.
COPIES = (
    QUAD
    + POINTERS
    + """
struct Counts { $I of[$N]; };
extern "C" __global__ void copies(TbPointers<$W, $N> target, TbPointers<$W, $N> source, Counts counts) {
    TB_FOR_EACH($I, i, counts.of[blockIdx.y]) target.at[blockIdx.y][i] = source.at[blockIdx.y][i];
}
"""
)


def copy_arrays(context: GpuContext, pairs: Sequence[tuple[DeviceArray, DeviceArray]]) -> Enqueue:
    """Fills the first array of each pair with the second, of the same number of bytes."""
    given = [pair for pair in pairs if pair[0].nbytes]
    launches = []
    for first in range(0, len(given), MOST):
        chosen = given[first : first + MOST]
        targets, sources = (tuple(arrays) for arrays in zip(*chosen, strict=True))
        addresses = [array.address for array in (*targets, *sources)]
        nbytes = [array.nbytes for array in targets]
        word = elements_per_word(1, addresses, nbytes)
        counts = [each // word for each in nbytes]
        index, slots = index_for(max(counts)), len(chosen)
        code = CudaSource.of("copies of arrays", COPIES, I=index.name, W=WORDS[word], N=str(slots))
        grid = (context.blocks(max(counts)), slots)
        tables = PointerTable(targets, slots), PointerTable(sources, slots)
        launches.append(context.launch(code, "copies", grid, BLOCK, *tables, index.array(counts)))
    return in_order(*launches)
