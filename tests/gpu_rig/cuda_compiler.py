"""CUDA C++ for the host: kernels compiled by g++ against `cuda_shim.h`, loaded, and run thread by thread.

Same as NVRTC: the language (C++17), the built-in names, the rules of barriers and shuffles (a thread that
waits in vain is an error), shared memory that holds garbage at first. Different: products and sums are not
contracted to fused ones (`-ffp-contract=off`; NVRTC contracts by default), mathematical functions are the C
library's, an integer division by zero is an error, a cast of a float does not clamp to the integer's range.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tensorbow.errors import InvalidArgumentError, NotFoundError

_HERE = Path(__file__).parent
_FLAGS = (
    *("-x", "c++", "-std=gnu++17", "-w", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing"),
    *("-fwrapv", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"),
    *("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"),  # a GPU refuses what a CPU reads
)
_KERNEL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^()]*\)\s*)?void\s+"
    r"(?:__launch_bounds__\s*\([^()]*\)\s*)?(\w+)\s*\("
)
_DYNAMIC = re.compile(r"extern\s+__shared__\s+((?:__align__\(\d+\)\s*)?)([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")
_MEETING = re.compile(r"__sync|_sync\s*\(")
_MARK = b"\n//tensorbow-emulated-cuda:"
_GPU = ctypes.c_uint * 3
STATUSES = {1: "cudaErrorLaunchTimeout", 2: "cudaErrorIllegalAddress", 3: "cudaErrorMisalignedAddress"}


def compiler() -> str | None:
    """Path of the C++ compiler; None without one, or where libraries are not ELF files."""
    return shutil.which("g++") if sys.platform == "linux" else None


@cache
def compiler_identity() -> str:
    """Identity of compiler and shim; binaries in the cache depend on it."""
    shim = b"".join((_HERE / name).read_bytes() for name in ("cuda_shim.h", "cuda_shim_math.h"))
    version = subprocess.run([_gxx(), "--version"], capture_output=True, text=True, check=True).stdout
    digest = hashlib.sha256(shim + Path(__file__).read_bytes()).hexdigest()
    return f"{version.splitlines()[0]} {digest[:16]}"


def _gxx() -> str:
    found = compiler()
    if found is None:
        raise NotFoundError("g++: not found; CUDA kernels run without a GPU on Linux with g++")
    return found


def cache_folder() -> Path:
    """Folder of binaries kept between test runs; created again if it was deleted."""
    given = os.environ.get("TENSORBOW_TEST_CACHE")
    users = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    base = Path(given) if given else Path(users) / "tensorbow" / "emulated-cuda"
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return _process_folder()
    return base


@cache
def _process_folder() -> Path:
    """Folder of this process only, for a user whose cache folder is not writable."""
    folder = tempfile.TemporaryDirectory(prefix="tensorbow-emulated-cuda-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def _built(text: str, name: str, flags: Sequence[str], keep: bool = True) -> bytes:
    """Bytes of the shared library compiled from a C++ text. keep: read and write the cache."""
    key = hashlib.sha256("\0".join((compiler_identity(), *flags, text)).encode()).hexdigest()
    path = cache_folder() / f"{key}.so"
    with suppress(OSError):
        if keep:
            return path.read_bytes()
    with tempfile.TemporaryDirectory(prefix="tensorbow-g++-") as scratch:
        target = Path(scratch) / "library.so"
        command = [_gxx(), *flags, "-I", str(_HERE), "-o", str(target), "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode:
            raise InvalidArgumentError(f"CUDA source {name} does not compile:\n{done.stderr[:4000]}")
        binary = target.read_bytes()
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=cache_folder(), delete=False) as file:
        file.write(binary)
        file.close()
        os.replace(file.name, path)
    return binary


def _opened(binary: bytes, mode: int) -> ctypes.CDLL:
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(binary)
        file.flush()
        return ctypes.CDLL(file.name, mode=mode)


def compile_cuda(source: str, name: str) -> bytes:
    """Shared library of a CUDA source, followed by its kernels' names and their way of running threads."""
    text = _DYNAMIC.sub(r"\1\2* \3 = (\2*)tb_emulated_place.shared;", source)
    kernels = _KERNEL.findall(source)
    if not kernels:
        raise InvalidArgumentError(f'CUDA source {name}: no `extern "C" __global__ void` function in it')
    exports = "\n".join(f"TB_KERNEL({kernel})" for kernel in dict.fromkeys(kernels))
    whole = f'#include "cuda_shim.h"\n#line 1 "{name}"\n{text}\n{exports}\n'
    meets = "fibers" if _MEETING.search(source) else "plain"
    binary = _built(whole, name, (*_FLAGS, "-O1"))
    return binary + _MARK + f"{meets}:{','.join(dict.fromkeys(kernels))}".encode()


