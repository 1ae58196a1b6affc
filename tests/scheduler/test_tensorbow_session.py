"""Programs for one device, trained by several replicas by changing the session alone.

As long as the list of its cases.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Stepper
from tensorbow.devices import CpuDevice
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

RNG = np.random.default_rng(3)
X = RNG.normal(size=(64, 5)).astype(np.float32)
Y = (X @ RNG.normal(size=(5, 3))).astype(np.float32)


class Program:
    """Linear regression, with a counter and dropout on demand."""

    def __init__(self, dropout=False, rate=0.1):
        self.graph = tb.Graph()
        with self.graph.as_default():
            self.x = tb.placeholder(tb.float32, [None, 5], name="x")
            self.y = tb.placeholder(tb.float32, [None, 3], name="y")
            self.w = tb.Variable(np.zeros((5, 3), np.float32), name="w")
            self.steps = tb.Variable(0, trainable=False, name="steps")
            hidden = tb.nn.dropout(self.x, rate=0.3, seed=4) if dropout else self.x
            self.prediction = tb.matmul(hidden, self.w)
            self.loss = tb.reduce_mean(tb.square(self.prediction - self.y))
            optimizer = tb.train.MomentumOptimizer(rate, 0.9)
            self.train = optimizer.minimize(self.loss, global_step=self.steps)
            self.init = tb.global_variables_initializer()

    def feeds(self, start=0, rows=16):
        return {self.x: X[start : start + rows], self.y: Y[start : start + rows]}


def session_of(program, **options):
    return tb.TensorBowSession(graph=program.graph, **options)


@pytest.mark.slow
def test_one_replica_is_a_plain_session_bit_for_bit():
    program = Program(dropout=True)
    values = []
    for session in (tb.Session(graph=program.graph), session_of(program, replicas_per_device=1)):
        with session:
            session.run(program.init)
            losses = [session.run([program.train, program.loss], program.feeds(4 * i))[1] for i in range(9)]
            values.append((np.array(losses), *session.run([program.w, program.steps])))
    for plain, learned in zip(*values, strict=True):
        assert np.asarray(plain).tobytes() == np.asarray(learned).tobytes()
        assert np.asarray(plain).dtype == np.asarray(learned).dtype


def test_several_replicas_are_the_engine_bit_for_bit():
    program = Program()
    with session_of(program, replicas_per_device=4) as session:
        session.run(program.init)
        for i in range(6):
            session.run(program.train, program.feeds(8 * i))
        z = session.run(program.w)
    step = tb.StepProgram((program.x, program.y), None, program.train, {})
    with tb.LearningEngine(step, 4, ["/cpu:0"], 4) as engine:
        engine.initialize()
        with Stepper(engine) as stepper:
            for i in range(6):
                parts = [(X[8 * i + 4 * r :][:4], Y[8 * i + 4 * r :][:4]) for r in range(4)]
                stepper.step(parts)
        assert engine.central_values()["w"].tobytes() == z.tobytes()


def test_how_fetches_come_back():
    program = Program()
    with program.graph.as_default():
        row = tb.reduce_mean(program.prediction, axis=0)
        finite = tb.reduce_all(tb.is_finite(program.prediction))
    with session_of(program, replicas_per_device=2) as session:
        session.run(program.init)
        feeds = program.feeds()
        half = [session.run(program.loss, program.feeds(s, 8)) for s in (0, 8)]
        fetched = session.run(
            {
                "loss": program.loss,
                "all": [program.prediction, row, finite],
                "op": program.train,
                "steps": program.steps,
            },
            feeds,
        )
        assert fetched["op"] is None
        assert fetched["loss"] == pytest.approx(np.mean(half), rel=1e-6)
        prediction, mean, is_finite = fetched["all"]
        assert prediction.shape == (16, 3)
        assert mean.shape == (3,)
        assert is_finite
        assert fetched["steps"] == 1
        assert fetched["steps"].dtype == np.int32
        assert session.run(program.steps) == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("synchronisation", [{}, {"tau": 2}, {"staleness": 1}, {"sync": "ssgd"}])
def test_a_fetched_variable_is_z_after_the_run(synchronisation):
    program = Program()
    options = {"replicas_per_device": 4, "synchronisation": tb.Synchronisation(**synchronisation)}
    with session_of(program, **options) as fetching, session_of(program, **options) as plain:
        for session in (fetching, plain):
            session.run(program.init)
        for i in range(5):
            fetches = {"w": program.w, "by name": "w:0", "op": program.train, "steps": program.steps}
            fetched = fetching.run({**fetches, "loss": program.loss}, program.feeds(4 * i))
            loss, _ = plain.run([program.loss, program.train], program.feeds(4 * i))
            z, steps = plain.run([program.w, program.steps])
            assert fetched["w"].tobytes() == fetched["by name"].tobytes() == z.tobytes()
            assert (fetched["steps"], steps, fetched["steps"].dtype) == (i + 1, i + 1, np.int32)
            assert fetched["loss"] == loss
            slot = fetching.run(["w/Momentum:0", program.train], program.feeds(4 * i))[0]
            plain.run(program.train, program.feeds(4 * i))
            assert slot.tobytes() == plain.replica_values(0, slots=True)["w/Momentum"].tobytes()
            fetching.load_variables({"steps": i + 1})
            plain.load_variables({"steps": i + 1})


def test_a_fetched_variable_belongs_to_the_caller():
    program = Program()
    with session_of(program) as session:
        session.run(program.init)
        for _ in range(3):
            w = session.run([program.w, program.train], program.feeds())[0]
        kept = w.copy()
        w += 1
        assert session.run(program.w).tobytes() == kept.tobytes()


def test_other_runs_see_z_unsplit_and_change_nothing():
    program = Program()
    results = []
    for looks in (False, True):
        with session_of(program, replicas_per_device=2) as session:
            session.run(program.init)
            for i in range(8):
                session.run(program.train, program.feeds(2 * i))
                if looks:
                    loss, w = session.run([program.loss, program.w], program.feeds(1, 7))
                    assert loss == pytest.approx(np.mean(np.square(X[1:8] @ w - Y[1:8])), rel=1e-5)
            results.append(session.run(program.w))
            replicas = [session.replica_values(i)["w"] for i in range(2)]
            assert not np.array_equal(replicas[0], replicas[1])
    assert results[0].tobytes() == results[1].tobytes()


def test_assigns_write_z_and_every_replica():
    program = Program()
    with program.graph.as_default():
        assign = program.w.assign(np.full((5, 3), 2, np.float32))
    with session_of(program, replicas_per_device=3) as session:
        session.run(program.init)
        session.run(program.train, program.feeds(rows=12))
        session.run(assign)
        assert (session.run(program.w) == 2).all()
        assert all((session.replica_values(i)["w"] == 2).all() for i in range(3))
        assert session.replica_values(1, slots=True)["w/Momentum"].any()
        session.load_variables({"w": np.ones((5, 3), np.float32)})
        assert all((session.replica_values(i)["w"] == 1).all() for i in range(3))
        session.run(program.train, program.feeds(rows=12))
        session.run(program.init)
        assert not session.run(program.w).any()


def test_several_fetch_lists_and_shapes_share_the_replicas():
    program = Program()
    with session_of(program, replicas_per_device=2) as session:
        session.run(program.init)
        for _ in range(3):
            session.run(program.train, program.feeds())
            session.run([program.train, program.loss], program.feeds())
            session.run([program.loss, program.train], program.feeds(rows=4))
        assert session.run(program.steps) == 9


def test_feeds_and_fetches_of_unknown_rank():
    with tb.Graph().as_default():
        x, rate = tb.placeholder(tb.float32), tb.placeholder(tb.float32)
        w = tb.Variable(np.ones(5, np.float32))
        products = x * w
        train = tb.train.GradientDescentOptimizer(rate).minimize(tb.reduce_mean(tb.square(products)))
        with tb.Session("tensorbow", replicas_per_device=4) as session:
            session.run(tb.global_variables_initializer())
            fetched, _ = session.run([products, train], {x: X[:8], rate: 0.1})
            assert fetched.tolist() == X[:8].tolist()
            assert (
                session.replica_values(0)[w.op.name].tolist() != session.replica_values(1)[w.op.name].tolist()
            )
            with pytest.raises(
                InvalidArgumentError, match="a global batch of 6 does not split over 4 replicas"
            ):
                session.run(train, {x: X[:6], rate: 0.1})


@pytest.mark.slow
def test_an_unused_feed_does_no_harm():
    program = Program()
    with program.graph.as_default():
        unused = tb.placeholder(tb.float32, [], name="unused")
    with session_of(program) as session:
        session.run(program.init)
        session.run(program.train, {unused: 3.0, **program.feeds()})


def test_by_target():
    program = Program()
    with tb.Session("tensorbow", program.graph, replicas_per_device=3) as session:
        assert isinstance(session, tb.TensorBowSession)
        assert session.num_replicas == 3
        session.run(program.init)
        session.run(program.train, program.feeds(rows=9))
    with pytest.raises(InvalidArgumentError, match=r"target str 'elsewhere' is unknown.*'tensorbow'"):
        tb.Session("elsewhere")
    with tb.Session(graph=program.graph) as session:
        assert type(session) is tb.Session


@pytest.mark.slow
def test_replicas_over_devices_with_ssgd():
    program = Program()
    options = {
        "devices": ["/cpu:0", "/cpu:1"],
        "replicas_per_device": (1, 2),
        "synchronisation": tb.Synchronisation("ssgd"),
    }
    with session_of(program, **options) as session, tb.Session(graph=program.graph) as plain:
        for each in (session, plain):
            each.run(program.init)
            for i in range(5):
                each.run(program.train, program.feeds(3 * i, 12))
        np.testing.assert_allclose(session.run(program.w), plain.run(program.w), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"devices": "/cpu:0"},
            r"expected devices to be a list of devices or their names, as .*, got str '/cpu:0'",
        ),
        ({"devices": []}, "devices: expected at least one, got none"),
        ({"replicas_per_device": 1.5}, "expected replicas_per_device to be a whole number .*, got float 1.5"),
        ({"on_nan": "ignore"}, "expected on_nan to be 'stop' or 'skip', got str 'ignore'"),
        (
            {"synchronisation": "ssgd"},
            r"expected synchronisation to be tb.Synchronisation.* or None, got str 'ssgd'",
        ),
    ],
)
def test_options_are_looked_at_before_the_first_run(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        tb.Session("tensorbow", tb.Graph(), **options)


@pytest.mark.slow
def test_bad_input():
    program = Program()
    with session_of(program, replicas_per_device=3) as session:
        with pytest.raises(FailedPreconditionError, match=r"variables without a value: .*w"):
            session.run(program.train, program.feeds(rows=9))
        session.run(program.init)
        message = r"feed x:0: a global batch of 16 does not split over 3 replicas; feed a multiple of 3"
        with pytest.raises(InvalidArgumentError, match=message):
            session.run(program.train, program.feeds())
        with pytest.raises(InvalidArgumentError, match="placeholder y must be fed: add it to feed_dict"):
            session.run(program.train, {program.x: X[:9]})
        with pytest.raises(NotFoundError, match="fetch"):
            session.run("nothing_of_that_name")
        session.run(program.train, program.feeds(rows=9))
        with pytest.raises(
            InvalidArgumentError, match="feed x:0: an empty batch has none for 3 replicas; feed"
        ):
            session.run(program.train, program.feeds(rows=0))
        with program.graph.as_default():
            late = tb.Variable(1.0, name="late")
            other = tb.train.GradientDescentOptimizer(0.1).minimize(tb.square(late))
        with pytest.raises(FailedPreconditionError, match=r"variables without a value: late; run tb\.global"):
            session.run(other)
        session.run(late.initializer)
        assert session.run(late) == 1
        session.run(program.train, program.feeds(rows=9))
    for use in (lambda: session.run(program.train, program.feeds(rows=9)), lambda: session.replica_values(0)):
        with pytest.raises(FailedPreconditionError, match="closed"):
            use()


@pytest.mark.slow
def test_closing_gives_all_memory_back():
    device = CpuDevice("/cpu:0")
    program = Program()
    with session_of(program, devices=[device], replicas_per_device=3) as session:
        session.run(program.init)
        session.run(program.train, program.feeds(rows=12))
        session.run(program.loss, program.feeds())
        assert device.memory.held_nbytes > 0
    session.close()
    gc.collect()
    assert device.memory.held_nbytes == 0
    device.close()


# Listings ---------------------------------------------------------------------------------------------


def test_the_training_loop_of_the_tensorbow_thesis():
    """Section 2.1: LeNet in TensorFlow 1's words, of which only the session is changed."""
    digits, held_out = tb.data.load("digits")
    images, test_images = (d.images.astype(np.float32) / 255 - d.mean for d in (digits, held_out))
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        x = tb.placeholder(tb.float32, [None, 28, 28, 1])
        y = tb.placeholder(tb.int64, [None])

        def weights(shape):
            deviation = float(np.sqrt(2 / np.prod(shape[:-1])))
            return tb.Variable(tb.truncated_normal(shape, stddev=deviation))

        conv1 = tb.nn.relu(tb.nn.conv2d(x, weights([5, 5, 1, 8]), [1, 1, 1, 1], "SAME"))
        pool1 = tb.nn.max_pool(conv1, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
        conv2 = tb.nn.relu(tb.nn.conv2d(pool1, weights([5, 5, 8, 16]), [1, 1, 1, 1], "SAME"))
        pool2 = tb.nn.max_pool(conv2, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
        flat = tb.reshape(pool2, [-1, 7 * 7 * 16])
        fc1 = tb.nn.relu(tb.matmul(flat, weights([7 * 7 * 16, 64])) + tb.Variable(tb.zeros([64])))
        logits = tb.matmul(fc1, weights([64, 10])) + tb.Variable(tb.zeros([10]))
        loss = tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        train_op = tb.train.MomentumOptimizer(0.02, 0.9).minimize(loss)
        correct = tb.equal(tb.argmax(logits, 1, output_type=tb.int64), y)
        accuracy = tb.reduce_mean(tb.cast(correct, tb.float32))

        with tb.TensorBowSession(replicas_per_device=2) as session:
            session.run(tb.global_variables_initializer())
            for epoch in range(3):
                order = np.random.default_rng(epoch).permutation(len(images))
                for first in range(0, len(images) - 31, 32):
                    rows = order[first : first + 32]
                    session.run(train_op, feed_dict={x: images[rows], y: digits.labels[rows]})
            reached = session.run(accuracy, feed_dict={x: test_images, y: held_out.labels})
        assert reached > 0.9, reached


@pytest.mark.parametrize("options", [{}, {"target": "tensorbow", "replicas_per_device": 2}])
def test_figure_1_of_the_tensorflow_white_paper(options):
    """As printed but for the initialisation; C and the input, which are left open there, are made up."""
    tf, rng, printed = tb, np.random.default_rng(0), []
    with tf.Graph().as_default():
        b = tf.Variable(tf.zeros([100]))
        W = tf.Variable(tf.random_uniform([784, 100], -1, 1))  # noqa: N806 - as in the paper
        x = tf.placeholder(name="x")
        relu = tf.nn.relu(tf.matmul(W, x) + b)
        C = tf.reduce_sum(relu)  # noqa: N806

        s = tf.Session(**options)
        s.run(tf.global_variables_initializer())
        for step in range(10):
            input = rng.normal(size=(100, 1))
            result = s.run(C, feed_dict={x: input})
            printed.append((step, result, np.maximum(s.run(W) @ input + s.run(b), 0).sum()))
        s.close()
    assert [step for step, _, _ in printed] == list(range(10))
    np.testing.assert_allclose([r for _, r, _ in printed], [e for _, _, e in printed], rtol=1e-4)
    assert len({float(result) for _, result, _ in printed}) == 10


@pytest.mark.slow
def test_the_program_of_the_white_paper_is_trained_by_replicas():
    """relu(x W + b), a cost of it, and a loop over `session.run`, now with an update."""
    with tb.Graph().as_default():
        b = tb.Variable(tb.zeros([100]))
        W = tb.Variable(tb.random_uniform([784, 100], -1, 1, seed=1))  # noqa: N806 - as in the paper
        x = tb.placeholder(tb.float32, [None, 784], name="x")
        relu = tb.nn.relu(tb.matmul(x, W) + b)
        C = tb.reduce_mean(tb.square(relu))  # noqa: N806 - "[...]" in the paper
        train = tb.train.GradientDescentOptimizer(0.1).minimize(C)

        with tb.Session(target="tensorbow", replicas_per_device=2) as s:
            s.run(tb.global_variables_initializer())
            input = np.random.default_rng(0).normal(size=(8, 784)).astype(np.float32)
            expected = np.square(np.maximum(input @ s.run(W), 0)).mean()
            costs = []
            for _ in range(10):
                result = s.run([C, train], feed_dict={x: input})
                costs.append(float(result[0]))
    assert costs[0] == pytest.approx(expected, rel=1e-4)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.5 * costs[0]
