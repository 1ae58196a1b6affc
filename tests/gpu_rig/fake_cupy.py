"""The part of CuPy that a kernel of a user's op needs, over the emulated runtime.

Arrays lie in emulated device memory, arithmetic is work on the current stream, and new arrays take memory
from the current allocator, as in CuPy. Nothing else of CuPy is emulated.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.emulated_memory import host_array


class UnownedMemory:
    """Memory owned by another object; `owner` is kept alive with it."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    """Address within a memory."""

    def __init__(self, mem: UnownedMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset


class FakeCupy(ModuleType):
    """The module `cupy` for one emulated GPU.

    allocated: bytes of each request that CuPy's current allocator was asked for.
    """

    def __init__(self, runtime: EmulatedCuda) -> None:
        super().__init__("cupy")
        self.runtime = runtime
        self.allocated: list[int] = []
        self.addresses: list[int] = []
        self._current = threading.local()
        self.cuda = SimpleNamespace(
            UnownedMemory=UnownedMemory,
            MemoryPointer=MemoryPointer,
            using_allocator=self._using_allocator,
            Stream=SimpleNamespace(from_external=self._stream),
        )

    @contextmanager
    def _using_allocator(self, allocator: Callable[[int], MemoryPointer]) -> Iterator[None]:
        self._current.allocator = allocator
        yield
        self._current.allocator = None

    def _stream(self, source: Any) -> Any:
        version, handle = source.__cuda_stream__()
        assert version == 0

        @contextmanager
        def current() -> Iterator[None]:
            self._current.stream = handle
            yield
            self._current.stream = None

        class Reusable:
            def __enter__(self) -> None:
                self._open = current()
                self._open.__enter__()

            def __exit__(self, *exception: Any) -> None:
                self._open.__exit__(None, None, None)

        return Reusable()

    def ndarray(self, shape: tuple[int, ...], dtype: Any, memptr: MemoryPointer | None = None) -> FakeArray:
        """An array over given memory, or over new memory of the current allocator."""
        dtype = np.dtype(dtype)
        if memptr is None:
            nbytes = math.prod(shape) * dtype.itemsize
            self.allocated.append(nbytes)
            memptr = self._current.allocator(nbytes)
            self.addresses.append(memptr.ptr)
        return FakeArray(self, shape, dtype, memptr)

    def multiply(self, a: Any, b: Any, out: FakeArray | None = None) -> FakeArray:
        """Elementwise product; scalars are broadcast."""
        return self._apply(np.multiply, a, b, out)

    def add(self, a: Any, b: Any, out: FakeArray | None = None) -> FakeArray:
        """Elementwise sum; scalars are broadcast."""
        return self._apply(np.add, a, b, out)

    def _apply(self, function: Any, a: Any, b: Any, out: FakeArray | None) -> FakeArray:
        like = a if isinstance(a, FakeArray) else b
        result = self.ndarray(like.shape, like.dtype) if out is None else out
        parts = [x.view() if isinstance(x, FakeArray) else x for x in (a, b)]
        target = result.view()

        def run() -> None:
            function(*parts, out=target)

        self.runtime.enqueue(self._current.stream, "launch", f"cupy {function.__name__}", run)
        return result


class FakeArray:
    """A contiguous array in emulated device memory."""

    def __init__(
        self, cupy: FakeCupy, shape: tuple[int, ...], dtype: np.dtype[Any], memory: MemoryPointer
    ) -> None:
        self.cupy, self.shape, self.dtype, self.data = cupy, tuple(shape), dtype, memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.data.ptr, False), "shape": self.shape, "typestr": self.dtype.str, "version": 3}

    def view(self) -> Any:
        """View of the memory on the host, for work on a stream."""
        nbytes = math.prod(self.shape) * self.dtype.itemsize
        return host_array(self.data.ptr, nbytes).view(self.dtype).reshape(self.shape)
