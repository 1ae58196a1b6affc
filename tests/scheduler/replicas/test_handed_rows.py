"""Sparse gradients whose number of rows depends on data, in steps of replicas."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from scheduler.replicas.dynamic.handed_rows import HandedRows

WORDS = np.int32([[[2, 0, 2, 5], [1, 2, 3, 0]], [[5, 5, 0, 0], [4, 0, 4, 1]]])  # by step and replica
OPTIMIZERS = [
    lambda: tb.train.GradientDescentOptimizer(0.1),
    lambda: tb.train.MomentumOptimizer(0.1, 0.9),
    lambda: tb.train.AdagradOptimizer(0.1),
    lambda: tb.train.AdamOptimizer(0.1),
    lambda: tb.train.FtrlOptimizer(0.1),
]


def loss_of(words):
    """A loss of the rows of words that are not 0, and of their biases; six words are known."""
    table = tb.get_variable("table", [6, 3], initializer=tb.constant_initializer(0.5))
    bias = tb.get_variable("bias", [6], initializer=tb.zeros_initializer())
    kept = tb.boolean_mask(words, words > 0)
    rows = tb.nn.embedding_lookup(table, kept)
    return tb.reduce_sum(tb.square(rows + tb.expand_dims(tb.gather(bias, kept), 1) - 1.0))


def trained_alone(make, words):
    with tb.Graph().as_default(), tb.Session() as session:
        fed = tb.placeholder(tb.int32, [4])
        update = make().minimize(loss_of(fed))
        session.run(tb.global_variables_initializer())
        for own in words:
            session.run(update, {fed: own})
        return session.run(tb.trainable_variables())


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.sampled(3)
def test_replicas_update_the_rows_that_a_mask_keeps_as_a_session_does(make):
    replicator = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none")
    with replicator.context():
        optimizer = replicator.wrap_optimizer(make())

    def step(words):
        return optimizer.minimize(loss_of(words))

    words = iter(WORDS)
    with tb.Graph().as_default(), replicator, tb.Session() as session:
        update = replicator.run(step, lambda: lambda: next(words), input_replication=tb.PER_WORKER)
        replicator.init(session)
        for _ in WORDS:
            session.run(update)
        for replica in range(2):
            found = replicator.replica_values(replica)
            table, bias = trained_alone(make, WORDS[:, replica])
            np.testing.assert_allclose(found["table"], table, rtol=1e-6)
            np.testing.assert_allclose(found["bias"], bias, rtol=1e-6, atol=1e-7)


def test_mean_gradients_of_rows_that_masks_keep():
    replicator = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="ssgd")
    with replicator.context():
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.2))
    words = iter(WORDS)
    with tb.Graph().as_default(), replicator, tb.Session() as session:
        update = replicator.run(
            lambda words: optimizer.minimize(loss_of(words)),
            lambda: lambda: next(words),
            input_replication=tb.PER_WORKER,
        )
        replicator.init(session)
        session.run(update)
        found = replicator.replica_values(1)["table"]
    gradient = np.zeros(6)
    np.add.at(gradient, WORDS[0][WORDS[0] > 0], 2 * (0.5 - 1))
    np.testing.assert_allclose(found, np.tile(0.5 - 0.2 * gradient[:, None] / 2, 3), rtol=1e-6)


def test_rows_are_filled_up_and_added_up():
    rows, indices = HandedRows(None, None, (3, 2)).filled(np.float32([[1, 2]]), np.int32([2]))
    assert rows.tolist() == [[1, 2], [0, 0], [0, 0]]
    assert indices.tolist() == [2, -1, -1]
    handed = HandedRows(None, None, (3,))
    rows, indices = handed.filled(np.arange(5, dtype=np.float32), np.int64([2, -1, 0, 2, 0]))
    assert rows.tolist() == [6, 3, 0]
    assert indices.tolist() == [0, 2, -1]
    for outside in (7, -5):  # out of range: refused by the update
        _, indices = handed.filled(np.ones(4, np.float32), np.int64([0, 1, 2, outside]))
        assert indices.tolist() == [outside, 0, 1]
