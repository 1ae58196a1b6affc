"""The emulated cuBLAS and cuDNN are called as the real ones, compute the same, and refuse the same."""

from __future__ import annotations

import ctypes
import re
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest

from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import NotFoundError
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.definition import evaluate
from tensorbow.specs import TensorSpec, as_dtype
from tests.gpu_rig.emulated_cublas import EmulatedCublas
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.emulated_cudnn import EmulatedCudnn
from tests.gpu_rig.emulated_libraries import rounded
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler
ONE, ZERO = c_float(1), c_float(0)


@pytest.fixture
def runtime():
    with emulated_runtime() as made:
        yield made


@pytest.fixture
def bench(runtime):
    with GpuBench(runtime) as made:
        yield made


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


# cuDNN ------------------------------------------------------------------------------------------------------

NCHW, NHWC = 0, 1


class Convolution:
    """Descriptors and places of one convolution; x is NHWC and w HWIO, as the ops have them."""

    def __init__(self, bench, x, w, y_shape, layout, *, padding, stride, dilation, groups, math=3):
        self.bench, self.library, self.layout = bench, bench.runtime.library("cudnn"), layout
        self.handle = self.make("cudnnCreate")
        self.call("cudnnSetStream", self.handle, c_void_p(bench.stream))
        self.xd, self.wd, self.yd, self.cd = (
            self.make(f"cudnnCreate{kind}Descriptor")
            for kind in ("Tensor", "Filter", "Tensor", "Convolution")
        )
        n, h, width, channels = x.shape
        self.call("cudnnSetTensor4dDescriptor", self.xd, layout, 0, n, channels, h, width)
        yn, yh, yw, yc = y_shape
        self.call("cudnnSetTensor4dDescriptor", self.yd, layout, 0, yn, yc, yh, yw)
        r, s, per, out = w.shape
        self.call("cudnnSetFilter4dDescriptor", self.wd, 0, layout, out, per, r, s)
        self.call("cudnnSetConvolution2dDescriptor", self.cd, *padding, *stride, *dilation, 1, 0)
        self.call("cudnnSetConvolutionGroupCount", self.cd, groups)
        self.call("cudnnSetConvolutionMathType", self.cd, math)

    def make(self, function):
        handle = c_void_p()
        self.call(function, byref(handle))
        return handle

    def call(self, function, *arguments):
        assert getattr(self.library, function)(*arguments) == 0, function

    def stored(self, tensor):
        return tensor if self.layout == NHWC else tensor.transpose(0, 3, 1, 2)

    def read(self, array):
        return array if self.layout == NHWC else array.transpose(0, 2, 3, 1)

    def stored_filter(self, w):
        return w.transpose(3, 0, 1, 2) if self.layout == NHWC else w.transpose(3, 2, 0, 1)

    def read_filter(self, array):
        return array.transpose(1, 2, 3, 0) if self.layout == NHWC else array.transpose(2, 3, 1, 0)

    def workspace(self, kind, *descriptors):
        size = c_size_t()
        self.call(f"cudnnGetConvolution{kind}WorkspaceSize", self.handle, *descriptors, 1, byref(size))
        return size.value

    def close(self):
        for kind, descriptor in zip(
            ("Tensor", "Filter", "Tensor", "Convolution"), (self.xd, self.wd, self.yd, self.cd), strict=True
        ):
            self.call(f"cudnnDestroy{kind}Descriptor", descriptor)
        self.call("cudnnDestroy", self.handle)
        assert self.library.live() == []


CASES = {
    "plain": {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1},
    "padded": {"padding": (1, 2), "stride": (1, 1), "dilation": (1, 1), "groups": 1},
    "strides": {"padding": (1, 0), "stride": (2, 3), "dilation": (1, 1), "groups": 1},
    "dilated groups": {"padding": (2, 1), "stride": (1, 2), "dilation": (2, 1), "groups": 2},
}


def by_groups(op, groups, attrs, tensors, axes):
    """An op of one group, run for each: tensors are split, and results joined, along `axes` (None: not)."""
    parts = []
    for g in range(groups):
        pieces = zip(tensors, axes[:-1], strict=True)
        split = [t if axis is None else np.split(t, groups, axis)[g] for t, axis in pieces]
        parts.append(evaluate(op, split, attrs)[0])
    return np.concatenate(parts, axes[-1])


