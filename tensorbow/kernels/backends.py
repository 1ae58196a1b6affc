"""Registry of backends by device kind; the GPU and native backends are imported on first use.

`TENSORBOW_CPU` selects the backend of CPU devices: `reference` (NumPy), `native` (generated code, which needs
llvmlite), or `auto`: native if llvmlite is installed. It is read once, for the first CPU device.
"""

from __future__ import annotations

import logging
import os
import re
from importlib.util import find_spec
from typing import Annotated

from tensorbow.devices import CpuDevice, Device
from tensorbow.errors import FailedPreconditionError, InternalError, InvalidArgumentError
from tensorbow.kernels.binary_cache import cache_folder
from tensorbow.kernels.null import NullBackend
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.kernels.rounded_products import FULL, ROUNDED
from tensorbow.kinds import checked, one_of
from tensorbow.program.backend import Backend

CPU_VARIABLE = "TENSORBOW_CPU"
CPU_DEFAULT = "auto"
CPU_CHOICES = ("auto", "native", "reference")
LEAST_LLVMLITE = (0, 44)  # same as in the extra `native`

_logger = logging.getLogger("tensorbow.kernels")

_backends: dict[str, Backend] = {"null": NullBackend()}


def register_backend(kind: str, backend: Backend) -> None:
    """Registers the backend of a device kind."""
    _backends[kind] = backend


def backend_for(device: Device) -> Backend:
    """The backend of a device's kind, for its precision of products.

    Raises InternalError if the kind has none, FailedPreconditionError if the machine cannot compute in that
    precision, and the errors of `make_cpu_backend`.
    """
    return backend_of_kind(device.kind).computing(device.compute)


def backend_of_kind(kind: str) -> Backend:
    """The backend of a device kind, see `backend_for`."""
    backend = _backends.get(kind)
    if backend is None and kind == "cpu":
        backend = _backends.setdefault("cpu", make_cpu_backend())
    if backend is None and kind == "gpu":
        from tensorbow.kernels.gpu.backend import GpuBackend

        backend = _backends.setdefault("gpu", GpuBackend())
    if backend is None:
        raise InternalError(f"no backend is registered for {kind} devices")
    return backend


@checked
def configure_cpus(compute: Annotated[str, one_of(FULL, ROUNDED)] = FULL) -> None:
    """Sets the precision of float32 matmuls and convolutions on CPU devices, for steps compiled afterwards.

    compute: `fp32`, or `bf16`, which rounds their operands to bfloat16 (7 bits of mantissa); sums, weights
        and all other ops stay float32. It is faster on processors with AVX-512 BF16.

    Raises InvalidArgumentError for any other precision, FailedPreconditionError for `bf16` with native code
    on a processor without AVX-512 BF16, unless the environment variable TENSORBOW_EMULATE_BF16 is 1.
    """
    backend_of_kind("cpu").computing(compute)
    CpuDevice.compute = compute


def make_cpu_backend() -> Backend:
    """The backend that `TENSORBOW_CPU` selects; if `auto` finds no native code, it logs the reason.

    Raises InvalidArgumentError for an unknown choice, FailedPreconditionError for `native` without
    a suitable llvmlite.
    """
    choice = os.environ.get(CPU_VARIABLE) or CPU_DEFAULT
    if choice not in CPU_CHOICES:
        raise InvalidArgumentError(
            f"{CPU_VARIABLE}={choice!r:.40}: expected one of {', '.join(CPU_CHOICES)}, or nothing for "
            f"{CPU_DEFAULT}"
        )
    if choice == "reference":
        return ReferenceBackend()
    lacks = _native_code_lacks()
    if lacks and choice == "native":
        raise FailedPreconditionError(
            f"{CPU_VARIABLE}=native: {lacks}; pip install 'tensorbow[native]', or set "
            f"{CPU_VARIABLE}=reference for the NumPy kernels"
        )
    if lacks:
        _logger.warning(
            "CPU devices run NumPy kernels, for %s; pip install 'tensorbow[native]' for native code, which "
            "is faster (%s=reference says nothing)",
            lacks,
            CPU_VARIABLE,
        )
        return ReferenceBackend()
    from tensorbow.kernels.native.backend import NativeBackend

    return NativeBackend(folder=cache_folder("native"))


def _native_code_lacks() -> str:
    """Reason why native code is not available; empty if it is."""
    if find_spec("llvmlite") is None:
        return "llvmlite is not installed"
    needed = ".".join(map(str, LEAST_LLVMLITE))
    try:
        import llvmlite
        import llvmlite.binding  # loads its shared library
    except Exception as error:
        why = " ".join(str(error).split())
        return f"llvmlite cannot be loaded ({type(error).__name__}: {why})"
    found = llvmlite.__version__
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < LEAST_LLVMLITE:
        return f"llvmlite is {found}, and {needed} is needed"
    return ""
