"""cuDNN's legacy convolution API through ctypes: one handle per stream group, on its stream.

Only deterministic algorithms are used: forward IMPLICIT_PRECOMP_GEMM, or IMPLICIT_GEMM in less
memory, and ALGO_1 of both derivatives (their ALGO_0 adds with atomics). float32 uses fused
multiply-adds, `compute` of tf32 TF32 tensor cores. In bf16 nothing comes here: cuDNN could convert float32 to
float16, whose range is too small, but not to bfloat16.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tensorbow.devices.cuda_runtime import CudaError, CudaRuntime
from tensorbow.errors import ResourceExhaustedError, TensorBowError
from tensorbow.kernels.gpu.runtime.call import Enqueue
from tensorbow.kernels.gpu.runtime.context import GpuContext
from tensorbow.kernels.gpu.runtime.library_calls import (
    ADDRESS,
    HANDLE,
    INT,
    POINTER,
    SIZE,
    TEXT,
    LibraryCalls,
    typed,
)
from tensorbow.kernels.gpu.source.direct_convolution import Convolution
from tensorbow.specs import DType

_QUERY = (HANDLE, HANDLE, HANDLE, HANDLE, HANDLE, INT, POINTER)
_RUN = (
    *(HANDLE, POINTER, HANDLE, ADDRESS, HANDLE, ADDRESS, HANDLE, INT),
    *(ADDRESS, SIZE, POINTER, HANDLE, ADDRESS),
)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (POINTER,),
    "cudnnDestroy": (HANDLE,),
    "cudnnSetStream": (HANDLE, HANDLE),
    "cudnnCreateTensorDescriptor": (POINTER,),
    "cudnnSetTensor4dDescriptor": (HANDLE, INT, INT, INT, INT, INT, INT),
    "cudnnDestroyTensorDescriptor": (HANDLE,),
    "cudnnCreateFilterDescriptor": (POINTER,),
    "cudnnSetFilter4dDescriptor": (HANDLE, INT, INT, INT, INT, INT, INT),
    "cudnnDestroyFilterDescriptor": (HANDLE,),
    "cudnnCreateConvolutionDescriptor": (POINTER,),
    "cudnnSetConvolution2dDescriptor": (HANDLE, INT, INT, INT, INT, INT, INT, INT, INT),
    "cudnnSetConvolutionMathType": (HANDLE, INT),
    "cudnnDestroyConvolutionDescriptor": (HANDLE,),
    "cudnnGetConvolutionForwardWorkspaceSize": _QUERY,
    "cudnnGetConvolutionBackwardDataWorkspaceSize": _QUERY,
    "cudnnGetConvolutionBackwardFilterWorkspaceSize": _QUERY,
    "cudnnConvolutionForward": _RUN,
    "cudnnConvolutionBackwardData": _RUN,
    "cudnnConvolutionBackwardFilter": _RUN,
}
TEXT_SIGNATURES = {"cudnnGetErrorString": ((INT,), TEXT), "cudnnGetVersion": ((), SIZE)}

ALLOCATION_FAILED = (4003, 4004)  # in host memory, in device memory
NOT_SUPPORTED = range(3000, 4000)
CROSS_CORRELATION = 1
DATA_TYPES = {"float32": 0, "float64": 1}
MATH_TYPES = {"fp32": 3, "tf32": 0}  # CUDNN_FMA_MATH, CUDNN_DEFAULT_MATH


# Whether a candidate has run, by what it computes; by physical GPU. Two threads may both find out: no lock.
_works: weakref.WeakKeyDictionary[CudaRuntime, dict[tuple[Any, ...], bool]] = weakref.WeakKeyDictionary()


class Layout(Enum):
    """Memory layout of activations and filters: NHWC and OHWI, or NCHW and OIHW; cuDNN's number."""

    NCHW = 0
    NHWC = 1


class Direction(Enum):
    """Convolution or one of its derivatives: cuDNN's name, algorithms in order of preference, operands.

    Operands are indices into (images, filters, outputs); the last one is the result.
    """

    FORWARD = ("Forward", (1, 0), (0, 1, 2))
    BACKWARD_INPUT = ("BackwardData", (1,), (1, 2, 0))
    BACKWARD_FILTER = ("BackwardFilter", (1,), (0, 2, 1))


@dataclass(frozen=True)
class Convolved:
    """A convolution that cuDNN supports: its algorithm and workspace."""

    direction: Direction
    algorithm: int
    workspace_nbytes: int
    operands: tuple[int, int, int]  # descriptors of images, filters and outputs
    convolution: int  # its convolution descriptor
    dtype: DType


