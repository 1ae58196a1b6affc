"""Parts, rows and values of sparse tensors, what ids make of them, sets and edit distances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.executor.test_sparse_tensors import dense_of, in_order

INDICES = np.array([[0, 1], [0, 3], [2, 0], [2, 2], [2, 4]])
VALUES = np.array([1.0, -2.0, 3.0, 4.0, -5.0], np.float32)
DENSE = np.zeros((4, 5), np.float32)
DENSE[tuple(INDICES.T)] = VALUES
OTHER = tb.SparseTensorValue(
    np.array([[0, 1], [1, 2], [2, 4]]), np.array([5.0, -6.0, 7.0], np.float32), np.array([4, 5])
)
OTHER_DENSE = np.zeros((4, 5), np.float32)
OTHER_DENSE[tuple(OTHER.indices.T)] = OTHER.values


@pytest.fixture(autouse=True)
def session() -> Iterator[tb.Session]:
    with tb.Graph().as_default(), tb.Session() as made:
        yield made


def sample(values: Any = VALUES) -> Any:
    return tb.SparseTensor(INDICES, values, [4, 5])


def test_parts(session: tb.Session) -> None:
    cut = session.run(tb.sparse_slice(sample(), [0, 1], [3, 3]))
    np.testing.assert_array_equal(dense_of(cut), DENSE[:3, 1:4])
    beyond = session.run(tb.sparse_slice(sample(), [2, 3], [9, 9]))
    np.testing.assert_array_equal(dense_of(beyond), DENSE[2:, 3:])
    for number, axis in ((3, 0), (2, -1)):
        parts = session.run(tb.sparse_split(sp_input=sample(), num_split=number, axis=axis))
        for got, expected in zip(parts, np.array_split(DENSE, number, axis), strict=True):
            np.testing.assert_array_equal(dense_of(got), expected)
    for axis in (0, 1, None):
        wide = session.run(tb.sparse_expand_dims(sample(), axis))
        np.testing.assert_array_equal(dense_of(wide), np.expand_dims(DENSE, -1 if axis is None else axis))


def _dense(value: Any) -> Any:
    return dense_of(value) if value.dense_shape.size else value.values[0]


@pytest.mark.parametrize("keepdims", [False, True])
def test_reduced_entries(session: tb.Session, keepdims: bool) -> None:
    for axis in (0, -1, [1, 0], None):
        over = tuple(axis) if isinstance(axis, list) else axis
        order = [3, 0, 4, 1, 2]
        mixed = tb.SparseTensor(INDICES[order], VALUES[order], [4, 5])
        total = session.run(tb.sparse_reduce_sum_sparse(mixed, axis, keepdims))
        sums = DENSE.sum(over, keepdims=keepdims)
        np.testing.assert_allclose(_dense(total), sums, rtol=1e-6)
        present = np.zeros(DENSE.shape, bool)
        present[tuple(INDICES.T)] = True
        assert len(total.values) == present.any(over).sum()
        assert total.indices.shape == (len(total.values), sums.ndim)
        assert not total.dense_shape.size or in_order(total)
        greatest = session.run(tb.sparse_reduce_max_sparse(mixed, axis, keepdims))
        entries = np.where(present, DENSE, -np.inf).max(over, keepdims=keepdims)
        expected = np.where(present.any(over, keepdims=keepdims), entries, 0)
        np.testing.assert_array_equal(_dense(greatest), expected)
    values = tb.constant(VALUES)
    reduced = tb.sparse_reduce_sum_sparse(sample(values), 1, keepdims).values
    (slope,) = tb.gradients(reduced * [2.0, 3.0], values)
    assert session.run(slope).tolist() == [2, 2, 3, 3, 3]
    empty = tb.SparseTensor(np.zeros((0, 2), np.int64), np.zeros(0, np.float32), [4, 5])
    assert session.run(tb.sparse_reduce_sum_sparse(empty, 0, keepdims)).values.size == 0


def test_rows_and_shapes(session: tb.Session) -> None:
    filled, is_empty = session.run(tb.sparse_fill_empty_rows(sample(), 9.0))
    expected = DENSE.copy()
    expected[[1, 3], 0] = 9
    np.testing.assert_array_equal(dense_of(filled), expected)
    assert in_order(filled)
    assert is_empty.tolist() == [False, True, False, True]
    assert session.run(tb.sparse_reset_shape(sample())).dense_shape.tolist() == [3, 5]
    assert session.run(tb.sparse_reset_shape(sample(), [6, 5])).dense_shape.tolist() == [6, 5]
    with pytest.raises(InvalidArgumentError, match="the new shape is smaller; expected extents of at least"):
        session.run(tb.sparse_reset_shape(sample(), [2, 5]))
    with pytest.raises(InvalidArgumentError, match="expected 2 extents, as the tensor's"):
        tb.sparse_reset_shape(sample(), [2, 5, 1])


def test_values(session: tb.Session) -> None:
    soft = session.run(tb.sparse_softmax(sample()))
    shares = np.where(DENSE != 0, np.exp(DENSE), 0)
    np.testing.assert_allclose(
        dense_of(soft), shares / np.maximum(shares.sum(1, keepdims=True), 1e-9), rtol=1e-5
    )
    for function, plain in ((tb.sparse_maximum, np.maximum), (tb.sparse_minimum, np.minimum)):
        both = session.run(function(sample(), OTHER))
        np.testing.assert_array_equal(dense_of(both), plain(DENSE, OTHER_DENSE))
        assert in_order(both)
        assert len(both.values) == 6
    for axis, keepdims in ((None, False), (0, False), (1, True), ([0, 1], True)):
        known = np.where(DENSE != 0, DENSE, -np.inf)
        over = tuple(axis) if isinstance(axis, list) else axis
        expected = known.max(over, keepdims=keepdims)
        got = session.run(tb.sparse_reduce_max(sample(), axis, keepdims))
        np.testing.assert_array_equal(got, np.where(np.isinf(expected), 0, expected))


def test_gradients_reach_the_values(session: tb.Session) -> None:
    w = tb.constant(VALUES.astype(np.float64))
    steps = np.random.default_rng(0).normal(size=len(VALUES))
    other = tb.SparseTensor(OTHER.indices, tb.constant(OTHER.values.astype(np.float64)), [4, 5])

    def scalars(values: Any) -> list[Any]:
        made = sample(values)
        results = [
            tb.sparse_softmax(made).values,
            tb.sparse_maximum(made, other).values,
            tb.sparse_slice(made, [0, 1], [3, 3]).values,
        ]
        return [tb.reduce_sum(tb.square(each)) for each in results]

    slopes = [tb.gradients(y, w)[0] for y in scalars(w)]
    got = session.run(slopes)
    ends = [session.run(scalars(w + sign * 1e-6 * steps)) for sign in (1, -1)]
    for slope, after, before in zip(got, *ends, strict=True):
        assert float(slope @ steps) == pytest.approx((after - before) / 2e-6, rel=1e-5, abs=1e-7)


def test_ids_and_masks(session: tb.Session) -> None:
    ids = tb.SparseTensor([[0, 0], [0, 1], [2, 0]], tb.constant([3, 1, 0], tb.int64), [3, 2])
    values = tb.SparseTensor([[0, 0], [0, 1], [2, 0]], [0.5, 0.25, 2.0], [3, 2])
    merged = session.run(tb.sparse_merge(ids, values, 4))
    assert (merged.indices.tolist(), merged.values.tolist()) == ([[0, 1], [0, 3], [2, 0]], [0.25, 0.5, 2])
    assert merged.dense_shape.tolist() == [3, 4]
    double = session.run(tb.sparse_merge([ids, ids], values, [4, 5], already_sorted=True))
    assert double.indices.tolist() == [[0, 3, 3], [0, 1, 1], [2, 0, 0]]
    indicator = tb.sparse_to_indicator(ids, 4)
    assert indicator.shape == [3, 4]
    assert session.run(indicator).astype(int).tolist() == [[0, 1, 0, 1], [0] * 4, [1, 0, 0, 0]]
    rows = tb.IndexedSlices(tb.constant([[1.0], [2.0], [3.0]]), [4, 0, 7], [9, 1])
    kept = tb.sparse_mask(rows, [0, 5])
    assert session.run([kept.indices, kept.values])[0].tolist() == [4, 7]
    assert session.run(tb.sparse_matmul(DENSE, DENSE, transpose_b=True, a_is_sparse=True)).shape == (4, 4)


def test_sets(session: tb.Session) -> None:
    a = np.array([[[1, 2, 2], [3, 4, 9]], [[5, 5, 5], [0, 1, 2]]])
    b = np.array([[[2, 7], [4, 3]], [[6, 6], [2, 9]]])
    sparse = tb.SparseTensor(np.argwhere(np.ones_like(b)), tb.constant(b.ravel()), b.shape)
    for function, plain in (
        (tb.sets.set_intersection, np.intersect1d),
        (tb.sets.set_union, np.union1d),
        (tb.sets.set_difference, np.setdiff1d),
        (lambda x, y: tb.sets.set_difference(x, y, aminusb=False), lambda x, y: np.setdiff1d(y, x)),
    ):
        got = session.run(function(a, sparse))
        assert in_order(got)
        for i in np.ndindex(2, 2):
            row = got.values[(got.indices[:, :2] == i).all(1)]
            assert row.tolist() == plain(a[i], b[i]).tolist()
        widest = max(len(plain(a[i], b[i])) for i in np.ndindex(2, 2))
        assert got.dense_shape.tolist() == [2, 2, widest]
    assert session.run(tb.sets.set_size(tb.sets.set_union(a, b))).tolist() == [[3, 3], [2, 4]]
    assert session.run(tb.sets.set_size(tb.constant(a[0]))).tolist() == [2, 3]
    with pytest.raises(InvalidArgumentError, match="expected equal extents but for the last axis"):
        session.run(tb.sets.set_union(a, b[:1]))


def _slow_distance(a: list[int], b: list[int]) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(
        _slow_distance(a[1:], b) + 1,
        _slow_distance(a, b[1:]) + 1,
        _slow_distance(a[1:], b[1:]) + (a[0] != b[0]),
    )


def test_edit_distances(session: tb.Session) -> None:
    rng = np.random.default_rng(3)
    rows = [[rng.integers(0, 3, rng.integers(0, 5)).tolist() for _ in range(7)] for _ in range(2)]

    def made(lists: list[list[int]]) -> tb.SparseTensor:
        indices = [[0, b, i] for b, row in enumerate(lists) for i in range(len(row))]
        values = tb.constant([v for row in lists for v in row], tb.int64)
        return tb.SparseTensor(np.array(indices).reshape(-1, 3), values, [1, 7, 5])

    plain = session.run(tb.edit_distance(made(rows[0]), made(rows[1]), normalize=False))
    distances = [_slow_distance(a, b) for a, b in zip(*rows, strict=True)]
    assert plain.tolist() == [distances]
    shares = session.run(tb.edit_distance(made(rows[0]), made(rows[1])))
    for got, distance, a, b in zip(shares[0], distances, *rows, strict=True):
        assert got == pytest.approx(distance / len(b) if b else np.inf if a else 0)
