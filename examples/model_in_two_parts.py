"""A model that spans two devices: embedding and first layer on one, the rest on the other; four replicas.

    python examples/model_in_two_parts.py

The task: the sum of five digits, given as numbers from 0 to 9.
"""

from collections.abc import Iterator

import numpy as np

import tensorbow as tb

replicator = tb.MultiGpuReplicator([f"/cpu:{n}" for n in range(8)], num_gpus_per_replica=2, sync="sma")


def input_fn(replica_id: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Digits [32, 5] and their sums [32]."""
    rng = np.random.default_rng(replica_id)
    while True:
        numbers = rng.integers(0, 10, (32, 5))
        yield numbers, numbers.sum(1).astype(np.float32)


def step_fn(numbers: tb.Tensor, sums: tb.Tensor) -> tb.Tensor:
    """One update; returns the mean absolute error."""
    vectors = tb.get_variable("vectors", [10, 32])  # on the replica's first device
    hidden = tb.layers.dense(tb.reshape(tb.gather(vectors, numbers), [-1, 160]), 64, activation=tb.nn.relu)
    with replicator.logical_device(1):  # on its second one
        hidden = tb.layers.dense(hidden, 64, activation=tb.nn.relu)
        guess = tb.layers.dense(hidden, 1)[:, 0] + 22.5
        loss = tb.reduce_mean(tb.square(guess - sums))
        error = tb.reduce_mean(tb.abs(guess - sums))
    with tb.control_dependencies([optimizer.minimize(loss)]):
        return tb.identity(error)


with replicator.context():
    tb.set_random_seed(0)
    optimizer = replicator.wrap_optimizer(tb.train.AdamOptimizer(0.003))
for step, errors in enumerate(replicator.train(step_fn, input_fn, steps=300), 1):
    if step in (1, 300):
        print(f"step {step}: mean error of the sum {errors.mean():.2f}")
