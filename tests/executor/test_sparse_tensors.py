"""Sparse tensors: fetches and feeds, conversions, products, order, shapes, lookups; gradients and errors."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.executor.slopes import check_slopes
from tests.ops_contract.sample import normal

pytestmark = pytest.mark.usefixtures("session")

INDICES = np.array([[0, 1], [1, 0], [1, 3], [2, 2]])
VALUES = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
DENSE = np.zeros((3, 4), np.float32)
DENSE[tuple(INDICES.T)] = VALUES


def sample():
    return tb.SparseTensor(INDICES, VALUES, [3, 4])


def dense_of(value):
    dense = np.zeros(tuple(value.dense_shape), np.asarray(value.values).dtype)
    np.add.at(dense, tuple(np.asarray(value.indices).T), value.values)
    return dense


def in_order(value):
    flat = np.ravel_multi_index(tuple(value.indices.T), tuple(value.dense_shape))
    return (np.diff(flat) > 0).all()


def test_fetched_and_fed(session):
    sparse = tb.sparse_placeholder(tb.float32, [None, 4])
    given = tb.SparseTensorValue(INDICES, VALUES, [3, 4])
    value = session.run({"sparse": sparse, "twice": sparse.values * 2.0}, {sparse: given})
    assert type(value["sparse"]) is tb.SparseTensorValue
    np.testing.assert_array_equal(dense_of(value["sparse"]), DENSE)
    np.testing.assert_array_equal(value["twice"], VALUES * 2)
    np.testing.assert_array_equal(dense_of(session.run(sample())), DENSE)
    fixed = tb.sparse_placeholder(tb.float32, (3, 4), name="fixed")
    assert fixed.shape == [3, 4]
    assert sparse.shape == [None, None]
    np.testing.assert_array_equal(dense_of(session.run(fixed, {fixed: tuple(given)})), DENSE)
    with pytest.raises(InvalidArgumentError, match=r"feed .*fixed.*expected dense_shape \[3, 4\], got"):
        session.run(fixed, {fixed: (INDICES, VALUES, [4, 4])})
    with pytest.raises(InvalidArgumentError, match=r"feed .*expected tb.SparseTensorValue"):
        session.run(fixed, {fixed: DENSE})
    assert "SparseTensor 'fixed/values:0' shape=[3, 4] dtype=float32" in repr(fixed)


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(
        InvalidArgumentError, match=r"SparseTensor: indices is int64\[2\], expected \[n, rank\]"
    ):
        tb.SparseTensor([0, 1], [1.0, 2.0], [3])
    with pytest.raises(InvalidArgumentError, match=r"expected \[n, rank\], \[n\] and \[rank\]"):
        tb.SparseTensor(INDICES, VALUES[:3], [3, 4])
    with pytest.raises(InvalidArgumentError, match=r"indices has dtype float32, expected int32 or int64"):
        tb.SparseTensor(INDICES.astype(np.float32), VALUES, [3, 4])


def test_to_dense(session):
    np.testing.assert_array_equal(session.run(tb.sparse_tensor_to_dense(sample())), DENSE)
    filled = session.run(tb.sparse_tensor_to_dense(sample(), default_value=-1.0))
    np.testing.assert_array_equal(filled, np.where(DENSE == 0, -1, DENSE))
    assert session.run(tb.sparse_to_dense(2, [4], 7)).tolist() == [0, 0, 7, 0]
    assert session.run(tb.sparse_to_dense([1, 3], [4], 1.5, 0.5)).tolist() == [0.5, 1.5, 0.5, 1.5]
    np.testing.assert_array_equal(session.run(tb.sparse_to_dense(INDICES, [3, 4], VALUES)), DENSE)
    repeated = [[1, 1], [0, 0], [1, 1]]
    with pytest.raises(
        InvalidArgumentError, match=r"not in row-major order, or repeat; use tb.sparse_reorder"
    ):
        session.run(tb.sparse_to_dense(repeated, [2, 2], [1, 2, 3]))
    loose = tb.sparse_to_dense(repeated, [2, 2], [1, 2, 3], validate_indices=False)
    assert session.run(loose).tolist() == [[2, 0], [0, 4]]
    with pytest.raises(InvalidArgumentError, match=r"not in \[0, 8\)"):
        session.run(tb.sparse_to_dense([[0, 5]], [2, 4], [1]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("adjoint_a", [False, True])
@pytest.mark.parametrize("adjoint_b", [False, True])
def test_products_with_a_dense_matrix(session, adjoint_a, adjoint_b):
    left = DENSE.T if adjoint_a else DENSE
    right = normal(left.shape[1], 5)
    b = tb.placeholder(tb.float32, [None, None])
    fed = right.T if adjoint_b else right
    for sparse, more in ((sample(), {}), (tb.sparse_placeholder(tb.float32, [None, None]), {})):
        feeds = {b: fed, **more}
        if sparse.dense_shape.op.type == "Placeholder":
            feeds[sparse] = tb.SparseTensorValue(INDICES[::-1], VALUES[::-1], [3, 4])
        product = tb.sparse_tensor_dense_matmul(sparse, b, adjoint_a, adjoint_b)
        np.testing.assert_allclose(session.run(product, feeds), left @ right, rtol=1e-5)


def test_inner_extents_are_compared():
    with pytest.raises(InvalidArgumentError, match="inner extents 4 and 3 differ"):
        tb.sparse_tensor_dense_matmul(sample(), tb.ones([3, 2]))
    with pytest.raises(InvalidArgumentError, match="expected two matrices"):
        tb.sparse_tensor_dense_matmul(sample(), tb.ones([4]))


def test_order_shape_and_axes(session):
    order = [2, 0, 3, 1]
    mixed = tb.SparseTensor(INDICES[order], VALUES[order], [3, 4])
    sorted_value = session.run(tb.sparse_reorder(mixed))
    np.testing.assert_array_equal(sorted_value.indices, INDICES)
    np.testing.assert_array_equal(sorted_value.values, VALUES)
    for shape in ([2, 6], [12], [2, -1, 3], [-1, 1]):
        value = session.run(tb.sparse_reshape(sample(), shape))
        np.testing.assert_array_equal(dense_of(value), DENSE.reshape(shape))
    with pytest.raises(InvalidArgumentError, match=r"sparse_reshape: the number of elements differs"):
        session.run(tb.sparse_reshape(sample(), [5, 3]))
    turned = session.run(tb.sparse_transpose(sample()))
    np.testing.assert_array_equal(dense_of(turned), DENSE.T)
    assert in_order(turned)
    with pytest.raises(InvalidArgumentError, match="no permutation of 2 axes"):
        tb.sparse_transpose(sample(), [0, 0])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenation_and_sums(session, axis):
    other = tb.sparse_transpose(tb.sparse_transpose(sample()))
    joined = session.run(tb.sparse_concat(axis, [sample(), other, sample()]))
    np.testing.assert_array_equal(dense_of(joined), np.concatenate([DENSE] * 3, axis))
    assert in_order(joined)
    total = session.run(tb.sparse_add(sample(), tb.sparse_reshape(tb.sparse_reshape(other, [12]), [3, 4])))
    np.testing.assert_array_equal(dense_of(total), 2 * DENSE)
    assert in_order(total)
    np.testing.assert_array_equal(session.run(tb.sparse_add(sample(), tb.ones([3, 4]))), DENSE + 1)
    np.testing.assert_array_equal(session.run(tb.sparse_reduce_sum(sample(), axis)), DENSE.sum(axis))
    kept = session.run(tb.sparse_reduce_sum(sample(), axis, keepdims=True))
    np.testing.assert_array_equal(kept, DENSE.sum(axis, keepdims=True))
    assert session.run(tb.sparse_reduce_sum(sample())) == DENSE.sum()
    wrong = tb.SparseTensor(INDICES, VALUES, [7, 9])
    with pytest.raises(InvalidArgumentError, match="sparse_concat: extents of other axes than"):
        session.run(tb.sparse_concat(axis, [sample(), wrong]))
    with pytest.raises(InvalidArgumentError, match="sparse_add: the dense shapes differ"):
        session.run(tb.sparse_add(sample(), wrong))


def test_values_are_mapped(session):
    values = np.array([1.5, -2.5, 0.25, -0.75], np.float32)
    sparse = tb.SparseTensor(INDICES, values, [3, 4])
    for name in ("abs", "negative", "round", "sign", "square", "tanh"):
        got = session.run(getattr(tb, name)(sparse, name=name))
        assert type(got) is tb.SparseTensorValue
        np.testing.assert_array_equal(got.indices, INDICES)
        np.testing.assert_allclose(got.values, getattr(np, name)(values), rtol=1e-6)
        assert got.dense_shape.tolist() == [3, 4]
    np.testing.assert_allclose(session.run(tb.sqrt(sample())).values, np.sqrt(VALUES), rtol=1e-6)
    np.testing.assert_allclose(session.run(tb.erf(x=sample())).values[0], 0.8427008, rtol=1e-5)
    whole = tb.cast(sparse, tb.int32)
    assert isinstance(whole, tb.SparseTensor)
    assert whole.dtype is tb.int32
    assert session.run(whole).values.tolist() == [1, -2, 0, 0]
    assert tb.cast(sparse, tb.float32) is sparse
    x = tb.constant(values)
    (slope,) = tb.gradients(tb.square(tb.SparseTensor(INDICES, x, [3, 4])).values, x)
    np.testing.assert_allclose(session.run(slope), 2 * values)


def test_a_rank_that_a_run_decides(session):
    sparse = tb.sparse_placeholder(tb.float32)
    fed = {sparse: tb.SparseTensorValue(INDICES, VALUES, [3, 4])}
    cube = np.stack([DENSE, 2 * DENSE])
    of_cube = tb.SparseTensorValue(np.argwhere(cube), cube[cube != 0], cube.shape)
    dense, filled = tb.sparse_tensor_to_dense(sparse), tb.sparse_tensor_to_dense(sparse, -1.0)
    cases = [(axis, keepdims) for axis in (0, -1, None) for keepdims in (True, False)]
    sums = [tb.sparse_reduce_sum(sparse, *case) for case in cases]
    for value, expected in ((fed[sparse], DENSE), (of_cube, cube)):
        got, other, totals = session.run([dense, filled, sums], {sparse: value})
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(other, np.where(expected == 0, -1, expected))
        for total, (axis, keepdims) in zip(totals, cases, strict=True):
            np.testing.assert_array_equal(total, expected.sum(axis, keepdims=keepdims))
    mixed = tb.SparseTensorValue(INDICES[::-1], VALUES[::-1], [3, 4])
    in_rows = session.run(tb.sparse_reorder(sparse), {sparse: mixed})
    np.testing.assert_array_equal(in_rows.indices, INDICES)
    twice = session.run(tb.sparse_add(sparse, sparse), fed)
    np.testing.assert_array_equal(dense_of(twice), 2 * DENSE)
    greater = session.run(tb.sparse_maximum(sparse, tb.SparseTensor([[1, 2]], [5.0], [3, 4])), fed)
    assert dense_of(greater)[1].tolist() == [2, 0, 5, 3]
    flat = session.run(tb.sparse_reshape(sparse, [2, -1]), fed)
    np.testing.assert_array_equal(dense_of(flat), DENSE.reshape(2, -1))
    with pytest.raises(InvalidArgumentError, match=r"axis \S*2\S* is outside the rank"):
        session.run(tb.sparse_reduce_sum(sparse, 2), fed)
    wrong = tb.SparseTensorValue([[0, 5]], [1.0], [2, 4])
    with pytest.raises(InvalidArgumentError, match="outside its dense shape"):
        session.run(dense, {sparse: wrong})
    (slope,) = tb.gradients(
        tb.sparse_reduce_sum(sparse, 0) * tb.constant([1.0, 2.0, 3.0, 4.0]), sparse.values
    )
    assert session.run(slope, fed).tolist() == [2, 1, 4, 3]


def test_retained_entries(session):
    kept = session.run(tb.sparse_retain(sample(), sample().values > 1.5))
    np.testing.assert_array_equal(dense_of(kept), DENSE * (DENSE > 1.5))


def test_segments_of_gathered_rows(session):
    data, ids = normal(5, 2), [3, 0, 3, 1]
    rows, numbers = data[ids], [0, 0, 0, 1]
    sums = np.stack([rows[:3].sum(0), rows[3]])
    np.testing.assert_allclose(session.run(tb.sparse_segment_sum(data, ids, numbers)), sums, rtol=1e-6)
    means = session.run(tb.sparse_segment_mean(data, ids, numbers))
    np.testing.assert_allclose(means, sums / [[3], [1]], rtol=1e-6)
    roots = session.run(tb.sparse_segment_sqrt_n(data, ids, numbers))
    np.testing.assert_allclose(roots, sums / np.sqrt([[3], [1]]), rtol=1e-6)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True])
def test_lookups_of_several_ids(session, combiner, weighted):
    table = normal(6, 3)
    ids = np.array([[0, 0], [0, 2], [2, 0]]), np.array([4, 1, 4]), np.array([4, 5])
    weights = np.array([0.5, 2.0, 3.0], np.float32) if weighted else np.ones(3, np.float32)
    sp_weights = tb.SparseTensor(ids[0], weights, ids[2]) if weighted else None
    found = tb.nn.embedding_lookup_sparse(table, tb.SparseTensor(*ids), sp_weights, combiner=combiner)
    expected = np.zeros((4, 3))
    for row, chosen in ((0, [0, 1]), (2, [2])):
        part = weights[chosen]
        norm = {"sum": 1.0, "mean": part.sum(), "sqrtn": np.sqrt((part**2).sum())}[combiner]
        expected[row] = (table[ids[1][chosen]] * part[:, None]).sum(0) / norm
    np.testing.assert_allclose(session.run(found), expected, rtol=1e-5)


def test_a_lookup_trains_a_table_in_shards_and_its_gradient_is_sparse(session):
    sparse = tb.sparse_placeholder(tb.int32, [None, None])
    fed = {sparse: tb.SparseTensorValue([[0, 0], [0, 1], [1, 0]], [4, 1, 4], [2, 2])}
    table = tb.Variable(np.zeros((6, 2), np.float32))
    loss = tb.reduce_sum(tb.nn.embedding_lookup_sparse(table, sparse, None, combiner="sum"))
    assert isinstance(tb.gradients(loss, table)[0], tb.IndexedSlices)
    shards = [tb.Variable(np.zeros((3, 2), np.float32)) for _ in range(2)]
    looked_up = tb.nn.embedding_lookup_sparse(shards, sparse, None, combiner="sum")
    optimizer = tb.train.GradientDescentOptimizer(1.0)
    updates = [optimizer.minimize(loss), optimizer.minimize(tb.reduce_sum(looked_up))]
    session.run(tb.global_variables_initializer())
    session.run(updates, fed)
    value, parts = session.run([table, shards])
    assert value.tolist() == [[0, 0], [-1, -1], [0, 0], [0, 0], [-2, -2], [0, 0]]
    np.testing.assert_array_equal(np.stack(parts, 1).reshape(6, 2), value)  # row i is in shard i mod 2


@pytest.mark.slow
def test_gradients_are_right_numerically(session):
    def sparse(values):
        return tb.SparseTensor(INDICES, values, [3, 4])

    def both(values, b):
        product = tb.sparse_tensor_dense_matmul(sparse(values), b)
        total = tb.sparse_add(sparse(values), tb.sparse_transpose(tb.sparse_reshape(sparse(values), [4, 3])))
        joined = tb.sparse_concat(0, [total, sparse(values * 2.0)])
        return [product, tb.sparse_tensor_to_dense(joined), tb.sparse_reduce_sum(joined, 1)]

    check_slopes(session, both, [VALUES, normal(4, 2)])


def test_a_sparse_step_beside_replicas():
    """A bag of words by a sparse product, in a step of several replicas."""

    def step_fn(rows):
        words = tb.SparseTensor(INDICES, VALUES, [3, 4])
        return tb.reduce_sum(tb.sparse_tensor_dense_matmul(words, rows))

    def input_fn(replica_id):
        while True:
            yield np.full((4, 2), 1.0 + replica_id, np.float32)

    replicator = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"])
    with replicator.context():
        values = next(iter(replicator.train(step_fn, input_fn, steps=1)))
    assert np.asarray(values).tolist() == [20.0, 40.0]
