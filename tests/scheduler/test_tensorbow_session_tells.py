"""Messages of a TensorBowSession on itself: replicas, the learning step, feeds that are not split."""

import warnings

import numpy as np
import pytest

import tensorbow as tb

X, Y = np.ones((4, 3), np.float32), np.ones(4, np.float32)


def built(batch):
    x, y = tb.placeholder(tb.float32, [batch, 3]), tb.placeholder(tb.float32, [batch])
    weights = tb.Variable(np.ones((3, 1), np.float32))
    loss = tb.reduce_mean(tb.square(tb.squeeze(tb.matmul(x, weights), [1]) - y))
    return x, y, loss, tb.train.GradientDescentOptimizer(0.1).minimize(loss)


def test_replicas_and_the_step_are_shown():
    with tb.Graph().as_default(), tb.Session("tensorbow", replicas_per_device=2) as session:
        assert "2 replicas (2 on /cpu:0)>" in repr(session)
        x, y, loss, train = built(None)
        for _ in range(2):  # before the first learning run, and after
            text = str(session.explain([train, loss], {x: X, y: Y}))
            assert text.startswith("replicas: 2 (2 on /cpu:0)\nsynchroniser: sma")
            assert "feed Placeholder:0: float32[4, 3] split into float32[2, 3] for each replica" in text
            assert "feed Placeholder:0: float32[2, 3] input" in text
            session.run(tb.global_variables_initializer())
            session.run(train, {x: X, y: Y})
        assert "replicas" not in str(session.explain(loss, {x: X, y: Y}))
        with pytest.raises(tb.errors.InvalidArgumentError, match="a global batch of 3 does not split"):
            session.explain(train, {x: X[:3], y: Y[:3]})
    with pytest.raises(TypeError, match=r"'replicas'; did you mean replicas_per_device\?$"):
        tb.Session("tensorbow", replicas=2)


def test_a_batch_that_all_replicas_get_is_told():
    with tb.Graph().as_default(), tb.Session("tensorbow", replicas_per_device=2) as session:
        x, y, loss, train = built(4)
        session.run(tb.global_variables_initializer())
        with pytest.warns(UserWarning, match=r"all 2 replicas get the same.*\[None, 3\]") as told:
            session.run(train, {x: X, y: Y})
        assert told[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            session.run(train, {x: X, y: Y})
            session.run(loss, {x: X, y: Y})
