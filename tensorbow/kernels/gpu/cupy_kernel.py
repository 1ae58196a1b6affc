"""Kernels of users' ops as Python functions over CuPy arrays; CuPy allocates from a memory partition.

CuPy is imported when the first such kernel is bound to a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from allocators import Allocation, Allocator, OutOfMemory
from tensorbow.errors import (
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from tensorbow.graph import Kernel, KernelCall, NodeSpec
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall
from tensorbow.specs import TensorSpec

__all__ = ["CupyAllocator", "CupyKernel"]

WHY_ALONE = "a Python function over CuPy arrays, which may take memory and differ from call to call"


class CupyKernel(Kernel):
    """A GPU kernel of your own op, as a Python function over CuPy arrays, for `tb.register_kernel`.

    function: called with a `tb.KernelCall` in each step. Its inputs, outputs, scratch arrays and step scalars
        are `cupy.ndarray` views of the step's memory, made once; it writes every element of the outputs,
        leaves the inputs unchanged, and returns None or what a call with `out=` returned. CuPy's current
        stream is the replica's, and CuPy allocates from the replica's memory partition, without
        synchronisation. It must not wait for the GPU (`.get()`, `float(array)`): that stops all replicas.
    scratch, inplace: see `tb.Kernel`.
    capturable: True makes it part of the step's CUDA graph. It then runs only twice, must enqueue the
        same work both times, and must not allocate: a graph keeps using memory that CuPy would have freed.

    By default it is called in each step, between the CUDA graphs of the calls before and after it. It cannot
    be skipped while the sticky status is set: an op that updates variables in training needs a `CudaKernel`.
    Raises InvalidArgumentError for such an op and for a function that returns its results,
    ResourceExhaustedError with the partition's account, FailedPreconditionError for an allocation in a
    capturable function, NotFoundError without CuPy.
    """

    def __init__(
        self,
        function: Callable[[KernelCall], object],
        *,
        scratch: Callable[[NodeSpec], Sequence[TensorSpec]] | None = None,
        inplace: tuple[tuple[int, int], ...] = (),
        capturable: bool = False,
    ):
        if not callable(function):
            raise InvalidArgumentError(f"CupyKernel: expected a function of the call, got {function!r:.60}")

        def prepare(call: GpuCall) -> Enqueue:
            return _prepare(function, call, capturable)

        super().__init__(
            prepare=cast("Callable[[KernelCall], Enqueue]", prepare),
            scratch=scratch,
            inplace=inplace,
            capturable=capturable,
            why_alone="" if capturable else WHY_ALONE,
        )


def load_cupy() -> Any:
    """Imports CuPy. Raises NotFoundError saying what to install."""
    try:
        import cupy
    except ImportError as error:
        raise NotFoundError(
            f"CuPy kernels need CuPy ({error}): pip install 'tensorbow[cuda12]' "
            "(or [cuda13], as the driver is)"
        ) from None
    return cupy


def _prepare(function: Callable[[KernelCall], object], call: GpuCall, capturable: bool) -> Enqueue:
    if call.predicate is not None:
        raise InvalidArgumentError(
            "a CupyKernel cannot be skipped while the status is set, as an op that writes variables must be; "
            "write it as a CudaKernel"
        )
    cupy, context = load_cupy(), call.context
    index = context.runtime.index
    given = KernelCall(
        call.attrs,
        tuple(_view(cupy, array, index) for array in call.inputs),
        tuple(_view(cupy, array, index) for array in call.outputs),
        tuple(_view(cupy, array, index) for array in call.scratch),
        {key: _view(cupy, array, index) for key, array in call.state.items()},
    )
    ranges = [(array.address, array.address + array.nbytes) for array in (*call.outputs, *call.scratch)]
    stream = cupy.cuda.Stream.from_external(_Stream(context.stream))
    allocate = _refuse if capturable else CupyAllocator(_allocator_of(call), index, "a CuPy kernel")

    def enqueue() -> None:
        context.runtime.make_current()
        with stream, cupy.cuda.using_allocator(allocate):
            returned = function(given)
        if returned is not None:
            _check_returned(returned, ranges)

    return enqueue


class _Stream:
    """Adapter that gives a CUDA stream to `cupy.cuda.Stream.from_external`."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _view(cupy: Any, array: DeviceArray, index: int) -> Any:
    """A `cupy.ndarray` over memory that it does not own."""
    memory = cupy.cuda.UnownedMemory(array.address, array.nbytes, None, index)
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0))


def _allocator_of(call: GpuCall) -> Allocator:
    if call.context.allocator is None:
        raise InternalError("a CuPy kernel was bound without the allocator of a stream group")
    return call.context.allocator


def _refuse(nbytes: int) -> Any:
    """Allocator for captured functions: always raises."""
    raise FailedPreconditionError(
        f"a CupyKernel with capturable=True asked for {nbytes} bytes, which its CUDA graph would go on "
        "using; write to call.outputs and call.scratch by out=, or leave capturable out"
    )


def _check_returned(returned: object, ranges: Sequence[tuple[int, int]]) -> None:
    """Raises unless every returned array lies in the call's own memory, as on a CPU."""
    for result in returned if isinstance(returned, tuple) else (returned,):
        interface = getattr(result, "__cuda_array_interface__", None)
        address = interface["data"][0] if interface is not None else None
        if address is None or not any(start <= address < max(end, start + 1) for start, end in ranges):
            raise InvalidArgumentError(
                f"its kernel returned {type(result).__name__}; expected None: a kernel writes its results, "
                "by call.outputs[0][...] = ... or out=call.outputs[0]"
            )


class CupyAllocator:
    """Allocator for `cupy.cuda.using_allocator` that takes memory from a stream group's partition.

    A block is freed when CuPy drops the last array over it, and may be reused at once, even if the GPU still
    uses it: later work on the same stream runs later. So it serves work on the group's compute stream only.
    A free may come from any thread, and late: after the group has closed it does nothing.
    """

    def __init__(self, allocator: Allocator, device_index: int, owner: str) -> None:
        """device_index: CUDA's number of the GPU; owner: the blocks' owner in out-of-memory errors."""
        self._allocator = allocator
        self._index = device_index
        self._owner = owner
        self._cupy = load_cupy()

    def __call__(self, nbytes: int) -> Any:
        """Allocates a `cupy.cuda.MemoryPointer`. Raises ResourceExhaustedError."""
        try:
            block = self._allocator.allocate(nbytes, owner=self._owner)
        except OutOfMemory as error:
            raise ResourceExhaustedError(str(error)) from error
        address = 0 if block is None else block.address
        owner = None if block is None else _Block(self._allocator, block)
        memory = self._cupy.cuda.UnownedMemory(address, nbytes, owner, self._index)
        return self._cupy.cuda.MemoryPointer(memory, 0)


class _Block:
    """Owns a block; CuPy holds it while an array lies there."""

    __slots__ = ("_allocator", "_block")

    def __init__(self, allocator: Allocator, block: Allocation) -> None:
        self._allocator, self._block = allocator, block

    def __del__(self) -> None:
        self._allocator.free(self._block)
