"""Native matrix products: extents around vector widths and tiles, both transposes, both dtypes, stacks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tests.native_rig.native_calls import assert_as_reference, assert_sample, samples_of
from tests.ops_contract.collection import each
from tests.ops_contract.sample import normal
from tests.program_rig.examples import given_few

OPS = {"MatMul", "BatchMatMulV2"}
extents = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 48, 49, 64, 65])
sums = st.sampled_from([1, 2, 7, 8, 9, 17, 64, 95, 96, 97, 130, 200])
floats = st.sampled_from([np.float32, np.float64])
TOLERANCES = {"rtol": 1e-5, "atol": 5e-5}


@pytest.mark.sampled(1)
@each(samples_of(OPS), few=4)
def test_native_product_samples(sample):
    assert_sample(sample)


@pytest.mark.slow
@given_few(12, 60, extents, sums, extents, st.booleans(), st.booleans(), floats, st.booleans())
def test_native_matmul(rows, inner, columns, turn_a, turn_b, dtype, narrow):
    a = normal(*((inner, rows) if turn_a else (rows, inner)), dtype=dtype)
    b = normal(*((columns, inner) if turn_b else (inner, columns)), dtype=dtype, seed=1)
    attrs = {"transpose_a": turn_a, "transpose_b": turn_b}
    assert_as_reference(MatMul, (a, b), attrs, targets=["narrow" if narrow else "host"], **TOLERANCES)


@pytest.mark.slow
@given_few(
    5,
    25,
    st.sampled_from(
        [((), (2,)), ((3,), ()), ((2, 3), (3,)), ((4, 1), (1, 3)), ((5,), (5,)), ((1, 2, 1), (3, 1, 2))]
    ),
    extents,
    st.booleans(),
    st.booleans(),
    floats,
)
def test_native_stacks_of_matrices(lead, columns, turn_x, turn_y, dtype):
    rows, inner = 5, 99
    x = normal(*lead[0], *((inner, rows) if turn_x else (rows, inner)), dtype=dtype)
    y = normal(*lead[1], *((columns, inner) if turn_y else (inner, columns)), dtype=dtype, seed=1)
    assert_as_reference(BatchMatMulV2, (x, y), {"adj_x": turn_x, "adj_y": turn_y}, **TOLERANCES)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("turn_b", [False, True])
@pytest.mark.parametrize("rows", [4, 32, 300])
def test_native_product_with_a_matrix_beyond_the_caches(rows, turn_b):
    a, b = normal(rows, 700), normal(*((520, 700) if turn_b else (700, 520)), seed=1)
    assert_as_reference(MatMul, (a, b), {"transpose_b": turn_b}, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("turn_b", [False, True])
def test_native_product_keeps_nan_and_infinity_where_they_belong(turn_b):
    a, b = normal(9, 130), normal(130, 21, seed=1)
    a[3, 129], b[0, 20], a[5, 7] = np.nan, np.inf, -np.inf
    given_b = np.ascontiguousarray(b.T) if turn_b else b
    assert_as_reference(MatMul, (a, given_b), {"transpose_b": turn_b}, **TOLERANCES)
