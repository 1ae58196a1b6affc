"""Detection of GPUs; if there are none, the reason and the remedy in one line.

Lack of a GPU, driver or library is a normal state, for which nothing here raises. CuPy is loaded only
after a driver was found.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any

from tensorbow.devices.cuda_runtime import CudaRuntime
from tensorbow.devices.device import DeviceDescription
from tensorbow.devices.gpu import ALLOCATORS, COMPUTE, HEADROOM, GpuDevice, one_of
from tensorbow.devices.names import DeviceName
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, TensorBowError
from tensorbow.kinds import Positive, checked
from tensorbow.kinds import one_of as choice

__all__ = ["GpuStatus", "configure_gpus", "count_gpus", "describe_gpu", "gpu_status", "open_gpu"]

VIRTUAL_VARIABLE = "TENSORBOW_VIRTUAL_GPUS"
ALLOCATOR_VARIABLE = "TENSORBOW_GPU_ALLOCATOR"
LIBRARIES = ("cublas", "cudnn")
CUPY = {12: "cupy-cuda12x", 13: "cupy-cuda13x"}


@dataclass(frozen=True)
class GpuStatus:
    """Result of the detection. problem: why no GPU is usable, and the remedy; empty if one is."""

    runtimes: tuple[CudaRuntime, ...] = ()
    problem: str = ""


@dataclass
class _Configuration:
    """Options of GPU devices. virtual_per_gpu: devices per GPU; the others apply to each device.

    None: from the environment, or the default.
    """

    virtual_per_gpu: int | None = None
    memory_limit_nbytes: int | None = None
    allocator: str | None = None
    compute: str | None = None


_lock = threading.RLock()  # guards the following
_configuration = _Configuration()
_status: GpuStatus | None = None
_opened = False


@checked
def configure_gpus(
    virtual_per_gpu: Positive | None = None,
    memory_limit_nbytes: Positive | None = None,
    allocator: Annotated[str, choice(*ALLOCATORS)] | None = None,
    compute: Annotated[str, choice(*COMPUTE)] | None = None,
) -> None:
    """Sets options of all GPU devices of this process; call it before the first one is opened.

    virtual_per_gpu: with 2, `/gpu:0` and `/gpu:1` share the first GPU, `/gpu:2` and `/gpu:3` the second;
        by default the environment variable TENSORBOW_VIRTUAL_GPUS, else 1.
    memory_limit_nbytes: of each device; by default its share of the free memory.
    allocator: `bfc`, best fit with coalescing in the partition of each stream group, or `cuda_malloc`, one
        driver call per tensor, for comparison (Budea 2019, figure 4.2); by default the environment variable
        TENSORBOW_GPU_ALLOCATOR, else `bfc`.
    compute: precision of float32 matmuls and convolutions: `fp32` by default, or on tensor cores `tf32`
        (10 bits of mantissa) or `bf16` (7 bits; convolutions by an own kernel, as cuDNN has no such mode);
        sums and all other ops stay float32.

    Raises InvalidArgumentError for numbers below 1 and unknown choices, FailedPreconditionError
    once a GPU has been opened.
    """
    with _lock:
        if _opened:
            raise FailedPreconditionError(
                "configure_gpus: expected no GPU to be open yet, got one that is; call it first of all"
            )
        _configuration.virtual_per_gpu = virtual_per_gpu
        _configuration.memory_limit_nbytes = memory_limit_nbytes
        _configuration.allocator = allocator
        _configuration.compute = compute


def gpu_status() -> GpuStatus:
    """The GPUs found by the first call. Never raises."""
    global _status
    with _lock:
        if _status is None:
            try:
                _status = _discover()
            except Exception as error:  # an installation may be broken in any way
                _status = GpuStatus(problem=f"GPUs: {type(error).__name__}: {error}")
        return _status


def _discover() -> GpuStatus:
    found, cuda, problem = _driver()
    if problem:
        return GpuStatus(problem=problem)
    if not found:
        return GpuStatus(problem="no GPU: the NVIDIA driver is there, but shows none")
    problem = _package_problem(cuda)
    if problem:
        return GpuStatus(problem=problem)
    from tensorbow.devices.cupy_runtime import CupyRuntime, gpu_count

    try:
        runtimes = tuple(CupyRuntime(index) for index in range(gpu_count()))
        for name in LIBRARIES:
            for runtime in runtimes[:1]:
                runtime.library(name)
    except TensorBowError as error:
        return GpuStatus(problem=f"{found} GPU{'s' if found > 1 else ''}, not usable: {error}")
    return GpuStatus(runtimes)


def _driver() -> tuple[int, int, str]:
    """Number of GPUs that NVML sees, the driver's CUDA version (12 or 13), and any problem."""
    if find_spec("pynvml") is None:
        return 0, 0, "no GPU support installed; for NVIDIA GPUs: pip install 'tensorbow[cuda12]' (or cuda13)"
    import pynvml

    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return 0, 0, f"no NVIDIA driver: {error}; install one to use GPUs"
    try:
        version = nvml.nvmlSystemGetCudaDriverVersion_v2()
        return nvml.nvmlDeviceGetCount(), version // 1000, ""
    except nvml.NVMLError as error:
        return 0, 0, f"the NVIDIA driver does not answer: {error}"
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _package_problem(driver_cuda: int) -> str:
    """Defect of the installed packages for a driver of that CUDA version; empty if none."""
    wanted = 13 if driver_cuda >= 13 else 12
    installed = [version for version, name in CUPY.items() if _is_installed(name)]
    if len(installed) > 1:
        return (
            "CuPy is installed for CUDA 12 and for CUDA 13, which overwrite each other: pip uninstall "
            f"{' '.join(CUPY.values())}, then pip install 'tensorbow[cuda{wanted}]'"
        )
    if not installed and find_spec("cupy") is None:
        return f"CuPy is not installed: pip install 'tensorbow[cuda{wanted}]'"
    if not installed:
        return ""  # built from source, or another channel: it finds its libraries
    (version,) = installed
    if version > driver_cuda:
        return (
            f"CuPy is for CUDA {version}, the driver is for CUDA {driver_cuda}: "
            f"pip uninstall {CUPY[version]}, then pip install 'tensorbow[cuda{wanted}]'"
        )
    other = 25 - version
    for package in ("nvidia-cudnn", "nvidia-nccl"):
        if not _is_installed(f"{package}-cu{version}") and _is_installed(f"{package}-cu{other}"):
            return (
                f"CuPy is for CUDA {version}, but {package} is installed for CUDA {other}: "
                f"pip install 'tensorbow[cuda{version}]' in a new environment"
            )
    return ""


