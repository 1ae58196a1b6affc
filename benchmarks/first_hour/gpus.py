"""The GPUs of this process, or two emulated ones, and what describes them in a result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from typing import Any

from harness import driver, gpus_are_emulated

from first_hour.records import NotThereError, Recorder
from tensorbow.devices import GpuDevice, gpu_status
from tensorbow.devices.cuda_runtime import CudaRuntime
from tensorbow.errors import NotFoundError

PACKAGES = ("numpy", "cupy-cuda12x", "cupy-cuda13x", "torch", "jax", "jaxlib", "cuda-toolkit")
PACKAGES += ("nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
PACKAGES += ("nvidia-cublas-cu12", "nvidia-cublas")


def runtimes() -> list[CudaRuntime]:
    """Runtimes of all GPUs. Raises NotThereError with the reason where there is none."""
    if gpus_are_emulated():
        from tests.gpu_rig.emulated_cuda import EmulatedCuda
        from tests.gpu_rig.emulated_nccl import EmulatedNccl

        pair = EmulatedCuda(), EmulatedCuda()
        pair[1].index = 1
        EmulatedNccl(pair).show()
        return [*pair]
    status = gpu_status()
    if not status.runtimes:
        raise NotThereError(status.problem)
    return list(status.runtimes)


def require_nccl() -> Any:
    """CuPy's module of NCCL. Raises NotThereError."""
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        raise NotThereError(f"NCCL comes with CuPy, which cannot be imported: {error}") from None
    return nccl


@contextmanager
def opened(count: int = 1, per_gpu: int = 1) -> Iterator[list[GpuDevice]]:
    """Devices on the first GPUs, closed afterwards. per_gpu: devices that share a GPU."""
    found = runtimes()
    if count > len(found):
        raise NotThereError(
            f"{count} GPUs are needed, there {'is' if len(found) == 1 else 'are'} {len(found)}"
        )
    chosen = [runtime for runtime in found[:count] for _ in range(per_gpu)]
    limits = [None if per_gpu == 1 else int(0.9 * r.memory_info()[0]) // per_gpu for r in chosen]
    devices = [
        GpuDevice(f"/gpu:{number}", runtime, limit_nbytes=limit)
        for number, (runtime, limit) in enumerate(zip(chosen, limits, strict=True))
    ]
    try:
        yield devices
    finally:
        for device in devices:
            device.close(drain=False)
        for runtime in found if gpus_are_emulated() else ():
            runtime.close()  # type: ignore[attr-defined]  # the emulated one ends its threads


def facts(recorder: Recorder) -> None:
    """Part that describes the machine."""
    recorder.check("machine", described)


def described() -> dict[str, Any]:
    """GPUs, driver, compiler and versions of libraries. Raises NotFoundError where there is no GPU."""
    try:
        found = runtimes()
    except NotThereError as error:  # what all stages need
        raise NotFoundError(str(error)) from None
    first = found[0].properties
    seen: dict[str, Any] = {
        "device": first.name,
        "gpus": len(found),
        "compute_capability": first.architecture / 10,
        "multiprocessors": first.multiprocessors,
        "memory_gib": round(first.memory_nbytes / 2**30, 1),
        "compiler": found[0].compiler,
        "cores": os.cpu_count(),
    }
    if gpus_are_emulated():
        seen |= {"emulated": True}
    else:
        seen |= {"driver": driver(), "libraries": library_versions()}
    packages = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    return {**seen, "packages": packages}


def library_versions() -> dict[str, Any]:
    """Versions of CUDA's runtime, cuDNN and NCCL as the loaded libraries say; errors as text."""
    from cupy.cuda import nccl, runtime

    from tensorbow.devices.cuda_libraries import load_cuda_library

    questions = {
        "cuda_runtime": runtime.runtimeGetVersion,
        "nccl": nccl.get_version,
        "cudnn": lambda: int(load_cuda_library("cudnn").cudnnGetVersion()),
    }
    answers: dict[str, Any] = {}
    for name, question in questions.items():
        try:
            answers[name] = question()
        except Exception as error:  # a library that is not there is a finding, too
            answers[name] = f"{type(error).__name__}: {error}"
    return answers
