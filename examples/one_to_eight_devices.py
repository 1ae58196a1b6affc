"""One step function on one device, on two replicas of it, and on eight devices.

    python examples/one_to_eight_devices.py

`/cpu:0` to `/cpu:7` are virtual devices of one processor; with GPUs write `/gpu:0`, ...
"""

from collections.abc import Iterator

import numpy as np

import tensorbow as tb

digits, _ = tb.data.load("digits")


def input_fn(replica_id: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Batches of 16 for one replica."""
    rng = np.random.default_rng(replica_id)
    while True:
        yield digits.batch(rng.integers(0, len(digits), 16))


def train(replicator: tb.Replicator, steps: int) -> float:
    """Trains a small network; returns the mean loss of the replicas over the last five steps."""
    with replicator.context():
        tb.set_random_seed(0)
        optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.02, 0.9))

    def step_fn(images: tb.Tensor, labels: tb.Tensor) -> tb.Tensor:
        hidden = tb.layers.dense(tb.layers.flatten(images), 64, activation=tb.nn.relu)
        logits = tb.layers.dense(hidden, 10)
        losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tb.reduce_mean(losses)
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    return float(np.mean(list(replicator.train(step_fn, input_fn, steps))[-5:]))


eight = [f"/cpu:{number}" for number in range(8)]
for name, replicator in {
    "one model": tb.NonReplicator(),
    "two replicas on one device, averaged": tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2),
    "eight devices, mean gradients": tb.MultiGpuReplicator(eight),
    "eight devices with two replicas each": tb.MultiGpuReplicator(eight, replicas_per_gpu=2),
}.items():
    print(f"loss of {name}: {train(replicator, steps=80):.3f}")
