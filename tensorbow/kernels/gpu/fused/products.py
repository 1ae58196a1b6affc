"""Matrix products of all replicas in one call of cuBLAS."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorbow.errors import UnimplementedError
from tensorbow.kernels.gpu.fused.memory import ReplicaMemory
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, in_order
from tensorbow.kernels.gpu.runtime.context import GpuContext
from tensorbow.kernels.gpu.runtime.cublas import MAXIMUM_BATCH, Cublas, ProductSizes, batches

Moves = tuple[int, ...]


class FusedProducts:
    """`Cublas.product` for the matrices of all replicas, given those of replica 0.

    Where the matrices lie at equal distances, one strided batch; otherwise one batch of listed addresses,
    which are in a table in device memory.
    """

    def __init__(
        self,
        context: GpuContext,
        memory: ReplicaMemory,
        given: list[DeviceArray],
        clear: Callable[[DeviceArray], Enqueue],
    ):
        """context: of the stream group that runs the products. given: gets every array of a product.

        clear: sets an array of all replicas to zero.
        """
        self._context, self._memory, self._given, self._clear = context, memory, given, clear

    def product(
        self,
        op: str,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        transpose_a: bool = False,
        transpose_b: bool = False,
    ) -> Enqueue:
        """See Cublas.product. Raises UnimplementedError if all replicas would write one result."""
        sizes = ProductSizes.of(op, a, b, out, transpose_a, transpose_b)
        arrays = (a, b, out)
        self._given += arrays
        if not out.size:
            return in_order()
        if not sizes.inner:
            return self._clear(out)
        moves = [self._memory.moves(array) for array in arrays]
        replicas, itemsize = self._memory.replicas, out.dtype.itemsize
        if replicas > 1 and not any(moves[2]):
            raise UnimplementedError(f"{op}: its result is shared by the replicas")
        cublas = self._context.library(Cublas)
        strides = [_stride(each, itemsize) for each in moves]
        steps: list[Enqueue] = []
        for count, offsets, within in batches(a, b, out):
            first = [x.address + n * itemsize for x, n in zip(arrays, offsets, strict=True)]
            known = [stride for stride in strides if stride is not None]
            if count == 1 and len(known) == len(arrays) and replicas <= MAXIMUM_BATCH:
                steps.append(cublas.strided(sizes, first, known, replicas))
                continue
            lists = [
                _addresses(address, each, step * itemsize, count)
                for address, each, step in zip(first, moves, within, strict=True)
            ]
            _require_alignment(self._context.options.compute, sizes, lists)
            for start in range(0, replicas * count, MAXIMUM_BATCH):
                chosen = [each[start : start + MAXIMUM_BATCH] for each in lists]
                tables = [self._memory.table(each, f"addresses of {op}") for each in chosen]
                steps.append(cublas.listed(sizes, tables, chosen[0].size))
        return in_order(*steps)


def _stride(moves: Moves, itemsize: int) -> int | None:
    """The distance from replica to replica in elements, if it is equal for all."""
    step = moves[1] if len(moves) > 1 else 0
    equal = all(move == number * step for number, move in enumerate(moves))
    return step // itemsize if equal and step >= 0 and step % itemsize == 0 else None


def _addresses(first: int, moves: Moves, step: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Addresses, by replica, then number, of matrices that are `step` bytes apart."""
    return np.array([first + move + n * step for move in moves for n in range(count)], np.int64)


def _require_alignment(
    compute: str, sizes: ProductSizes, lists: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]]
) -> None:
    """cuBLAS cannot look at listed addresses, and takes them as aligned where tensor cores need it."""
    if compute != "fp32" and sizes.dtype == "float32" and any((each % 16).any() for each in lists):
        raise UnimplementedError(
            f"{sizes.op}: in {compute}, matrices of replicas at unequal distances must be aligned to 16 bytes"
        )
