"""Averaged gradients of k replicas with batches of b are those of one replica with batches of k * b."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb

STEPS, JOINT = 20, 16


def batches(replica_id, replicas):
    """A replica's rows of each joint batch."""
    draw = np.random.default_rng(4)
    size = JOINT // replicas
    own = slice(replica_id * size, (replica_id + 1) * size)
    while True:
        images = draw.normal(size=(JOINT, 8, 8, 1)).astype(np.float32)
        yield images[own], draw.integers(0, 3, JOINT)[own]


def trained(devices, per_device, optimizer):
    with tb.Graph().as_default():
        tb.set_random_seed(7)
        replicator = tb.MultiGpuReplicator(devices, per_device, sync="ssgd")

        def step_fn(images, labels):
            hidden = tb.nn.relu(tb.layers.conv2d(images, 4, 3, name="convolution"))
            hidden = tb.layers.dense(
                tb.reshape(hidden, [-1, 4 * 36]), 9, activation=tb.nn.tanh, name="hidden"
            )
            logits = tb.layers.dense(hidden, 3, name="out")
            losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tb.reduce_mean(losses)
            return {"loss": loss, "update": replicator.wrap_optimizer(optimizer()).minimize(loss)}

        count = replicator.num_replicas
        loop = replicator.train(step_fn, lambda replica_id: batches(replica_id, count), STEPS)
        losses = [each["loss"].mean() for each in loop]
        return losses, replicator.central_values()


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: tb.train.MomentumOptimizer(0.05, 0.9, weight_decay=1e-3),
        lambda: tb.train.RMSPropOptimizer(0.002, 0.9, epsilon=1e-3),
    ],
    ids=["momentum", "rms-prop"],
)
@pytest.mark.parametrize(
    ("devices", "per_device"),
    [(["/cpu:0"], 2), (["/cpu:0", "/cpu:1"], 1), (["/cpu:0", "/cpu:1"], 2), (["/cpu:0", "/cpu:1"], (1, 7))],
    ids=str,
)
def test_twenty_steps_are_those_of_the_joint_batch(devices, per_device, optimizer):
    expected = trained(["/cpu:0"], 1, optimizer)
    found = trained(devices, per_device, optimizer)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    for name, value in expected[1].items():
        np.testing.assert_allclose(found[1][name], value, atol=1e-5, err_msg=name)
    assert expected[0][-1] != pytest.approx(expected[0][0], abs=1e-2)
