"""An autoencoder of handwritten digits: no labels; two replicas, averaged every second step.

python examples/autoencoder.py
"""

from collections.abc import Iterator

import numpy as np

import tensorbow as tb

digits, test = tb.data.load("digits")


def input_fn(replica_id: int) -> Iterator[np.ndarray]:
    """Pictures [16, 28, 28, 1] with values from 0 to 1."""
    rng = np.random.default_rng(replica_id)
    while True:
        yield digits.images[rng.integers(0, len(digits), 16)].astype(np.float32) / 255


def reconstructed(pictures: tb.Tensor) -> tb.Tensor:
    """The pictures after a code of 16 numbers each."""
    with tb.variable_scope("model", reuse=tb.AUTO_REUSE):
        hidden = tb.layers.conv2d(pictures, 16, 3, strides=2, padding="same", activation=tb.nn.relu)
        code = tb.layers.dense(tb.layers.flatten(hidden), 16)
        hidden = tb.layers.dense(code, 14 * 14 * 16, activation=tb.nn.relu)
        hidden = tb.reshape(hidden, [-1, 14, 14, 16])
        return tb.layers.conv2d_transpose(hidden, 1, 3, strides=2, padding="same", activation=tb.nn.sigmoid)


def step_fn(pictures: tb.Tensor) -> tb.Tensor:
    """One update; returns the mean squared error."""
    loss = tb.reduce_mean(tb.square(reconstructed(pictures) - pictures))
    with tb.control_dependencies([optimizer.minimize(loss)]):
        return tb.identity(loss)


def eval_step(pictures: tb.Tensor) -> tb.Tensor:
    """Mean squared error of each replica on the test set."""
    return tb.reduce_mean(tb.square(reconstructed(pictures) - pictures))


replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2, tau=2)
with replicator.context():
    tb.set_random_seed(0)
    optimizer = replicator.wrap_optimizer(tb.train.AdamOptimizer(0.002))
with replicator:
    pictures = test.images.astype(np.float32) / 255
    training = replicator.run(step_fn, input_fn)
    evaluation = replicator.reduce_mean(replicator.run(eval_step, lambda: pictures))
    with tb.Session() as session:
        replicator.init(session)
        for _ in range(150):
            session.run(training)
        error = session.run(evaluation)
variance = pictures.var(0).mean()
print(f"error: {error:.4f}, of the mean picture {variance:.4f}, ratio: {error / variance:.3f}")
