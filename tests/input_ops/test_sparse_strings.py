"""Sparse tensors as strings, and batches of them."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.executor.test_sparse_tensors import dense_of

pytestmark = pytest.mark.usefixtures("session")

pytest.importorskip("google.protobuf")
ROWS = [np.array([0, 3.0, 0]), np.zeros(0), np.array([1.0, 2, 0, 4])]


def sparse_row(row):
    return tb.SparseTensor(np.argwhere(row), row[row != 0], [len(row)])


def padded(rows):
    widest = max(map(len, rows))
    return np.stack([np.pad(row, (0, widest - len(row))) for row in rows])


def test_rows_become_a_minibatch_again(session):
    strings = tb.stack([tb.serialize_sparse(sparse_row(row)) for row in ROWS])
    for rank in (1, None):
        joined = tb.deserialize_many_sparse(strings, tb.float64, rank)
        assert joined.rank == (2 if rank else None)
        np.testing.assert_array_equal(dense_of(session.run(joined)), padded(ROWS))
    many = tb.sparse_from_dense(padded(ROWS))
    packed = tb.serialize_many_sparse(many)
    assert packed.shape == [3, 3]
    again = session.run([tb.deserialize_many_sparse(packed, tb.float64), many])
    for left, right in zip(*again, strict=True):
        np.testing.assert_array_equal(left, right)
    words = tb.SparseTensor([[1]], ["a\0"], [3])
    value = session.run(tb.deserialize_many_sparse([tb.serialize_sparse(words)], tb.string, 1))
    assert (value.indices.tolist(), value.values.tolist()) == ([[0, 1]], [b"a\0"])


def test_what_does_not_fit_is_refused(session):
    one, two = (
        tb.serialize_sparse(sparse_row(ROWS[0])),
        tb.serialize_sparse(tb.sparse_eye(2, 2, tb.float64)),
    )
    unordered = tb.SparseTensor([[1, 0], [0, 0]], [1.0, 2.0], [2, 1])
    outside = tb.SparseTensor([[2, 0]], [1.0], [2, 1])
    for refused, words in (
        (tb.deserialize_many_sparse([one], tb.float32), "row 0 has .* of float64, expected float32"),
        (tb.deserialize_many_sparse([one], tb.float64, 2), "expected a sparse tensor of rank 3"),
        (tb.deserialize_many_sparse([one, two], tb.float64), "row 1 .* and one rank in all"),
        (tb.deserialize_many_sparse(tb.fill([0, 3], ""), tb.float64), "expected at least one sparse tensor"),
        (tb.deserialize_many_sparse([["a", "b", "c"]], tb.float64), "no TensorProto"),
        (tb.serialize_many_sparse(unordered), "not in row-major order, or outside of the shape"),
        (tb.serialize_many_sparse(outside), "not in row-major order, or outside of the shape"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            session.run(refused)
    with pytest.raises(InvalidArgumentError, match=r"expected \[n, 3\]"):
        tb.deserialize_many_sparse(["a", "b"], tb.float64)
    with pytest.raises(InvalidArgumentError, match=r"expected a minibatch \[n, ...\]"):
        tb.serialize_many_sparse(tb.SparseTensor(np.zeros((1, 0), np.int64), [1.0], []))


def _batches(session, fetches):
    session.run(tb.local_variables_initializer())
    coordinator, found = tb.train.Coordinator(), []
    threads = tb.train.start_queue_runners(session, coordinator)
    try:
        while True:
            found.append(session.run(fetches))
    except tb.errors.OutOfRangeError:
        coordinator.request_stop()
    coordinator.join(threads)
    return found


def _numbered(limit):
    """A number n, and the sparse vector of extent n + 1 with n at its end."""
    number = tb.train.range_input_producer(limit, num_epochs=1, shuffle=False).dequeue()
    extent = tb.reshape(tb.cast(number, tb.int64), [1])
    return number, tb.SparseTensor(tb.expand_dims(extent, 0), tb.reshape(number, [1]), extent + 1)


def test_batches_of_sparse_tensors(session):
    number, vector = _numbered(5)
    taken = tb.train.batch({"n": number, "v": vector}, 2, allow_smaller_final_batch=True)
    assert (taken["v"].rank, taken["v"].dtype) == (2, tb.int32)
    found = _batches(session, taken)
    assert [each["n"].tolist() for each in found] == [[0, 1], [2, 3], [4]]
    for each in found:
        expected = [np.pad([n], (n, each["n"].max() - n)) for n in each["n"]]
        np.testing.assert_array_equal(dense_of(each["v"]), expected)


def test_shuffled_batches_and_those_of_several_sources(session):
    alone = tb.train.shuffle_batch(_numbered(6)[1], 3, 6, 2, seed=1)
    found = _batches(session, alone)
    assert sorted(value for each in found for value in each.values) == [0, 1, 2, 3, 4, 5]
    sources = [[_numbered(4)[1], "a"], [_numbered(4)[1], "b"]]
    both = _batches(session, tb.train.batch_join(sources, 4))
    assert sorted(value for each, _ in both for value in each.values) == sorted([*range(4)] * 2)


def test_minibatches_are_taken_apart(session):
    rows = tb.sparse_from_dense(padded(ROWS))
    kept = tb.train.maybe_batch([rows], [True, False, True], 2, enqueue_many=True)
    coordinator = tb.train.Coordinator()
    threads = tb.train.start_queue_runners(session, coordinator)
    value = session.run(kept)
    coordinator.request_stop()
    coordinator.join(threads)
    np.testing.assert_array_equal(dense_of(value), padded(ROWS)[[0, 2]])
