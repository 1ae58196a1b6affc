"""Native maps against reference kernels: bits, dtypes, broadcasting, tails, in place, the status."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from tensorbow.kernels.native.codegen import llvm_form
from tensorbow.kernels.native.codegen.functions import compile_groups
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import LOWERINGS
from tensorbow.kernels.scalars import RULES
from tensorbow.ops import elementwise_table as table
from tensorbow.ops.averaging import GradientCheck, SmaDifference, SmaMove
from tensorbow.ops.control import CheckFinite, Copy
from tensorbow.ops.elementwise_table import ELEMENTWISE
from tensorbow.ops.exchanges import AllSum
from tensorbow.ops.integer_power import IntegerPow
from tensorbow.ops.nn import BiasAdd
from tensorbow.ops.selection import Cast, Select
from tensorbow.ops.state import AssignAdd
from tensorbow.ops.updates import ApplyMomentum
from tensorbow.program.plan import Group, Ref, Region
from tensorbow.specs import COMPILED, as_dtype, bool_, int32, uncompiled
from tests.native_rig.native_calls import TARGETS, each_target, run_native
from tests.native_rig.native_steps import native_step, reference_step, taken
from tests.ops_contract.collection import all_samples, each, product_ops
from tests.ops_contract.harness import assert_close, same_bits, specs_of
from tests.ops_contract.sample import Sample, integers, normal
from tests.program_rig.examples import given_few

CHECKS = (CheckFinite, GradientCheck)
SAMPLES = [s for s in all_samples() if s.op in RULES or s.op in CHECKS]
# Ops that call functions which NumPy has from elsewhere, some units of the last place from the exact value:
# units between the two. The bounds of ours are tested below.
FUNCTIONS = {
    "Exp": 4, "Log": 4, "Sin": 4, "Cos": 4, "Erf": 5, "Tanh": 4, "Sigmoid": 4, "Elu": 4, "Softplus": 5,
    "Pow": 4, "Expm1": 4, "Log1p": 4,
}  # fmt: skip
OF_LIBRARY = (
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Atan2",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Erfc",
    "Lgamma",
)
UNITS_OF = {**FUNCTIONS, **dict.fromkeys(OF_LIBRARY, 4), "Lgamma": 64}  # beside the zeros of lgamma
extents = st.sampled_from([0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 100, 130])


def assert_same(sample, target, **options):
    """Asserts that results are equal bit by bit, except for signs of zero and the functions above."""
    with np.errstate(all="ignore"):
        expected = reference_step(sample)
    actual = native_step(sample, TARGETS[target](), **options)[:-1]
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype
        if sample.op.name in UNITS_OF and ours.dtype.kind == "f":
            special = ~np.isfinite(theirs)
            np.testing.assert_array_equal(ours[special], theirs[special])
            units = UNITS_OF[sample.op.name]
            np.testing.assert_array_max_ulp(ours[~special], theirs[~special], units)
        elif not same_bits(ours, theirs):
            np.testing.assert_array_equal(ours, theirs)


@each_target
@each(SAMPLES, few=1)
@pytest.mark.sampled(6)
def test_native_map_samples(sample, target):
    if not taken(sample, TARGETS[target]()):
        results = sample.op.infer(specs_of(sample.inputs), sample.complete_attrs)
        has_code = uncompiled(spec.dtype for spec in (*specs_of(sample.inputs), *results)) is None
        assert sample.op in (IntegerPow, table.FloorDiv, table.FloorMod) or not has_code
        return  # integers' division and powers raise errors: reference kernels
    with np.errstate(all="ignore"):
        expected = reference_step(sample)
    actual = native_step(sample, TARGETS[target]())[:-1]
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert_close(flushed(ours), flushed(theirs), sample, sample.id)


def flushed(x):
    """Native code gives 0 for what would be a denormal number."""
    if x.dtype.kind != "f":
        return x
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)


def test_every_rule_has_native_code():
    host = TARGETS["host"]()
    assert {s.op for s in SAMPLES if taken(s, host)} == {*RULES, *CHECKS} - {IntegerPow}


CASES = [
    (name, dtype)
    for name, row in sorted(ELEMENTWISE.items())
    for dtype in row.dtypes
    if dtype in COMPILED and not (dtype.is_integer and name in ("FloorDiv", "FloorMod"))
]


@pytest.mark.sampled(12)
@each_target
@pytest.mark.parametrize(("name", "kind"), CASES, ids=lambda v: getattr(v, "name", v))
def test_native_elementwise_of_every_dtype(name, kind, target):
    row, dtype = ELEMENTWISE[name], kind.as_numpy_dtype
    if kind == bool_:
        arrays = [integers(7, 5, high=2).astype(bool), integers(7, 5, high=2, seed=1).astype(bool)]
    elif kind.is_floating:
        arrays = [normal(7, 5, dtype=dtype), normal(7, 5, dtype=dtype, seed=1)]
        arrays[0][0] = [np.nan, np.inf, -np.inf, 0, -0.0]
        arrays[1][1] = [np.nan, np.inf, -np.inf, 0, -0.0]
        arrays[0][2], arrays[1][2] = [np.nan, np.inf, -np.inf, 0, -0.0], [-0.0, np.inf, np.inf, 0, 0]
    else:
        low = 0 if kind.name == "uint8" else -9
        arrays = [integers(7, 5, low=low, dtype=dtype), integers(7, 5, low=1, dtype=dtype, seed=1)]
        limits = np.iinfo(dtype)
        arrays[0][0] = [limits.min, limits.max, limits.max - 1, limits.min + 1, 0]
        arrays[1][0] = [limits.max, limits.min, limits.max, 1, limits.min]
    assert_same(Sample(product_ops()[name], tuple(arrays[: len(row.inputs)]), None), target)


@pytest.mark.slow
@each_target
@given_few(
    5,
    25,
    rows=extents,
    columns=extents,
    depth=st.integers(1, 3),
    case=st.integers(0, 7),
    shift=st.integers(0, 3),
)
def test_native_broadcasting_has_the_reference_bits(rows, columns, depth, case, shift, target):
    shapes = [
        ((rows, columns), (rows, columns)),
        ((rows, columns), (columns,)),
        ((rows, columns), (rows, 1)),
        ((rows, 1), (1, columns)),
        ((rows, columns), ()),
        ((depth, rows, columns), (depth, 1, columns)),
        ((depth, rows, columns), (1, rows, 1)),
        ((depth, 1, rows, columns), (2, rows, 1)),
    ][case]
    arrays = normal(*shapes[0]), normal(*shapes[1], seed=1)
    for op in (table.Mul, table.Maximum, table.RealDiv):
        assert_same(Sample(op, arrays, None), target, shift=shift)
    whole = np.broadcast_shapes(*shapes)
    assert_same(Sample(Select, (normal(*whole) > 0, *arrays), None), target, shift=shift)


@pytest.mark.slow
@each_target
@given_few(3, 15, size=extents, seed=st.integers(0, 9))
def test_native_functions_around_the_width_of_vectors(size, seed, target):
    x = 3 * normal(size, seed=seed)
    for name in FUNCTIONS:
        arrays = (np.abs(x), normal(size, seed=seed + 1)) if name == "Pow" else (x,)
        assert_same(Sample(product_ops()[name], arrays, None), target)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", ["float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("into", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_native_casts(source, into):
    low = 0 if source == "uint8" else -40
    x = integers(67, low=low, high=41, dtype=np.int64).astype(source)
    if x.dtype.kind == "f":
        x = (x + 0.75).astype(source)
        x = np.abs(x) if into == "uint8" else x
    attrs = {"dtype": as_dtype(into)}
    for target in TARGETS:
        assert_same(Sample(Cast, (x,), None, attrs), target)


# Functions -----------------------------------------------------------------------------------------------

UNITS = {"Exp": 1, "Log": 1, "Tanh": 2.5, "Erf": 2.5, "Sigmoid": 3, "Elu": 2, "Softplus": 3}
WIDE = {
    "Exp": np.exp,
    "Log": np.log,
    "Tanh": np.tanh,
    "Erf": np.vectorize(math.erf, otypes=[float]),
    "Sigmoid": lambda x: np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x))),
    "Elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "Softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
}


@pytest.mark.sampled(1)
@each_target
@pytest.mark.parametrize("name", UNITS)
def test_native_functions_keep_their_bounds(name, target):
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << 32, 1 << 15, dtype=np.uint32).view(np.float32)
    parts = [rng.standard_normal(1 << 14) * scale for scale in (0.01, 1, 4, 30, 90)]
    edges = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 88.72, 88.73, -87.4, -103.9, -104, 1e-45, 3e38]
    with np.errstate(all="ignore"):
        x = np.concatenate([bits, *(p.astype(np.float32) for p in parts), np.array(edges, np.float32)])
        exact = WIDE[name](x.astype(np.float64))
        rounded = exact.astype(np.float32)
    (y,) = run_native(product_ops()[name], (x,), target=TARGETS[target]())
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(y[special], rounded[special])
    distance = np.abs(y[~special].astype(np.float64) - exact[~special])
    denormal = 4 * np.finfo(np.float32).tiny  # below 1.2e-38 results are 0, intermediate ones too
    assert (distance <= np.maximum(UNITS[name] * np.spacing(np.abs(rounded[~special])), denormal)).all()


@pytest.mark.slow
@each_target
def test_a_number_alone_has_the_bits_that_it_has_in_a_vector(target):
    x = 5 * normal(131)
    for name in ("Exp", "Log", "Tanh", "Erf", "Sigmoid", "Softplus"):
        (whole,) = run_native(product_ops()[name], (np.abs(x),), target=TARGETS[target]())
        for size in (1, 5, 18, 131):
            (part,) = run_native(product_ops()[name], (np.abs(x[-size:]),), target=TARGETS[target]())
            assert same_bits(part, whole[-size:])


# Memory --------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@each_target
@pytest.mark.parametrize("size", [1, 16, 70, 1000])
def test_native_maps_in_place(size, target):
    x, y = normal(size), normal(size, seed=1)
    for place in (0, 1):
        (result,) = run_native(table.Sub, (x, y), target=TARGETS[target](), inplace=[(0, place)])
        assert same_bits(result, x - y)
    rows = normal(size, 3)
    (result,) = run_native(BiasAdd, (rows, x[:1].repeat(3)), target=TARGETS[target](), inplace=[(0, 0)])
    assert same_bits(result, rows + x[0])


@pytest.mark.slow
@each_target
@given_few(6, 15, size=extents, shift=st.integers(0, 3))
def test_native_updates_have_the_reference_bits(size, shift, target):
    scalars = (np.float32(0.1), np.float32(0.9))
    arrays = (normal(size), normal(size, seed=1), normal(size, seed=2))
    for nesterov in (False, True):
        attrs = {"use_nesterov": nesterov, "weight_decay": 0.01}
        assert_same(Sample(ApplyMomentum, (*arrays, *scalars), None, attrs), target, shift=shift)
    for alpha, status in ((0.25, 0), (0.25, 1)):
        state = {"alpha": alpha, "status": status}
        assert_same(Sample(SmaDifference, arrays[:2], None, state=state), target, shift=shift)
    assert_same(Sample(SmaMove, arrays, None, state={"mu": 0.9}), target, shift=shift)
    assert_same(Sample(AllSum, arrays, None), target, shift=shift)


@each_target
def test_nothing_is_written_while_the_status_is_set(target):
    x, y = normal(37), normal(37, seed=1)
    sample = Sample(AssignAdd, (x, y), None, state={"status": 0})
    value, status = native_step(sample, TARGETS[target](), predicated=True)
    assert same_bits(value, x + y)
    assert status == 0
    value, status = native_step(replace(sample, state={"status": 1}), TARGETS[target](), predicated=True)
    assert same_bits(value, x)
    assert status == 1


@pytest.mark.sampled(1)
@each_target
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 63, 64, 65, 127, 200])
def test_native_checks_find_what_is_not_finite_wherever_it_is(size, dtype, target):
    for op in CHECKS:
        x = normal(size, dtype=dtype)
        x[: size // 2] = np.finfo(dtype).max  # finite, though its square is not
        for status in (0, 1):
            sample = Sample(op, (x,), None, state={"status": status})
            assert native_step(sample, TARGETS[target]())[-1] == status
        for place in {0, size // 2, size - 1} if size else ():
            for value in (np.nan, np.inf, -np.inf):
                bad = x.copy()
                bad[place] = value
                sample = Sample(op, (bad,), None, state={"status": 0})
                assert native_step(sample, TARGETS[target]())[-1] == 1


def test_a_check_of_integers_finds_nothing():
    sample = Sample(CheckFinite, (integers(9),), None, state={"status": 0})
    assert native_step(sample, TARGETS["host"]())[-1] == 0


def test_what_may_raise_is_left_to_the_reference_kernel():
    host = TARGETS["host"]()
    whole, real = integers(5, low=1), normal(5)
    assert not taken(Sample(table.FloorDiv, (whole, whole), None), host)
    assert not taken(Sample(IntegerPow, (whole, whole), None), host)
    assert taken(Sample(table.FloorDiv, (real, real), None), host)
    assert taken(Sample(table.Mul, (whole, whole), None), host)


def test_a_wrong_form_is_found(monkeypatch):
    monkeypatch.setitem(llvm_form._FLOATING, "subtract", "fadd")
    with pytest.raises(AssertionError):
        assert_same(Sample(table.Sub, (normal(9), normal(9, seed=1)), None), "host")


def test_calls_that_differ_in_their_places_share_their_code():
    def copy(start, size, definition=Copy):
        kernel = NativeKernel(emit=LOWERINGS[definition].emit)
        source, end = (Ref(Region.SLAB, offset, (size,), int32) for offset in (start, start + 4096))
        return Group(f"at {start}", definition, kernel, {}, (source,), (end,))

    status = Ref(Region.STATE, 0, (), int32)
    alike = [copy(0, 20), copy(128, 20), copy(256, 20)]
    with pytest.MonkeyPatch.context() as patch:
        texts = []
        patch.setattr(
            "tensorbow.kernels.native.codegen.functions.compile_module",
            lambda module, *rest: texts.append(str(module)),
        )
        for one_more in ([], [copy(4, 20)], [copy(0, 21)], [copy(0, 20, table.Neg)]):
            compile_groups([[*alike, *one_more]], status, TARGETS["host"](), None)
    assert [text.count('define internal i64 @"body') for text in texts] == [1, 2, 2, 2]
