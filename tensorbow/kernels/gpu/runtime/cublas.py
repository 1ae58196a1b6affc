"""cuBLAS through ctypes: one handle per stream group, on its stream and with its workspace.

CuPy refuses cuBLAS calls during capture; the library itself does not. With its own workspace and
one stream per handle, cuBLAS is deterministic.

Matrices are row-major here and column-major in cuBLAS: a row-major product a b is the column-major product of
the same memory in the other order, (a b)^T = b^T a^T.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, in_order
from tensorbow.kernels.gpu.runtime.context import GpuContext
from tensorbow.kernels.gpu.runtime.library_calls import (
    ADDRESS,
    HANDLE,
    INT,
    LONG,
    POINTER,
    SIZE,
    LibraryCalls,
)

STATUS = {
    1: "CUBLAS_STATUS_NOT_INITIALIZED",
    3: "CUBLAS_STATUS_ALLOC_FAILED",
    7: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH",
    11: "CUBLAS_STATUS_MAPPING_ERROR",
    13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR",
    15: "CUBLAS_STATUS_NOT_SUPPORTED",
    16: "CUBLAS_STATUS_LICENSE_ERROR",
}
ALLOC_FAILED = 3

_OPERANDS = (HANDLE, INT, INT, INT, INT, INT, POINTER)  # handle, transposes, m, n, k, alpha
SIGNATURES = {
    "cublasCreate_v2": (POINTER,),
    "cublasDestroy_v2": (HANDLE,),
    "cublasSetStream_v2": (HANDLE, HANDLE),
    "cublasSetWorkspace_v2": (HANDLE, ADDRESS, SIZE),
    "cublasSetMathMode": (HANDLE, INT),
    # A, its type and leading dimension, the same of B, beta, the same of C, compute type, algorithm
    "cublasGemmEx": (
        *(*_OPERANDS, ADDRESS, INT, INT, ADDRESS, INT, INT),
        *(POINTER, ADDRESS, INT, INT, INT, INT),
    ),
    # The same with tables of addresses in device memory, and their length before the compute type.
    "cublasGemmBatchedEx": (
        *(*_OPERANDS, ADDRESS, INT, INT, ADDRESS, INT, INT),
        *(POINTER, ADDRESS, INT, INT, INT, INT, INT),
    ),
    # The same as the first with a stride after each leading dimension, and the count before the compute type.
    "cublasGemmStridedBatchedEx": (
        *(*_OPERANDS, ADDRESS, INT, INT, LONG, ADDRESS, INT, INT, LONG),
        *(POINTER, ADDRESS, INT, INT, LONG, INT, INT, INT),
    ),
}

DEFAULT_MATH = 0  # plain float32; faster precisions are requested per product
DEFAULT_ALGORITHM = -1
DATA_TYPES = {"float32": 0, "float64": 1}  # CUDA_R_32F, CUDA_R_64F
COMPUTE_64F = 70
COMPUTE_32F = {"fp32": 68, "tf32": 77, "bf16": 75}  # 32F, 32F_FAST_TF32, 32F_FAST_16BF
MAXIMUM = 2**31 - 1  # of extents and leading dimensions
MAXIMUM_BATCH = 65535  # per call, accepted by every version


class Cublas:
    """A cuBLAS handle. Raises NotFoundError if the library is missing."""

    def __init__(self, context: GpuContext):
        self._context = context
        library = context.runtime.library("cublas")
        self._calls = LibraryCalls(
            "cuBLAS",
            library,
            SIGNATURES,
            lambda status: STATUS.get(status, "an unknown status"),
            [ALLOC_FAILED],
            context.runtime.make_current,
        )
        handle = ctypes.c_void_p()
        self._calls("cuBLAS", "cublasCreate_v2", ctypes.byref(handle))
        self._handle = handle.value
        workspace = context.workspace
        # In this order: setting the stream resets the workspace.
        self._calls("cuBLAS", "cublasSetStream_v2", self._handle, context.stream)
        self._calls("cuBLAS", "cublasSetWorkspace_v2", self._handle, workspace.address, workspace.nbytes)
        self._calls("cuBLAS", "cublasSetMathMode", self._handle, DEFAULT_MATH)
        self._scalars = {
            "float32": (ctypes.c_float(1), ctypes.c_float(0)),
            "float64": (ctypes.c_double(1), ctypes.c_double(0)),
        }

    def close(self) -> None:
        """Destroys the handle, which must be idle; idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(TensorBowError):  # after a sticky error nothing can be freed
                self._calls("cuBLAS", "cublasDestroy_v2", handle)

    def product(
        self,
        op: str,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        transpose_a: bool = False,
        transpose_b: bool = False,
    ) -> Enqueue:
        """Fills `out` `[..., rows, columns]` with the products of `a` `[..., rows, inner]` and `b`.

        b is `[..., inner, columns]`; leading axes broadcast; transposes mean that the matrices of that input
        are stored transposed. float32, in the precision of the options, or float64. With inner = 0 the
        result is zero. Raises InvalidArgumentError for extents of 2^31 and more.
        """
        sizes = ProductSizes.of(op, a, b, out, transpose_a, transpose_b)
        if not out.size:
            return in_order()
        if not sizes.inner:
            return self._context.clear(out)
        steps = []
        for count, offsets, strides in batches(a, b, out):
            first = [
                array.address + offset * array.dtype.itemsize
                for array, offset in zip((a, b, out), offsets, strict=True)
            ]
            steps.append(self.strided(sizes, first, strides, count))
        return in_order(*steps)

    def strided(
        self, sizes: ProductSizes, addresses: Sequence[int], strides: Sequence[int], count: int
    ) -> Enqueue:
        """One call of `count` products. addresses: of the first a, b and out. strides: in elements."""
        data_type, head, tail = self._around(sizes)
        (a, b, out), (stride_a, stride_b, stride_out) = addresses, strides
        left, right, result = (
            (b, data_type, sizes.row_b),
            (a, data_type, sizes.row_a),
            (out, data_type, sizes.columns),
        )
        beta = ctypes.addressof(self._scalars[sizes.dtype][1])
        if count == 1:
            return self._calls.bind(sizes.op, "cublasGemmEx", *head, *left, *right, beta, *result, *tail)
        arguments = (*left, stride_b, *right, stride_a, beta, *result, stride_out, count)
        return self._calls.bind(sizes.op, "cublasGemmStridedBatchedEx", *head, *arguments, *tail)

    def listed(self, sizes: ProductSizes, tables: Sequence[DeviceArray], count: int) -> Enqueue:
        """One call of `count` products. tables: in device memory, the addresses of all a, b and out.

        In a precision other than fp32, matrices with rows of 16 bytes must be aligned to them.
        """
        data_type, head, tail = self._around(sizes)
        a, b, out = (table.address for table in tables)
        arguments = (b, data_type, sizes.row_b, a, data_type, sizes.row_a)
        beta = ctypes.addressof(self._scalars[sizes.dtype][1])
        result = (beta, out, data_type, sizes.columns, count)
        return self._calls.bind(sizes.op, "cublasGemmBatchedEx", *head, *arguments, *result, *tail)

    def _around(self, sizes: ProductSizes) -> tuple[int, tuple[int | None, ...], tuple[int, int]]:
        """The data type, and what comes before and behind the operands."""
        options = self._context.options
        compute = COMPUTE_64F if sizes.dtype == "float64" else COMPUTE_32F[options.compute]
        alpha = ctypes.addressof(self._scalars[sizes.dtype][0])
        transposes = int(sizes.transpose_b), int(sizes.transpose_a)
        extents = sizes.columns, sizes.rows, sizes.inner
        return (
            DATA_TYPES[sizes.dtype],
            (self._handle, *transposes, *extents, alpha),
            (compute, DEFAULT_ALGORITHM),
        )


