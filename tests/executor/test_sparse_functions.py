"""Parts, rows and values of sparse tensors, what ids make of them, sets and edit distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.executor.test_sparse_tensors import dense_of, in_order

pytestmark = pytest.mark.usefixtures("session")

INDICES = np.array([[0, 1], [0, 3], [2, 0], [2, 2], [2, 4]])
VALUES = np.array([1.0, -2.0, 3.0, 4.0, -5.0], np.float32)
DENSE = np.zeros((4, 5), np.float32)
DENSE[tuple(INDICES.T)] = VALUES
OTHER = tb.SparseTensorValue(
    np.array([[0, 1], [1, 2], [2, 4]]), np.array([5.0, -6.0, 7.0], np.float32), np.array([4, 5])
)
OTHER_DENSE = np.zeros((4, 5), np.float32)
OTHER_DENSE[tuple(OTHER.indices.T)] = OTHER.values


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


RANKLESS = (
    lambda x: tb.sparse_transpose(x),
    lambda x: tb.sparse_transpose(x, [1, 0]),
    lambda x: tb.sparse_concat(-1, [x, x]),
    lambda x: tb.sparse_concat(0, [x, tb.sparse_reset_shape(x, [7, 6])], expand_nonconcat_dim=True),
    lambda x: tb.sparse_slice(x, [0, 1], [3, 3]),
    lambda x: tb.sparse_split(sp_input=x, num_split=2, axis=-1)[0],
    lambda x: tb.sparse_expand_dims(x),
    lambda x: tb.sparse_expand_dims(x, 0),
    lambda x: tb.sparse_expand_dims(x, -2),
    lambda x: tb.sparse_reset_shape(x),
    lambda x: tb.sparse_reset_shape(x, [6, 7]),
    lambda x: tb.sparse_reshape(x, tb.constant([5, -1])),
    lambda x: tb.sparse_fill_empty_rows(x, 7.0)[0],
    lambda x: tb.sparse_softmax(x),
    lambda x: tb.sparse_add(x, sample(), thresh=3.0),
    lambda x: tb.sparse_add(sample(), x),
    lambda x: tb.sparse_reduce_sum(x, -1),
    lambda x: tb.sparse_reduce_max(x, [0], keepdims=True),
    lambda x: tb.sparse_reduce_max(x),
    lambda x: tb.sparse_reduce_sum_sparse(x, [1]),
    lambda x: tb.sparse_reduce_max_sparse(x, 0, keepdims=True),
    lambda x: tb.sparse_to_indicator(tb.SparseTensor(x.indices, np.arange(5), x.dense_shape), 5),
    lambda x: tb.sparse_tensor_dense_matmul(x, np.eye(4, 3, dtype=np.float32), adjoint_a=True),
    lambda x: x * np.arange(5, dtype=np.float32),
)


@pytest.mark.parametrize("number", range(len(RANKLESS)))
def test_a_rank_that_only_a_run_knows(session: tb.Session, number: int) -> None:
    fed = tb.sparse_placeholder(tb.float32)
    value = tb.SparseTensorValue(INDICES, VALUES, [4, 5])
    got = session.run(RANKLESS[number](fed), {fed: value})
    expected = session.run(RANKLESS[number](sample()))
    for left, right in zip(*(x if isinstance(x, tuple) else [x] for x in (got, expected)), strict=True):
        np.testing.assert_array_equal(left, right)


def test_what_does_not_fit_a_rank_that_only_a_run_knows(session: tb.Session) -> None:
    fed = tb.sparse_placeholder(tb.float32)
    value = tb.SparseTensorValue(INDICES, VALUES, [4, 5])
    for refused, words in (
        (tb.sparse_transpose(fed, [2, 0, 1]), "sparse_transpose: expected a sparse tensor of rank 3"),
        (tb.sparse_expand_dims(fed, 3), "sparse_expand_dims: axis 3 is outside the rank"),
        (tb.sparse_reduce_max(fed, -3), r"sparse_reduce_max: axis \(-3,\) is outside the rank"),
        (tb.sparse_reset_shape(fed, [9, 9, 9]), "expected a sparse tensor of rank 3"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            session.run(refused, {fed: value})


@pytest.mark.parametrize("shape", [(), (5,), (1,), (4, 1), (4, 5), (1, 5)])
def test_a_dense_operand(session: tb.Session, shape: tuple[int, ...]) -> None:
    dense = (1.5 + np.arange(np.prod(shape, dtype=int))).reshape(shape).astype(np.float32)
    tensor = tb.constant(dense)
    for result, expected in (
        (sample() * tensor, DENSE * dense),
        (tensor * sample(), DENSE * dense),
        (sample() / tensor, DENSE / dense),
    ):
        np.testing.assert_allclose(dense_of(session.run(result)), expected, rtol=1e-6)
    wide = tb.constant(dense.astype(np.float64))
    values = tb.constant(VALUES.astype(np.float64))
    weights = np.arange(1.0, 6.0)
    slopes = tb.gradients((sample(values) / wide).values * weights, [values, wide])
    known = np.broadcast_to(dense, (4, 5))[tuple(INDICES.T)].astype(np.float64)
    of_values, of_dense = session.run(slopes)
    np.testing.assert_allclose(of_values, weights / known)
    full = np.zeros((4, 5))
    full[tuple(INDICES.T)] = -weights * VALUES / known**2
    lead = tuple(range(2 - len(shape)))
    gone = tuple(i for i, n in enumerate(shape) if n == 1)
    np.testing.assert_allclose(of_dense, full.sum(lead).sum(gone, keepdims=True), atol=1e-12)


def test_dense_operands_that_do_not_fit(session: tb.Session) -> None:
    with pytest.raises(InvalidArgumentError, match="expected one that broadcasts to"):
        _ = sample() * np.ones((1, 4, 5), np.float32)
    with pytest.raises(InvalidArgumentError, match="expected one that broadcasts to"):
        _ = sample() * np.ones(4, np.float32)
    fed = tb.placeholder(tb.float32, [None])
    with pytest.raises(InvalidArgumentError, match="does not broadcast to the shape of the sparse one"):
        session.run(sample() * fed, {fed: np.ones(4, np.float32)})


def test_to_and_from_dense(session: tb.Session) -> None:
    for dense in (DENSE, DENSE.reshape(2, 2, 5), DENSE != 0, np.zeros((2, 0), np.float32)):
        made = session.run(tb.sparse.from_dense(dense))
        np.testing.assert_array_equal(dense_of(made), dense)
        assert (made.values != 0).all()
    unknown = tb.placeholder(tb.float32)
    np.testing.assert_array_equal(
        dense_of(session.run(tb.sparse_from_dense(unknown), {unknown: DENSE})), DENSE
    )
    words = session.run(tb.sparse_from_dense([["", "a"], ["b", ""]]))
    assert (words.indices.tolist(), words.values.tolist()) == ([[0, 1], [1, 0]], [b"a", b"b"])
    np.testing.assert_array_equal(dense_of(tb.sparse.eye(3).eval(session=session)), np.eye(3))
    np.testing.assert_array_equal(dense_of(session.run(tb.sparse.eye(2, 5, tb.int32))), np.eye(2, 5))
    again = tb.SparseTensor.from_value(tb.SparseTensorValue(INDICES, VALUES, [4, 5]))
    assert again.op is again.values.op


def test_segments_of_a_given_number(session: tb.Session) -> None:
    data, rows, ids = DENSE, [2, 0, 2], [0, 0, 2]
    fed = tb.placeholder(tb.float32)  # of a rank that only a run knows
    for function, scale in (
        (tb.sparse_segment_sum, 1),
        (tb.sparse_segment_mean, 2),
        (tb.sparse_segment_sqrt_n, np.sqrt(2)),
    ):
        expected = np.stack([(data[2] + data[0]) / scale, np.zeros(5), data[2], np.zeros(5)])
        np.testing.assert_allclose(
            session.run(function(data, rows, ids, num_segments=4)), expected, rtol=1e-6
        )
        for numbers in (ids, tb.identity(ids)):
            found = session.run(function(fed, rows, numbers), {fed: data})
            np.testing.assert_allclose(found, expected[:3], rtol=1e-6)


def test_lookups_of_rows_up_to_a_norm(session: tb.Session) -> None:
    table = np.array([[3.0, 4.0], [0.0, 0.5], [6.0, 8.0]], np.float32)
    short = np.array([[0.6, 0.8], [0.0, 0.5], [0.6, 0.8]], np.float32)
    ids = tb.SparseTensor([[0, 0], [0, 1], [2, 0]], tb.constant([0, 1, 2], tb.int64), [3, 2])
    shards = [tb.Variable(table[:2]), tb.Variable(table[2:])]
    session.run(tb.global_variables_initializer())
    plain = tb.nn.embedding_lookup_sparse(table, ids, None, combiner="sum", max_norm=1.0)
    safe = tb.nn.safe_embedding_lookup_sparse(shards, ids, None, "sum", max_norm=1.0)
    for found in session.run([plain, safe]):
        np.testing.assert_allclose(found, [short[0] + short[1], [0, 0], short[2]], rtol=1e-6)
    assert isinstance(tb.gradients(safe, shards)[0], tb.IndexedSlices)
    with pytest.raises(InvalidArgumentError, match="max_norm needs params and ids of known ranks"):
        tb.nn.embedding_lookup(table, tb.placeholder(tb.int32), max_norm=1.0)


def test_safe_lookups(session: tb.Session) -> None:
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    ids = tb.SparseTensor([[0, 0], [0, 1], [1, 0], [3, 2]], tb.constant([1, -1, -1, 3], tb.int64), [4, 3])
    plain = session.run(tb.nn.safe_embedding_lookup_sparse(table, ids))
    np.testing.assert_array_equal(plain, [table[1], [0, 0], [0, 0], table[3]])
    filled = session.run(tb.nn.safe_embedding_lookup_sparse(table, ids, default_id=2))
    np.testing.assert_array_equal(filled, [table[1], table[2], table[2], table[3]])
    weights = tb.SparseTensor(ids.indices, [2.0, 1.0, 1.0, 0.0], [4, 3])
    weighted = session.run(tb.nn.safe_embedding_lookup_sparse(table, ids, weights, default_id=2))
    np.testing.assert_array_equal(weighted, [table[1], table[2], table[2], table[2]])
    deep = tb.sparse_reshape(ids, [2, 2, 3])
    np.testing.assert_array_equal(
        session.run(tb.nn.safe_embedding_lookup_sparse(table, deep, combiner="sum")), plain.reshape(2, 2, 2)
    )


def test_parts_and_boxes_of_other_ranks_are_refused():
    flat = tb.SparseTensor([[1]], [1.0], [4])
    deep = tb.SparseTensor([[1, 2]], [1.0], [3, 4])
    with pytest.raises(InvalidArgumentError, match="sparse_concat"):
        tb.sparse_concat(0, [deep, flat])
    with pytest.raises(InvalidArgumentError, match=r"sparse_slice: start is .*, expected \[2\]"):
        tb.sparse_slice(deep, [0], [3])
