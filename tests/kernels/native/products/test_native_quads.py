"""Native products of bytes have the bits of the reference kernels: with VNNI, in pairs, and widened."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from tensorbow.kernels.native.codegen import compiler
from tensorbow.kernels.native.codegen.target import host_target
from tensorbow.kernels.native.ops import quantized_products  # noqa: F401 - registers the templates
from tensorbow.kernels.native.products.quad_convolution import QuadConvolution
from tensorbow.ops.quantized_products import QuantizedConv2D, QuantizedMatMul, runs_of
from tensorbow.specs import float32, int32, uint8
from tests.native_rig.native_calls import run_native, run_reference
from tests.native_rig.targets import narrow_target
from tests.ops_contract.samples_quantized_products import activations, of_channels, packed, weights
from tests.program_rig.examples import given_few


def target_of_name(name):
    """This processor; without VNNI; with narrow vectors."""
    target = narrow_target() if name == "narrow" else host_target()
    if name == "pairs":
        return replace(target, features=target.features.replace("+avx512vnni", "-avx512vnni"))
    return target


targets = st.sampled_from(["host", "pairs", "narrow"])
dtypes = st.sampled_from([uint8, float32, int32])


def check(op, inputs, attrs, target):
    (ours,) = run_native(op, inputs, attrs, target)
    (theirs,) = run_reference(op, inputs, attrs)
    np.testing.assert_array_equal(ours, theirs, f"{op.name} {attrs}")


@pytest.mark.slow
@given_few(
    2,
    60,
    st.integers(1, 3),
    st.tuples(st.integers(1, 13), st.integers(1, 12)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.sampled_from([1, 2, 3, 4, 5, 16, 33]), st.sampled_from([1, 3, 7, 16, 18, 32, 48])),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from(["SAME", "VALID"]),
    st.sampled_from([0, 3, 255]),
    dtypes,
    targets,
)
def test_convolutions(batch, image, window, depth, steps, rates, padding, value, dtype, target):
    reach = [(n - 1) * rate + 1 for n, rate in zip(window, rates, strict=True)]
    assume(padding == "SAME" or all(r <= n for r, n in zip(reach, image, strict=True)))
    channels, outputs = depth
    attrs = {
        "window": (*window, channels),
        "strides": (1, *steps, 1),
        "padding": padding,
        "dilations": (1, *rates, 1),
        "padding_value": value,
        "zero_point": 77,
        "dtype": dtype,
    }
    runs = runs_of(attrs["window"], attrs["dilations"])
    words = packed(weights(*runs, outputs))
    given = activations(batch, *image, channels), words, *of_channels(outputs)
    check(QuantizedConv2D, given, attrs, target_of_name(target))


@given_few(2, 60, st.integers(1, 40), st.integers(1, 70), st.integers(1, 50), dtypes, targets)
def test_matrix_products(rows, inner, outputs, dtype, target):
    attrs = {"inner": inner, "dtype": dtype, "zero_point": 100}
    given = activations(rows, inner), packed(weights(1, inner, outputs)), *of_channels(outputs)
    check(QuantizedMatMul, given, attrs, target_of_name(target))


def extremes(inner, outputs):
    """The largest activations and weights of both signs: sums of pairs that 16 bits would not hold."""
    ends = np.where(np.arange(outputs) % 2, 127, -128).astype(np.int8)
    return np.broadcast_to(ends, (1, inner, outputs))


@pytest.mark.parametrize("target", ["host", "pairs", "narrow"])
def test_the_largest_products_do_not_saturate(target):
    x = np.full((2, 37), 255, np.uint8)
    given = x, packed(extremes(37, 18)), *of_channels(18)
    check(QuantizedMatMul, given, {"inner": 37, "dtype": int32}, target_of_name(target))


def test_processors_with_vnni_get_its_instruction(monkeypatch):
    emitted = []
    compiled = compiler._compiled
    monkeypatch.setattr(
        compiler, "_compiled", lambda text, target: emitted.append(text) or compiled(text, target)
    )
    given = activations(2, 8), packed(weights(1, 8, 16)), *of_channels(16)
    for name, instruction in (("host", "vpdpbusd.512"), ("pairs", "pmaddw.d.512")):
        target = target_of_name(name)
        if target.vector_nbytes < 64 or (name == "host" and not target.has_quads):
            pytest.skip("this processor has no vectors of 64 bytes, or no VNNI")
        run_native(QuantizedMatMul, given, {"inner": 8, "dtype": int32}, target)
        assert instruction in emitted[-1]


def test_bands_keep_sums_near():
    attrs = {**QuantizedConv2D.attrs, "padding": "SAME", "dtype": uint8}
    what = QuadConvolution.of((2, 64, 64, 32), (3, 3, 32), 64, attrs)
    (rows, outputs), _ = (spec.extents for spec in what.scratch())
    assert 64 % what.band == 0
    assert (rows, outputs) == (what.band * 64, 64)
    assert rows * outputs * 4 <= 1 << 17


@pytest.mark.slow
def test_code_without_instructions_for_quads_or_pairs(monkeypatch):
    """The widening form, as processors of other kinds get it, compiled for this one."""
    target = host_target()
    monkeypatch.setattr(type(target), "has_quads", False)
    monkeypatch.setattr(type(target), "multiplies_pairs", False)
    given = activations(5, 39), packed(weights(1, 39, 35)), *of_channels(35)
    check(QuantizedMatMul, given, {"inner": 39, "dtype": uint8, "zero_point": 9}, target)
    given = np.full((2, 37), 255, np.uint8), packed(extremes(37, 18)), *of_channels(18)
    check(QuantizedMatMul, given, {"inner": 37, "dtype": int32}, target)
