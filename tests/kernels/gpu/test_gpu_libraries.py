"""Calls of cuBLAS and cuDNN agree with the real libraries' headers and exports; handles, and what fails.

Descriptors are made for real where the wheels are installed: that needs no GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensorbow.kernels.gpu.ops.conv
import tensorbow.kernels.gpu.ops.matmul  # noqa: F401 - these register the kernels
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError
from tensorbow.kernels.gpu.ops import cudnn
from tensorbow.kernels.gpu.ops.cudnn import Cudnn, Direction, Layout
from tensorbow.kernels.gpu.runtime import cublas
from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.kernels.gpu.runtime.context import GpuContext, GpuOptions
from tensorbow.kernels.gpu.runtime.library_calls import LibraryCalls
from tensorbow.kernels.gpu.runtime.program import ProgramCache
from tensorbow.kernels.gpu.source.direct_convolution import Convolution
from tensorbow.ops.conv import Conv2D
from tensorbow.ops.matmul import MatMul
from tensorbow.specs import TensorSpec, float32, float64
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

# The real libraries --------------------------------------------------------------------------------------


@cache
def wheel_files(pattern: str) -> list[Path]:
    """Files of the installed nvidia wheels."""
    found = importlib.util.find_spec("nvidia")
    folders = [] if found is None else list(found.submodule_search_locations or [])
    return sorted(path for folder in folders for path in Path(folder).rglob(pattern))


def library_path(name: str) -> Path:
    paths = wheel_files(f"lib{name}.so.*")
    if not paths:
        pytest.skip(f"no wheel with lib{name} is installed: pip install 'tensorbow[cuda12]'")
    return paths[0]


@cache
def real_library(name: str) -> Any:
    needs = {"cublas": ["cublasLt"], "cudnn": ["cublasLt", "cublas"]}
    for needed in needs[name]:
        ctypes.CDLL(str(library_path(needed)), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(library_path(name)))


@cache
def prototypes(pattern: str) -> dict[str, list[str]]:
    """Functions of the headers, with the types of their parameters."""
    found = {}
    for path in wheel_files(pattern):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.S)
        for name, parameters in re.findall(r"(?:CUBLAS|CUDNN)WINAPI\s+(\w+)\s*\(([^()]*)\)\s*;", text):
            found[name] = [p.strip() for p in parameters.split(",") if p.strip() not in ("", "void")]
    return found


def c_class(parameter: str) -> Any:
    """The ctypes class that passes such a parameter."""
    if "*" in parameter or re.search(r"cud\w*(Handle|Stream|Descriptor)_t|cublasHandle_t", parameter):
        return ctypes.c_void_p
    if "size_t" in parameter:
        return ctypes.c_size_t
    if "long long" in parameter:
        return ctypes.c_longlong
    if re.search(r"\bint\b|_t\b|cudaDataType", parameter):  # all that is left of _t are enumerations
        return ctypes.c_int
    raise AssertionError(f"what is {parameter}?")


TABLES = {
    "cublas": (cublas.SIGNATURES, "cublas_api.h"),
    "cudnn": (
        {**cudnn.SIGNATURES, **{name: types for name, (types, _) in cudnn.TEXT_SIGNATURES.items()}},
        "cudnn_*.h",
    ),
}
FUNCTIONS = [(library, name) for library, (table, _) in TABLES.items() for name in table]


@pytest.mark.parametrize(("library", "function"), FUNCTIONS)
def test_the_library_exports_it(library, function):
    assert hasattr(real_library(library), function)


@pytest.mark.parametrize(("library", "function"), FUNCTIONS)
def test_the_types_are_those_of_the_header(library, function):
    table, pattern = TABLES[library]
    if not wheel_files(pattern):
        pytest.skip(f"no wheel with {pattern} is installed: pip install 'tensorbow[cuda12]'")
    assert [c_class(p) for p in prototypes(pattern)[function]] == list(table[function])


NUMBERS = {
    "cublas_api.h": {
        "CUBLAS_DEFAULT_MATH": cublas.DEFAULT_MATH,
        "CUBLAS_GEMM_DEFAULT": cublas.DEFAULT_ALGORITHM,
        "CUBLAS_COMPUTE_64F": cublas.COMPUTE_64F,
        "CUBLAS_COMPUTE_32F": cublas.COMPUTE_32F["fp32"],
        "CUBLAS_COMPUTE_32F_FAST_TF32": cublas.COMPUTE_32F["tf32"],
        "CUBLAS_COMPUTE_32F_FAST_16BF": cublas.COMPUTE_32F["bf16"],
        **{name: status for status, name in cublas.STATUS.items()},
    },
    "library_types.h": {
        "CUDA_R_32F": cublas.DATA_TYPES["float32"],
        "CUDA_R_64F": cublas.DATA_TYPES["float64"],
    },
    "cudnn_*.h": {
        "CUDNN_TENSOR_NCHW": Layout.NCHW.value,
        "CUDNN_TENSOR_NHWC": Layout.NHWC.value,
        "CUDNN_DATA_FLOAT": cudnn.DATA_TYPES["float32"],
        "CUDNN_DATA_DOUBLE": cudnn.DATA_TYPES["float64"],
        "CUDNN_CROSS_CORRELATION": cudnn.CROSS_CORRELATION,
        "CUDNN_FMA_MATH": cudnn.MATH_TYPES["fp32"],
        "CUDNN_DEFAULT_MATH": cudnn.MATH_TYPES["tf32"],
        "CUDNN_STATUS_NOT_SUPPORTED": cudnn.NOT_SUPPORTED.start,
        "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED": cudnn.ALLOCATION_FAILED[0],
        "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED": cudnn.ALLOCATION_FAILED[1],
        "CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM": Direction.FORWARD.value[1][0],
        "CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM": Direction.FORWARD.value[1][1],
        "CUDNN_CONVOLUTION_BWD_DATA_ALGO_1": Direction.BACKWARD_INPUT.value[1][0],
        "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1": Direction.BACKWARD_FILTER.value[1][0],
    },
}


@pytest.mark.parametrize("pattern", NUMBERS)
def test_numbers_are_those_of_the_header(pattern):
    paths = wheel_files(pattern)
    if not paths:
        pytest.skip(f"no wheel with {pattern} is installed: pip install 'tensorbow[cuda12]'")
    text = "\n".join(path.read_text() for path in paths)
    for name, number in NUMBERS[pattern].items():
        found = re.search(rf"\b{name}\s*=\s*(-?\d+)", text)
        assert found, name
        assert int(found[1]) == number, name


def _nothing() -> None:
    """There is no GPU to make current."""


class _Descriptors(Cudnn):
    """The real library without a handle, which wants a GPU: only descriptors are made."""

    def __init__(self, compute: str = "fp32"):
        library = real_library("cudnn")
        text = library.cudnnGetErrorString
        text.restype = ctypes.c_char_p
        self._calls = LibraryCalls(
            "cuDNN", library, cudnn.SIGNATURES, lambda s: text(s).decode(), (), _nothing
        )
        self._context = SimpleNamespace(options=GpuOptions(compute))
        self._descriptors, self._handle = {}, 0


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(
    ("images", "filters", "strides", "padding", "dilations"),
    [
        ((4, 28, 30, 16), (3, 3, 16, 32), (1, 1), "SAME", (1, 1)),
        ((4, 28, 30, 16), (5, 2, 16, 7), (2, 3), "VALID", (1, 1)),
        ((4, 28, 30, 16), (3, 3, 16, 7), (1, 1), "SAME", (2, 3)),
        ((4, 27, 31, 16), (3, 3, 16, 7), (2, 2), "SAME", (1, 1)),
    ],
)
def test_real_descriptors_give_the_ops_shape(layout, dtype, images, filters, strides, padding, dilations):
    library, made = real_library("cudnn"), _Descriptors("fp32" if dtype == float32 else "tf32")
    attrs = {"strides": (1, *strides, 1), "padding": padding, "dilations": (1, *dilations, 1)}
    what = Convolution.of(images, filters, attrs)
    rows, columns = what.rows, what.columns
    tensor = made._tensor("Conv2D", layout, dtype, what.batch, what.channels, rows.extent, columns.extent)
    weights = made._filter("Conv2D", layout, dtype, what)
    convolution = made._convolution("Conv2D", dtype, what)
    shape = [ctypes.c_int() for _ in range(4)]
    ask = library.cudnnGetConvolution2dForwardOutputDim
    ask.argtypes = [ctypes.c_void_p] * 7
    assert ask(convolution, tensor, weights, *map(ctypes.byref, shape)) == 0
    assert [n.value for n in shape] == [what.batch, what.outputs, rows.count, columns.count]
    assert (
        made._tensor("Conv2D", layout, dtype, what.batch, what.channels, rows.extent, columns.extent)
        == tensor
    )
    made.close()
    assert not made._descriptors


def test_a_real_descriptor_refuses_what_it_cannot_hold():
    made = _Descriptors()
    with pytest.raises(
        CudaError, match=r"Conv2D: cudnnSetTensor4dDescriptor of cuDNN failed with CUDNN_STATUS_"
    ):
        made._tensor("Conv2D", Layout.NHWC, float32, 1, 0, 4, 4)
    made.close()


# Handles and failures --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench() -> Iterator[GpuBench]:
    with emulated_runtime() as runtime, GpuBench(runtime) as made:
        yield made


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@needs_compiler
def test_handles_and_descriptors_are_given_back():
    with emulated_runtime() as runtime, GpuBench(runtime) as bench:
        libraries = [runtime.library(name) for name in ("cublas", "cudnn")]
        BoundGpuCall(bench, MatMul, [ones(2, 3), ones(3, 2)]).run()
        what = Convolution.of((2, 6, 6, 8), (3, 3, 8, 4), Conv2D.attrs)
        for _ in range(2):
            assert bench.context.library(cudnn.Cudnn).find(
                "Conv2D", Direction.FORWARD, what, float32, Layout.NHWC, 1 << 20
            )
        assert [len(library.live()) for library in libraries] == [1, 1 + 4]  # descriptors are made once
        blas, dnn = bench.context.library(cublas.Cublas), bench.context.library(cudnn.Cudnn)
        bench.context.close()
        for library in (blas, dnn):
            library.close()
        assert [library.live() for library in libraries] == [[], []]


@needs_compiler
def test_a_failed_call_names_op_function_and_status(bench):
    a, b, out = (bench.memory(TensorSpec(shape, float32)) for shape in ((2, 3), (3, 4), (2, 4)))
    wide = DeviceArray(out.address, (1, 8), out.dtype)  # b's rows are shorter than its
    with pytest.raises(
        CudaError, match=r"MatMul: cublasGemmEx of cuBLAS failed with CUBLAS_STATUS_INVALID_VALUE \(7\)"
    ) as caught:
        bench.context.library(cublas.Cublas).product("MatMul", a, b, wide)()
    assert caught.value.status == "CUBLAS_STATUS_INVALID_VALUE"
    what = Convolution.of((2, 6, 6, 8), (3, 3, 8, 4), {**Conv2D.attrs, "padding": "SAME"})
    uneven = Convolution(2, 8, 5, what.rows, replace(what.columns, count=99))
    with pytest.raises(
        CudaError,
        match=r"Conv2D: cudnnGetConvolutionForwardWorkspaceSize of cuDNN 92800 failed with CUDNN_STATUS_",
    ):
        bench.context.library(cudnn.Cudnn).find(
            "Conv2D", Direction.FORWARD, uneven, float32, Layout.NHWC, 1 << 20
        )
    bench.free_arrays()


def test_no_memory_is_another_error():
    def calls(status: int) -> LibraryCalls:
        library, names = _Refusing(status), cublas.STATUS.__getitem__
        return LibraryCalls("cuBLAS", library, {"cublasCreate_v2": ()}, names, [3], _nothing)

    with pytest.raises(ResourceExhaustedError, match=r"CUBLAS_STATUS_ALLOC_FAILED \(3\); use fewer replicas"):
        calls(3)("cuBLAS", "cublasCreate_v2")
    with pytest.raises(CudaError, match="CUBLAS_STATUS_INTERNAL_ERROR"):
        calls(14).bind("MatMul", "cublasCreate_v2")()


class _Refusing:
    """A library whose only function gives a status."""

    def __init__(self, status: int):
        self.cublasCreate_v2 = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: status)


@needs_compiler
def test_the_gpu_is_current_in_every_library_call(monkeypatch):
    """A thread that serves several GPUs has another one current when a step begins with a product."""
    with emulated_runtime() as runtime:
        made: list[int] = []
        monkeypatch.setattr(runtime, "make_current", lambda: made.append(sum(counts())))

        def counts() -> list[int]:
            return [sum(runtime.library(name).counts.values()) for name in ("cublas", "cudnn")]

        with GpuBench(runtime) as bench:
            BoundGpuCall(bench, MatMul, [ones(2, 3), ones(3, 2)]).run(captured=True)
            BoundGpuCall(bench, Conv2D, [ones(2, 6, 6, 8), ones(3, 3, 8, 4)]).run()
        silent = 1 + runtime.library("cudnn").counts.get("cudnnGetErrorString", 0)  # and cudnnGetVersion
        assert len(made) == sum(counts()) - silent


@needs_compiler
def test_matrices_beyond_32_bits_are_refused(bench):
    huge = DeviceArray(256, (2**31, 1), np.dtype(np.float32))
    out = DeviceArray(256, (2**31, 1), np.dtype(np.float32))
    with pytest.raises(InvalidArgumentError, match=r"MatMul: extents of matrices must be below 2\^31"):
        bench.context.library(cublas.Cublas).product(
            "MatMul", huge, DeviceArray(256, (1, 1), huge.dtype), out
        )


@needs_compiler
def test_a_sticky_error_does_not_keep_a_context_from_closing():
    with emulated_runtime() as runtime:
        stream = runtime.make_stream()
        workspace = DeviceArray(runtime.allocate(1 << 16), (1 << 16,), np.dtype(np.uint8))
        context = GpuContext(runtime, stream, ProgramCache(runtime), workspace, GpuOptions())
        handle = context.library(cublas.Cublas)._handle
        runtime.library("cublas").do_cublasDestroy_v2(handle)  # so that the second time fails
        context.close()
        runtime.free(workspace.address)
        runtime.destroy_stream(stream)
