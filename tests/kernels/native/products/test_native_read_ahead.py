"""Products that ask ahead for what they read next: the same values, nothing asked for outside the matrix."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from tensorbow.kernels.native.codegen.emitter import index
from tensorbow.kernels.native.codegen.target import host_target
from tensorbow.kernels.native.products import contraction as contractions
from tensorbow.kernels.native.products import dot_products as dots
from tensorbow.kernels.native.products import microkernel
from tensorbow.kernels.native.products.contraction import Contraction, blocking_of, contraction, split_of
from tensorbow.kernels.native.products.dot_products import DotProducts, dot_products, tile_of
from tensorbow.kernels.native.products.microkernel import Walk
from tensorbow.specs import float32, float64
from tests.native_rig.emitted_code import LINE, AskedLines, at_line, call_emitted
from tests.native_rig.native_calls import each_target
from tests.native_rig.targets import narrow_target
from tests.ops_contract.sample import normal
from tests.program_rig.examples import given_few

TARGETS = {"host": host_target, "narrow": narrow_target}
DTYPES = {"float32": float32, "float64": float64}
targets = st.sampled_from(sorted(TARGETS))
dtypes = st.sampled_from(sorted(DTYPES))


@pytest.fixture
def all_is_far(monkeypatch):
    """Small matrices count as such that are in no cache."""
    for module in (contractions, dots):
        monkeypatch.setattr(module, "FAR", 0)
    blocking_of.cache_clear()
    yield
    blocking_of.cache_clear()


def assert_close(ours, a, b):
    expected = a.astype(np.float64) @ b.astype(np.float64)
    tolerance = 1e-4 if ours.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance * math.sqrt(a.shape[1]))


def dots_asking(what, target):
    """Multiplies, and gives what was asked for; where nothing is counted the bits are the same."""
    kind = what.dtype.as_numpy_dtype
    a, b = normal(what.rows, what.inner, dtype=kind), normal(what.columns, what.inner, dtype=kind, seed=1)
    a, b = at_line(a), at_line(b)
    results = [np.full((what.rows, what.columns), np.nan, kind) for _ in range(2)]

    def write(e, places):
        e.builder.call(dot_products(e, what), places)

    asked = AskedLines(b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dots, "prefetch", asked)
        call_emitted(write, (a, b, results[0]), target)
    call_emitted(write, (a, b, results[1]), target)
    np.testing.assert_array_equal(*results)
    assert_close(results[0], a, b.T)
    assert asked.below == asked.above == 0
    return asked


@given_few(
    6,
    60,
    st.sampled_from([1, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 25, 31, 32, 47, 48]),
    st.sampled_from([1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 18, 29]),
    st.sampled_from([3, 8, 16, 17, 96, 97, 111, 112, 128, 135]),
    dtypes,
    targets,
)
@pytest.mark.usefixtures("all_is_far")
def test_dot_products_ask_for_the_next_rows(rows, columns, inner, dtype, target):
    what = DotProducts(DTYPES[dtype], rows, columns, inner)
    processor = TARGETS[target]()
    high, wide = tile_of(processor, what)
    asked = dots_asking(what, processor)
    walked_first = columns % wide + wide  # rows of B, the last ones: those of a part of a tile, and a tile's
    if rows <= high or columns < wide:
        assert not asked.inside.any()
    elif inner % (LINE // what.dtype.size) == 0:
        before = (columns - walked_first) * inner * what.dtype.size // LINE
        assert asked.inside[:before].all()


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@each_target
def test_tiles_of_dot_products_fit_the_registers(target, dtype):
    """And what a vector can hold of a row of C."""
    processor = TARGETS[target]()
    for rows in range(1, 49):
        high, wide = tile_of(processor, DotProducts(DTYPES[dtype], rows, 100, 100))
        assert high * wide + wide + 1 <= processor.vector_registers
        assert 1 <= high <= rows
        assert 1 <= wide <= processor.lanes(DTYPES[dtype].size)


def test_dot_products_with_a_matrix_that_is_near_ask_for_nothing():
    assert not dots_asking(DotProducts(float32, 16, 48, 128), host_target()).inside.any()


@each_target
def test_dot_products_with_a_large_matrix_ask_for_it(target):
    asked = dots_asking(DotProducts(float32, 16, 600, 256), TARGETS[target]())
    assert asked.inside.mean() > 0.9


def contraction_asking(what, target):
    """The same of a contraction of one walk over rows, whose B and C have no gaps."""
    kind = what.dtype.as_numpy_dtype
    (row,) = what.rows
    at = np.arange(row.count) * row.a
    for walk in what.sums:
        at = at[..., None] + np.arange(walk.count) * walk.a
    at = at.reshape(row.count, -1)
    a, b = normal(int(at.max()) + 1, dtype=kind), normal(at.shape[1], what.columns, dtype=kind, seed=1)
    a, b = at_line(a), at_line(b)
    results = [np.full((row.count, what.columns), np.nan, kind) for _ in range(2)]

    def write(e, places):
        e.builder.call(contraction(e, what), [*places, index(0)])

    asked = AskedLines(b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(microkernel, "prefetch", asked)
        call_emitted(write, (a, b, results[0]), target)
    call_emitted(write, (a, b, results[1]), target)
    np.testing.assert_array_equal(*results)
    assert_close(results[0], a[at], b)
    assert asked.below == asked.above == 0
    return asked


def product(rows, inner, columns, dtype=float32):
    sums = tuple(
        Walk(n, math.prod(inner[i + 1 :]), columns * math.prod(inner[i + 1 :])) for i, n in enumerate(inner)
    )
    return Contraction(dtype, (Walk(rows, math.prod(inner), c=columns),), columns, sums)


@given_few(
    6,
    60,
    st.sampled_from([1, 3, 4, 5, 8, 9, 16, 17, 33, 64]),
    st.sampled_from([(66,), (96,), (97,), (130,), (3, 70), (5, 4, 16), (128,)]),
    st.sampled_from([1, 7, 8, 9, 15, 16, 17, 31, 48, 49, 65, 100, 130]),
    dtypes,
    targets,
)
@pytest.mark.usefixtures("all_is_far")
def test_passes_ask_for_the_rows_of_the_next(rows, inner, columns, dtype, target):
    what, processor = product(rows, inner, columns, DTYPES[dtype]), TARGETS[target]()
    asked = contraction_asking(what, processor)
    parts = split_of(what, blocking_of(what, processor)) or (what,)  # which are done one after the other
    blockings = [blocking_of(part, processor) for part in parts]
    assert asked.inside.any() == any(blocking.reads_ahead for blocking in blockings)
    for blocking in blockings:
        if columns * what.dtype.size < LINE or not blocking.passes:
            assert not blocking.reads_ahead


@each_target
@pytest.mark.usefixtures("all_is_far")
def test_passes_of_many_tiles_ask_for_all_but_the_first_rows(target):
    processor = TARGETS[target]()
    shapes = (product(rows, (256,), 160) for rows in range(64, 0, -1))
    what = next(shape for shape in shapes if blocking_of(shape, processor).reads_ahead)
    (sums,) = blocking_of(what, processor).sums
    asked = contraction_asking(what, processor)
    assert asked.inside[sums.count * 160 * 4 // LINE :].all()


@each_target
@pytest.mark.usefixtures("all_is_far")
def test_passes_in_nested_loops_end_with_the_last_of_all(target):
    sums = (Walk(6, 1000, 200 * 48), Walk(200, 3, 48))
    what = Contraction(float32, (Walk(4, 7, c=48),), 48, sums)
    blocking = blocking_of(what, TARGETS[target]())
    assert len(blocking.passes) == 2
    assert blocking.reads_ahead
    contraction_asking(what, TARGETS[target]())


@each_target
def test_a_layer_of_a_small_batch_reads_ahead(target):
    assert blocking_of(product(4, (1024,), 1024), TARGETS[target]()).reads_ahead


@pytest.mark.parametrize("rows", [16, 300])
def test_a_matrix_that_is_near_or_used_by_many_rows_is_not_asked_for(rows):
    columns = 64 if rows == 16 else 640
    assert not contraction_asking(product(rows, (512,), columns), host_target()).inside.any()


def test_rows_with_gaps_are_not_asked_for():
    what = Contraction(float32, (Walk(16, 1024, c=600),), 600, (Walk(1024, 1, 700),))
    assert not blocking_of(what, host_target()).reads_ahead
