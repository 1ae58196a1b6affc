"""Batch normalisation and dropout whose `training` is fed; warnings of moving averages that are left out."""

import warnings

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

X = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)


def build(fixed):
    """A small model whose `training` is `fixed`, or where that is None a placeholder; and its results."""
    tb.set_random_seed(0)
    x, fed = tb.placeholder(tb.float32, [None, 5]), tb.placeholder(tb.bool, [])
    training = fed if fixed is None else fixed
    h = tb.layers.batch_normalization(tb.layers.dense(x, 4), training=training, momentum=0.9)
    h = tb.layers.dropout(h, 0.5, training=training, seed=3)
    loss = tb.reduce_sum(tb.square(h - 1.0))
    results = [h, loss, *tb.gradients(loss, tb.trainable_variables())]
    with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
        train = tb.train.GradientDescentOptimizer(0.01).minimize(loss)
    return x, fed, results, train


def values_of(fixed, feeds):
    with tb.Graph().as_default(), tb.Session() as session:
        x, fed, results, train = build(fixed)
        session.run(tb.global_variables_initializer())
        found = []
        for training in feeds:
            feed = {x: X} if fixed is not None else {x: X, fed: training}
            found += [*session.run(results, feed), session.run(train, feed)]
            found += session.run(tb.global_variables())
        return found


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
def test_a_fed_training_gives_the_bits_of_a_fixed_one(training):
    """Results, gradients, weights and moving averages, over two steps."""
    for a, b in zip(values_of(None, [training] * 2), values_of(training, [None] * 2), strict=True):
        assert a is b is None or np.array_equal(a, b)


def test_a_placeholder_of_unknown_shape_is_a_scalar():
    """The layers' results keep the shape of their inputs."""
    with tb.Graph().as_default(), tb.Session() as session:
        x, fed = tb.placeholder(tb.float32, [None, 5]), tb.placeholder(tb.bool)
        h = tb.layers.dropout(tb.layers.batch_normalization(x, training=fed), 0.5, training=fed)
        assert h.shape.as_list() == [None, 5]
        session.run(tb.global_variables_initializer())
        np.testing.assert_allclose(session.run(h, {x: X, fed: False}), X / np.sqrt(1.001), rtol=1e-5)


def test_training_is_one_bool():
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 5])
        for layer in (tb.layers.batch_normalization, tb.layers.dropout):
            for wrong in (tb.placeholder(tb.float32, []), tb.placeholder(tb.bool, [2]), 1):
                with pytest.raises(InvalidArgumentError, match="True, False or a scalar tensor of bools"):
                    layer(x, training=wrong)


def test_a_step_without_its_moving_averages_is_told():
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float32, [None, 5])
        loss = tb.reduce_sum(tb.square(tb.layers.batch_normalization(x, training=True) - 1.0))
        other = tb.Variable(1.0)
        optimizer = tb.train.GradientDescentOptimizer(0.1)
        elsewhere = optimizer.minimize(tb.square(other) + 0.0 * loss, var_list=[other])
        forgets = optimizer.minimize(loss)
        updates = tb.get_collection(tb.GraphKeys.UPDATE_OPS)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            session.run(tb.global_variables_initializer())
            session.run(elsewhere, {x: X})  # trains nothing of the layer
            session.run([forgets, updates], {x: X})
        words = r"trains batch_normalization, but does not update batch_normalization/moving_mean, batch_"
        with pytest.warns(UserWarning, match=words) as told:
            session.run(forgets, {x: X})
        assert told[0].filename == __file__
        with pytest.warns(UserWarning, match=words):
            tb.StepProgram((x,), loss, forgets)


def test_replicas_without_their_moving_averages_are_told_at_the_users_line():
    with tb.Graph().as_default(), tb.Session("tensorbow", replicas_per_device=2) as session:
        x = tb.placeholder(tb.float32, [None, 5])
        loss = tb.reduce_mean(tb.square(tb.layers.batch_normalization(x, training=True) - 1.0))
        forgets = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
        session.run(tb.global_variables_initializer())
        with pytest.warns(UserWarning, match="does not update batch_normalization/moving_mean") as told:
            session.run(forgets, {x: np.ones((4, 5), np.float32)})
        assert {each.filename for each in told} == {__file__}


def test_a_checkpoint_without_moving_averages_is_told():
    with tb.Graph().as_default():
        tb.layers.batch_normalization(tb.placeholder(tb.float32, [None, 5]), training=True)
        with pytest.warns(UserWarning, match="but not batch_normalization/moving_mean, batch_"):
            tb.train.Saver(tb.trainable_variables())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tb.train.Saver(tb.global_variables())
            saver = tb.train.Saver()
        with (
            tb.Session() as session,
            pytest.raises(InvalidArgumentError, match="latest_checkpoint gives None"),
        ):
            saver.restore(session, None)