def _is_installed(package: str) -> bool:
    from importlib import metadata  # takes a tenth of the time of `import tensorbow`

    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _virtual_per_gpu() -> int:
    if _configuration.virtual_per_gpu is not None:
        return _configuration.virtual_per_gpu
    text = os.environ.get(VIRTUAL_VARIABLE, "1")
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgumentError(f"{VIRTUAL_VARIABLE}: expected a number of at least 1, got {text!r}")
    return int(text)


def _allocator() -> str:
    if _configuration.allocator is not None:
        return _configuration.allocator
    return one_of(ALLOCATOR_VARIABLE, os.environ.get(ALLOCATOR_VARIABLE) or ALLOCATORS[0], ALLOCATORS)


def count_gpus() -> int:
    """Number of devices from `/gpu:0` on that can be opened, including virtual ones."""
    with _lock:
        return len(gpu_status().runtimes) * _virtual_per_gpu()


def _share(name: DeviceName) -> tuple[CudaRuntime, int, int]:
    """The GPU of a device, the number of its share, and the number of shares. Raises NotFoundError."""
    status, shares = gpu_status(), _virtual_per_gpu()
    index, count = name.index or 0, len(status.runtimes) * shares
    if not status.runtimes:
        raise NotFoundError(f"{name.short}: {status.problem}; or run on /cpu:0")
    if index >= count:
        raise NotFoundError(
            f"{name.short}: there {'is 1 GPU device' if count == 1 else f'are {count} GPU devices'}, "
            f"up to /gpu:{count - 1}; choose one of them, or raise {VIRTUAL_VARIABLE}"
        )
    return status.runtimes[index // shares], index % shares, shares


def open_gpu(name: DeviceName) -> GpuDevice:
    """Opens the device `/gpu:i`. Raises NotFoundError with the reason, ResourceExhaustedError."""
    global _opened
    with _lock:
        runtime, number, shares = _share(name)
        allocator, compute = _allocator(), _configuration.compute or COMPUTE[0]
        _opened = True
        limit = _configuration.memory_limit_nbytes
        if limit is None and shares > 1:
            limit = int(runtime.properties.memory_nbytes * (1 - HEADROOM)) // shares
        description = f"{number + 1} of {shares} virtual GPUs on it" if shares > 1 else ""
        return GpuDevice(
            name,
            runtime,
            limit_nbytes=limit,
            allocator=allocator,
            compute=compute,
            description=description,
        )


def describe_gpu(name: DeviceName) -> DeviceDescription:
    """The table row of a GPU, without opening it."""
    runtime, number, shares = _share(name)
    major, minor = divmod(runtime.properties.architecture, 10)
    what = f"{runtime.properties.name}, compute capability {major}.{minor}"
    return DeviceDescription(
        name=str(name),
        kind="gpu",
        memory_limit_nbytes=runtime.properties.memory_nbytes // shares,
        description=f"{what}; {number + 1} of {shares} virtual GPUs on it" if shares > 1 else what,
    )
