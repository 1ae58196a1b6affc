"""Cross-replica batch normalisation: that of the joint batch, forward, backward and in training."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb

pytestmark = pytest.mark.usefixtures("graph")

LAYOUTS = [(["/cpu:0"], 1), (["/cpu:0"], 3), (["/cpu:0", "/cpu:1"], 2)]


def batch(replica, *shape):
    return (np.random.default_rng(replica).normal(size=shape) * 2 + replica).astype(np.float32)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("devices", "per_device"), LAYOUTS)
@pytest.mark.parametrize("shape", [(6, 5), (3, 4, 2, 5)])
def test_it_equals_the_norm_of_the_joint_batch(devices, per_device, shape):
    count = len(devices) * per_device
    flow = batch(77, count, *shape) - 77

    def step_fn(x, g):
        scale, offset = (tb.Variable(np.linspace(1, 2, 5).astype(np.float32) * k) for k in (1, -1))
        y, mean, variance = tb.nn.cross_replica_batch_norm(x, scale, offset)
        total = tb.reduce_sum(y * g)
        return y, mean, variance, *tb.gradients(total, [x, scale, offset])

    with tb.MultiGpuReplicator(devices, per_device, "none") as repl:
        inputs = lambda replica_id: iter([(batch(replica_id, *shape), flow[replica_id])])  # noqa: E731
        (results,) = repl.train(step_fn, inputs)
    joint = np.concatenate([batch(replica, *shape) for replica in range(count)])
    with tb.Graph().as_default(), tb.Session() as session:
        x, scale, offset = (
            tb.constant(value)
            for value in (
                joint,
                np.linspace(1, 2, 5).astype(np.float32),
                -np.linspace(1, 2, 5).astype(np.float32),
            )
        )
        y, mean, variance = tb.nn.fused_batch_norm(x, scale, offset)
        total = tb.reduce_sum(y * np.concatenate(list(flow)))
        expected = session.run([y, mean, variance, *tb.gradients(total, [x, scale, offset])])
    for index in (0, 3):  # y and the gradient of x: by replica
        np.testing.assert_allclose(
            np.concatenate(list(results[index])), expected[index], rtol=1e-5, atol=1e-5
        )
    for index in (1, 2):
        for own in results[index]:
            np.testing.assert_allclose(own, expected[index], rtol=1e-5, atol=1e-6)
    for index in (4, 5):  # of scale and offset: each replica's part
        np.testing.assert_allclose(results[index].sum(0), expected[index], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_layer_with_it_trains_as_one_replica_on_the_joint_batch():
    def trained(devices, per_device, cross_replica):
        count = len(devices) * per_device
        rows = 12 // count

        def input_fn(replica_id):
            for step in range(20):
                draw = np.random.default_rng(step)
                x, y = draw.normal(size=(12, 6)), draw.normal(size=(12, 2))
                own = slice(replica_id * rows, (replica_id + 1) * rows)
                yield x[own].astype(np.float32), y[own].astype(np.float32)

        with tb.Graph().as_default(), tb.MultiGpuReplicator(devices, per_device, "ssgd") as repl:
            with repl.context():
                tb.set_random_seed(1)
                optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.05, 0.9))

            def step_fn(x, y):
                w, v = (tb.Variable(batch(seed, *shape) / 4) for seed, shape in ((1, (6, 8)), (2, (8, 2))))
                hidden = tb.matmul(x, w)
                hidden = tb.layers.batch_normalization(
                    hidden, training=True, cross_replica=cross_replica, momentum=0.9, name="norm"
                )
                loss = tb.reduce_mean(tb.square(tb.matmul(tb.nn.relu(hidden), v) - y))
                with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
                    return loss, optimizer.minimize(loss)

            losses = [float(np.mean(loss)) for loss, _ in repl.train(step_fn, input_fn)]
            return losses, repl.central_values()

    expected, values = trained(["/cpu:0"], 1, False)
    losses, others = trained(["/cpu:0", "/cpu:1"], 2, True)
    assert len(losses) == 20
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    for name in values:
        np.testing.assert_allclose(others[name], values[name], rtol=1e-4, atol=1e-5)
