"""CUDA interface of a GPU device: memory, streams, events, modules, launches and graphs, as integers.

One runtime object per physical GPU. `tensorbow.devices.cupy_runtime` implements it with CuPy; devices,
plans and kernels run on any other implementation as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tensorbow.errors import InternalError

__all__ = ["CopyKind", "CudaError", "CudaRuntime", "GpuProperties"]


class CudaError(InternalError):
    """A failed call of CUDA or of one of its libraries.

    status: the library's own name, as `cudaErrorIllegalAddress`. sticky: all later calls on this GPU in this
    process fail too.
    """

    def __init__(self, message: str, status: str = "", sticky: bool = False):
        super().__init__(message)
        self.status = status
        self.sticky = sticky


class CopyKind(IntEnum):
    """Direction of a copy; host memory must be pinned."""

    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3


@dataclass(frozen=True)
class GpuProperties:
    """Properties of a GPU. `architecture` is 90 for compute capability 9.0.

    pci_bus_id: identifies the GPU for NVML, as 00000000:65:00.0; empty if unknown.
    """

    name: str
    architecture: int
    multiprocessors: int
    memory_nbytes: int
    max_shared_nbytes: int  # of one block, without opt-in
    pci_bus_id: str = ""


class CudaRuntime(ABC):
    """Calls on one GPU, from any thread; each first makes that GPU current in its thread.

    Streams, events, modules, functions and graphs are handles (non-zero integers), memory is an address.
    Failures raise CudaError with call and status; lack of memory raises ResourceExhaustedError. Copies,
    fills, launches and graph launches are enqueued and return at once; their errors appear in a later call.
    """

    index: int  # CUDA's number of the GPU
    properties: GpuProperties

    @abstractmethod
    def memory_info(self) -> tuple[int, int]:
        """Free bytes and total bytes."""

    @abstractmethod
    def allocate(self, nbytes: int) -> int:
        """Device memory, aligned to at least 256 bytes. Raises ResourceExhaustedError."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Frees memory from `allocate`."""

    @abstractmethod
    def allocate_pinned(self, nbytes: int) -> int:
        """Page-locked host memory, which copies need. Raises ResourceExhaustedError."""

    @abstractmethod
    def free_pinned(self, address: int) -> None:
        """Frees memory from `allocate_pinned`."""

    @abstractmethod
    def make_stream(self, priority: int = 0) -> int:
        """A stream independent of the default stream. A lower priority number goes first."""

    @abstractmethod
    def destroy_stream(self, stream: int) -> None:
        """Destroys a stream once its work has ended."""

    @abstractmethod
    def synchronize_stream(self, stream: int) -> None:
        """Blocks until the stream is drained; releases the interpreter lock."""

    @abstractmethod
    def make_event(self, *, timing: bool = False) -> int:
        """An event; threads that wait for it sleep."""

    @abstractmethod
    def destroy_event(self, event: int) -> None:
        """Destroys an event."""

    @abstractmethod
    def record(self, event: int, stream: int) -> None:
        """Records the event behind all work enqueued on the stream so far."""

    @abstractmethod
    def is_done(self, event: int) -> bool:
        """True if the stream has passed the event; does not block."""

    @abstractmethod
    def synchronize_event(self, event: int) -> None:
        """Blocks until the event is done; releases the interpreter lock."""

    @abstractmethod
    def elapsed_ms(self, start: int, end: int) -> float:
        """Milliseconds between two completed events made with `timing`."""

    @abstractmethod
    def wait(self, stream: int, event: int) -> None:
        """Makes later work on the stream start after the event, which may be of another GPU."""

    @abstractmethod
    def copy(self, target: int, source: int, nbytes: int, kind: CopyKind, stream: int) -> None:
        """Enqueues a copy. Host memory must be pinned and stay unchanged until the copy is done."""

    @abstractmethod
    def copy_to_peer(self, peer: int, target: int, source: int, nbytes: int, stream: int) -> None:
        """Enqueues a copy from this GPU's memory to that of the GPU numbered `peer`, not through the host.

        Where the hardware does not let one GPU reach the other, CUDA itself goes through the host.
        """

    @abstractmethod
    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """Enqueues setting bytes of device memory."""

    @property
    @abstractmethod
    def compiler(self) -> str:
        """Compiler version and target, which with the source determine the binary; for cache keys."""

    @abstractmethod
    def compile(self, source: str, name: str) -> bytes:
        """Compiles CUDA C++ to a binary for this GPU. Raises InvalidArgumentError with the compiler's log.

        name: file name in the log. Functions are declared `extern "C" __global__ void`.
        """

    @abstractmethod
    def load_module(self, binary: bytes) -> int:
        """Loads a binary from `compile`."""

    @abstractmethod
    def unload_module(self, module: int) -> None:
        """Unloads a module; its functions must not be launched afterwards."""

    @abstractmethod
    def function(self, module: int, name: str) -> int:
        """A kernel of a module. Raises NotFoundError."""

    @abstractmethod
    def launch(
        self,
        function: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_nbytes: int,
        stream: int,
        arguments: int,
    ) -> None:
        """Enqueues a kernel. `arguments`: address of an array with a pointer to each argument's value.

        The values are read before the call returns.
        """

    @abstractmethod
    def begin_capture(self, stream: int) -> None:
        """Starts capture: work that this thread enqueues on the stream is recorded instead of run."""

    @abstractmethod
    def end_capture(self, stream: int) -> int:
        """Ends the capture and gives the recorded graph, ready to launch.

        Raises CudaError if something uncapturable was enqueued; the stream is usable again.
        """

    @abstractmethod
    def launch_graph(self, graph: int, stream: int) -> None:
        """Enqueues a graph."""

    @abstractmethod
    def destroy_graph(self, graph: int) -> None:
        """Destroys a graph that is not running."""

    def make_current(self) -> None:
        """Makes this GPU current in the calling thread, for calls of CUDA libraries; all calls here do so.

        Does nothing for a runtime without current GPUs.
        """
        return

    @abstractmethod
    def library(self, name: str) -> Any:
        """The CUDA library `cublas` or `cudnn`, for ctypes-like calls.

        Raises NotFoundError saying what to install.
        """
