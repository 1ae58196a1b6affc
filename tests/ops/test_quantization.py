"""Functions of `tb.quantization`: scales of channels, products with zero points, fake quantisation."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")

RNG = np.random.default_rng(0)


def run(fetches, feeds=None):
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        return session.run(fetches, feeds or {})


def test_there_and_back_with_a_scale_for_each_channel():
    x = RNG.normal(size=(4, 3, 5)).astype(np.float32)
    scale = np.float32([0.01, 0.02, 0.05])
    coded = tb.quantization.quantize(x, scale, dtype=tb.int8, axis=1)
    back = tb.quantization.dequantize(coded, scale, axis=1)
    found = run(back)
    clipped = np.clip(x, -128 * scale[:, None], 127 * scale[:, None])
    assert (np.abs(found - clipped) <= scale[:, None] / 2 * 1.0001).all()
    assert coded.dtype == tb.int8
    with pytest.raises(InvalidArgumentError, match=r"scale is float32\[3\], expected a scalar; give axis="):
        tb.quantization.quantize(x, scale)
    with pytest.raises(InvalidArgumentError, match="one number for each element along axis 2"):
        tb.quantization.quantize(x, scale, axis=2)
    with pytest.raises(InvalidArgumentError, match=r"zero_point is 200, expected -128 to 127 for int8"):
        tb.quantization.quantize(x, 0.1, 200, tb.int8)
    with pytest.raises(InvalidArgumentError, match="dtype is int32, expected uint8 or int8"):
        tb.quantization.quantize(x, 0.1, dtype=tb.int32)


def test_products_of_codes_are_those_of_numbers():
    """(q - z) s products: with zero points, images' borders, bias, and the result coded again."""
    images = RNG.integers(0, 256, (2, 5, 6, 3)).astype(np.uint8)
    filters = RNG.integers(-127, 128, (3, 2, 3, 4)).astype(np.int8)
    bias = RNG.integers(-900, 900, 4).astype(np.int32)
    scale = np.float32([1, 2, 3, 4]) * np.float32(1e-4)
    multiplier = np.float32(10) * scale
    numbers = tb.nn.conv2d(images.astype(np.float64) - 120, filters.astype(np.float64), 1, "SAME")
    x = tb.placeholder(tb.uint8, [None, 5, 6, 3])
    options = {"input_zero_point": 120}
    sums = tb.quantization.quantized_conv2d(x, filters, 1, "SAME", bias, **options)
    floats = tb.quantization.quantized_conv2d(x, filters, 1, "SAME", bias, scale, dtype=tb.float32, **options)
    codes = tb.quantization.quantized_conv2d(
        x, filters, 1, "SAME", None, multiplier, zero_point=99, dtype=tb.uint8, **options
    )
    expected, *found = run([numbers, sums, floats, codes], {x: images})
    np.testing.assert_array_equal(found[0], expected + bias)
    np.testing.assert_allclose(found[1], (expected + bias) * scale, rtol=1e-6)
    np.testing.assert_array_equal(found[2], np.clip(np.rint(expected * multiplier) + 99, 0, 255))


def test_matrix_products():
    a = RNG.integers(0, 256, (3, 9)).astype(np.uint8)
    b = RNG.integers(-127, 128, (9, 4)).astype(np.int8)
    found = run(tb.quantization.quantized_matmul(a, b, a_zero_point=7))
    np.testing.assert_array_equal(found, (a.astype(int) - 7) @ b.astype(int))
    for arguments, match in (
        ({"a": b, "b": b}, "the left operand has dtype int8, expected uint8"),
        ({"a": a, "b": a.T}, "the weights has dtype uint8, expected int8"),
        ({"a": a, "b": b[1:]}, r"the left operand is uint8\[3, 9\], expected \[rows, 8\]"),
        ({"a": a, "b": b, "multiplier": 0.1}, "expected a multiplier for results of uint8 and float32 alone"),
        ({"a": a, "b": b, "dtype": tb.uint8}, "expected a multiplier .*, got none for uint8"),
        ({"a": a, "b": b, "dtype": tb.int16}, "dtype is int16, expected int32, float32 or uint8"),
        ({"a": a, "b": b, "bias": np.zeros(3, np.int32)}, r"bias is int32\[3\], expected int32\[4\]"),
        ({"a": a, "b": np.zeros((70_000, 1), np.int8)}, "70,000 products to a sum, of which 32 bits hold"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            tb.quantization.quantized_matmul(**arguments)


def test_fake_quantization_has_the_gradient_of_clipping():
    """TensorFlow's documented example: -10 and 12.8 become -10.1 and 12.8 in moved ranges."""
    x = np.float32([-20, -10.04, -0.01, 0.02, 3.333, 12.9, 40])
    low, high = tb.Variable(np.float32(-10)), tb.Variable(np.float32(15.5))
    y = tb.quantization.fake_quant_with_min_max_vars(tb.constant(x), low, high)
    found, *gradients = run([y, *tb.gradients(y, [low, high])])
    np.testing.assert_allclose(found, [-10, -10, 0, 0, 3.3, 12.9, 15.5], atol=1e-5)
    assert gradients == [2, 1]
    fixed = tb.quantization.fake_quant_with_min_max_args(tb.constant(x), -10, 15.5)
    other = tb.quantization.fake_quant_with_min_max_args(tb.constant(x), -1, 1, 4, True)
    codes = run([fixed, other])
    np.testing.assert_array_equal(codes[0], found)
    assert len({*codes[1]}) <= 15
    assert 0 in codes[1]
    with pytest.raises(InvalidArgumentError, match="min is 1 and max 1, expected min < max"):
        tb.quantization.fake_quant_with_min_max_args(x, 1, 1)


def test_fake_quantization_of_channels():
    x = RNG.normal(size=(50, 2)).astype(np.float32)
    y = tb.quantization.fake_quant_with_min_max_vars_per_channel(x, np.float32([-1, -2]), np.float32([1, 2]))
    alone = [
        tb.quantization.fake_quant_with_min_max_args(x[:, n], -bound, bound) for n, bound in enumerate((1, 2))
    ]
    both, *columns = run([y, *alone])
    np.testing.assert_allclose(both, np.stack(columns, 1), atol=1e-6)


def test_conversions_around_an_operation_are_one_pass():
    q = tb.placeholder(tb.uint8, [64, 32])
    y = tb.nn.relu(tb.quantization.dequantize(q, 0.1, 3) + tb.quantization.dequantize(q, 0.2, 9))
    codes = tb.quantization.quantize(y, 0.3, 5)
    with tb.Session() as session:
        values = RNG.integers(0, 256, (64, 32)).astype(np.uint8)
        numbers, found = session.run([y, codes], {q: values})
        np.testing.assert_array_equal(found, np.clip(np.rint(numbers / np.float32(0.3)) + 5, 0, 255))
        explained = str(session.explain(codes, {q: values}))
    assert ("1 kernel call" in explained) == ("by native code" in explained)
