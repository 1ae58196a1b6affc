"""Fractional pooling against one window at a time, and the windows that it draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.ops.fractional_pooling import _Windows
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.sample import normal

pytestmark = pytest.mark.usefixtures("session")

X = normal(2, 7, 10, 3)
POOLS = [(tb.nn.fractional_max_pool, np.max), (tb.nn.fractional_avg_pool, np.mean)]


def naive(x, rows, columns, overlapping, reduced):
    y = np.empty((x.shape[0], len(rows) - 1, len(columns) - 1, x.shape[3]), x.dtype)
    for i in range(len(rows) - 1):
        for j in range(len(columns) - 1):
            window = x[:, rows[i] : rows[i + 1] + overlapping, columns[j] : columns[j + 1] + overlapping]
            y[:, i, j] = reduced(window, axis=(1, 2))
    return y


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("pseudo_random", [False, True])
@pytest.mark.parametrize(("pool", "reduced"), POOLS)
def test_windows_are_those_of_the_sequences(session, pool, reduced, pseudo_random, overlapping):
    x = tb.placeholder(tb.float32, [None, 7, 10, 3])
    pooled = pool(x, [1, 1.44, 2.6, 1], pseudo_random, overlapping, seed=7)
    assert [t.shape.as_list() for t in pooled] == [[None, 4, 3, 3], [5], [4]]
    drawn = set()
    for _ in range(6):
        y, rows, columns = session.run(pooled, {x: X})
        np.testing.assert_allclose(y, naive(X, rows, columns, overlapping, reduced), rtol=1e-6, atol=1e-6)
        assert set(np.diff(rows)) <= {1, 2}
        assert set(np.diff(columns)) <= {3, 4}
        drawn.add((*rows, *columns))
    assert len(drawn) > 1


def test_seeds_and_fixed_windows(session):
    def drawn(**options):
        with tb.Graph().as_default(), tb.Session() as session:
            pooled = tb.nn.fractional_max_pool(X, [1, 1.3, 1.3, 1], **options)
            return [[a.tolist() for a in session.run(pooled)[1:]] for _ in range(4)]

    for pseudo_random in (False, True):
        options = {"pseudo_random": pseudo_random, "seed": 5, "seed2": 9}
        assert drawn(**options) == drawn(**options)
        fixed = drawn(deterministic=True, **options)
        assert fixed == drawn(deterministic=True, **options)
        assert all(each == fixed[0] for each in fixed)
    assert len({str(drawn(deterministic=True, seed=seed)[0]) for seed in range(1, 9)}) > 1


@given(st.integers(1, 40), st.data(), st.booleans(), st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_fixed_windows_have_two_extents(extent, data, pseudo_random, seed):
    count = data.draw(st.integers(1, extent))
    if extent % count == 0:
        return
    windows = _Windows("pool", (1, 1, 1, 1), pseudo_random, False, True)
    begins = windows._fixed_begins(extent, count, (seed, 1))
    assert (begins[0], begins[-1], len(begins)) == (0, extent, count + 1)
    assert set(np.diff(begins)) == {extent // count, extent // count + 1}


def test_whole_ratios_give_even_windows(session):
    for pseudo_random in (False, True):
        y, rows, columns = session.run(tb.nn.fractional_avg_pool(X, [1, 7, 5, 1], pseudo_random))
        assert (rows.tolist(), columns.tolist()) == ([0, 7], [0, 5, 10])
        np.testing.assert_allclose(y[:, 0, 1], X[:, :, 5:].mean((1, 2)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("pool", "reduced"), POOLS)
def test_gradients(pool, reduced):
    for overlapping in (False, True):
        check_gradients(
            lambda x, overlapping=overlapping: [
                pool(x, [1, 1.4, 1.7, 1], False, overlapping, deterministic=True, seed=2)[0]
            ],
            [X[:1]],
        )


def test_integers(session):
    integers = tb.constant(np.arange(24).reshape(1, 4, 6, 1), tb.int32)
    y, rows, columns = session.run(tb.nn.fractional_max_pool(integers, [1, 1.5, 1.5, 1], seed=1))
    np.testing.assert_array_equal(
        y, naive(np.arange(24, dtype=np.int32).reshape(1, 4, 6, 1), rows, columns, False, np.max)
    )


def test_errors():
    for ratio in ([1, 1.5, 1.5], [2, 1.5, 1.5, 1], [1, 0.9, 1.5, 1], [1, 1.5, 1.5, 2]):
        with pytest.raises(
            InvalidArgumentError, match=r"expected pooling_ratio to be \[1, rows, columns, 1\]"
        ):
            tb.nn.fractional_max_pool(X, ratio)
    with pytest.raises(InvalidArgumentError, match="expected at least 8 pixels along axis 1"):
        tb.nn.fractional_avg_pool(X, [1, 8, 1, 1])
    with pytest.raises(InvalidArgumentError, match="with known height and width; give them by set_shape"):
        tb.nn.fractional_avg_pool(tb.placeholder(tb.float32, [1, None, 3, 1]), [1, 1, 1, 1])
    with pytest.raises(InvalidArgumentError, match="fractional_avg_pool: value"):
        tb.nn.fractional_avg_pool(tb.zeros([1, 3, 3, 1], tb.int32), [1, 1, 1, 1])
