"""Contractions by themselves: arbitrary walks, adding to what is there, cuts that keep the walk."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from tensorbow.kernels.native.codegen.emitter import index
from tensorbow.kernels.native.codegen.target import host_target
from tensorbow.kernels.native.products.contraction import (
    Contraction,
    blocking_of,
    contraction,
    cut,
    divisors,
    split_of,
)
from tensorbow.kernels.native.products.convolution import ConvolutionShape
from tensorbow.kernels.native.products.microkernel import Walk, broadcasts, merged, shared_steps
from tensorbow.specs import float32, float64
from tests.native_rig.emitted_code import call_emitted
from tests.native_rig.native_calls import each_target
from tests.native_rig.targets import narrow_target
from tests.program_rig.examples import given_few

TARGETS = {"host": host_target, "narrow": narrow_target}
counts = st.integers(1, 7)


def offsets(walks, key):
    """Offset of each step of nested loops, in elements."""
    result = np.zeros(1, np.int64)
    for walk in walks:
        result = (result[:, None] + np.arange(walk.count) * getattr(walk, key)).ravel()
    return result


def run(what, a, b, c, accumulate, target):
    """Calls a contraction on arrays; `c` is changed."""

    def write(e, pointers):
        e.builder.call(contraction(e, what), [*pointers, index(accumulate)])

    call_emitted(write, (a, b, c), target)


def check(what, accumulate, target):
    """A contraction against sums in float64; what lies between the rows of C stays as it is."""
    rng = np.random.default_rng(0)
    dtype = what.dtype.as_numpy_dtype
    row_a, row_c = offsets(what.rows, "a"), offsets(what.rows, "c")
    at_a = row_a[:, None] + offsets(what.sums, "a")
    at_b = offsets(what.sums, "b")[:, None] + np.arange(what.columns)
    at_c = row_c[:, None] + np.arange(what.columns)
    a, b, c = (rng.standard_normal(int(at.max()) + 3).astype(dtype) for at in (at_a, at_b, at_c))
    expected = c.astype(np.float64)
    start = expected[at_c] if accumulate else 0
    expected[at_c] = start + a.astype(np.float64)[at_a] @ b.astype(np.float64)[at_b]
    again = c.copy()
    run(what, a, b, c, accumulate, TARGETS[target]())
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(c, expected, rtol=tolerance, atol=tolerance * math.sqrt(at_b.shape[0]))
    untouched = np.setdiff1d(np.arange(c.size), at_c)
    np.testing.assert_array_equal(c[untouched], again[untouched])
    run(what, a, b, again, accumulate, TARGETS[target]())
    np.testing.assert_array_equal(c, again)  # the same bits, run after run


@st.composite
def contractions(draw):
    dtype = draw(st.sampled_from([float32, float64]))
    columns = draw(st.sampled_from([1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 47, 50, 64, 65]))
    rows, step = [], columns + draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.sampled_from([1, 2, 3, 5, 6, 13]))
        rows.insert(0, Walk(count, draw(st.integers(1, 9)), c=step))
        step = step * count + draw(st.integers(0, 3))
    sums = [
        Walk(draw(st.sampled_from([1, 2, 3, 5, 16, 37])), draw(st.integers(0, 9)), draw(st.integers(1, 70)))
        for _ in range(draw(st.integers(1, 3)))
    ]
    return Contraction(dtype, tuple(rows), columns, tuple(sums))


@pytest.mark.slow
@given_few(12, 60, contractions(), st.booleans(), st.sampled_from(sorted(TARGETS)))
def test_contraction_of_any_walk(what, accumulate, target):
    check(what, int(accumulate), target)


@pytest.mark.slow
@each_target
def test_contraction_whose_sum_is_cut_into_passes(target):
    """B of a tile is far larger than a first cache, in loops that do not divide evenly."""
    sums = (Walk(7, 5000, 96 * 50), Walk(96, 50, 50), Walk(11, 3, 7))
    what = Contraction(float32, (Walk(9, 2, c=49),), 49, sums)
    assert math.prod(w.count for w in blocking_of(what, TARGETS[target]()).passes) > 1
    for accumulate in (0, 1):
        check(what, accumulate, target)


@pytest.mark.sampled(1)
@each_target
@pytest.mark.parametrize(("rows", "steps", "columns"), [(16, 1021, 300), (16, 514, 300), (70, 1021, 40)])
def test_a_sum_that_no_even_pass_divides(rows, steps, columns, target):
    """A prime number of steps, or twice one: passes as long as they may be, and one that is shorter."""
    what = Contraction(float32, (Walk(rows, steps, c=columns),), columns, (Walk(steps, 1, columns),))
    machine = TARGETS[target]()
    parts = split_of(what, blocking_of(what, machine))
    assert parts is not None
    blockings = [blocking_of(part, machine) for part in parts]
    passes = [math.prod(walk.count for walk in blocking.passes) for blocking in blockings]
    assert sum(passes) <= 2 + steps // min(blocking.limit for blocking in blockings) * 2
    for accumulate in (0, 1):
        check(what, accumulate, target)


@pytest.mark.sampled(1)
@each_target
@pytest.mark.parametrize(("stride", "depth"), [(1, (16, 16)), (2, (3, 16)), (1, (1, 5))])
def test_rows_that_share_elements_with_their_neighbours(stride, depth, target):
    """Both passes of a convolution of few channels, whose windows overlap."""
    attrs = {"strides": (1, stride, stride, 1), "padding": "SAME", "dilations": (1, 1, 1, 1)}
    shape = ConvolutionShape.of((1, 14, 19, depth[0]), (3, 3, *depth), attrs, float32)
    for what in (shape.forward(), shape.filter_gradient()):
        check(what, 0, target)
        check(what, 1, target)


@each_target
def test_few_columns_are_summed_along_what_rows_share(target):
    attrs = {"strides": (1, 1, 1, 1), "padding": "SAME", "dilations": (1, 1, 1, 1)}
    target = TARGETS[target]()
    shape = ConvolutionShape.of((1, 32, 32, 16), (3, 3, 16, target.lanes(4)), attrs, float32)
    blocking = blocking_of(shape.forward(), target)
    inner, (high, wide) = blocking.sums[-1], blocking.rows[-2:]
    rows = [i * high.a + j * wide.a for i in range(blocking.height) for j in range(blocking.width)]
    steps = shared_steps(rows, inner, blocking.vectors, target)
    assert steps > 1
    assert broadcasts(rows, inner.a, steps) < steps * len(rows)


@each_target
def test_contraction_with_few_rows_and_a_large_matrix(target):
    check(Contraction(float32, (Walk(5, 600, c=520),), 520, (Walk(600, 1, 520),)), 0, target)


@each_target
def test_contraction_without_any_loop(target):
    check(Contraction(float32, (Walk(1),), 5, (Walk(1),)), 1, target)


walks = st.lists(
    st.builds(Walk, counts, st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9)),
    min_size=1,
    max_size=4,
)


@given(walks)
def test_merged_walks_visit_the_same_places_in_order(loops):
    for key in "abc":
        np.testing.assert_array_equal(offsets(merged(loops), key), offsets(loops, key))


@given(counts, counts, st.integers(1, 9))
def test_even_neighbours_merge_into_one(outer, inner, step):
    assert len(merged([Walk(outer, inner * step), Walk(inner, step)])) <= 1


@given(walks, st.integers(1, 60))
def test_cut_walks_visit_the_same_places_in_order(loops, limit):
    outer, inner = cut(loops, limit)
    for key in "abc":
        np.testing.assert_array_equal(offsets((*outer, *inner), key), offsets(loops, key))
    assert math.prod(walk.count for walk in inner) <= limit


@settings(max_examples=40, deadline=None)
@given(contractions(), st.sampled_from(sorted(TARGETS)))
def test_tiles_fit_the_registers(what, target):
    target = TARGETS[target]()
    blocking = blocking_of(what, target)
    size = blocking.height * blocking.width * blocking.vectors
    assert size + blocking.vectors + 1 <= target.vector_registers


def test_divisors():
    for count in range(200):
        assert divisors(count) == [n for n in range(1, count + 1) if count % n == 0]


PRIME = 2_147_483_647  # nothing that follows counts up to it


def test_any_number_of_rows_is_cut_at_once():
    what = Contraction(float32, (Walk(PRIME, 40, c=50),), 50, (Walk(40, 1, 50),))
    assert blocking_of(what, host_target()).rows[-1].count == PRIME
    sums = Contraction(float32, (Walk(40, 1, c=50),), 50, (Walk(PRIME, 40, 50),))
    assert blocking_of(sums, host_target()).passes == (Walk(PRIME, 40, 50, 0),)
