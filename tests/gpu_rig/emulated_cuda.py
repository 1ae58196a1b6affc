"""A CUDA runtime without a GPU: the calls that devices, plans and kernels need, in host memory and threads.

It is stricter than CUDA where CUDA tolerates a mistake: copies need pinned memory and must stay within one
block, kernels' pointer arguments must lie in live memory of the GPU (checked when the kernel runs, as on a
GPU), vectors at multiples of their size, no other thread's work may enter a capture, a library's call needs
its GPU to be current in the thread, freed memory holds NaN. It refuses everything that CUDA refuses, as
far as this project calls it. Streams run concurrently; `delay` makes their timing random.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tensorbow.devices.cuda_runtime import CopyKind, CudaError
from tensorbow.errors import NotFoundError
from tests.gpu_rig.cuda_compiler import HostKernel, compile_cuda, compiler_identity, load_kernels
from tests.gpu_rig.emulated_calls import CURRENT, HANDLES
from tests.gpu_rig.emulated_events import EmulatedEvents
from tests.gpu_rig.emulated_memory import MEMORY, host_array
from tests.gpu_rig.emulated_streams import in_stream, refused

MOST_PARAMETER_NBYTES = 4096  # of one kernel; CUDA 12.1 allows more from compute capability 7.0 on


class EmulatedCuda(EmulatedEvents):
    """One emulated GPU. `close` it, or call `check_clean`, which reports resources left open."""

    index = 0

    # Memory -------------------------------------------------------------------------------------------------

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        self._enter("memory_info")
        used = sum(block.nbytes for block in MEMORY.live(self, False))
        return self.properties.memory_nbytes - used, self.properties.memory_nbytes

    def allocate(self, nbytes: int) -> int:
        """Allocates memory filled with NaN, between guards."""
        self._enter("allocate", unsafe=True)
        return MEMORY.allocate(nbytes, self, pinned=False, limit=self.properties.memory_nbytes)

    def free(self, address: int) -> None:
        """Waits for all streams first, as CUDA does; `waits_for_free` counts the calls that had to wait."""
        self._enter("free", unsafe=True)
        with self._lock:
            self.waits_for_free += self._pending > 0
            streams = list(self._streams.values())
        for stream in streams:
            stream.drain()
        MEMORY.free(address, self, pinned=False)

    def allocate_pinned(self, nbytes: int) -> int:
        """Allocates host memory that copies accept."""
        self._enter("allocate_pinned", unsafe=True)
        return MEMORY.allocate(nbytes, self, pinned=True)

    def free_pinned(self, address: int) -> None:
        """Frees pinned memory; see `free`.

        The garbage collector may free a closed device's memory within another call, or in a stream's work; no
        work uses that memory, and waiting would block the streams that need the call's lock, or this one.
        """
        self._enter("free_pinned", unsafe=True)
        if not self._lock._is_owned() and not in_stream():  # type: ignore[attr-defined]
            for stream in list(self._streams.values()):
                stream.drain()
        MEMORY.free(address, self, pinned=True)

    # Copies and kernels ---------------------------------------------------------------------------------

    def copy(self, target: int, source: int, nbytes: int, kind: CopyKind, stream: int) -> None:
        """Copies; refuses ranges that do not lie in one block of the right kind."""
        to_pinned, from_pinned = kind == CopyKind.DEVICE_TO_HOST, kind == CopyKind.HOST_TO_DEVICE

        def check() -> None:
            MEMORY.check(target, nbytes, f"copy {kind.name}", to_pinned, None if to_pinned else self)
            MEMORY.check(source, nbytes, f"copy {kind.name}", from_pinned, None if from_pinned else self)

        def run() -> None:
            check()
            host_array(target, nbytes)[...] = host_array(source, nbytes)

        check()
        self.enqueue(stream, "copy", f"{kind.name} {nbytes}", run)

    def copy_to_peer(self, peer: int, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copies to another emulated GPU; refuses ranges that are not in one block of either."""

        def check() -> None:
            MEMORY.check(source, nbytes, "copy to a peer", False, self)
            MEMORY.check(target, nbytes, "copy to a peer", False)
            block = MEMORY.block_of(target)
            if getattr(block and block.owner, "index", None) != peer:
                raise CudaError(f"copy to a peer: {target:#x} is not of GPU {peer}", "cudaErrorInvalidValue")

        def run() -> None:
            check()
            host_array(target, nbytes)[...] = host_array(source, nbytes)

        check()
        self.enqueue(stream, "copy", f"PEER {nbytes}", run)

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """Fills; refuses a range that does not lie in one block of device memory."""
        MEMORY.check(address, nbytes, "fill", pinned=False)

        def run() -> None:
            MEMORY.check(address, nbytes, "fill", pinned=False)
            host_array(address, nbytes)[...] = byte

        self.enqueue(stream, "fill", str(nbytes), run)

    @property
    def compiler(self) -> str:
        """Identity of g++ and the shim."""
        return compiler_identity()

    def compile(self, source: str, name: str) -> bytes:
        """Compiles a source to a shared library."""
        self._enter("compile", name=name)
        return compile_cuda(source, name)

    def load_module(self, binary: bytes) -> int:
        """Loads a module; refused while this thread captures."""
        self._enter("load_module", unsafe=True)
        kernels = load_kernels(binary)
        with self._lock:
            handle = next(HANDLES)
            self._modules[handle] = kernels
        return handle

    def unload_module(self, module: int) -> None:
        """Unloads a module; its functions can no longer be launched."""
        self._enter("unload_module", unsafe=True)
        with self._lock:
            if self._modules.pop(module, None) is None:
                raise refused("unload_module", "CUDA_ERROR_INVALID_HANDLE", f"{module:#x} is no module")
            self._functions = {f: (m, k) for f, (m, k) in self._functions.items() if m != module}

    def function(self, module: int, name: str) -> int:
        """Handle of a kernel."""
        self._enter("function", name=name)
        kernels = self._modules.get(module)
        if kernels is None:
            raise refused("function", "CUDA_ERROR_INVALID_HANDLE", f"{module:#x} is no module")
        if name not in kernels:
            raise NotFoundError(f"kernel {name}: not in the module (it has: {', '.join(kernels)})")
        with self._lock:
            handle = next(HANDLES)
            self._functions[handle] = (module, kernels[name])
        return handle

    def launch(
        self,
        function: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_nbytes: int,
        stream: int,
        arguments: int,
    ) -> None:
        """Copies the arguments; checks the pointers among them when the kernel starts."""
        self._enter("launch", logged=False)
        if function not in self._functions:
            raise refused(
                "launch", "CUDA_ERROR_INVALID_HANDLE", f"{function:#x} is no function of a loaded module"
            )
        kernel = self._functions[function][1]
        self._check_launch(kernel, grid, block, shared_nbytes)
        pointers = (ctypes.c_void_p * len(kernel.sizes)).from_address(arguments) if kernel.sizes else ()
        values = [
            ctypes.create_string_buffer(ctypes.string_at(p or 0, size), size)
            for p, size in zip(pointers, kernel.sizes, strict=True)
        ]
        packed = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(v) for v in values])
        addresses = [
            int.from_bytes(v.raw, "little")
            for v, is_one in zip(values, kernel.pointers, strict=True)
            if is_one
        ]

        def run(keep: object = values) -> None:
            for address in filter(None, addresses):
                held = MEMORY.block_of(address)
                if held is None or (held.owner is not self and not held.pinned):
                    raise CudaError(
                        f"kernel {kernel.name}: an argument points to {address:#x}, which is not allocated "
                        "on this GPU",
                        "cudaErrorIllegalAddress",
                        sticky=True,
                    )
            failed = kernel.run(grid, block, shared_nbytes, ctypes.addressof(packed), self.backwards)
            if failed is not None:
                raise CudaError(failed[1], failed[0], sticky=True)

        self.enqueue(stream, "launch", kernel.name, run)

    def _check_launch(self, kernel: HostKernel, grid: Any, block: Any, shared_nbytes: int) -> None:
        threads, limits = block[0] * block[1] * block[2], (2**31 - 1, 65535, 65535)
        fits = all(0 < size <= limit for size, limit in zip(grid, limits, strict=True))
        if not fits or not 0 < threads <= 1024 or min(block) < 1 or block[2] > 64:
            reason = f"{kernel.name}: grid {grid} of blocks {block}"
            raise refused("launch", "cudaErrorInvalidConfiguration", reason)
        if sum(-(-size // 8) * 8 for size in kernel.sizes) > MOST_PARAMETER_NBYTES:
            reason = f"{kernel.name}: more than {MOST_PARAMETER_NBYTES} bytes of parameters"
            raise refused("launch", "cudaErrorInvalidValue", reason)
        if kernel.shared_nbytes + shared_nbytes > self.properties.max_shared_nbytes:
            reason = f"{kernel.name}: {kernel.shared_nbytes} + {shared_nbytes} bytes of shared memory"
            raise refused("launch", "cudaErrorInvalidValue", reason)

    def make_current(self) -> None:
        """Makes this GPU the one that the libraries' calls in this thread work on."""
        CURRENT.gpu = self

    def library(self, name: str) -> Any:
        """The emulated cuBLAS or cuDNN."""
        from tests.gpu_rig.emulated_libraries import emulated_library

        self._enter("library", name=name)
        with self._lock:
            if name not in self._libraries:
                self._libraries[name] = emulated_library(name, self)
            return self._libraries[name]
