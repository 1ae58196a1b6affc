"""The CUDA runtime over CuPy's bindings of CUDA's runtime, driver and NVRTC. Imports CuPy on first use.

Handles are CUDA's own. Only one capture runs at a time in the process, in mode ThreadLocal and with Python's
garbage collection off: a collected object could free memory, which CUDA forbids during a capture.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tensorbow.devices.cuda_libraries import INSTALL, load_cuda_library
from tensorbow.devices.cuda_runtime import CopyKind, CudaError, CudaRuntime, GpuProperties
from tensorbow.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError, TensorBowError

_NOT_READY = 600
# Statuses of crashed kernels, broken hardware, or a lost GPU: the CUDA context is lost until the process
# ends.
_STICKY = frozenset({46, 100, 214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 999})


_capturing = threading.Lock()  # held from begin_capture to end_capture; the holder owns `gc_was_on`


@cache
def _cuda() -> Any:
    """CuPy's bindings. Raises NotFoundError where CuPy is not installed or cannot be loaded."""
    # Read when CUDA starts: with the default of 8 hardware queues, more replicas would share queues.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    try:
        return importlib.import_module("cupy.cuda")
    except ImportError as error:
        raise NotFoundError(f"GPU devices need CuPy ({error}): {INSTALL}") from None


def gpu_count() -> int:
    """Number of GPUs that CUDA sees. Raises NotFoundError without CuPy, CudaError without a driver."""
    runtime = _cuda().runtime
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        translated = _translated("getDeviceCount", error)
        if translated.status == "cudaErrorNoDevice":
            return 0
        raise translated from None


def _translated(call: str, error: Any) -> CudaError:
    """CuPy's exception, whose text is `cudaErrorName: text`, as a CudaError."""
    status, _, text = str(error).partition(": ")
    return CudaError(f"{call}: {text or 'failed'} ({status})", status, sticky=error.status in _STICKY)


