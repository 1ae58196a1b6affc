"""A context that launches every kernel for all replicas at once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tensorbow.errors import InternalError, InvalidArgumentError, UnimplementedError
from tensorbow.kernels.gpu.fused.memory import ALL, ReplicaMemory
from tensorbow.kernels.gpu.fused.products import FusedProducts
from tensorbow.kernels.gpu.fused.replicated_source import pointers_of, replicated
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue
from tensorbow.kernels.gpu.runtime.context import (
    BLOCK,
    MAX_GRID,
    Argument,
    GpuContext,
    LibraryT,
    PointerTable,
)
from tensorbow.kernels.gpu.runtime.cublas import Cublas
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.kernels.gpu.source.words import QUAD, WORDS, elements_per_word

Struct = np.generic | np.ndarray[Any, Any]
CLEAR = (
    QUAD
    + """
extern "C" __global__ void clear($W* memory, $I count) {
    const $W zero = {};
    TB_FOR_EACH($I, i, count) memory[i] = zero;
}
"""
)
OF_ALL_REPLICAS = ("index", "properties", "launch", "make_current", "compiler")  # safe to use from a kernel


class _LaunchesOnly:
    """A runtime for kernels, without the calls that would reach the memory of replica 0 only."""

    def __init__(self, runtime: object):
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        if name not in OF_ALL_REPLICAS:
            raise UnimplementedError(f"it calls {name} of the CUDA runtime itself, for one replica")
        return getattr(self._runtime, name)


class FusedContext(GpuContext):
    """The context of a device's stream group, for the kernels of k replicas.

    Kernels are prepared with arrays of replica 0. What works on one replica only raises UnimplementedError.
    """

    def __init__(self, context: GpuContext, memory: ReplicaMemory):
        nothing = DeviceArray(0, (0,), np.dtype(np.uint8))
        super().__init__(context.runtime, context.stream, context.programs, nothing, context.options)
        self.runtime = cast("Any", _LaunchesOnly(context.runtime))
        self.memory = memory
        self.given: list[DeviceArray] = []  # arrays of launches and products since it was cleared
        self._partial = DeviceArray(0, (0,), np.dtype(np.float32))
        self._products = FusedProducts(context, memory, self.given, self.clear)

    @property
    def gathers_convolutions(self) -> bool:
        """True: no library convolves for several replicas."""
        return True

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        return self.memory.replicas

    def launch(
        self,
        source: CudaSource,
        function: str,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        *arguments: Argument,
        shared_nbytes: int = 0,
    ) -> Enqueue:
        """Prepares a launch for all replicas: `depth` layers of blocks along z for each."""
        width, height, depth = (*((grid,) if isinstance(grid, int) else grid), 1, 1)[:3]
        if 0 in (width, height, depth):
            return super().launch(source, function, 0, block)
        given: list[Argument] = [*arguments]
        structs: list[tuple[int, int]] = []
        regions: list[int] = []
        for number, argument in enumerate(arguments):
            if argument is None:
                regions.append(ALL)
            elif isinstance(argument, DeviceArray):
                regions.append(self._region(argument))
            elif isinstance(argument, PointerTable):
                table = given[number] = self._pointers(argument)
                structs.append((number, table.shape[1] * table.dtype.itemsize))
            elif isinstance(argument, ctypes.Array):
                raise UnimplementedError("an argument changes from launch to launch")
            else:
                self._refuse_addresses(argument)
                if argument.ndim or argument.dtype.fields:
                    structs.append((number, 0))
        fused = replicated(source, depth, function if structs else "", tuple(structs))
        if pointers_of(source.name, source.text, function) != len(regions):
            raise InternalError(f"{source.name} {function}: its parameters are not these arguments")
        layers, most = depth * self.memory.replicas, MAX_GRID[2]
        if layers > most:
            raise UnimplementedError(
                f"{layers} layers of blocks for {self.memory.replicas} replicas: at most {most}"
            )
        grid3, own = (width, height, layers), self._table(regions, depth)
        try:
            return super().launch(fused, function, grid3, block, own, *given, shared_nbytes=shared_nbytes)
        except InvalidArgumentError as error:  # the source compiles for one replica
            raise UnimplementedError(f"rewritten for several replicas: {error}") from error

    def reaches(self, array: DeviceArray) -> bool:
        """True if an array of a launch or product since `given` was cleared has this one's first byte."""
        return any(each.address <= array.address < each.address + each.nbytes for each in self.given)

    def _region(self, array: DeviceArray) -> int:
        self.given.append(array)
        return self.memory.region(array)

    def _pointers(self, table: PointerTable) -> DeviceArray:
        """The tables of all replicas, uint64 [replicas, slots]. Threads that moved theirs would copy them."""
        self.given += table.arrays
        rows = np.zeros((self.memory.replicas, table.slots), np.uint64)
        for slot, array in enumerate(table.arrays):
            rows[:, slot] = [array.address + move for move in self.memory.moves(array)]
        return self.memory.table(rows, "addresses of fused replicas")

    def _refuse_addresses(self, argument: Struct) -> None:
        """Raises for a struct that seems to hold an address, which would be that of replica 0."""
        data = argument.tobytes()
        words = np.frombuffer(data[: len(data) // 8 * 8], np.uint64).tolist()
        if any(self.memory.points_into(word) for word in words):
            raise UnimplementedError("an argument holds an address; expected a pointer or a PointerTable")

    def _table(self, regions: list[int], depth: int) -> np.ndarray[Any, Any]:
        """The `TbReplicas` of a launch."""
        distances = self.memory.distances
        count = max(len(regions), 1)
        layout = [("moves", "u8"), ("regions", "i4"), ("depth", "i4"), ("region", "i2", (count,))]
        table = np.zeros((), np.dtype(layout, align=True))
        table["moves"], table["regions"], table["depth"] = distances.address, distances.shape[1], depth
        table["region"][: len(regions)] = regions
        return table

    def clear(self, array: DeviceArray) -> Enqueue:
        """Prepares setting an array of every replica to zero."""
        word = elements_per_word(1, [array.address], [array.nbytes])
        count, index = array.nbytes // word, index_for(array.nbytes // word)
        source = CudaSource.of("clear", CLEAR, W=WORDS[word], I=index.name)
        return self.launch(source, "clear", self.blocks(count), BLOCK, array, index.make(count))

    def take(self, workspaces: Sequence[DeviceArray]) -> None:
        """Takes memory by replica for sums in parts."""
        nbytes = min(each.nbytes for each in workspaces)
        self.memory.add([each.address for each in workspaces], nbytes, "workspace")
        self._partial = DeviceArray(workspaces[0].address, (nbytes // 4,), np.dtype(np.float32))

    def partial(self, nbytes: int) -> DeviceArray:
        """Float32 memory of at least so many bytes in every replica, for parts of a sum within one call."""
        if self._partial.nbytes < nbytes:
            memory = self.memory.workspace(nbytes, "sums of fused replicas in parts")
            self._partial = DeviceArray(memory.address, (nbytes // 4,), np.dtype(np.float32))
        return DeviceArray(self._partial.address, (nbytes // 4,), np.dtype(np.float32))

    def library(self, kind: type[LibraryT]) -> LibraryT:
        """Products of all replicas in place of cuBLAS. Raises UnimplementedError for other libraries."""
        if kind is Cublas:
            return cast(LibraryT, self._products)
        raise UnimplementedError(f"{kind.__name__} works on one replica at a time")

    def close(self) -> None:
        """Nothing: the handles are the stream group's."""
