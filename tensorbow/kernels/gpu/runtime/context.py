"""Context shared by the kernels on one stream group: compute stream, library handles, workspace, options."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, cast

import numpy as np

from allocators import Allocator
from tensorbow.devices.cuda_runtime import CudaRuntime
from tensorbow.devices.gpu import COMPUTE
from tensorbow.errors import InternalError, InvalidArgumentError, ResourceExhaustedError
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue
from tensorbow.kernels.gpu.runtime.program import CudaSource, ProgramCache

BLOCK = 256  # default threads per block
MAX_GRID = (2**31 - 1, 65535, 65535)

POINTERS = "template <class T, int N> struct TbPointers { T* at[N]; };\n"  # CUDA source


@dataclass(frozen=True)
class PointerTable:
    """A kernel argument `TbPointers<T, slots>` of the source POINTERS: pointers to arrays, the rest null."""

    arrays: tuple[DeviceArray, ...]
    slots: int


Argument: TypeAlias = (
    "DeviceArray | PointerTable | np.generic | np.ndarray | ctypes.Array[ctypes.c_char] | None"
)
"""A kernel argument: memory by address, a NumPy scalar by value, a 0-d structured array as a struct, or null.

A ctypes buffer is passed as a struct too, with its content at the time of each launch. A struct holds no
addresses: those are arguments of their own, or in a PointerTable.
"""


@dataclass(frozen=True)
class GpuOptions:
    """compute: precision of float32 matrix products and convolutions: fp32, tf32 or bf16."""

    compute: str = "fp32"

    def __post_init__(self) -> None:
        if self.compute not in COMPUTE:
            raise InvalidArgumentError(f"compute: expected one of {', '.join(COMPUTE)}, got {self.compute!r}")


class Library(Protocol):
    """A handle of a library such as cuBLAS, bound to one context."""

    def __init__(self, context: GpuContext): ...

    def close(self) -> None:
        """Destroys the handle; idempotent."""


LibraryT = TypeVar("LibraryT", bound=Library)


class GpuContext:
    """Context of one stream group: everything prepared with it runs on that group's compute stream."""

    def __init__(
        self,
        runtime: CudaRuntime,
        stream: int,
        programs: ProgramCache,
        workspace: DeviceArray,
        options: GpuOptions,
        allocator: Allocator | None = None,
    ):
        """workspace: uint8 memory that cuBLAS, cuDNN and kernels use in turn, each within one call.

        allocator: the stream group's, for kernels that allocate while they run.
        """
        self.runtime = runtime
        self.stream = stream
        self.programs = programs
        self.workspace = workspace
        self.options = options
        self.allocator = allocator
        self._libraries: dict[type[Library], Library] = {}

    @property
    def gathers_convolutions(self) -> bool:
        """True if convolutions are the own implicit GEMM's: cuDNN reads no float32 as bf16."""
        return self.options.compute == "bf16"

    @property
    def replicas(self) -> int:
        """Number of replicas that a launch serves."""
        return 1

    def partial(self, nbytes: int) -> DeviceArray:
        """Float32 memory of at least so many bytes for the parts of a sum within one call: the workspace.

        Raises ResourceExhaustedError if that is smaller.
        """
        if self.workspace.nbytes < nbytes:
            raise ResourceExhaustedError(
                f"parts of a sum: expected a workspace of {nbytes} bytes, got {self.workspace.nbytes}"
            )
        return DeviceArray(self.workspace.address, (nbytes // 4,), np.dtype(np.float32))

    def launch(
        self,
        source: CudaSource,
        function: str,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        *arguments: Argument,
        shared_nbytes: int = 0,
    ) -> Enqueue:
        """Prepares a kernel launch; the result enqueues it. An empty grid enqueues nothing.

        The arguments must have the kernel's parameter types, in order: they are not converted.
        """
        grid3, block3 = _three(grid), _three(block)
        if 0 in grid3:
            return _nothing
        if any(size > limit for size, limit in zip(grid3, MAX_GRID, strict=True)) or math.prod(block3) > 1024:
            raise InternalError(f"{source.name} {function}: a grid {grid3} of blocks {block3} is too large")
        handle = self.programs.function(source, function)
        values = [_packed(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(value) for value in values])
        address = ctypes.addressof(pointers)
        runtime_launch, stream = self.runtime.launch, self.stream

        def enqueue(keep: object = (values, pointers)) -> None:
            runtime_launch(handle, grid3, block3, shared_nbytes, stream, address)

        return enqueue

    def clear(self, array: DeviceArray) -> Enqueue:
        """Prepares setting an array to zero."""
        fill, address, nbytes, stream = self.runtime.fill, array.address, array.nbytes, self.stream
        return (lambda: fill(address, 0, nbytes, stream)) if nbytes else _nothing

    def blocks(self, count: int, per_block: int = BLOCK) -> int:
        """Blocks for a TB_FOR_EACH loop over `count` elements: enough to fill the GPU, 0 for none."""
        return min(-(-count // per_block), 32 * self.runtime.properties.multiprocessors)

    def library(self, kind: type[LibraryT]) -> LibraryT:
        """The library's handle on this stream, made on first use: `context.library(Cublas)`.

        Raises NotFoundError saying what to install.
        """
        made = self._libraries.get(kind)
        if made is None:
            made = self._libraries[kind] = kind(self)
        return cast(LibraryT, made)

    def close(self) -> None:
        """Destroys library handles, which must be idle; idempotent."""
        while self._libraries:
            self._libraries.popitem()[1].close()


def _three(size: int | tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*((size,) if isinstance(size, int) else size), 1, 1)[:3]
    return x, y, z


def _packed(argument: Argument) -> ctypes.Array[ctypes.c_char]:
    """The bytes of an argument, aligned."""
    if isinstance(argument, ctypes.Array):
        return argument
    if argument is None:
        value = np.uint64(0).tobytes()
    elif isinstance(argument, DeviceArray):
        value = np.uint64(argument.address).tobytes()
    elif isinstance(argument, PointerTable):
        addresses = [array.address for array in argument.arrays]
        value = np.array([*addresses, *[0] * (argument.slots - len(addresses))], np.uint64).tobytes()
    elif isinstance(argument, (np.generic, np.ndarray)):
        value = argument.tobytes()
    else:
        raise InternalError(f"a kernel argument must be memory or a NumPy scalar, got {argument!r:.60}")
    return ctypes.create_string_buffer(value, len(value))


def _nothing() -> None:
    """An empty launch."""
