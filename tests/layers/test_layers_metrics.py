"""Metrics over many steps: values, updates, weights, resets, replicas."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")


def test_mean(session):
    x = tb.placeholder(tb.float32, [None])
    value, update = tb.metrics.mean(x)
    session.run(tb.local_variables_initializer())
    assert session.run(value) == 0
    assert session.run(update, {x: [1, 2, 3]}) == 2
    assert session.run(value) == 2
    assert session.run(update, {x: [10]}) == 4
    session.run(tb.local_variables_initializer())
    assert session.run(value) == 0
    assert tb.global_variables() == []
    assert [v.op.name for v in tb.local_variables()] == ["mean/total", "mean/count"]


def test_weights(session):
    x, w = tb.placeholder(tb.float64, [None, 2]), tb.placeholder(tb.float32, [None, 1])
    _, update = tb.metrics.mean(x, w)
    session.run(tb.local_variables_initializer())
    assert session.run(update, {x: [[1, 3], [10, 20]], w: [[1], [0]]}) == 2
    assert session.run(update, {x: [[5, 5]], w: [[0.5]]}) == pytest.approx((4 + 5) / 3)
    assert session.run(update, {x: [[5, 5]], w: [[0]]}) == pytest.approx((4 + 5) / 3)


def test_accuracy(session):
    labels, predictions = tb.placeholder(tb.int64, [None]), tb.placeholder(tb.int32, [None])
    value, update = tb.metrics.accuracy(labels, predictions)
    session.run(tb.local_variables_initializer())
    assert session.run(update, {labels: [1, 2, 3], predictions: [1, 2, 0]}) == pytest.approx(2 / 3)
    assert session.run(update, {labels: [4], predictions: [4]}) == pytest.approx(3 / 4)
    assert session.run(value) == pytest.approx(3 / 4)


def test_the_counts_of_replicas_add_up():
    x = tb.placeholder(tb.float32, [None, 1], name="x")
    w = tb.Variable(np.ones((1, 1), np.float32), name="w")
    loss = tb.reduce_mean(tb.matmul(x, w))
    _, update = tb.metrics.mean(x, name="figure")
    step = tb.group(tb.train.GradientDescentOptimizer(0.1).minimize(loss), update)
    program = tb.StepProgram((x,), loss, step)
    with tb.LearningEngine(program, 4, replicas_per_device=3) as engine:
        engine.initialize()
        values = engine.central_values()
        assert values["figure/count"] == 0
        feeds = [np.full((4, 1), 1.0 + i, np.float32) for i in range(3)]
        for replica, feed in zip(engine.learners.replicas, feeds, strict=True):
            replica.container.write("figure/total", feed.sum())
            replica.container.write("figure/count", 4)
        values = engine.central_values()
    assert (values["figure/total"], values["figure/count"]) == (24, 12)


def test_collections_and_misuse():
    value, update = tb.metrics.mean(tb.constant([1.0]), None, "values", ["updates", "more"])
    assert tb.get_collection("values") == [value]
    assert tb.get_collection("updates") == tb.get_collection("more") == [update]
    with pytest.raises(InvalidArgumentError, match=r"labels are int32.*expected the same shape"):
        tb.metrics.accuracy(tb.constant([1, 2]), tb.constant([1, 2, 3]))