@cache
def _support() -> ctypes.CDLL:
    text = (_HERE / "cuda_fibers.cpp").read_text()
    library = _opened(
        _built(text, "cuda_fibers.cpp", ("-x", "c++", "-std=gnu++17", "-O2", "-fPIC", "-shared")),
        os.RTLD_GLOBAL,
    )
    size = ctypes.c_size_t
    library.tb_shared.argtypes, library.tb_shared.restype = [ctypes.c_void_p, ctypes.POINTER(size)], size
    library.tb_run.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p, _GPU, _GPU, size, size, size),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, size),
    ]
    library.tb_catch_faults()
    return library


@dataclass(frozen=True)
class HostKernel:
    """Loaded kernel. sizes: bytes of each parameter; pointers: True for each parameter that is a pointer."""

    name: str
    sizes: tuple[int, ...]
    pointers: tuple[bool, ...]
    shared_nbytes: int  # of static shared memory
    _entry: int
    _module: int
    _fibers: bool

    def run(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        shared_nbytes: int,
        arguments: int,
        backwards: bool = False,
    ) -> tuple[str, str] | None:
        """Runs all blocks on this thread without the interpreter lock; returns an error's status and text."""
        message = ctypes.create_string_buffer(400)
        failed = _support().tb_run(
            *(self._entry, arguments, _GPU(*grid), _GPU(*block), shared_nbytes),
            *(self._module, self.shared_nbytes, self._fibers, backwards, message, len(message)),
        )
        if not failed:
            return None
        return STATUSES[failed], f"kernel {self.name}: {message.value.decode()}"


_LOADED: dict[bytes, dict[str, HostKernel]] = {}
_LOADING = threading.Lock()


def load_kernels(binary: bytes) -> dict[str, HostKernel]:
    """Kernels of a result of `compile_cuda`; a process loads each library once and keeps it."""
    image, _, description = binary.rpartition(_MARK)
    if not image:
        raise InvalidArgumentError("load_module: expected what compile gave")
    digest = hashlib.sha256(binary).digest()
    with _LOADING:
        if digest not in _LOADED:
            meets, names = description.decode().split(":")
            _support()
            library = _opened(image, os.RTLD_LOCAL)
            _LOADED[digest] = {n: _kernel(library, n, meets == "fibers") for n in names.split(",")}
        return _LOADED[digest]


def _kernel(library: ctypes.CDLL, name: str, fibers: bool) -> HostKernel:
    sizes, pointers = library[f"tb_sizes_{name}"], library[f"tb_pointers_{name}"]
    sizes.restype, pointers.restype = ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_ubyte)
    entry = ctypes.cast(library[f"tb_thread_{name}"], ctypes.c_void_p).value or 0
    each: list[int] = []
    listed = sizes()
    while listed[len(each)]:
        each.append(listed[len(each)])
    flags = pointers()
    module = ctypes.c_size_t()
    shared = _support().tb_shared(entry, ctypes.byref(module))
    kinds = tuple(bool(flags[i]) for i in range(len(each)))
    return HostKernel(name, tuple(each), kinds, shared, entry, module.value, fibers)
