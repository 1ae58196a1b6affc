"""The emulated cuBLAS and cuDNN are called as the real ones, compute the same, and refuse the same."""

from __future__ import annotations

import ctypes
import re
from ctypes import byref, c_double, c_float, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest

from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import NotFoundError
from tensorbow.specs import TensorSpec, as_dtype
from tests.gpu_rig.emulated_cublas import EmulatedCublas
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.emulated_cudnn import EmulatedCudnn
from tests.gpu_rig.emulated_libraries import rounded
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.runtimes import needs_compiler

pytestmark = needs_compiler
ONE, ZERO = c_float(1), c_float(0)


def put(bench, values):
    values = np.ascontiguousarray(values)
    made = bench.memory(TensorSpec(values.shape, as_dtype(values.dtype)))
    bench.upload(values, made)
    return made


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


@pytest.fixture
def blas(bench):
    library, handle = bench.runtime.library("cublas"), c_void_p()
    assert library.cublasCreate_v2(byref(handle)) == 0
    assert library.cublasSetStream_v2(handle, c_void_p(bench.stream)) == 0
    workspace = bench.context.workspace
    assert library.cublasSetWorkspace_v2(handle, c_void_p(workspace.address), c_size_t(workspace.nbytes)) == 0
    yield library, handle
    assert library.cublasDestroy_v2(handle) == 0
    assert library.live() == []


def sgemm(library, handle, a, b, c, m, n, k, ta=0, tb=0, lda=None, alpha=ONE, beta=ZERO):
    leading = (lda or (k if ta else m), n if tb else k, m)
    places = [c_void_p(x.address) for x in (a, b, c)]
    return library.cublasSgemm_v2(
        *(handle, ta, tb, m, n, k, byref(alpha), places[0], leading[0], places[1], leading[1]),
        *(byref(beta), places[2], leading[2]),
    )


@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products_are_column_major(bench, blas, ta, tb):
    a, b, old = normal(*((3, 5), (5, 3))[ta]), normal(*((5, 4), (4, 5))[tb]), normal(3, 4)
    da, db, dc = put(bench, a.T), put(bench, b.T), put(bench, old.T)
    status = sgemm(*blas, da, db, dc, 3, 4, 5, ta, tb, alpha=c_float(2), beta=c_float(0.5))
    assert status == 0
    expected = 2 * (a.T if ta else a) @ (b.T if tb else b) + 0.5 * old
    np.testing.assert_allclose(bench.download(dc).T, expected, rtol=1e-5)


def test_batched_products_with_strides_and_broadcast(bench, blas):
    library, handle = blas
    a, b = normal(6, 4, 3, dtype=np.float64), normal(5, 4, dtype=np.float64)
    da, db, dc = put(bench, a), put(bench, b), put(bench, np.zeros((6, 5, 3)))
    status = library.cublasDgemmStridedBatched(
        *(handle, 0, 0, 3, 5, 4, byref(c_double(1)), c_void_p(da.address), 3, ctypes.c_longlong(12)),
        *(c_void_p(db.address), 4, ctypes.c_longlong(0), byref(c_double(0))),
        *(c_void_p(dc.address), 3, ctypes.c_longlong(15), 6),
    )
    assert status == 0
    np.testing.assert_allclose(bench.download(dc), b @ a, rtol=1e-12)


def test_compute_types_round_what_they_read(bench, blas):
    library, handle = blas
    a, b = normal(7, 9), normal(8, 9)
    da, db, dc = put(bench, a), put(bench, b), put(bench, np.zeros((7, 8), np.float32))
    results = {}
    for compute in (68, 77, 75):
        status = library.cublasGemmEx(
            *(handle, 1, 0, 8, 7, 9, byref(ONE), c_void_p(db.address), 0, 9, c_void_p(da.address), 0, 9),
            *(byref(ZERO), c_void_p(dc.address), 0, 8, compute, -1),
        )
        assert status == 0
        results[compute] = np.abs(bench.download(dc) - a.astype(np.float64) @ b.T).max()
    assert results[68] < 1e-6 < results[77] < 1e-2
    assert results[77] < results[75] < 5e-2
    assert library.cublasSetMathMode(handle, 3) == 0
    sgemm(library, handle, db, da, dc, 8, 7, 9, ta=1)
    assert np.abs(bench.download(dc) - a.astype(np.float64) @ b.T).max() == pytest.approx(
        results[77], rel=1e-3
    )


