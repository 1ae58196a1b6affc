"""The emulated cuDNN: convolutions in NumPy over tensors of any strides, with the checks of the real one.

Sums are taken in float64 and rounded once. With a math type other than FMA tensors are rounded to TF32 first,
as tensor cores do. The requested workspace is overwritten.
"""

# ruff: noqa: N802  # methods are named after the C functions

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tests.gpu_rig.emulated_libraries import EmulatedLibrary, RefusedError, rounded, scalar, strided
from tests.gpu_rig.emulated_memory import MEMORY, host_array
from tests.gpu_rig.tap_convolution import convolve

BAD_PARAM, NULL_POINTER, TOO_SMALL, MISFIT, NOT_SUPPORTED = 2000, 2002, 2006, 2008, 3000
TYPES = {0: np.dtype(np.float32), 1: np.dtype(np.float64)}
NCHW, NHWC = 0, 1
FMA_MATH = 3
ALGORITHMS = {"forward": (0, 1), "data": (0, 1), "filter": (0, 1)}


@dataclass
class CudnnHandle:
    stream: int = 0


@dataclass
class TensorDescriptor:
    """shape and strides in the order NCHW, strides in elements."""

    kind: int = -1
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


@dataclass
class FilterDescriptor:
    """shape and strides in the order KCRS."""

    kind: int = -1
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


@dataclass
class ConvolutionDescriptor:
    padding: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    mode: int = -1
    kind: int = -1
    groups: int = 1
    math: int = 0


def _strides(shape: tuple[int, ...], layout: int) -> tuple[int, ...]:
    _, c, h, w = shape
    if layout == NCHW:
        return (c * h * w, h * w, w, 1)
    if layout == NHWC:
        return (h * w * c, 1, w * c, c)
    raise RefusedError(BAD_PARAM)


