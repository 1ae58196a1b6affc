"""Gradients of gathered rows: they stay rows, add up, and are applied as rows."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.interpreter import run_graph
from tests.ops_contract.sample import normal

pytestmark = pytest.mark.usefixtures("graph")

TABLE = normal(6, 3)


def run(*fetches):
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        return session.run(fetches)


def test_the_gradient_of_gathered_rows_is_rows():
    table = tb.Variable(TABLE, name="table")
    loss = tb.reduce_sum(tb.square(tb.gather(table, [[1, 4], [1, 0]])))
    (gradient,) = tb.gradients(loss, table)
    assert isinstance(gradient, tb.IndexedSlices)
    assert gradient.shape.as_list() == [6, 3]
    assert gradient.values.shape.as_list() == [4, 3]
    (values, indices, extents), dense = run(gradient, tb.convert_to_tensor(gradient))
    assert extents.tolist() == [6, 3]
    assert indices.tolist() == [1, 4, 1, 0]
    np.testing.assert_allclose(values, 2 * TABLE[indices])
    expected = np.zeros_like(TABLE)
    np.add.at(expected, indices, values)
    np.testing.assert_allclose(dense, expected)


def test_rows_of_several_reads_are_joined_and_added_to_a_dense_gradient():
    table = tb.Variable(TABLE)
    rows = tb.reduce_sum(tb.gather(table, [1, 2]))
    more = tb.reduce_sum(tb.gather(table, np.array([2, 5], np.int64)))
    (both,) = tb.gradients([rows, more], table)
    assert isinstance(both, tb.IndexedSlices)
    (mixed,) = tb.gradients([rows, more, tb.reduce_sum(table)], table)
    assert isinstance(mixed, tb.Tensor)
    sparse, dense = run(tb.convert_to_tensor(both), mixed)
    assert sparse[:, 0].tolist() == [0, 1, 2, 0, 0, 1]
    np.testing.assert_allclose(dense, sparse + 1)


@pytest.mark.parametrize("axis", [1, -1])
def test_other_axes_and_other_tensors_have_dense_gradients(axis):
    table = tb.Variable(TABLE)
    (along,) = tb.gradients(tb.gather(table, [0, 2], axis=axis), table)
    (derived,) = tb.gradients(tb.gather(table * 2.0, [0, 2]), table)
    assert isinstance(along, tb.Tensor)
    assert isinstance(derived, tb.Tensor)
    assert [array.sum() for array in run(along, derived)] == [12, 12]


def _trained(optimizer, gather, steps=3, norm=None):
    with tb.Graph().as_default():
        table = tb.Variable(TABLE, name="table")
        picked = tb.gather(table, [1, 4, 1]) if gather else tb.matmul(tb.one_hot([1, 4, 1], 6), table)
        loss = tb.reduce_sum(tb.square(picked - 1.0))
        pairs = optimizer.compute_gradients(loss)
        assert isinstance(pairs[0][0], tb.IndexedSlices) == gather
        if norm is not None:
            clipped, _ = tb.clip_by_global_norm([g for g, _ in pairs], norm)
            pairs = [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)]
        update = optimizer.apply_gradients(pairs)
        with tb.Session() as session:
            session.run(tb.global_variables_initializer())
            for _ in range(steps):
                session.run(update)
            slots = [session.run(v) for v in optimizer.variables()]
            return session.run(table), slots


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "make",
    [
        lambda: tb.train.GradientDescentOptimizer(0.1),
        lambda: tb.train.GradientDescentOptimizer(0.1, weight_decay=0.01),
        lambda: tb.train.MomentumOptimizer(0.1, 0.9),
        lambda: tb.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    ],
    ids=["descent", "weight decay", "momentum", "nesterov"],
)
@pytest.mark.parametrize("norm", [None, 0.5])
def test_updates_by_rows_are_those_of_the_dense_gradient(make, norm):
    """The same rows in every step, so that momentum is the same, too."""
    by_rows, slots = _trained(make(), True, norm=norm)
    dense, dense_slots = _trained(make(), False, norm=norm)
    np.testing.assert_allclose(by_rows, dense, rtol=1e-5)
    for a, b in zip(slots, dense_slots, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_momentum_leaves_rows_without_gradient_as_they_are():
    table, rows = tb.Variable(TABLE), tb.placeholder(tb.int32, [None])
    train = tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_sum(tb.gather(table, rows)))
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        session.run(train, {rows: [1, 1]})
        session.run(train, {rows: [3]})
        after = session.run(table)
    np.testing.assert_allclose(after[1], TABLE[1] - 0.2, rtol=1e-6)  # in the second step it is not moved on
    np.testing.assert_allclose(after[3], TABLE[3] - 0.1, rtol=1e-6)


def test_slices_stand_where_a_tensor_is_expected():
    slices = tb.IndexedSlices(tb.constant(TABLE[:3]), [4, 0, 4], [5, 3])
    assert slices.dtype == tb.float32
    expected = np.zeros((5, 3), np.float32)
    np.add.at(expected, [4, 0, 4], TABLE[:3])
    np.testing.assert_allclose(run_graph([tb.multiply(slices, 2.0)], {})[0], 2 * expected)


def test_refusals():
    with pytest.raises(InvalidArgumentError, match="vector of integers"):
        tb.IndexedSlices(TABLE, [0.5])
    with pytest.raises(InvalidArgumentError, match="no dense_shape"):
        tb.convert_to_tensor(tb.IndexedSlices(TABLE, [0] * 6))
    slices = tb.IndexedSlices(TABLE, [0] * 6)
    assert tb.convert_to_tensor_or_indexed_slices(slices, tb.float32) is slices
    assert tb.convert_to_tensor_or_indexed_slices([1.0], tb.float64).dtype == tb.float64
    with pytest.raises(InvalidArgumentError, match="expected float64; cast its values"):
        tb.convert_to_tensor_or_indexed_slices(slices, tb.float64)


def test_scatter_writes_rows_in_the_order_of_the_program():
    table = tb.Variable(np.zeros((4, 2), np.float32))
    added = tb.scatter_add(table, [1, 1, 3], np.ones((3, 2), np.float32))
    with tb.control_dependencies([added]):
        halved = tb.scatter_sub(table, [1], 0.5)
        with tb.control_dependencies([halved]):
            final = tb.scatter_update(table, [0], [[7.0, 8.0]])
    assert run(final)[0].tolist() == [[7, 8], [1.5, 1.5], [0, 0], [1, 1]]
    with pytest.raises(InvalidArgumentError, match="expected \\[1, 2\\] or a scalar"):
        tb.scatter_add(table, [1], np.ones((2, 2), np.float32))
    with pytest.raises(InvalidArgumentError, match="expected ref to be a variable"):
        tb.scatter_add(tb.constant(TABLE), [1], 1.0)
    outside = tb.scatter_add(table, [4], np.ones((1, 2), np.float32))
    with pytest.raises(InvalidArgumentError, match=r"ScatterAdd.*is not in \[0, 4\)"):
        run(outside)
