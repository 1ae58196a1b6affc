"""Contractions on AMX: with emulated registers against exact sums; instructions of their code."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from llvmlite import ir

from tensorbow.kernels.native.codegen import compiler
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index
from tensorbow.kernels.native.codegen.target import host_target, may_use_tiles, target_of
from tensorbow.kernels.native.products.contraction import Contraction, contraction
from tensorbow.kernels.native.products.matrix_tiles import TiledContraction
from tensorbow.kernels.native.products.microkernel import Walk
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.matmul import MatMul
from tensorbow.ops.sliding_windows import Windows
from tensorbow.specs import float32
from tests.native_rig.emitted_code import call_emitted
from tests.native_rig.matrix_registers import matrix_registers
from tests.native_rig.native_calls import run_native
from tests.ops_contract.sample import normal, vector
from tests.program_rig.examples import given_few


def tiled():
    return replace(host_target(), compute="bf16", tiles=True)


def offsets(walks, key):
    result = np.zeros(1, np.int64)
    for walk in walks:
        result = (result[:, None] + np.arange(walk.count) * getattr(walk, key)).ravel()
    return result


@given_few(
    6,
    60,
    st.tuples(st.integers(1, 3), st.sampled_from([1, 5, 16, 17, 33, 40])),
    st.sampled_from([1, 4, 16, 20, 33, 64]),
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.sampled_from([4, 7, 16, 24, 32])),
    st.integers(1, 2),
    st.booleans(),
)
def test_tiled_contractions(rows, columns, sums, passes, accumulate):
    """Rows and sums with gaps, so that walks are not merged; passes that add up; edges of tiles."""
    high, wide = rows
    outer, middle, inner = sums
    length = inner + 2
    what = Contraction(
        float32,
        (Walk(high, 1000, c=wide * columns + 3), Walk(wide, length, c=columns)),
        columns,
        (
            Walk(outer, 37, middle * inner * columns + 5),
            Walk(middle, length + 1, inner * columns + 2),
            Walk(inner, 1, columns),
        ),
        (Walk(passes, b=3, c=1),),
        pairs=True,
    )
    rng = np.random.default_rng(0)
    at_a = offsets(what.rows, "a")[:, None] + offsets(what.sums, "a")
    at_b = offsets(what.sums, "b")[:, None] + np.arange(columns)
    at_c = offsets(what.rows, "c")[:, None] + np.arange(columns)
    a, b = (
        rng.integers(-8, 8, (at.max() + 10, 2)).astype(np.float32) / 4 for at in (at_a, at_b)
    )  # exact in bfloat16
    c = rng.integers(-8, 8, at_c.max() + 10).astype(np.float32)
    expected = c.copy()
    for number in range(passes):
        made = np.einsum("ikp,kjp->ij", a[at_a], b[at_b + 3 * number])
        expected[at_c + number] = made + (expected[at_c + number] if accumulate or number else 0)
    halves = [(x.view(np.uint32) >> np.uint32(16)).astype(np.uint16) for x in (a, b)]

    def write(e, pointers):
        e.builder.call(contraction(e, what), [*pointers, index(accumulate)])

    with matrix_registers() as registers:
        call_emitted(write, (*halves, c), tiled())
    np.testing.assert_array_equal(c, expected)
    assert registers.counts["tdpbf16ps"]


@pytest.mark.slow
def test_layers_of_networks_use_tiles():
    """Forward passes and image gradients; results as with vectors of pairs but for the order of sums."""
    images, filters = normal(2, 8, 8, 16).astype(np.float32), normal(3, 3, 16, 20, seed=1).astype(np.float32)
    flow = normal(2, 8, 8, 20, seed=2).astype(np.float32)
    attrs = {"padding": "SAME"}
    for op, inputs, own in (
        (Conv2D, (images, filters), attrs),
        (Conv2DBackpropInput, (vector(*images.shape), filters, flow), attrs),
        (MatMul, (normal(20, 40).astype(np.float32), normal(40, 33, seed=1).astype(np.float32)), {}),
    ):
        with matrix_registers() as registers:
            (ours,) = run_native(op, inputs, own, tiled())
        (theirs,) = run_native(op, inputs, own, replace(tiled(), tiles=False))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
        assert registers.counts["tdpbf16ps"]


def test_sums_without_neighbours_use_vectors():
    def tiled_form(*sums):
        return TiledContraction.of(Contraction(float32, (Walk(16, 64, c=16),), 16, sums, pairs=True))

    assert tiled_form(Walk(32, 2, 16)) is None
    assert tiled_form(Walk(17, 1, 16)) is None
    found = tiled_form(Walk(3, 8, 128), Walk(8, 1, 16))
    assert math.prod((found.depth, found.inner.count)) == 12 * 24


def test_only_permitted_registers_are_used():
    have = replace(host_target(), features="+amx-bf16,+amx-tile,+avx512bf16", vector_nbytes=64)
    assert may_use_tiles(have, lambda: True)
    assert not may_use_tiles(have, lambda: False)
    for lacking in ("+amx-bf16", "+amx-tile", "+avx512bf16"):
        less = replace(have, features=have.features.replace(lacking, lacking.replace("+", "-")))
        assert not may_use_tiles(less, lambda: pytest.fail("asked for what the processor lacks"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("images", "filters", "strides", "rates", "padding"),
    [
        ((2, 9, 15, 17), (3, 3, 17, 20), (1, 1), (1, 1), "SAME"),
        ((1, 21, 19, 8), (3, 5, 8, 16), (2, 2), (1, 1), "SAME"),
        ((2, 8, 16, 16), (3, 3, 16, 33), (1, 1), (1, 2), "SAME"),
        ((1, 20, 31, 9), (2, 4, 9, 4), (1, 3), (2, 1), "VALID"),
        ((2, 40, 8, 32), (1, 1, 32, 16), (1, 1), (1, 1), "VALID"),
    ],
)
def test_gradients_of_filters_use_tiles(images, filters, strides, rates, padding):
    attrs = {"strides": (1, *strides, 1), "dilations": (1, *rates, 1), "padding": padding}
    place = Windows.of(images, filters, attrs["strides"], padding, attrs["dilations"])
    flow = normal(images[0], place.rows.count, place.columns.count, filters[3], seed=2)
    inputs = normal(*images).astype(np.float32), vector(*filters), flow.astype(np.float32)
    with matrix_registers() as registers:
        (ours,) = run_native(Conv2DBackpropFilter, inputs, attrs, tiled())
    (theirs,) = run_native(Conv2DBackpropFilter, inputs, attrs, replace(tiled(), tiles=False))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert registers.counts["tdpbf16ps"]


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="needs LLVM's x86-64 target")
def test_code_for_sapphire_rapids_has_the_instructions():
    names = ("avx512f", "avx512bw", "avx512vl", "avx512bf16", "avx2", "fma", "amx-tile", "amx-bf16")
    target = target_of(dict.fromkeys(names, True), "x86_64-unknown-linux-gnu", "sapphirerapids")
    target = replace(target, compute="bf16", tiles=True)
    module = ir.Module("test")
    module.triple = target.triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER] * 3 + [INT]), "run")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    what = Contraction(float32, (Walk(40, 64, c=48),), 48, (Walk(64, 1, 48),), pairs=True)
    builder.call(contraction(Emitter(target, builder, function.args[0]), what), function.args)
    builder.ret_void()
    with compiler._optimized(str(module), target) as (machine, optimized):
        text = machine.emit_assembly(optimized)
    for name in ("ldtilecfg", "tilezero", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease"):
        assert name in text
    assert "vdpbf16ps" not in text
