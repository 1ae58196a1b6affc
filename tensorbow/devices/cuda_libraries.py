"""Loads cuBLAS and cuDNN from NVIDIA's installed wheels, each after the libraries that it depends on."""

from __future__ import annotations

import ctypes
import importlib
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tensorbow.errors import NotFoundError

INSTALL = "pip install 'tensorbow[cuda12]' (or [cuda13], as the driver is)"

_BEFORE = {"cublas": ("nvrtc", "cublasLt"), "cudnn": ("nvrtc", "cublasLt", "cublas")}  # dependencies


@cache
def load_cuda_library(name: str) -> ctypes.CDLL:
    """`cublas` or `cudnn`, after the libraries that it needs. Raises NotFoundError."""
    if name not in _BEFORE:
        raise NotFoundError(f"CUDA library {name}: expected one of {', '.join(_BEFORE)}")
    for each in _BEFORE[name]:
        with suppress(NotFoundError, OSError):  # the loader may find it by itself
            ctypes.CDLL(_library_path(each), mode=ctypes.RTLD_GLOBAL)
    try:
        return ctypes.CDLL(_library_path(name))
    except OSError as error:
        raise NotFoundError(f"CUDA library {name} cannot be loaded ({error}): {INSTALL}") from None


def wheel_versions() -> dict[str, str]:
    """Versions of the cuBLAS and cuDNN wheels, by library name; loads neither."""
    found = {}
    for library in _BEFORE:
        for wheel in (f"nvidia-{library}-cu12", f"nvidia-{library}-cu13", f"nvidia-{library}"):
            with suppress(PackageNotFoundError):
                found[library] = version(wheel)
    return found


def _library_path(name: str) -> str:
    """Path of a library, by cuda-pathfinder or in NVIDIA's wheels. Raises NotFoundError."""
    with suppress(ImportError, RuntimeError):  # its DynamicLibNotFoundError is a RuntimeError
        pathfinder = importlib.import_module("cuda.pathfinder")
        return str(pathfinder.load_nvidia_dynamic_lib(name).abs_path)
    return _wheel_library(name)


def _wheel_library(name: str) -> str:
    """Path of a library in one of the `nvidia-*` wheels. Raises NotFoundError."""
    with suppress(ImportError):
        folders = importlib.import_module("nvidia").__path__
        for folder in map(Path, folders):
            for found in sorted(folder.glob(f"*/lib*/lib{name}.so*")):
                return str(found)
    raise NotFoundError(f"CUDA library {name} is not installed: {INSTALL}")
