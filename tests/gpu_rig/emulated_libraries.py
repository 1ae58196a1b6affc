"""cuBLAS and cuDNN as C functions that put NumPy work on the emulated GPU's streams.

Each function is a C function of the header's own signature (made with CFUNCTYPE), so that callers declare
types, pass pointers and read results as they do with the real libraries.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import NotFoundError, TensorBowError
from tests.gpu_rig.emulated_calls import CURRENT
from tests.gpu_rig.emulated_memory import MEMORY, host_array

if TYPE_CHECKING:
    from tests.gpu_rig.emulated_cuda import EmulatedCuda

C_TYPES = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "l": ctypes.c_longlong,
    "z": ctypes.c_size_t,
    "s": ctypes.c_char_p,
}


def emulated_library(name: str, runtime: EmulatedCuda) -> EmulatedLibrary:
    """Emulated library named `cublas` or `cudnn`."""
    from tests.gpu_rig.emulated_cublas import EmulatedCublas
    from tests.gpu_rig.emulated_cudnn import EmulatedCudnn

    made = {"cublas": EmulatedCublas, "cudnn": EmulatedCudnn}.get(name)
    if made is None:
        raise NotFoundError(f"library {name}: the emulated GPU has cublas and cudnn")
    return made(runtime)


class RefusedError(Exception):  # never leaves the library: the status does
    """A library call ended with a status other than success."""

    def __init__(self, status: int):
        super().__init__(status)
        self.status = status


class EmulatedLibrary:
    """signatures: function -> types of its arguments; the method `do_<function>` implements it."""

    signatures: ClassVar[dict[str, str]] = {}
    results: ClassVar[dict[str, str]] = {}  # of functions that do not return a status
    failed = 0  # the status when the GPU fails
    unusable = 0  # the status for a handle that is none, or of a GPU that is not current

    def __init__(self, runtime: EmulatedCuda):
        self.runtime = runtime
        self.counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._objects: dict[int, Any] = {}
        self._next = 0x5100_0000
        for name, types in self.signatures.items():
            setattr(self, name, self._c_function(name, types))

    def _c_function(self, name: str, types: str) -> Any:
        method: Callable[..., Any] = getattr(self, f"do_{name}")
        gives = self.results.get(name)

        def call(*arguments: Any) -> Any:
            with self._lock:
                self.counts[name] = self.counts.get(name, 0) + 1
            if gives is not None:
                return method(*arguments)
            if getattr(CURRENT, "gpu", None) is not self.runtime:
                return self.unusable
            try:
                method(*arguments)
            except RefusedError as refused:
                return refused.status
            except TensorBowError:  # as CudaError of a broken GPU, or of a capture
                return self.failed
            return 0

        prototype = ctypes.CFUNCTYPE(C_TYPES[gives or "i"], *(C_TYPES[letter] for letter in types))
        return prototype(call)

    def live(self) -> list[Any]:
        """Handles and descriptors that were not destroyed."""
        return list(self._objects.values())

    def _keep(self, pointer: int, made: Any) -> None:
        """Writes the handle of a new object where the caller wants it."""
        with self._lock:
            self._next += 16
            handle = self._next
            self._objects[handle] = made
        ctypes.c_void_p.from_address(pointer).value = handle

    def _known(self, handle: int | None, kind: type[Any]) -> Any:
        found = self._objects.get(handle or 0)
        if not isinstance(found, kind):
            raise RefusedError(self.unusable)
        return found

    def _drop(self, handle: int | None, kind: type[Any]) -> None:
        self._known(handle, kind)
        with self._lock:
            del self._objects[handle or 0]


def scalar(pointer: int, dtype: np.dtype[Any]) -> float:
    """Value of alpha or beta, read from host memory during the call."""
    kind = ctypes.c_double if dtype == np.float64 else ctypes.c_float
    return float(kind.from_address(pointer).value)


def strided(
    address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any], what: str
) -> np.ndarray:
    """View of device memory; strides in elements. Raises CudaError where it leaves allocated memory."""
    if 0 in shape:
        return np.empty(tuple(shape), dtype)
    count = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    nbytes = count * dtype.itemsize
    try:
        MEMORY.check(address or 0, nbytes, what, pinned=False)
    except CudaError as error:
        raise CudaError(str(error), "cudaErrorIllegalAddress", sticky=True) from None
    flat = host_array(address, nbytes).view(dtype)
    return np.lib.stride_tricks.as_strided(flat, tuple(shape), tuple(s * dtype.itemsize for s in strides))


def rounded(array: np.ndarray, mantissa_bits: int) -> np.ndarray:
    """float32 rounded to nearest with fewer bits, as by tensor cores: 10 bits for TF32, 7 for bfloat16."""
    drop = 23 - mantissa_bits
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    even = (bits >> np.uint32(drop)) & np.uint32(1)
    result = (bits + np.uint32((1 << (drop - 1)) - 1) + even) & np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)
    return np.where(np.isfinite(array), result.view(np.float32), array)
