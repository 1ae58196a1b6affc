"""Native products of operands rounded to bfloat16 against reference kernels on rounded operands.

With the processor's instructions where it has them, and with those of others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from llvmlite import ir

from tensorbow.kernels.native.codegen import compiler
from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.target import host_target, target_of
from tensorbow.kernels.native.ops import matmul
from tensorbow.kernels.native.products import bfloat16
from tensorbow.kernels.native.products.outer_products import emit_factors, unpacked
from tensorbow.kernels.rounded_products import round_to_bfloat16
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tensorbow.ops.sliding_windows import Windows
from tensorbow.program.plan import Group, Ref, Region
from tensorbow.specs import float32
from tests.native_rig.emitted_code import call_emitted
from tests.native_rig.native_calls import run_native, run_reference
from tests.native_rig.targets import narrow_target
from tests.ops_contract.sample import normal, vector
from tests.program_rig.examples import given_few


def rounding(name):
    """A target whose products round: this processor, or without BF16 instructions, or with narrow vectors."""
    target = narrow_target() if name == "narrow" else host_target()
    if name == "emulated":
        target = replace(target, features=target.features.replace("+avx512bf16", "-avx512bf16"))
    return replace(target, compute="bf16")


targets = st.sampled_from(["host", "host", "emulated", "narrow"])


def rounded(array):
    if array.dtype != np.float32:
        return array
    result = np.empty_like(array)
    round_to_bfloat16(array, result)
    return result


def check(op, inputs, attrs, target):
    (ours,) = run_native(op, inputs, attrs, rounding(target))
    (theirs,) = run_reference(op, [rounded(np.asarray(array)) for array in inputs], attrs)
    scale = np.abs(theirs).max(initial=1e-30)
    np.testing.assert_allclose(ours / scale, theirs / scale, atol=3e-6, err_msg=f"{op.name} {attrs}")


@pytest.mark.slow
@given_few(
    4,
    60,
    st.integers(1, 3),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.sampled_from([1, 2, 3, 5, 8, 16, 33]), st.sampled_from([1, 2, 3, 7, 16, 17, 32, 48])),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from(["SAME", "VALID"]),
    targets,
)
def test_convolutions_and_their_gradients(batch, image, window, depth, steps, rates, padding, target):
    reach = [(n - 1) * rate + 1 for n, rate in zip(window, rates, strict=True)]
    assume(padding == "SAME" or all(r <= n for r, n in zip(reach, image, strict=True)))
    images, filters = (batch, *image, depth[0]), (*window, *depth)
    attrs = {"strides": (1, *steps, 1), "padding": padding, "dilations": (1, *rates, 1)}
    place = Windows.of(images, filters, attrs["strides"], padding, attrs["dilations"])
    x, w = normal(*images), normal(*filters, seed=1)
    dy = normal(batch, place.rows.count, place.columns.count, depth[1], seed=2)
    x, w, dy = (array.astype(np.float32) for array in (x, w, dy))
    check(Conv2D, (x, w), attrs, target)
    check(Conv2DBackpropInput, (vector(*images), w, dy), attrs, target)
    check(Conv2DBackpropFilter, (x, vector(*filters), dy), attrs, target)


@pytest.mark.slow
@given_few(
    5,
    60,
    st.sampled_from([1, 2, 5, 7, 31, 64]),
    st.sampled_from([1, 2, 3, 15, 32, 33, 70, 141]),
    st.sampled_from([1, 3, 16, 17, 64, 65, 130]),
    st.booleans(),
    st.booleans(),
    targets,
)
def test_matrix_products(rows, inner, columns, turned_a, turned_b, target):
    a = normal(*((inner, rows) if turned_a else (rows, inner))).astype(np.float32)
    b = normal(*((columns, inner) if turned_b else (inner, columns)), seed=1).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:  # several parts along the sum and the columns
        patch.setattr(matmul, "PART_PAIRS", 24)
        patch.setattr(matmul, "PART_NBYTES", 8 << 10)
        check(MatMul, (a, b), {"transpose_a": turned_a, "transpose_b": turned_b}, target)


def test_stacks_of_matrices():
    stacks = normal(2, 1, 5, 9).astype(np.float32), normal(3, 9, 4, seed=1).astype(np.float32)
    check(BatchMatMulV2, stacks, {}, "host")


def test_other_dtypes_are_not_rounded():
    a, b = normal(3, 5, dtype=np.float64), normal(5, 4, dtype=np.float64, seed=1)
    (ours,) = run_native(MatMul, (a, b), {}, rounding("host"))
    np.testing.assert_allclose(ours, a @ b, rtol=1e-13)


@pytest.mark.parametrize("target", ["host", "emulated", "narrow"])
def test_rounding_is_to_nearest_even(target):
    words = [0, 1 << 31, 0x3F800000, 0x3F807FFF, 0x3F808000, 0x3F808001, 0x3F818000, 0xBF818000, 0x7F7FFFFF]
    words += [0x7F800000, 0xFF800000, 0x7F800001, 0x7FFFFFFF, 0xFFC00000, 0x00800000]
    values = np.resize(np.array(words, np.uint32), 64).view(np.float32)
    made, apart = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    kind = rounding(target)
    lanes = kind.lanes(4)

    def write(e: Emitter, pointers):
        source, to, both = pointers
        vectors = [
            e.load(e.offset(source, ir.FloatType(), i), ir.VectorType(ir.FloatType(), lanes), 4)
            for i in range(0, 64, lanes)
        ]
        for i in range(0, len(vectors), 2):
            at = i // 2 * lanes
            e.store(bfloat16.neighbours(e, *vectors[i : i + 2]), e.offset(to, bfloat16.PAIR, at), 4)
            e.store(bfloat16.across(e, *vectors[i : i + 2]), e.offset(both, bfloat16.PAIR, at), 4)

    call_emitted(write, (values, made, apart), kind)
    expected = rounded(values)

    def floats(halves):
        return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)

    np.testing.assert_array_equal(floats(made.view(np.uint16)), expected)
    groups = apart.reshape(-1, lanes)
    ours = np.stack([groups & np.uint32(0xFFFF), groups >> np.uint32(16)], axis=1)
    np.testing.assert_array_equal(floats(ours.ravel()), expected)


@given_few(
    6, 30, st.sampled_from([1, 2, 5, 16]), st.sampled_from([1, 4, 11]), st.sampled_from([1, 64, 100]), targets
)
def test_factors_of_a_gradient_are_panels_of_pairs(rows, m, n, target):
    pairs = -(-rows // 2)
    arrays = [normal(rows, m).astype(np.float32), normal(rows, n, seed=1).astype(np.float32)]
    results = [np.full((pairs, width), np.nan, np.float32) for width in (m, n)]
    every = [*arrays, *results]
    refs = [Ref(Region.SLAB, number, x.shape, float32) for number, x in enumerate(every)]
    group = Group("product", MatMul, NativeKernel(emit=emit_factors), {}, tuple(refs[:2]), tuple(refs[2:]))
    slots = {(Region.SLAB, number): number for number in range(len(every))}

    def write(e, _):
        emit_factors(Emitter(e.target, e.builder, e.builder.function.args[0], slots), group)

    call_emitted(write, every, rounding(target))
    for ours, matrix in zip(unpacked(*results, pairs=True), arrays, strict=True):
        np.testing.assert_array_equal(ours[:rows], rounded(matrix))
        assert not ours[rows:].any()


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="needs LLVM's x86-64 target")
def test_processors_with_the_instructions_use_them():
    """Assembly for Sapphire Rapids and Zen 4, on any x86-64 machine."""
    features = dict.fromkeys(("avx512f", "avx512bw", "avx512vl", "avx512bf16", "avx2", "fma"), True)
    for processor in ("sapphirerapids", "znver4"):
        target = replace(target_of(features, "x86_64-unknown-linux-gnu", processor), compute="bf16")
        assert target.has_bfloat16
        text = assembly_of_product(target)
        assert "vdpbf16ps" in text
        assert "vcvtne2ps2bf16" in text
        assert "vfmadd" not in text
        older = replace(target, features=target.features.replace("+avx512bf16", "-avx512bf16"))
        assert not older.has_bfloat16
    assert "vfmadd" in assembly_of_product(replace(older, processor="skylake-avx512"))


def assembly_of_product(target):
    module = ir.Module("test")
    module.triple = target.triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType()] * 4), "run")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emitter = Emitter(target, builder, function.args[0])
    matmul.Product.of((5, 64), (64, 32), False, False, float32, True).write(emitter, function.args)
    builder.ret_void()
    with compiler._optimized(str(module), target) as (machine, optimized):
        return machine.emit_assembly(optimized)
