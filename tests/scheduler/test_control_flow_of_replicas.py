"""Replicas whose step has loops and conds that depend on data: each goes its own way through them."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb

RNG = np.random.default_rng(5)
BATCHES = [
    [(RNG.normal(size=(4, 3)).astype(np.float32), np.int32(n)) for n in counts]
    for counts in ((3, 0, 4), (1, 5, 2))
]  # by replica
START = (np.eye(3) * 0.9 + 0.05).astype(np.float32)
RATE = 0.1


def loss_of(x, count, w):
    """A fed number of iterations, a number that depends on data, and a branch."""
    h = tb.while_loop(lambda i, h: i < count, lambda i, h: (i + 1, tb.tanh(tb.matmul(h, w) + x)), [0, x])[1]
    (h,) = tb.while_loop(
        lambda h: tb.reduce_sum(h * h) < 20.0,
        lambda h: [tb.matmul(h, w) * 1.5],
        [h],
        maximum_iterations=20,
        return_same_structure=True,
    )
    y = tb.cond(tb.reduce_sum(x) > 0.0, lambda: tb.sin(tb.matmul(h, w)), lambda: h * 0.5)
    return tb.reduce_mean(tb.square(y - 0.3))


def trained(sync, rounds=3):
    """Losses and last weights of two replicas."""

    def step_fn(batch):
        w = tb.get_variable("w", [3, 3], initializer=tb.constant_initializer(START))
        loss = loss_of(*batch, w)
        return loss, w.read_value(), optimizer(replicator).minimize(loss)

    def optimizer(replicator):
        return replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(RATE))

    with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2, sync=sync) as replicator:
        step = replicator.run(step_fn, lambda replica_id: iter(BATCHES[replica_id]))
        with tb.Session() as session:
            replicator.init(session)
            return [[np.asarray(v) for v in session.run(step[:2])] for _ in range(rounds)]


def by_hand(sync, rounds=3):
    """Losses of replicas whose gradients a session computes, and whose updates are written out here."""
    with tb.Graph().as_default(), tb.Session() as session:
        x, count = tb.placeholder(tb.float32, [4, 3]), tb.placeholder(tb.int32, [])
        w = tb.placeholder(tb.float32, [3, 3])
        loss = loss_of(x, count, w)
        call = session.make_callable([loss, tb.gradients(loss, w)[0]], [x, count, w])
        z, weights, losses = START.copy(), [START.copy(), START.copy()], []
        for number in range(rounds):
            found = [call(*BATCHES[r][number], weights[r]) for r in range(2)]
            losses.append([each[0] for each in found])
            if sync == "sma":
                corrections = [0.5 * (own - z) for own in weights]
                weights = [
                    own - RATE * g - c for own, (_, g), c in zip(weights, found, corrections, strict=True)
                ]
                z = z + sum(corrections)
            elif sync == "ssgd":
                weights = [own - RATE * (found[0][1] + found[1][1]) / 2 for own in weights]
            else:
                weights = [own - RATE * g for own, (_, g) in zip(weights, found, strict=True)]
        return losses


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["sma", "ssgd", "none"])
def test_replicas_take_their_own_ways_as_replicas_stepped_by_hand(sync):
    first, again = trained(sync), trained(sync)
    assert [[v.tobytes() for v in step] for step in first] == [[v.tobytes() for v in step] for step in again]
    np.testing.assert_allclose([step[0] for step in first], by_hand(sync), rtol=1e-5)


def test_replicas_end_their_loops_apart():
    def step_fn(x):
        return tb.while_loop(lambda a: tb.reduce_sum(a) < 9.0, lambda a: a * 2.0, [x])

    rows = np.array([[1, 2], [3, 4], [9, 1], [0.5, 0.5]], np.float32)
    with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2) as replicator, tb.Session() as session:
        step = replicator.run(step_fn, lambda replica_id: iter([*rows[replica_id::2]]))
        replicator.init(session)
        found = [np.reshape(session.run(step), (2, 2)) for _ in range(2)]
    np.testing.assert_array_equal(found, [[[4, 8], [6, 8]], [[9, 1], [8, 8]]])


def program():
    x, lengths = tb.placeholder(tb.float32, [None, 5, 3]), tb.placeholder(tb.int32, [None])
    outputs, state = tb.nn.dynamic_rnn(tb.nn.rnn_cell.GRUCell(4), x, lengths, dtype=tb.float32)
    y = tb.cond(tb.reduce_mean(outputs) > 0.0, lambda: outputs * 2.0, lambda: outputs)
    loss = tb.reduce_mean(tb.square(y - 0.1)) + tb.reduce_mean(tb.square(state))
    return x, lengths, loss, tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def learned(make):
    """Losses of a program with lengths as data, whose variables begin alike."""
    with tb.Graph().as_default():
        tb.set_random_seed(3)
        x, lengths, loss, train = program()
        with make() as session:
            session.run(tb.global_variables_initializer())
            found = []
            for number in range(3):
                random = np.random.default_rng(number)
                feeds = {x: random.normal(size=(8, 5, 3)), lengths: random.integers(0, 6, 8)}
                found.append(session.run([loss, train], feeds)[0])
            return found


@pytest.mark.slow
def test_a_session_of_two_replicas_with_lengths_as_data():
    first, again = (learned(lambda: tb.TensorBowSession(replicas_per_device=2)) for _ in range(2))
    assert first == again
    one, plain = learned(lambda: tb.TensorBowSession(replicas_per_device=1)), learned(tb.Session)
    assert one == plain


def test_one_compilation_for_all_lengths():
    with tb.Graph().as_default(), tb.Session() as session:
        x, lengths, loss, train = program()
        session.run(tb.global_variables_initializer())
        steps = len(session._cache)
        for longest in (1, 3, 5):
            session.run([loss, train], {x: np.ones((2, 5, 3)), lengths: [longest, 1]})
        assert len(session._cache) == steps + 1


@pytest.mark.slow
def test_fit_trains_a_model_with_a_loop_and_a_cond():
    """A line through points, the same bits again; inputs are halved as often as needed."""

    def line(inputs, labels, training):
        weights = tb.Variable(np.zeros((2, 1), np.float32), name="weights")
        (scaled,) = tb.while_loop(
            lambda a: tb.reduce_max(tb.abs(a)) > 1.0,
            lambda a: [a * 0.5],
            [inputs],
            return_same_structure=True,
        )
        centred = tb.cond(tb.reduce_mean(scaled) > 0.0, lambda: scaled, lambda: scaled * 1.0)
        predicted = tb.reshape(tb.matmul(centred, weights), [-1])
        error = tb.reduce_mean(tb.square(predicted - labels))
        return error, predicted

    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, size=(512, 2)).astype(np.float32)
    y = (x @ np.array([2, -1], np.float32)).astype(np.float32)
    found = []
    for _ in range(2):
        data = ((4 * x[:400], y[:400]), (4 * x[400:], y[400:]))
        options = {"epochs": 8, "learning_rate": 0.3, "replicas_per_device": 2, "batch_size": 8}
        with tb.fit(line, data, progress=False, **options) as fitted:
            found.append(fitted.values["weights"])
    assert found[0].tobytes() == found[1].tobytes()
    assert found[0] == pytest.approx(np.array([[2.0], [-1.0]]), abs=0.5)