def test_rounding_is_to_nearest():
    values = np.array(
        [1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-11 + 2**-20, -1 - 2**-12, np.inf, np.nan], np.float32
    )
    expected = np.array([1, 1 + 2**-9, 1 + 2**-10, -1, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(rounded(values, 10), expected)


def test_what_cublas_refuses(bench, blas):
    library, handle = blas
    a, b, c = (put(bench, normal(4, 4)) for _ in range(3))
    assert sgemm(library, c_void_p(123), a, b, c, 4, 4, 4) == 1
    assert sgemm(library, handle, a, b, c, 4, 4, 4, lda=3) == 7
    assert sgemm(library, handle, a, b, c, 4, -1, 4) == 7
    assert sgemm(library, handle, a, b, c, 4, 4, 4, ta=5) == 7
    with pytest.raises(NotFoundError, match="has cublas and cudnn"):
        bench.runtime.library("cufft")


def test_a_product_in_a_capture_needs_a_workspace_that_was_set_after_the_stream(bench, blas):
    library, handle = blas
    a, b, c = (put(bench, normal(4, 4)) for _ in range(3))
    runtime, stream, workspace = bench.runtime, bench.stream, bench.context.workspace
    library.cublasSetStream_v2(handle, c_void_p(stream))
    runtime.begin_capture(stream)
    assert sgemm(library, handle, a, b, c, 4, 4, 4) == 3
    runtime.destroy_graph(runtime.end_capture(stream))
    library.cublasSetWorkspace_v2(handle, c_void_p(workspace.address), c_size_t(workspace.nbytes))
    bench.poison(c)
    runtime.begin_capture(stream)
    assert sgemm(library, handle, a, b, c, 4, 4, 4) == 0
    graph = runtime.end_capture(stream)
    assert np.isnan(bench.download(c)).all()
    runtime.launch_graph(graph, stream)
    np.testing.assert_allclose(bench.download(c), bench.download(b) @ bench.download(a), rtol=1e-5)
    runtime.destroy_graph(graph)


def test_a_product_beyond_its_memory_breaks_the_gpu():
    runtime = EmulatedCuda()
    bench = GpuBench(runtime)
    library, handle = runtime.library("cublas"), c_void_p()
    library.cublasCreate_v2(byref(handle))
    library.cublasSetStream_v2(handle, c_void_p(bench.stream))
    a, b, c = (put(bench, normal(4, 4)) for _ in range(3))
    assert sgemm(library, handle, a, b, c, 4, 4, 5) == 0
    with pytest.raises(CudaError, match=r"gemm: .* bytes at .* leave the block of 64 bytes"):
        runtime.synchronize_stream(bench.stream)
    assert sgemm(library, handle, a, b, c, 4, 4, 4) == 13
    runtime.close()


def test_signatures_are_the_headers():
    """Where the wheels bring headers: as many arguments, pointers and sizes at the same places."""
    nvidia = pytest.importorskip("nvidia", reason="the wheels of cuBLAS and cuDNN are not installed")
    headers = [p for folder in nvidia.__path__ for p in Path(folder).glob("*/include/cu[bd]*.h")]
    text = "\n".join(path.read_text(errors="replace") for path in headers)
    if "cublasSgemm_v2" not in text or "cudnnConvolutionForward" not in text:
        pytest.skip("the wheels bring no headers")
    for library in (EmulatedCublas, EmulatedCudnn):
        for name, letters in library.signatures.items():
            assert _letters(text, name) == letters, name


def _letters(text, name):
    found = re.search(rf"\b{name}\(([^;{{]*?)\)\s*;", text, re.S)
    assert found is not None, f"{name} is not in the headers"
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", "", found.group(1), flags=re.S)
    return "".join(_letter(each.strip()) for each in plain.split(",") if each.strip() not in ("", "void"))


def _letter(parameter):
    if "*" in parameter or "[" in parameter:
        return "p"
    words = parameter.replace("const", "").split()
    opaque = ("Handle_t", "Descriptor_t", "cublasHandle_t", "cudnnHandle_t", "cudaStream_t")
    if words[0].endswith(opaque):
        return "p"
    return {"size_t": "z", "long": "l"}.get(words[0], "i")
