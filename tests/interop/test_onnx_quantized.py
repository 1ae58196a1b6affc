"""Graphs of 8-bit integers as ONNX files, computed by onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import UnimplementedError

onnx = pytest.importorskip("onnx", reason="ONNX files need the package onnx")
runtime = pytest.importorskip("onnxruntime", reason="exported files are run by onnxruntime")
pytestmark = pytest.mark.usefixtures("reference_kernels")
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(3, 7, 6, 4)).astype(np.float32)
SCALE = 2.0**-6  # powers of two: runtimes divide where kernels multiply, and round alike
Q = tb.quantization


def whole(low, high, *shape, dtype=np.int8):
    return RNG.integers(low, high, shape).astype(dtype)


def multipliers(count):
    return (2.0 ** RNG.integers(-11, -8, count)).astype(np.float32)


def convolved(codes, dtype, outputs=5, **more):
    """A convolution with padding, strides and zero points."""
    filters = whole(-127, 128, 3, 2, 4, outputs)
    bias = whole(-900, 900, outputs, dtype=np.int32)
    factor = None if dtype == tb.int32 else multipliers(outputs)
    options = {"input_zero_point": 120, "zero_point": 99 if dtype == tb.uint8 else 0, **more}
    return Q.quantized_conv2d(codes, filters, [1, 2], "SAME", bias, factor, dtype=dtype, **options)


def outputs_of(images):
    codes = Q.quantize(images, SCALE, 120)
    hidden = tb.nn.max_pool(convolved(codes, tb.uint8), 2, 1, "VALID")
    flat = tb.reshape(hidden, [-1, 60])
    return {
        "codes": codes,
        "numbers": Q.dequantize(codes, SCALE, 120) + 1.0,
        "hidden": hidden,
        "dilated": convolved(codes, tb.float32, dilations=[2, 1]),
        "sums": convolved(codes, tb.int32),
        "product": Q.quantized_matmul(flat, whole(-127, 128, 60, 3), a_zero_point=99),
        "logits": Q.quantized_matmul(
            flat, whole(-127, 128, 60, 3), None, multipliers(3), a_zero_point=99, dtype=tb.float32
        ),
        "bytes": Q.quantized_matmul(
            flat, whole(-127, 128, 60, 3), None, 2.0**-9, a_zero_point=99, zero_point=128, dtype=tb.uint8
        ),
    }


def test_outputs_are_those_of_the_session(tmp_path):
    with tb.Graph().as_default() as graph, tb.Session() as session:
        images = tb.placeholder(tb.float32, [None, 7, 6, 4], name="images")
        outputs = outputs_of(images)
        wanted = session.run(outputs, {images: IMAGES})
        file = tb.interop.onnx.export(
            graph, tmp_path / "m.onnx", inputs={"images": images}, outputs=outputs, values=session
        )
    names = [*outputs]
    for name, found in zip(names, runtime.InferenceSession(file).run(names, {"images": IMAGES}), strict=True):
        assert found.dtype == wanted[name].dtype, name
        np.testing.assert_allclose(found, wanted[name], rtol=1e-6, err_msg=name)


def test_scales_of_channels_and_fed_weights_are_refused(tmp_path):
    with tb.Graph().as_default() as graph:
        images = tb.placeholder(tb.float32, [None, 7, 6, 4], name="images")
        codes = Q.quantize(images, np.full(4, 0.1, np.float32), axis=3)

        def export(outputs, **more):
            tb.interop.onnx.export(
                graph, tmp_path / "m.onnx", inputs={"images": images, **more}, outputs=outputs, values={}
            )

        with pytest.raises(UnimplementedError, match="its scale must be one constant number"):
            export({"codes": codes})
        weights = tb.placeholder(tb.int8, [7, 3], name="weights")
        product = Q.quantized_matmul(tb.cast(images[:, :, 0, 0], tb.uint8), weights)
        with pytest.raises(UnimplementedError, match=r"its weights must be constant, .*Reshape:0 is not"):
            export({"product": product}, weights=weights)
