"""Seeds of independent replicas: each has the bits of a Replicator that has it alone."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError

X = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
ROWS = np.arange(8) % 3


def step_of(repl):
    def step_fn(x, y):
        h = tb.layers.dense(x, 16, activation=tb.nn.relu, name="hidden")
        h = tb.nn.dropout(h, rate=0.5)
        logits = tb.layers.dense(h, 3, name="logits") + tb.random_normal([8, 3], stddev=0.1)
        loss = tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        return loss, repl.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9)).minimize(loss)

    return step_fn


def trained(devices, per_device, seeds, steps=6, save=None, restore=None):
    """Losses [steps, replicas], and each replica's variables."""
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        with tb.MultiGpuReplicator(devices, per_device, "none", seeds=seeds) as repl, tb.Session() as session:
            loss, _ = repl.run(step_of(repl), lambda: (X, ROWS))
            repl.init(session)
            if restore is not None:
                repl.restore(restore)
            losses = np.array([session.run(loss) for _ in range(steps)])
            if save is not None:
                repl.save(save)
            return losses, [repl.replica_values(replica, slots=True) for replica in range(repl.num_replicas)]


def same(one, other):
    assert one.keys() == other.keys()
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_each_has_the_bits_of_its_run_alone():
    seeds = [7, 0, 7, 2**40]
    losses, values = trained(["/cpu:0", "/cpu:1"], 2, seeds)
    for replica, seed in enumerate(seeds):
        alone, (own,) = trained(["/cpu:0"], 1, [seed])
        np.testing.assert_array_equal(losses[:, replica], alone[:, 0])
        assert same(values[replica], own)
    assert same(values[0], values[2])
    for other in (1, 3):
        assert (values[0]["hidden/kernel"] != values[other]["hidden/kernel"]).any()
    plain, (without,) = trained(["/cpu:0"], 1, None)
    np.testing.assert_array_equal(losses[:, 1], plain[:, 0])  # the seed 0 is that of the first replica
    assert same(values[1], without)


@pytest.mark.slow
def test_they_are_part_of_the_state(tmp_path):
    file = tmp_path / "state.safetensors"
    expected, _ = trained(["/cpu:0"], 2, [3, 4], 6)
    trained(["/cpu:0"], 2, [3, 4], 2, save=file)
    losses, _ = trained(["/cpu:0"], 2, [3, 4], 4, restore=file)
    np.testing.assert_array_equal(losses, expected[2:])
    with pytest.raises(InvalidArgumentError, match=r"saved with seeds \[3, 4\], and this .* has \[3, 5\]"):
        trained(["/cpu:0"], 2, [3, 5], 4, restore=file)


@pytest.mark.parametrize(
    ("sync", "seeds", "message"),
    [
        ("sma", [1, 2], "seeds: expected sync 'none' .*got 'sma'"),
        ("none", [1], "seeds: expected 2, one for each replica, got 1"),
        ("none", [1, -2], "whole number"),
    ],
)
def test_what_cannot_be(sync, seeds, message):
    with pytest.raises(InvalidArgumentError, match=message):
        tb.MultiGpuReplicator(["/cpu:0"], 2, sync, seeds=seeds)


def grown(devices, per_device, seeds, values=None):
    """As `trained`, but with variables that are made after two rounds."""
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        with tb.MultiGpuReplicator(devices, per_device, "none", seeds=seeds) as repl, tb.Session() as session:
            first, _ = repl.run(step_of(repl), lambda: (X, ROWS))
            repl.init(session)
            losses = [session.run(first) for _ in range(2)]

            def larger(x, y):
                with tb.variable_scope("larger"):
                    return step_of(repl)(x, y)

            second, _ = repl.run(larger, lambda: (X, ROWS))
            repl.init(session, values)
            losses += [session.run(fetch) for fetch in (second, first, second)]
            return np.array(losses), [
                repl.replica_values(replica, slots=True) for replica in range(repl.num_replicas)
            ]


@pytest.mark.slow
def test_variables_made_later_start_from_each_replicas_seed():
    seeds = [7, 0, 2**40]
    losses, values = grown(["/cpu:0", "/cpu:1"], (2, 1), seeds)
    for replica, seed in enumerate(seeds):
        alone, (own,) = grown(["/cpu:0"], 1, [seed])
        np.testing.assert_array_equal(losses[:, replica], alone[:, 0])
        assert same(values[replica], own)
    plain, (without,) = grown(["/cpu:0"], 1, None)
    np.testing.assert_array_equal(losses[:, 1], plain[:, 0])
    assert same(values[1], without)
    assert (values[0]["larger/hidden/kernel"] != values[1]["larger/hidden/kernel"]).any()
    _, given = grown(["/cpu:0"], 2, [7, 0], {"larger/hidden/kernel": np.ones((5, 16), np.float32)})
    assert (given[0]["larger/logits/kernel"] != given[1]["larger/logits/kernel"]).any()
    moved = [own["larger/hidden/kernel"] - 1 for own in given]
    assert all(0 < np.abs(each).max() < 0.5 for each in moved)


@pytest.mark.slow
def test_replicas_with_seeds_stay_as_many():
    with tb.MultiGpuReplicator(["/cpu:0"], 2, "none", seeds=[1, 2]) as repl:
        with pytest.raises(FailedPreconditionError, match="tune: replicas with seeds stay as many"):
            repl.tune(step_of(repl), lambda: (X, ROWS))
        repl.run(step_of(repl), lambda: (X, ROWS))
        repl.init()
        with pytest.raises(FailedPreconditionError, match="resize: replicas with seeds"):
            repl._running.stepper.close() or repl._running.stepper.engine.resize(3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, None])
def test_a_second_train_goes_on_with_the_numbers_of_ops_that_have_a_seed(seed):
    """Without one, an op that is built again gets another seed, as in TensorFlow."""

    def losses(*parts):
        with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2) as repl:
            with repl.context():
                tb.set_random_seed(0)
                w = tb.Variable(np.ones(40, np.float32), name="w")
                optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))

            def step():
                loss = tb.reduce_sum(tb.nn.dropout(w, rate=0.5, seed=seed))
                return loss, optimizer.minimize(loss)

            repl.run(lambda: w.value())
            repl.init()
            return [loss.tolist() for steps in parts for loss, _ in repl.train(step, None, steps)]

    once, twice = losses(6), losses(3, 3)
    assert once[:3] == twice[:3]
    assert (once == twice) is (seed is not None)
