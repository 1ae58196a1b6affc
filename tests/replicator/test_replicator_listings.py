"""The listings of TF-Replicator's section 3 (Buchlovsky et al., 2019), after a change of imports."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import OutOfRangeError


def weights(shape, seed):
    deviation = float(np.sqrt(2 / np.prod(shape[:-1])))
    return tb.Variable(tb.truncated_normal(shape, stddev=deviation, seed=seed))


class LeNet:
    """A model as TF-Replicator's users have them: variables at construction, layers on call."""

    def __init__(self):
        self.filters = weights([5, 5, 1, 6], 1)
        self.hidden = weights([7 * 7 * 6, 32], 2)
        self.out = weights([32, 10], 3)
        self.biases = tb.Variable(tb.zeros([10]))

    def __call__(self, images):
        conv = tb.nn.relu(tb.nn.conv2d(images, self.filters, [1, 2, 2, 1], "SAME"))
        pool = tb.nn.max_pool(conv, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
        hidden = tb.nn.relu(tb.matmul(tb.reshape(pool, [-1, 7 * 7 * 6]), self.hidden))
        return tb.matmul(hidden, self.out) + self.biases


def digits_input(replicas, batch_size):
    digits, _ = tb.data.load("digits")
    images = digits.images.astype(np.float32) / 255 - digits.mean

    def input_fn(replica_id):
        rng = np.random.default_rng(replica_id)
        own = np.arange(replica_id, len(images), replicas)
        while True:
            rows = rng.choice(own, batch_size)
            yield images[rows], digits.labels[rows]

    return input_fn


@pytest.mark.parametrize("kind", ["multi", "non"])
def test_a_classifier_as_in_the_first_listing(kind):
    """Model and optimiser in the context; input_fn and step_fn; a monitored session."""
    num_train_steps = 40
    repl = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2) if kind == "multi" else tb.NonReplicator()

    with repl.context():
        model = LeNet()
        base_optimizer = tb.train.MomentumOptimizer(0.02, 0.9)
        optimizer = repl.wrap_optimizer(base_optimizer)

    input_fn = digits_input(repl.num_replicas, 16)

    def step_fn(inputs):
        x, y = inputs
        logits = model(x)
        loss = tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        train_op = optimizer.minimize(loss)
        with tb.control_dependencies([train_op]):
            return tb.identity(loss)

    with repl.context():
        per_replica_loss = repl.run(step_fn, input_fn)
        train_loss = tb.reduce_mean(per_replica_loss)

    assert per_replica_loss.spec.extents == (repl.num_replicas,)
    losses = []
    with tb.train.MonitoredSession() as session:
        repl.init(session)
        for _ in range(num_train_steps):
            losses.append(session.run(train_loss))
        repl.shutdown(session)
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])


@pytest.mark.slow
def test_two_losses_two_optimisers_and_nests_as_in_the_gan():
    repl = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], replicas_per_gpu=1, sync="ssgd")

    with repl.context():
        generator = weights([4, 6], 1)
        discriminator = weights([6, 1], 2)
        g_opt = repl.wrap_optimizer(tb.train.AdamOptimizer(0.01))
        d_opt = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.05))

    def input_fn(ctx):
        rng = np.random.default_rng(ctx.replica_id)
        while True:
            yield {
                "real": rng.normal(2, 1, size=(8, 6)).astype(np.float32),
                "noise": rng.normal(size=(8, 4)).astype(np.float32),
            }

    def step_fn(inputs):
        fake = tb.matmul(inputs["noise"], generator)
        on_real = tb.sigmoid(tb.matmul(inputs["real"], discriminator))
        on_fake = tb.sigmoid(tb.matmul(fake, discriminator))
        d_loss = tb.reduce_mean(tb.square(on_real - 1.0)) + tb.reduce_mean(tb.square(on_fake))
        g_loss = tb.reduce_mean(tb.square(on_fake - 1.0))
        d_step = d_opt.minimize(d_loss, var_list=[discriminator])
        with tb.control_dependencies([d_step]):
            g_step = g_opt.minimize(g_loss, var_list=[generator])
        return {"losses": (d_loss, g_loss), "train": [d_step, g_step], "fake": fake}

    outputs = repl.run(step_fn, input_fn)
    assert outputs["fake"].spec.extents == (2, 8, 6)
    mean_losses = [tb.reduce_mean(loss) for loss in outputs["losses"]]
    hook = tb.train.StopAtStepHook(30)
    history = []
    with tb.train.MonitoredSession(hooks=[hook]) as session:
        repl.init(session)
        while not session.should_stop():
            values, _ = session.run([mean_losses, outputs["train"]])
            history.append(values)
        assert np.array_equal(repl.replica_values(0)["Variable"], repl.replica_values(1)["Variable"])
    assert len(history) == 30
    assert history[-1][0] < history[0][0]


def test_the_end_of_the_input_ends_the_monitored_session_and_the_replicas():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    with repl.context():
        total = tb.Variable(0.0, trainable=False, combine="sum")

    def step_fn(x):
        return total.assign_add(tb.reduce_sum(x))

    def input_fn():
        return (np.full(3, i, np.float32) for i in range(4))

    sums = repl.run(step_fn, input_fn)
    seen = []
    with tb.train.MonitoredSession() as session:
        repl.init(session)
        while not session.should_stop():
            seen.append(session.run(sums).tolist())
    assert seen == [[0, 0], [3, 3], [9, 9], [18, 18]]
    assert repl.central_values()["Variable"] == 36
    with tb.Session() as session, pytest.raises(tb.errors.FailedPreconditionError, match=r"replicator\.init"):
        session.run(sums)


def test_out_of_range_says_which_input():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)

    def input_fn(replica_id):
        return iter([np.zeros(2, np.float32)] * (3 - replica_id))

    out = repl.run(lambda x: tb.reduce_sum(x), input_fn)
    with repl, tb.Session() as session:
        repl.init(session)
        session.run(out)
        session.run(out)
        with pytest.raises(OutOfRangeError, match="the input of replica 1 has ended after 2 batches"):
            session.run(out)