@pytest.mark.parametrize("layout", [NCHW, NHWC])
@pytest.mark.parametrize("case", CASES)
def test_convolutions_are_the_reference_kernels(bench, case, layout):
    options = CASES[case]
    x, w = normal(2, 9, 11, 4), normal(3, 2, 4 // options["groups"], 6)
    (ph, pw), stride, dilation = options["padding"], options["stride"], options["dilation"]
    attrs = {"strides": [1, *stride, 1], "dilations": [1, *dilation, 1], "padding": "VALID"}
    padded = np.pad(x, ((0, 0), (ph, ph), (pw, pw), (0, 0)))
    groups = options["groups"]
    y = by_groups(Conv2D, groups, attrs, [padded, w], (3, 3, 3))
    conv = Convolution(bench, x, w, y.shape, layout, **options)
    dims = [c_int() for _ in range(4)]
    conv.call("cudnnGetConvolution2dForwardOutputDim", conv.cd, conv.xd, conv.wd, *map(byref, dims))
    assert [d.value for d in dims] == [y.shape[i] for i in (0, 3, 1, 2)]
    dx, dw, dy = put(bench, conv.stored(x)), put(bench, conv.stored_filter(w)), put(bench, conv.stored(y) * 0)
    px, pw_, py = (c_void_p(p.address) for p in (dx, dw, dy))
    place = c_void_p(bench.context.workspace.address)
    size = conv.workspace("Forward", conv.xd, conv.wd, conv.cd, conv.yd)
    assert size > 0
    forward = (conv.handle, byref(ONE), conv.xd, px, conv.wd, pw_, conv.cd, 1, place)
    conv.call("cudnnConvolutionForward", *forward, c_size_t(size), byref(ZERO), conv.yd, py)
    np.testing.assert_allclose(conv.read(bench.download(dy)), y, rtol=1e-5, atol=1e-5)
    assert (
        conv.library.cudnnConvolutionForward(*forward, c_size_t(size - 1), byref(ZERO), conv.yd, py) == 2006
    )

    g = normal(*y.shape)
    bench.upload(conv.stored(g), dy)
    per_group = np.array([*padded.shape[:3], w.shape[2]], np.int32)
    full = by_groups(Conv2DBackpropInput, groups, attrs, [per_group, w, g], (None, 3, 3, 3))
    expected = full[:, ph : ph + 9, pw : pw + 11]
    size = conv.workspace("BackwardData", conv.wd, conv.yd, conv.cd, conv.xd)
    conv.call(
        *(
            "cudnnConvolutionBackwardData",
            conv.handle,
            byref(ONE),
            conv.wd,
            pw_,
            conv.yd,
            py,
            conv.cd,
            1,
            place,
        ),
        *(c_size_t(size), byref(ZERO), conv.xd, px),
    )
    np.testing.assert_allclose(conv.read(bench.download(dx)), expected, rtol=1e-5, atol=1e-5)

    bench.upload(conv.stored(x), dx)
    per_group = np.array([*w.shape[:3], w.shape[3] // groups], np.int32)
    expected = by_groups(Conv2DBackpropFilter, groups, attrs, [padded, per_group, g], (3, None, 3, 3))
    size = conv.workspace("BackwardFilter", conv.xd, conv.yd, conv.cd, conv.wd)
    conv.call(  # added to what is there
        *(
            "cudnnConvolutionBackwardFilter",
            conv.handle,
            byref(ONE),
            conv.xd,
            px,
            conv.yd,
            py,
            conv.cd,
            1,
            place,
        ),
        *(c_size_t(size), byref(ONE), conv.wd, pw_),
    )
    np.testing.assert_allclose(conv.read_filter(bench.download(dw)), w + expected, rtol=1e-4, atol=1e-4)
    conv.close()


def test_default_math_reads_with_ten_bits(bench):
    x, w = normal(1, 5, 6, 3), normal(2, 2, 3, 4)
    (y,) = evaluate(Conv2D, [x, w], {"strides": [1, 1, 1, 1], "dilations": [1, 1, 1, 1], "padding": "VALID"})
    errors = []
    for math in (3, 0):
        conv = Convolution(bench, x, w, y.shape, NCHW, **CASES["plain"], math=math)
        dx, dw, dy = (
            put(bench, conv.stored(x)),
            put(bench, conv.stored_filter(w)),
            put(bench, conv.stored(y) * 0),
        )
        places = [c_void_p(p.address) for p in (dx, dw, dy)]
        conv.call(
            *(
                "cudnnConvolutionForward",
                conv.handle,
                byref(ONE),
                conv.xd,
                places[0],
                conv.wd,
                places[1],
                conv.cd,
            ),
            *(0, None, c_size_t(0), byref(ZERO), conv.yd, places[2]),
        )
        errors.append(np.abs(conv.read(bench.download(dy)) - y).max())
        conv.close()
    assert errors[0] < 1e-5 < errors[1] < 1e-1


def test_what_cudnn_refuses():
    with emulated_runtime(nhwc=False) as runtime, GpuBench(runtime) as bench:
        x, w = normal(1, 5, 6, 3), normal(2, 2, 3, 4)
        for layout, y_shape, status in ((NHWC, (1, 4, 5, 4), 3000), (NCHW, (1, 4, 4, 4), 2008)):
            conv = Convolution(bench, x, w, y_shape, layout, **CASES["plain"])
            ask = conv.library.cudnnGetConvolutionForwardWorkspaceSize
            assert ask(conv.handle, conv.xd, conv.wd, conv.cd, conv.yd, 1, byref(c_size_t())) == status
            assert conv.library.cudnnSetTensor4dDescriptor(conv.xd, layout, 0, 1, 0, 2, 2) == 2000
            assert conv.library.cudnnDestroyFilterDescriptor(conv.xd) == 2000
            conv.close()


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