class Cudnn:
    """A cuDNN handle and its descriptors.

    Raises NotFoundError if the library is missing.
    """

    def __init__(self, context: GpuContext):
        self._context = context
        library = context.runtime.library("cudnn")
        error_string = typed(library, "cudnnGetErrorString", *TEXT_SIGNATURES["cudnnGetErrorString"])
        self.version = int(typed(library, "cudnnGetVersion", *TEXT_SIGNATURES["cudnnGetVersion"])())
        self._calls = LibraryCalls(
            f"cuDNN {self.version}",
            library,
            SIGNATURES,
            lambda status: error_string(status).decode(),
            ALLOCATION_FAILED,
            context.runtime.make_current,
        )
        self._descriptors: dict[tuple[Any, ...], int] = {}
        self._handle = self._made("cudnnCreate")
        self._calls("cuDNN", "cudnnSetStream", self._handle, context.stream)
        self._scalars = {
            "float32": (ctypes.c_float(1), ctypes.c_float(0)),
            "float64": (ctypes.c_double(1), ctypes.c_double(0)),
        }

    def close(self) -> None:
        """Destroys the handle and descriptors, which must be idle; idempotent."""
        handle, self._handle = self._handle, 0
        calls = [(f"cudnnDestroy{kind}Descriptor", made) for (kind, *_), made in self._descriptors.items()]
        self._descriptors.clear()
        for function, made in [*calls, *([("cudnnDestroy", handle)] if handle else [])]:
            with suppress(TensorBowError):  # after a sticky error nothing can be freed
                self._calls("cuDNN", function, made)

    def find(
        self,
        op: str,
        direction: Direction,
        what: Convolution,
        dtype: DType,
        layout: Layout,
        limit_nbytes: int,
    ) -> Convolved | None:
        """cuDNN's first algorithm within that workspace that runs; None if none does.

        The padding must be symmetric. The answer to the query for the workspace is no promise: each candidate
        runs once per GPU and process, on memory of its own. Raises CudaError for every status of the query
        except "not supported", and for sticky errors.
        """
        images = self._tensor(
            op, layout, dtype, what.batch, what.channels, what.rows.extent, what.columns.extent
        )
        outputs = self._tensor(
            op, layout, dtype, what.batch, what.outputs, what.rows.count, what.columns.count
        )
        filters = self._filter(op, layout, dtype, what)
        operands, convolution = (images, filters, outputs), self._convolution(op, dtype, what)
        name, algorithms, order = direction.value
        first, second, result = (operands[i] for i in order)
        function = f"cudnnGetConvolution{name}WorkspaceSize"
        for algorithm in algorithms:
            nbytes = ctypes.c_size_t()
            status = self._calls.status(
                function, self._handle, first, second, convolution, result, algorithm, ctypes.byref(nbytes)
            )
            if status and status not in NOT_SUPPORTED:
                self._calls.fail(op, function, status)
            if not status and nbytes.value <= limit_nbytes:
                found = Convolved(direction, algorithm, nbytes.value, operands, convolution, dtype)
                key = direction, algorithm, what, dtype.name, layout, self._context.options.compute
                works = _works.setdefault(self._context.runtime, {})
                if key not in works:
                    works[key] = self._runs(op, found, what)
                if works[key]:
                    return found
        return None

    def _runs(self, op: str, found: Convolved, what: Convolution) -> bool:
        """True if the call runs to its end; also if there is no memory to try it. Raises sticky errors."""
        runtime, stream = self._context.runtime, self._context.stream
        rows, columns = what.rows, what.columns
        extents = (
            (what.batch, what.channels, rows.extent, columns.extent),
            (what.outputs, what.channels, rows.window, columns.window),
            (what.batch, what.outputs, rows.count, columns.count),
        )
        with ExitStack() as stack:
            try:
                addresses = []
                for each in extents:
                    address = runtime.allocate(max(math.prod(each) * found.dtype.size, 1))
                    stack.callback(runtime.free, address)
                    addresses.append(address)
                self.convolve(op, found, addresses, self._context.workspace.address)()
                runtime.synchronize_stream(stream)
            except ResourceExhaustedError:
                return True
            except CudaError as error:
                if error.sticky:
                    stack.pop_all()  # the memory is lost with the context
                    raise
                return False
        return True

    def convolve(self, op: str, found: Convolved, addresses: Sequence[int], workspace: int) -> Enqueue:
        """Prepares the call. addresses: of images, filters and outputs, one of which is the result."""
        name, _, order = found.direction.value
        first, second, result = ((found.operands[i], addresses[i]) for i in order)
        alpha, beta = map(ctypes.addressof, self._scalars[found.dtype.name])
        how = found.convolution, found.algorithm, workspace, found.workspace_nbytes
        function = f"cudnnConvolution{name}"
        return self._calls.bind(op, function, self._handle, alpha, *first, *second, *how, beta, *result)

    def _made(self, function: str) -> int:
        made = ctypes.c_void_p()
        self._calls("cuDNN", function, ctypes.byref(made))
        return made.value or 0

    def _tensor(self, op: str, layout: Layout, dtype: DType, *extents: int) -> int:
        arguments = (layout.value, DATA_TYPES[dtype.name], *extents)
        return self._descriptor(op, "Tensor", "cudnnSetTensor4dDescriptor", arguments)

    def _filter(self, op: str, layout: Layout, dtype: DType, what: Convolution) -> int:
        extents = what.outputs, what.channels, what.rows.window, what.columns.window
        arguments = (DATA_TYPES[dtype.name], layout.value, *extents)
        return self._descriptor(op, "Filter", "cudnnSetFilter4dDescriptor", arguments)

    def _convolution(self, op: str, dtype: DType, what: Convolution) -> int:
        rows, columns, data_type = what.rows, what.columns, DATA_TYPES[dtype.name]
        padding, strides = (rows.before, columns.before), (rows.stride, columns.stride)
        arguments = (*padding, *strides, rows.rate, columns.rate, CROSS_CORRELATION, data_type)
        return self._descriptor(op, "Convolution", "cudnnSetConvolution2dDescriptor", arguments)

    def _descriptor(self, op: str, kind: str, setter: str, arguments: tuple[int, ...]) -> int:
        """A descriptor, kept as long as the handle, since every enqueued call reads it."""
        key = (kind, *arguments)
        descriptor = self._descriptors.get(key)
        if descriptor is None:
            descriptor = self._made(f"cudnnCreate{kind}Descriptor")
            self._descriptors[key] = descriptor
            self._calls(op, setter, descriptor, *arguments)
            if kind == "Convolution":
                math_type = MATH_TYPES[self._context.options.compute]
                self._calls(op, "cudnnSetConvolutionMathType", descriptor, math_type)
        return descriptor