@dataclass(frozen=True)
class ProductSizes:
    """A product of matrices [rows, inner] and [inner, columns]; row_a, row_b: from row to row as stored."""

    op: str
    dtype: str
    rows: int
    columns: int
    inner: int
    row_a: int
    row_b: int
    transpose_a: bool
    transpose_b: bool

    @classmethod
    def of(
        cls,
        op: str,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        transpose_a: bool,
        transpose_b: bool,
    ) -> ProductSizes:
        """The sizes for these arrays. Raises InvalidArgumentError for extents of 2^31 and more."""
        (rows, columns), inner = out.shape[-2:], a.shape[-2 if transpose_a else -1]
        if max(rows, columns, inner, a.shape[-1], b.shape[-1]) > MAXIMUM:
            raise InvalidArgumentError(
                f"{op}: extents of matrices must be below 2^31 on a GPU, got {list(a.shape)} and "
                f"{list(b.shape)}; split the product"
            )
        return cls(
            op, out.dtype.name, rows, columns, inner, a.shape[-1], b.shape[-1], transpose_a, transpose_b
        )


Triple = tuple[int, int, int]


def batches(a: DeviceArray, b: DeviceArray, out: DeviceArray) -> list[tuple[int, Triple, Triple]]:
    """Calls that cover all matrices: (count, offsets of the first a, b and out, strides).

    Axes with a common stride in all three are joined; the longest becomes one call's batch, the others loops.
    """
    lead = out.shape[:-2]
    strides = [batch_strides(array, len(lead)) for array in (a, b, out)]
    axes: list[tuple[int, Triple]] = []
    for extent, *three in zip(lead, *strides, strict=True):
        stride: Triple = (three[0], three[1], three[2])
        if extent == 1:
            continue
        if axes and all(outer == inner * extent for outer, inner in zip(axes[-1][1], stride, strict=True)):
            axes[-1] = (axes[-1][0] * extent, stride)
        else:
            axes.append((extent, stride))
    longest = max(range(len(axes)), key=lambda i: axes[i][0], default=0)
    extent, stride = axes.pop(longest) if axes else (1, (0, 0, 0))
    calls = []
    for coordinates in itertools.product(*(range(count) for count, _ in axes)):
        for first in range(0, extent, MAXIMUM_BATCH):
            steps = [*zip(coordinates, (s for _, s in axes), strict=True), (first, stride)]
            offset_a, offset_b, offset_c = (sum(n * s[i] for n, s in steps) for i in range(3))
            calls.append((min(MAXIMUM_BATCH, extent - first), (offset_a, offset_b, offset_c), stride))
    return calls


def batch_strides(array: DeviceArray, rank: int) -> Sequence[int]:
    """Stride between matrices along each leading axis, in elements; 0 where the array is broadcast."""
    missing = rank - (array.ndim - 2)
    own = [
        0 if array.shape[axis] == 1 else math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim - 2)
    ]
    return [0] * missing + own