class CupyRuntime(CudaRuntime):
    """One GPU, by its number among the GPUs that CUDA sees.

    Its CUDA context is created by the first call that needs one, not by the constructor. State: `_context`,
    the context's handle, 0 before; every call compares it with the thread's current one, which other
    libraries may have changed.
    """

    def __init__(self, index: int = 0):
        """Raises NotFoundError without CuPy or the GPU, CudaError without a driver."""
        cuda = _cuda()
        self._runtime, self._driver = cuda.runtime, cuda.driver
        self._errors = (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)
        count = gpu_count()
        if not 0 <= index < count:
            raise NotFoundError(f"GPU {index}: CUDA sees {count} GPUs; see CUDA_VISIBLE_DEVICES")
        self.index = index
        self._context = 0
        self._peers = {index}  # GPUs whose memory this one may address
        found = self._without_context("getDeviceProperties", self._runtime.getDeviceProperties, index)
        bus_id = self._without_context("cudaDeviceGetPCIBusId", self._runtime.deviceGetPCIBusId, index)
        self.properties = GpuProperties(
            name=found["name"].decode(),
            architecture=10 * int(found["major"]) + int(found["minor"]),
            multiprocessors=int(found["multiProcessorCount"]),
            memory_nbytes=int(found["totalGlobalMem"]),
            max_shared_nbytes=int(found["sharedMemPerBlock"]),
            pci_bus_id=str(bus_id),
        )
        self._gc_was_on = False

    def _without_context(self, call: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function that needs no CUDA context. Raises CudaError."""
        try:
            return function(*arguments)
        except self._errors as error:
            raise _translated(call, error) from None

    def _call(self, call: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function with this GPU current in the thread. Raises CudaError."""
        try:
            if not self._context or self._driver.ctxGetCurrent() != self._context:
                self._runtime.setDevice(self.index)
                self._runtime.free(0)  # creates the context, which driver calls need
                self._context = self._driver.ctxGetCurrent()
            return function(*arguments)
        except self._errors as error:
            raise _translated(call, error) from None

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes as the driver counts, including other processes."""
        free, total = self._call("memGetInfo", self._runtime.memGetInfo)
        return int(free), int(total)

    def allocate(self, nbytes: int) -> int:
        """cudaMalloc."""
        return int(self._reserving(f"{nbytes} bytes", "cudaMalloc", self._runtime.malloc, nbytes))

    def free(self, address: int) -> None:
        """cudaFree; waits for all running work."""
        self._call("cudaFree", self._runtime.free, address)

    def allocate_pinned(self, nbytes: int) -> int:
        """cudaHostAlloc, pinned for all GPUs."""
        flags = self._runtime.hostAllocPortable
        reserve, what = self._runtime.hostAlloc, f"{nbytes} bytes"
        return int(self._reserving(what, "cudaHostAlloc", reserve, nbytes, flags))

    def free_pinned(self, address: int) -> None:
        """cudaFreeHost."""
        self._call("cudaFreeHost", self._runtime.freeHost, address)

    def _reserving(self, what: str, call: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function that allocates memory for `what`. Also raises ResourceExhaustedError."""
        try:
            return self._call(call, function, *arguments)
        except CudaError as error:
            if error.status not in ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"):
                raise
        free, total = self.memory_info()
        raise ResourceExhaustedError(
            f"{call} on GPU {self.index}: {what} asked, {free} of {total} bytes of the GPU are free; "
            "use fewer replicas or smaller batches, or end what else uses memory"
        )

    def make_stream(self, priority: int = 0) -> int:
        """A non-blocking stream; CUDA clamps the priority to its range."""
        flags = self._runtime.streamNonBlocking
        make = self._runtime.streamCreateWithPriority
        return int(self._reserving("a stream", "cudaStreamCreate", make, flags, priority))

    def destroy_stream(self, stream: int) -> None:
        """Returns at once."""
        self._call("cudaStreamDestroy", self._runtime.streamDestroy, stream)

    def synchronize_stream(self, stream: int) -> None:
        """cudaStreamSynchronize; raises errors of enqueued work."""
        self._call("cudaStreamSynchronize", self._runtime.streamSynchronize, stream)

    def make_event(self, *, timing: bool = False) -> int:
        """An event with blocking synchronisation: waiting threads sleep."""
        runtime = self._runtime
        flags = runtime.eventBlockingSync | (0 if timing else runtime.eventDisableTiming)
        return int(self._call("cudaEventCreate", runtime.eventCreateWithFlags, flags))

    def destroy_event(self, event: int) -> None:
        """cudaEventDestroy; streams that wait for it keep waiting."""
        self._call("cudaEventDestroy", self._runtime.eventDestroy, event)

    def record(self, event: int, stream: int) -> None:
        """cudaEventRecord."""
        self._call("cudaEventRecord", self._runtime.eventRecord, event, stream)

    def is_done(self, event: int) -> bool:
        """cudaEventQuery; CuPy returns its status instead of raising."""
        status = self._call("cudaEventQuery", self._runtime.eventQuery, event)
        if status not in (0, _NOT_READY):
            self._call("cudaEventQuery", self._runtime.check_status, status)
        return bool(status == 0)

    def synchronize_event(self, event: int) -> None:
        """cudaEventSynchronize; raises errors of work enqueued before."""
        self._call("cudaEventSynchronize", self._runtime.eventSynchronize, event)

    def elapsed_ms(self, start: int, end: int) -> float:
        """cudaEventElapsedTime."""
        return float(self._call("cudaEventElapsedTime", self._runtime.eventElapsedTime, start, end))

    def wait(self, stream: int, event: int) -> None:
        """cudaStreamWaitEvent."""
        self._call("cudaStreamWaitEvent", self._runtime.streamWaitEvent, stream, event, 0)

    def copy(self, target: int, source: int, nbytes: int, kind: CopyKind, stream: int) -> None:
        """cudaMemcpyAsync."""
        self._call("cudaMemcpyAsync", self._runtime.memcpyAsync, target, source, nbytes, int(kind), stream)

    def copy_to_peer(self, peer: int, target: int, source: int, nbytes: int, stream: int) -> None:
        """cudaMemcpyPeerAsync, after cudaDeviceEnablePeerAccess at the first time."""
        runtime = self._runtime
        if peer not in self._peers:
            self._peers.add(peer)
            if self._call("cudaDeviceCanAccessPeer", runtime.deviceCanAccessPeer, self.index, peer):
                try:
                    self._call("cudaDeviceEnablePeerAccess", runtime.deviceEnablePeerAccess, peer)
                except CudaError as error:
                    if error.status != "cudaErrorPeerAccessAlreadyEnabled":  # by another library
                        raise
        ends = target, peer, source, self.index
        self._call("cudaMemcpyPeerAsync", runtime.memcpyPeerAsync, *ends, nbytes, stream)

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """cudaMemsetAsync."""
        self._call("cudaMemsetAsync", self._runtime.memsetAsync, address, byte, nbytes, stream)

    @property
    def compiler(self) -> str:
        """Version and target of NVRTC."""
        return nvrtc_identity(self.properties.architecture)

    def compile(self, source: str, name: str) -> bytes:
        """Compiles with NVRTC to a cubin for this GPU."""
        return compile_with_nvrtc(source, name, self.properties.architecture)

    def load_module(self, binary: bytes) -> int:
        """cuModuleLoadData."""
        what = f"a module of {len(binary)} bytes"
        return int(self._reserving(what, "cuModuleLoadData", self._driver.moduleLoadData, binary))

    def unload_module(self, module: int) -> None:
        """cuModuleUnload."""
        self._call("cuModuleUnload", self._driver.moduleUnload, module)

    def function(self, module: int, name: str) -> int:
        """cuModuleGetFunction."""
        try:
            return int(self._call("cuModuleGetFunction", self._driver.moduleGetFunction, module, name))
        except CudaError as error:
            if error.status == "CUDA_ERROR_NOT_FOUND":
                raise NotFoundError(f'kernel {name}: not in the module; declare it extern "C"') from None
            raise

    def launch(
        self,
        function: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_nbytes: int,
        stream: int,
        arguments: int,
    ) -> None:
        """cuLaunchKernel."""
        launch, sizes = self._driver.launchKernel, (*grid, *block, shared_nbytes)
        what = "a kernel's local memory"
        self._reserving(what, "cuLaunchKernel", launch, function, *sizes, stream, arguments, 0)

    def begin_capture(self, stream: int) -> None:
        """cudaStreamBeginCapture; waits while another capture of the process runs."""
        _capturing.acquire()
        gc_was_on = gc.isenabled()
        gc.disable()
        try:
            mode = self._runtime.streamCaptureModeThreadLocal
            self._call("cudaStreamBeginCapture", self._runtime.streamBeginCapture, stream, mode)
        except BaseException:
            self._end_turn(gc_was_on)
            raise
        self._gc_was_on = gc_was_on

    def end_capture(self, stream: int) -> int:
        """Instantiates and uploads the graph, so that its first launch is as fast as later ones."""
        runtime = self._runtime
        try:
            recorded = self._call("cudaStreamEndCapture", runtime.streamEndCapture, stream)
        finally:
            self._end_turn(self._gc_was_on)
        try:
            make = runtime.graphInstantiate
            graph = int(self._reserving("a graph", "cudaGraphInstantiate", make, recorded))
        finally:
            self._call("cudaGraphDestroy", runtime.graphDestroy, recorded)
        try:
            self._reserving("a graph", "cudaGraphUpload", runtime.graphUpload, graph, stream)
        except TensorBowError:
            self.destroy_graph(graph)
            raise
        return graph

    @staticmethod
    def _end_turn(gc_was_on: bool) -> None:
        if gc_was_on:
            gc.enable()
        _capturing.release()

    def launch_graph(self, graph: int, stream: int) -> None:
        """cudaGraphLaunch."""
        self._reserving("a graph's launch", "cudaGraphLaunch", self._runtime.graphLaunch, graph, stream)

    def destroy_graph(self, graph: int) -> None:
        """cudaGraphExecDestroy."""
        self._call("cudaGraphExecDestroy", self._runtime.graphExecDestroy, graph)

    def make_current(self) -> None:
        """cudaSetDevice, unless this GPU is current already."""
        self._call("cudaSetDevice", lambda: None)

    def library(self, name: str) -> ctypes.CDLL:
        """The library from the installed wheels, or the system's."""
        return load_cuda_library(name)


# Without a GPU --------------------------------------------------------------------------------------------


def nvrtc_target(architecture: int, supported: Sequence[int]) -> str:
    """Target of NVRTC: `sm_90` for the GPU itself, or its family's, as `sm_80` for architecture 86.

    For a GPU newer than NVRTC it is `compute_90` (PTX), which the driver compiles on loading.
    Raises NotFoundError for a GPU that NVRTC no longer supports.
    """
    known = [each for each in supported if each <= architecture]
    if not known:
        raise NotFoundError(
            f"NVRTC compiles for compute capabilities from {min(supported) / 10} on, the GPU has "
            f"{architecture / 10}; install an older CuPy and CUDA"
        )
    best = max(known)
    return f"sm_{best}" if best // 10 == architecture // 10 else f"compute_{best}"


@cache
def nvrtc_identity(architecture: int) -> str:
    """Version, target and options of NVRTC, which with the source determine the binary."""
    nvrtc = _cuda().nvrtc
    major, minor = nvrtc.getVersion()
    return f"nvrtc {major}.{minor} {' '.join(_options(architecture))}"


@cache
def _options(architecture: int) -> tuple[str, ...]:
    target = nvrtc_target(architecture, _cuda().nvrtc.getSupportedArchs())
    return (f"-arch={target}", "-std=c++17")


def compile_with_nvrtc(source: str, name: str, architecture: int) -> bytes:
    """Compiles CUDA C++ to a cubin, or to PTX if NVRTC is older than the GPU; needs neither GPU nor driver.

    Uses fused multiply-add, NVRTC's default. Raises InvalidArgumentError with the log.
    """
    nvrtc = _cuda().nvrtc
    options = _options(architecture)
    program = nvrtc.createProgram(source, name, (), ())
    try:
        nvrtc.compileProgram(program, options)
        return bytes(nvrtc.getCUBIN(program) if "-arch=sm_" in options[0] else nvrtc.getPTX(program))
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program).strip()
        raise InvalidArgumentError(
            f"CUDA source {name} does not compile ({error}, {' '.join(options)}):\n{log[:4000]}"
        ) from None
    finally:
        nvrtc.destroyProgram(program)