class EmulatedCudnn(EmulatedLibrary):
    signatures: ClassVar[dict[str, str]] = {
        "cudnnGetVersion": "",
        "cudnnGetErrorString": "i",
        "cudnnCreate": "p",
        "cudnnDestroy": "p",
        "cudnnSetStream": "pp",
        "cudnnCreateTensorDescriptor": "p",
        "cudnnSetTensor4dDescriptor": "piiiiii",
        "cudnnSetTensor4dDescriptorEx": "piiiiiiiii",
        "cudnnDestroyTensorDescriptor": "p",
        "cudnnCreateFilterDescriptor": "p",
        "cudnnSetFilter4dDescriptor": "piiiiii",
        "cudnnDestroyFilterDescriptor": "p",
        "cudnnCreateConvolutionDescriptor": "p",
        "cudnnSetConvolution2dDescriptor": "piiiiiiii",
        "cudnnSetConvolutionGroupCount": "pi",
        "cudnnSetConvolutionMathType": "pi",
        "cudnnDestroyConvolutionDescriptor": "p",
        "cudnnGetConvolution2dForwardOutputDim": "ppppppp",
        "cudnnGetConvolutionForwardWorkspaceSize": "pppppip",
        "cudnnGetConvolutionBackwardDataWorkspaceSize": "pppppip",
        "cudnnGetConvolutionBackwardFilterWorkspaceSize": "pppppip",
        "cudnnConvolutionForward": "pppppppipzppp",
        "cudnnConvolutionBackwardData": "pppppppipzppp",
        "cudnnConvolutionBackwardFilter": "pppppppipzppp",
    }
    results: ClassVar[dict[str, str]] = {"cudnnGetVersion": "z", "cudnnGetErrorString": "s"}
    failed = 5000
    unusable = BAD_PARAM
    broken: frozenset[tuple[str, int]] = frozenset()  # algorithms that are said to work, and do not

    def do_cudnnGetVersion(self) -> int:
        return 92800

    def do_cudnnGetErrorString(self, status: int) -> int:
        self._text = ctypes.create_string_buffer(
            {0: b"CUDNN_STATUS_SUCCESS", 3000: b"CUDNN_STATUS_NOT_SUPPORTED"}.get(
                status, b"CUDNN_STATUS_BAD_PARAM" if status < 3000 else b"CUDNN_STATUS_EXECUTION_FAILED"
            )
        )
        return ctypes.addressof(self._text)

    def do_cudnnCreate(self, pointer: int) -> None:
        self._keep(pointer, CudnnHandle())

    def do_cudnnDestroy(self, handle: int) -> None:
        self._drop(handle, CudnnHandle)

    def do_cudnnSetStream(self, handle: int, stream: int) -> None:
        self._known(handle, CudnnHandle).stream = stream or 0

    # Descriptors ------------------------------------------------------------------------------------------

    def do_cudnnCreateTensorDescriptor(self, pointer: int) -> None:
        self._keep(pointer, TensorDescriptor())

    def do_cudnnDestroyTensorDescriptor(self, descriptor: int) -> None:
        self._drop(descriptor, TensorDescriptor)

    def do_cudnnSetTensor4dDescriptor(self, descriptor: int, layout: int, kind: int, *shape: int) -> None:
        self.do_cudnnSetTensor4dDescriptorEx(descriptor, kind, *shape, *_strides(shape, layout))

    def do_cudnnSetTensor4dDescriptorEx(self, descriptor: int, kind: int, *numbers: int) -> None:
        known = self._known(descriptor, TensorDescriptor)
        if min(numbers) <= 0 or kind not in TYPES:
            raise RefusedError(BAD_PARAM)
        known.kind, known.shape, known.strides = kind, numbers[:4], numbers[4:]

    def do_cudnnCreateFilterDescriptor(self, pointer: int) -> None:
        self._keep(pointer, FilterDescriptor())

    def do_cudnnDestroyFilterDescriptor(self, descriptor: int) -> None:
        self._drop(descriptor, FilterDescriptor)

    def do_cudnnSetFilter4dDescriptor(self, descriptor: int, kind: int, layout: int, *shape: int) -> None:
        known = self._known(descriptor, FilterDescriptor)
        if min(shape) <= 0 or kind not in TYPES:
            raise RefusedError(BAD_PARAM)
        known.kind, known.shape, known.strides = kind, shape, _strides(shape, layout)

    def do_cudnnCreateConvolutionDescriptor(self, pointer: int) -> None:
        self._keep(pointer, ConvolutionDescriptor())

    def do_cudnnDestroyConvolutionDescriptor(self, descriptor: int) -> None:
        self._drop(descriptor, ConvolutionDescriptor)

    def do_cudnnSetConvolution2dDescriptor(self, descriptor: int, *n: int) -> None:
        known = self._known(descriptor, ConvolutionDescriptor)
        if min(n[:2]) < 0 or min(n[2:6]) <= 0 or n[6] not in (0, 1) or n[7] not in TYPES:
            raise RefusedError(BAD_PARAM)
        known.padding, known.stride, known.dilation = n[:2], n[2:4], n[4:6]
        known.mode, known.kind = n[6:]

    def do_cudnnSetConvolutionGroupCount(self, descriptor: int, groups: int) -> None:
        if groups < 1:
            raise RefusedError(BAD_PARAM)
        self._known(descriptor, ConvolutionDescriptor).groups = groups

    def do_cudnnSetConvolutionMathType(self, descriptor: int, math: int) -> None:
        if math not in range(4):
            raise RefusedError(BAD_PARAM)
        self._known(descriptor, ConvolutionDescriptor).math = math

    def do_cudnnGetConvolution2dForwardOutputDim(
        self, convolution: int, x: int, w: int, *results: int
    ) -> None:
        shape = self._output_shape(
            self._known(convolution, ConvolutionDescriptor),
            self._known(x, TensorDescriptor),
            self._known(w, FilterDescriptor),
        )
        for pointer, extent in zip(results, shape, strict=True):
            ctypes.c_int.from_address(pointer).value = extent

    def _output_shape(
        self, conv: ConvolutionDescriptor, x: TensorDescriptor, w: FilterDescriptor
    ) -> tuple[int, ...]:
        if not x.shape or not w.shape or conv.mode < 0:
            raise RefusedError(BAD_PARAM)
        if x.shape[1] != w.shape[1] * conv.groups or w.shape[0] % conv.groups:
            raise RefusedError(MISFIT)
        spatial = [
            1
            + (x.shape[2 + i] + 2 * conv.padding[i] - (w.shape[2 + i] - 1) * conv.dilation[i] - 1)
            // conv.stride[i]
            for i in range(2)
        ]
        if min(spatial) <= 0:
            raise RefusedError(BAD_PARAM)
        return (x.shape[0], w.shape[0], *spatial)

    # Convolutions ---------------------------------------------------------------------------------------

    def do_cudnnGetConvolutionForwardWorkspaceSize(
        self, h: int, x: int, w: int, c: int, y: int, *rest: int
    ) -> None:
        self._ask("forward", h, x, w, c, y, *rest)

    def do_cudnnGetConvolutionBackwardDataWorkspaceSize(
        self, h: int, w: int, y: int, c: int, x: int, *rest: int
    ) -> None:
        self._ask("data", h, x, w, c, y, *rest)

    def do_cudnnGetConvolutionBackwardFilterWorkspaceSize(
        self, h: int, x: int, y: int, c: int, w: int, *rest: int
    ) -> None:
        self._ask("filter", h, x, w, c, y, *rest)

    def do_cudnnConvolutionForward(
        self,
        h: int,
        alpha: int,
        xd: int,
        x: int,
        wd: int,
        w: int,
        c: int,
        a: int,
        s: int,
        n: int,
        beta: int,
        yd: int,
        y: int,
    ) -> None:
        self._enqueue("forward", h, alpha, beta, c, a, (s, n), (xd, x), (wd, w), (yd, y))

    def do_cudnnConvolutionBackwardData(
        self,
        h: int,
        alpha: int,
        wd: int,
        w: int,
        yd: int,
        y: int,
        c: int,
        a: int,
        s: int,
        n: int,
        beta: int,
        xd: int,
        x: int,
    ) -> None:
        self._enqueue("data", h, alpha, beta, c, a, (s, n), (xd, x), (wd, w), (yd, y))

    def do_cudnnConvolutionBackwardFilter(
        self,
        h: int,
        alpha: int,
        xd: int,
        x: int,
        yd: int,
        y: int,
        c: int,
        a: int,
        s: int,
        n: int,
        beta: int,
        wd: int,
        w: int,
    ) -> None:
        self._enqueue("filter", h, alpha, beta, c, a, (s, n), (xd, x), (wd, w), (yd, y))

    def _fitting(
        self, kind: str, xd: int, wd: int, c: int, yd: int, algorithm: int
    ) -> tuple[ConvolutionDescriptor, TensorDescriptor, FilterDescriptor, TensorDescriptor, int]:
        """Descriptors, checked against each other, and the bytes of workspace they need."""
        conv = self._known(c, ConvolutionDescriptor)
        x, y = self._known(xd, TensorDescriptor), self._known(yd, TensorDescriptor)
        w = self._known(wd, FilterDescriptor)
        if self._output_shape(conv, x, w) != y.shape:
            raise RefusedError(MISFIT)
        if len({x.kind, w.kind, y.kind}) != 1 or conv.kind != x.kind:
            raise RefusedError(NOT_SUPPORTED)
        if algorithm not in ALGORITHMS[kind]:
            raise RefusedError(NOT_SUPPORTED)
        channels_last = [d.shape[1] > 1 and d.strides[1] == 1 for d in (x, w, y)]
        if any(channels_last) and not self.runtime.nhwc:
            raise RefusedError(NOT_SUPPORTED)
        if any(channels_last) and any(
            not last for last, d in zip(channels_last, (x, w, y), strict=True) if d.shape[1] > 1
        ):
            raise RefusedError(NOT_SUPPORTED)  # layouts are not mixed
        taps = w.shape[1] * w.shape[2] * w.shape[3]
        return conv, x, w, y, 0 if algorithm == 0 else 4 * taps * y.shape[2] * y.shape[3]

    def _ask(self, kind: str, h: int, x: int, w: int, c: int, y: int, algorithm: int, pointer: int) -> None:
        self._known(h, CudnnHandle)
        ctypes.c_size_t.from_address(pointer).value = self._fitting(kind, x, w, c, y, algorithm)[-1]

    def _enqueue(
        self,
        kind: str,
        h: int,
        alpha: int,
        beta: int,
        c: int,
        algorithm: int,
        workspace: tuple[int, int],
        *tensors: tuple[int, int],
    ) -> None:
        (xd, xp), (wd, wp), (yd, yp) = tensors
        handle = self._known(h, CudnnHandle)
        conv, x, w, y, needed = self._fitting(kind, xd, wd, c, yd, algorithm)
        if not (alpha and beta and xp and wp and yp):
            raise RefusedError(NULL_POINTER)
        if needed > workspace[1] or (needed and not workspace[0]):
            raise RefusedError(TOO_SMALL)
        if (kind, algorithm) in self.broken:
            raise RefusedError(NOT_SUPPORTED)
        dtype = TYPES[x.kind]
        factor, old = scalar(alpha, dtype), scalar(beta, dtype)
        views = [(p, d.shape, d.strides) for p, d in ((xp, x), (wp, w), (yp, y))]
        math, settings = conv.math, (conv.padding, conv.stride, conv.dilation, conv.groups, conv.mode)

        def run() -> None:
            if needed:
                MEMORY.check(workspace[0], needed, "cuDNN workspace", pinned=False)
                host_array(workspace[0], needed)[...] = 0xFF
            arrays = [strided(*view, dtype, f"convolution {kind}") for view in views]
            target = {"forward": 2, "data": 0, "filter": 1}[kind]
            read = [np.zeros(a.shape) if i == target else _as_read(a, math) for i, a in enumerate(arrays)]
            with np.errstate(all="ignore"):
                convolve(kind, *read, *settings)
                result = factor * read[target]
                arrays[target][...] = (result if old == 0 else result + old * arrays[target]).astype(dtype)

        self.runtime.enqueue(handle.stream, "convolution", kind, run)


def _as_read(array: np.ndarray, math: int) -> np.ndarray:
    if array.dtype == np.float32 and math != FMA_MATH:
        array = rounded(array, 10)
    return array.astype(np.float64)
