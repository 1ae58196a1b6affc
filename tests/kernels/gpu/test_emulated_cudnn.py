"""The emulated cuDNN convolves as the reference kernels do, and refuses what the real one refuses."""

from __future__ import annotations

from ctypes import byref, c_float, c_int, c_size_t, c_void_p

import numpy as np
import pytest

from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.definition import evaluate
from tensorbow.specs import TensorSpec, as_dtype
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler
ONE, ZERO = c_float(1), c_float(0)


def put(bench, values):
    values = np.ascontiguousarray(values)
    made = bench.memory(TensorSpec(values.shape, as_dtype(values.dtype)))
    bench.upload(values, made)
    return made


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


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
