"""The emulated cuBLAS: products in NumPy, column-major, with the checks of the real one.

Stricter in one respect: a product in a capture must have a workspace set after the stream, since the real
library would have to allocate one.
"""

# ruff: noqa: N802  # methods are named after the C functions

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tensorbow.devices.cuda_runtime import CudaError
from tests.gpu_rig.emulated_libraries import EmulatedLibrary, RefusedError, rounded, scalar, strided
from tests.gpu_rig.emulated_memory import MEMORY, host_array

NOT_INITIALIZED, ALLOC_FAILED, INVALID_VALUE, NOT_SUPPORTED = 1, 3, 7, 15
TYPES = {0: np.dtype(np.float32), 1: np.dtype(np.float64)}  # CUDA_R_32F, CUDA_R_64F
COMPUTE = {
    68: 23,
    69: 23,
    74: 10,
    75: 7,
    77: 10,
    70: 52,
    71: 52,
}  # compute type -> bits of the mantissa it reads
TF32_MATH = 3


@dataclass
class Handle:
    stream: int = 0
    workspace: tuple[int, int] | None = None
    math: int = 0


class EmulatedCublas(EmulatedLibrary):
    signatures: ClassVar[dict[str, str]] = {
        "cublasCreate_v2": "p",
        "cublasDestroy_v2": "p",
        "cublasSetStream_v2": "pp",
        "cublasSetWorkspace_v2": "ppz",
        "cublasSetMathMode": "pi",
        "cublasSgemm_v2": "piiiiippipippi",
        "cublasDgemm_v2": "piiiiippipippi",
        "cublasGemmEx": "piiiiippiipiippiiii",
        "cublasSgemmStridedBatched": "piiiiippilpilppili",
        "cublasDgemmStridedBatched": "piiiiippilpilppili",
        "cublasGemmStridedBatchedEx": "piiiiippiilpiilppiiliii",
        "cublasGemmBatchedEx": "piiiiippiipiippiiiii",
    }
    failed = 13
    unusable = NOT_INITIALIZED

    def do_cublasCreate_v2(self, pointer: int) -> None:
        self._keep(pointer, Handle())

    def do_cublasDestroy_v2(self, handle: int) -> None:
        self._drop(handle, Handle)

    def do_cublasSetStream_v2(self, handle: int, stream: int) -> None:
        known = self._known(handle, Handle)
        known.stream, known.workspace = stream or 0, None

    def do_cublasSetWorkspace_v2(self, handle: int, address: int, nbytes: int) -> None:
        if address % 256:
            raise RefusedError(INVALID_VALUE)
        self._known(handle, Handle).workspace = (address, nbytes)

    def do_cublasSetMathMode(self, handle: int, mode: int) -> None:
        if mode & ~16 not in (0, 1, 2, TF32_MATH):
            raise RefusedError(INVALID_VALUE)
        self._known(handle, Handle).math = mode & ~16

    def do_cublasSgemm_v2(self, h: int, *rest: Any) -> None:
        self._plain(h, 0, rest)

    def do_cublasDgemm_v2(self, h: int, *rest: Any) -> None:
        self._plain(h, 1, rest)

    def do_cublasSgemmStridedBatched(self, h: int, *rest: Any) -> None:
        self._batched(h, 0, rest)

    def do_cublasDgemmStridedBatched(self, h: int, *rest: Any) -> None:
        self._batched(h, 1, rest)

    def _plain(self, h: int, kind: int, rest: Any) -> None:
        *head, a, lda, b, ldb, beta, c, ldc = rest
        compute = self._compute(h, kind)
        self._gemm(h, *head, (a, kind, lda, 0), (b, kind, ldb, 0), beta, (c, kind, ldc, 0), 1, compute)

    def _batched(self, h: int, kind: int, rest: Any) -> None:
        *head, a, lda, sa, b, ldb, sb, beta, c, ldc, sc, count = rest
        compute = self._compute(h, kind)
        self._gemm(h, *head, (a, kind, lda, sa), (b, kind, ldb, sb), beta, (c, kind, ldc, sc), count, compute)

    def do_cublasGemmEx(self, h: int, *rest: Any) -> None:
        *head, a, ta, lda, b, tb, ldb, beta, c, tc, ldc, compute, _algorithm = rest
        self._gemm(h, *head, (a, ta, lda, 0), (b, tb, ldb, 0), beta, (c, tc, ldc, 0), 1, compute)

    def do_cublasGemmStridedBatchedEx(self, h: int, *rest: Any) -> None:
        *head, a, ta, lda, sa, b, tb, ldb, sb, beta, c, tc, ldc, sc, count, compute, _algorithm = rest
        self._gemm(h, *head, (a, ta, lda, sa), (b, tb, ldb, sb), beta, (c, tc, ldc, sc), count, compute)

    def do_cublasGemmBatchedEx(self, h: int, *rest: Any) -> None:
        *head, a, ta, lda, b, tb, ldb, beta, c, tc, ldc, count, compute, _algorithm = rest
        operands = (a, ta, lda, 0), (b, tb, ldb, 0), beta, (c, tc, ldc, 0)
        self._gemm(h, *head, *operands, count, compute, listed=True)

    def _compute(self, h: int, kind: int) -> int:
        return 70 if kind == 1 else 77 if self._known(h, Handle).math == TF32_MATH else 68

    def _gemm(
        self,
        h: int,
        transa: int,
        transb: int,
        m: int,
        n: int,
        k: int,
        alpha: int,
        a: tuple[int, int, int, int],
        b: tuple[int, int, int, int],
        beta: int,
        c: tuple[int, int, int, int],
        count: int,
        compute: int,
        listed: bool = False,
    ) -> None:
        """a, b and c: address, type, leading dimension and stride from matrix to matrix.

        listed: each address is that of a table of addresses in device memory, read when the products run.
        Matrices among them that are not aligned are an error where tensor cores load 16 bytes at once.
        """
        handle = self._known(h, Handle)
        kind = a[1]
        if min(m, n, k, count) < 0 or not {transa, transb} <= {0, 1, 2} or not (alpha and beta):
            raise RefusedError(INVALID_VALUE)
        rows = (k if transa else m, n if transb else k, m)
        if any(matrix[2] < max(1, least) for matrix, least in zip((a, b, c), rows, strict=True)):
            raise RefusedError(INVALID_VALUE)
        bits = COMPUTE.get(compute)
        if bits is None or {b[1], c[1]} != {kind} or kind not in TYPES or (kind == 1) != (bits == 52):
            raise RefusedError(NOT_SUPPORTED)
        if count > 65535:  # the limit of some versions
            raise RefusedError(INVALID_VALUE)
        if self.runtime.is_capturing(handle.stream) and handle.workspace is None:
            raise RefusedError(ALLOC_FAILED)
        dtype = TYPES[kind]
        factor, old = scalar(alpha, dtype), scalar(beta, dtype)
        workspace = handle.workspace

        def matrix(address: int, leading: int, transposed: int, rows: int, columns: int) -> np.ndarray:
            shape = (rows, columns) if transposed else (columns, rows)
            view = strided(address, shape, (leading, 1), dtype, "gemm")
            return view if transposed else view.T

        def multiply(at_a: int, at_b: int, at_c: int) -> None:
            left, right = matrix(at_a, a[2], transa, m, k), matrix(at_b, b[2], transb, k, n)
            result = matrix(at_c, c[2], 0, m, n)
            if dtype == np.float32 and bits < 23:
                left, right = rounded(left, bits), rounded(right, bits)
            with np.errstate(all="ignore"):
                product = factor * np.matmul(left.astype(np.float64), right.astype(np.float64))
                result[...] = (product if old == 0 else product + old * result).astype(dtype)

        def run() -> None:
            if workspace is not None and workspace[1]:  # what was in it is lost
                MEMORY.check(*workspace, "cuBLAS workspace", pinned=False)
                host_array(workspace[0], min(workspace[1], 4096))[...] = 0xFF
            if 0 in (m, n, count):
                return
            addresses = [
                [x[0] + number * x[3] * dtype.itemsize for number in range(count)] for x in (a, b, c)
            ]
            if listed:
                tables = [
                    strided(x[0], (count,), (1,), np.dtype(np.int64), "gemm's table") for x in (a, b, c)
                ]
                addresses = [table.tolist() for table in tables]
            for three in zip(*addresses, strict=True):
                if listed and bits < 23 and any(address % 16 for address in three):
                    text = f"gemm of listed matrices: {three} are not all aligned to 16 bytes"
                    raise CudaError(text, "cudaErrorMisalignedAddress", sticky=True)
                multiply(*three)

        self.runtime.enqueue(handle.stream, "gemm", f"{m}x{n}x{k}x{count}", run)
