"""What a GPU device needs of CUDA: memory, streams, events, modules, launches and graphs, as integers.

One runtime stands for one physical GPU. `tensorbow.devices.cupy_runtime` is the one over CuPy; whatever else
keeps these promises runs the same device, plans and kernels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tensorbow.errors import InternalError

__all__ = ["CopyKind", "CudaError", "CudaRuntime", "GpuProperties"]


class CudaError(InternalError):
    """A call of CUDA or of one of its libraries that failed.

    status: the library's own name for it, as `cudaErrorIllegalAddress`. sticky: every later call on this GPU
    in this process fails too.
    """

    def __init__(self, message: str, status: str = "", sticky: bool = False):
        super().__init__(message)
        self.status = status
        self.sticky = sticky


class CopyKind(IntEnum):
    """Where a copy goes from and to; host memory must be pinned."""

    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3


@dataclass(frozen=True)
class GpuProperties:
    """What a GPU is. `architecture` is 90 for compute capability 9.0.

    pci_bus_id: by which NVML knows it, as 00000000:65:00.0; empty where there is no such thing.
    """

    name: str
    architecture: int
    multiprocessors: int
    memory_nbytes: int
    max_shared_nbytes: int  # of one block, without opting in
    pci_bus_id: str = ""


class CudaRuntime(ABC):
    """Calls on one GPU, from any thread; each makes that GPU current in its thread first.

    Streams, events, modules, functions and graphs are handles (non-zero integers), memory is an address. What
    goes wrong raises CudaError naming the call and the status; memory that is not there raises
    ResourceExhaustedError. Copies, fills, launches and graph launches are enqueued and return at once; an
    error of theirs shows in a later call.
    """

    index: int  # as CUDA counts the GPUs
    properties: GpuProperties

    @abstractmethod
    def memory_info(self) -> tuple[int, int]:
        """Bytes that are free, and bytes in all."""

    @abstractmethod
    def allocate(self, nbytes: int) -> int:
        """Device memory, aligned to 256 bytes at least. Raises ResourceExhaustedError."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Gives back what `allocate` gave."""

    @abstractmethod
    def allocate_pinned(self, nbytes: int) -> int:
        """Page-locked host memory, which copies need. Raises ResourceExhaustedError."""

    @abstractmethod
    def free_pinned(self, address: int) -> None:
        """Gives back what `allocate_pinned` gave."""

    @abstractmethod
    def make_stream(self, priority: int = 0) -> int:
        """A stream that does not wait for the default stream. A lower number goes first."""

    @abstractmethod
    def destroy_stream(self, stream: int) -> None:
        """Ends a stream when what is enqueued has ended."""

    @abstractmethod
    def synchronize_stream(self, stream: int) -> None:
        """Blocks until the stream is drained, without the interpreter lock."""

    @abstractmethod
    def make_event(self, *, timing: bool = False) -> int:
        """An event; a thread that waits for it sleeps."""

    @abstractmethod
    def destroy_event(self, event: int) -> None:
        """Gives an event back."""

    @abstractmethod
    def record(self, event: int, stream: int) -> None:
        """Marks the end of all that is enqueued on the stream by now."""

    @abstractmethod
    def is_done(self, event: int) -> bool:
        """Whether the stream has passed the event; does not block."""

    @abstractmethod
    def synchronize_event(self, event: int) -> None:
        """Blocks until the event is done, without the interpreter lock."""

    @abstractmethod
    def elapsed_ms(self, start: int, end: int) -> float:
        """Milliseconds between two events that are done and were made with `timing`."""

    @abstractmethod
    def wait(self, stream: int, event: int) -> None:
        """What is enqueued on the stream from now on starts after the event, which may be another GPU's."""

    @abstractmethod
    def copy(self, target: int, source: int, nbytes: int, kind: CopyKind, stream: int) -> None:
        """Enqueues a copy. The host's memory must be pinned and stay unchanged until it is done."""

    @abstractmethod
    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """Enqueues setting bytes of device memory."""

    @property
    @abstractmethod
    def compiler(self) -> str:
        """Compiler, version and target: with the source, what decides `compile`'s result. For cache keys."""

    @abstractmethod
    def compile(self, source: str, name: str) -> bytes:
        """CUDA C++ source as a binary for this GPU. Raises InvalidArgumentError with the compiler's log.

        name: what the log calls the source. Functions are declared `extern "C" __global__ void`.
        """

    @abstractmethod
    def load_module(self, binary: bytes) -> int:
        """Loads what `compile` gave."""

    @abstractmethod
    def unload_module(self, module: int) -> None:
        """Forgets a module; its functions are not to be launched any more."""

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
        """From now on what this thread enqueues on the stream is not run, but recorded."""

    @abstractmethod
    def end_capture(self, stream: int) -> int:
        """Ends the recording and gives it as a graph that can be launched.

        Raises CudaError when something was enqueued that cannot be recorded; the stream is usable again.
        """

    @abstractmethod
    def launch_graph(self, graph: int, stream: int) -> None:
        """Enqueues a graph."""

    @abstractmethod
    def destroy_graph(self, graph: int) -> None:
        """Gives a graph back that is not running."""

    def make_current(self) -> None:
        """Makes this GPU the calling thread's, as calls of its libraries want it; all calls here do so.

        Does nothing where threads have no current GPU.
        """
        return

    @abstractmethod
    def library(self, name: str) -> Any:
        """A CUDA library for ctypes-like calls: `cublas` or `cudnn`.

        Raises NotFoundError saying what to install.
        """
