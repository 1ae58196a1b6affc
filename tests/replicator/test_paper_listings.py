"""The listings of TF-Replicator's section 3 (2019) as they are printed; only the import is changed.

The one of section 2.1, whose devices are on other machines, is in tests/cluster. `xrange` is written as
`range`, and what the paper leaves as comments is filled in; the devices are virtual CPU devices.
"""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tf
import tensorbow as tf_replicator
from tensorbow.errors import UnimplementedError

pytestmark = pytest.mark.usefixtures("graph")

CPUS = [f"/cpu:{index}" for index in range(8)]


def resnet_model():
    """A small model under the paper's name."""

    def model(images):
        with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
            hidden = tf.nn.relu(tf.layers.dense(images, 8, name="hidden"))
            return tf.layers.dense(hidden, 3, name="out")

    return model


@pytest.mark.slow
def test_the_first_listing():
    num_train_steps = 3
    with pytest.raises(UnimplementedError, match=r"write tb\.MultiGpuReplicator\(num_gpus=8\)") as told:
        repl = tf_replicator.TpuReplicator(
            num_workers=1, num_tpu_cores_per_worker=8
        )  # fmt: skip
    assert "\n" not in str(told.value)
    repl = tf_replicator.MultiGpuReplicator(CPUS)
    with repl.context():
        model = resnet_model()
        base_optimizer = tf.train.AdamOptimizer()
        optimizer = repl.wrap_optimizer(base_optimizer)

    def input_fn(replica_id):
        draw = np.random.default_rng(replica_id)
        while True:
            yield draw.normal(size=(4, 5)).astype(np.float32), draw.integers(0, 3, 4)

    def step_fn(images, labels):
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=model(images))
        loss = tf.reduce_mean(losses)
        with tf.control_dependencies([optimizer.minimize(loss)]):
            return tf.identity(loss)

    per_replica_loss = repl.run(step_fn, input_fn)
    train_op = tf.reduce_mean(per_replica_loss)
    values = []
    with tf.train.MonitoredSession() as session:
        repl.init(session)
        for _ in range(num_train_steps):
            values.append(session.run(train_op))
        repl.shutdown(session)
    assert len(values) == 3
    assert repl.synchronisation.sync == "ssgd"


class D4pg:
    """Losses under the paper's names."""

    def __init__(self):
        self.critic, self.actor = (tf.Variable(np.ones((5, 1), np.float32)) for _ in range(2))

    def critic_loss(self, trajs):
        return tf.reduce_mean(tf.square(tf.matmul(trajs, self.critic) - 2.0))

    def actor_loss(self, trajs, critic_loss):
        action = tf.matmul(trajs, self.actor)
        return tf.reduce_mean(tf.square(action - tf.stop_gradient(critic_loss)))


@pytest.mark.slow
def test_a_callable_as_input_and_two_losses():
    repl = tf_replicator.MultiGpuReplicator(CPUS[:2])
    with repl.context():
        d4pg = D4pg()
        critic_optimizer, actor_optimizer = (
            repl.wrap_optimizer(tf.train.GradientDescentOptimizer(0.05)) for _ in range(2)
        )

    def input_fn(replica_id):
        draw = np.random.default_rng(replica_id)

        def dequeue_trajectories():
            return draw.normal(size=(8, 5)).astype(np.float32)

        return dequeue_trajectories

    def step_fn(trajs):
        critic_loss = d4pg.critic_loss(trajs)
        actor_loss = d4pg.actor_loss(trajs, critic_loss)
        critic_op = critic_optimizer.minimize(critic_loss)
        actor_op = actor_optimizer.minimize(actor_loss)
        with tf.control_dependencies([critic_op, actor_op]):
            losses = tf.tuple(critic_loss, actor_loss)
        return losses

    history = [[float(np.mean(loss)) for loss in losses] for losses in repl.train(step_fn, input_fn, 40)]
    assert np.mean(history[-5:], 0)[0] < np.mean(history[:5], 0)[0]
    assert np.isfinite(history).all()


def test_four_replicas_of_two_devices():
    repl = tf_replicator.MultiGpuReplicator(
        CPUS, num_gpus_per_replica=2
    )  # fmt: skip
    x = 3.0

    def step_fn(inputs):
        y = inputs + 1  # on GPU:0.  # noqa: F841
        with repl.logical_device(1):
            return inputs * x  # on GPU:1.

    def input_fn(replica_id):
        yield np.full(2, replica_id, np.float32)

    (found,) = repl.train(step_fn, input_fn)
    assert found.tolist() == [[0, 0], [3, 3], [6, 6], [9, 9]]


class ReplicatedOptimizer:
    """The optimiser of section 3.4."""

    def __init__(self, repl, optimizer):
        self._repl, self._optimizer = repl, optimizer

    def minimize(self, loss):
        return self.apply_gradients(self._optimizer.compute_gradients(loss))

    def apply_gradients(self, grads, *args, **kwargs):
        num_repls = self._repl.num_replicas
        mean_grads = []
        for grad, var in grads:
            label = f"gradient of {var.name}"
            grad = self._repl.all_sum(grad / num_repls, label)
            mean_grads.append((grad, var))
        return self._optimizer.apply_gradients(
            mean_grads, *args, **kwargs
        )  # fmt: skip


@pytest.mark.slow
def test_an_optimiser_and_a_batch_norm_of_all_sum():
    repl = tf_replicator.MultiGpuReplicator(CPUS[:4])

    def batch_norm(h):
        mean = tf.reduce_mean(h)
        mean = repl.all_sum(mean / repl.num_replicas)
        mean_sq = tf.reduce_mean(h**2)
        mean_sq = repl.all_sum(mean_sq / repl.num_replicas)
        return (h - mean) / tf.sqrt(mean_sq - mean)

    def input_fn(replica_id):
        yield np.random.default_rng(replica_id).normal(-1, 1, (6, 5)).astype(np.float32)

    with repl.context():
        w = tf.Variable(np.ones((5, 2), np.float32), name="w")
        optimizer = ReplicatedOptimizer(repl, tf.train.GradientDescentOptimizer(0.1))

    def step_fn(x):
        h = batch_norm(x)
        loss = tf.reduce_mean(tf.square(tf.matmul(h, w)))
        return h, optimizer.minimize(loss), tf.gradients(loss, w)[0]

    ((found, _, gradients),) = repl.train(step_fn, input_fn)
    x = np.stack([next(input_fn(replica)) for replica in range(4)])
    expected = (x - x.mean()) / np.sqrt((x**2).mean() - x.mean())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(repl.central_values()["w"], 1 - 0.1 * gradients.mean(0), rtol=1e-5)
