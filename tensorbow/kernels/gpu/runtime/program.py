"""CUDA sources and their compiled functions: compiled once, cached in memory and on disk.

Every source begins with the prelude. `$T` and similar keys, filled in by `CudaSource.of`, stand for what
depends on the dtype, so that one text serves all dtypes; each result is a program of its own.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template

import numpy as np

from tensorbow.devices.cuda_runtime import CudaRuntime
from tensorbow.errors import InternalError, TensorBowError
from tensorbow.kernels.binary_cache import keep_binary, kept_binary
from tensorbow.specs import DType

SUFFIX = ".bin"
C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "bool": "bool",
}

PRELUDE = """\
#define TB_INFINITY __int_as_float(0x7f800000)
#define TB_NAN __int_as_float(0x7fffffff)
// Every element once, by all threads of the grid; the index type holds the element count.
#define TB_FOR_EACH(type, i, count) \\
    for (type i = blockIdx.x * (type)blockDim.x + threadIdx.x; i < (count); i += (type)gridDim.x * blockDim.x)
// First line of every kernel that writes variables: nothing happens while the status is set.
#define TB_PREDICATED(status) if (status != nullptr && *status != 0) return
"""


def c_type(dtype: DType | np.dtype[np.generic]) -> str:
    """The C type of a dtype, as `float` for float32."""
    return C_TYPES[dtype.name]


@dataclass(frozen=True)
class CudaSource:
    """A translation unit. `name` appears in messages; sources of the same text are one program."""

    name: str
    text: str

    @staticmethod
    def of(name: str, template: str, **values: str) -> CudaSource:
        """Fills in the `$KEY`s of a template. Raises InternalError for a missing one."""
        try:
            return CudaSource(name, PRELUDE + Template(template).substitute(values))
        except (KeyError, ValueError) as error:
            raise InternalError(f"CUDA source {name}: {error} has no value") from None


class ProgramCache:
    """The compiled programs of one GPU, by source: in memory, and on disk by source and compiler.

    Files on disk carry a checksum: a damaged file is compiled anew. Thread-safe.
    """

    def __init__(self, runtime: CudaRuntime, folder: Path | None = None):
        """folder: None disables the cache on disk."""
        self._runtime = runtime
        self._folder = folder
        self._lock = threading.Lock()  # guards the tables; held while compiling, so nothing is compiled twice
        self._modules: dict[str, int] = {}
        self._functions: dict[tuple[str, str], int] = {}

    def function(self, source: CudaSource, name: str) -> int:
        """A kernel of a source. Raises InvalidArgumentError with the compiler's log."""
        with self._lock:
            found = self._functions.get((source.text, name))
            if found is None:
                module = self._modules.get(source.text)
                if module is None:
                    module = self._modules[source.text] = self._runtime.load_module(self._binary(source))
                found = self._functions[source.text, name] = self._runtime.function(module, name)
            return found

    def _binary(self, source: CudaSource) -> bytes:
        depends_on = f"{self._runtime.compiler}\n{source.text}"
        binary = kept_binary(self._folder, depends_on, SUFFIX)
        if binary is None:
            binary = self._runtime.compile(source.text, source.name)
            keep_binary(self._folder, depends_on, SUFFIX, binary)
        return binary

    def close(self) -> None:
        """Unloads all programs, which must be idle; idempotent."""
        with self._lock:
            modules, self._modules, self._functions = self._modules, {}, {}
            for module in modules.values():
                with suppress(TensorBowError):  # after a sticky error nothing can be unloaded
                    self._runtime.unload_module(module)
