"""Contrastive learning: each picture has to be found among those of all replicas (SimCLR, Chen et al., 2020).

    python examples/contrastive.py

A replica sees 16 pictures, but compares them with 64: `tb.all_gather` brings those of the others, and
gradients flow back through it.
"""

from collections.abc import Iterator

import numpy as np

import tensorbow as tb

digits, test = tb.data.load("digits")
REPLICAS, BATCH = 4, 16


def shifted(pictures: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Pictures moved by up to two pixels, with noise; float32 from 0 to 1."""
    moved = [np.roll(picture, rng.integers(-2, 3, 2), (0, 1)) for picture in pictures]
    return (np.stack(moved) / 255 + rng.normal(0, 0.1, pictures.shape)).astype(np.float32)


def input_fn(replica_id: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Two views of each picture."""
    rng = np.random.default_rng(replica_id)
    while True:
        pictures = digits.images[rng.integers(0, len(digits), BATCH)]
        yield shifted(pictures, rng), shifted(pictures, rng)


def features(pictures: tb.Tensor) -> tb.Tensor:
    """Unit vectors [batch, 32]."""
    with tb.variable_scope("encoder", reuse=tb.AUTO_REUSE):
        hidden = tb.layers.dense(tb.layers.flatten(pictures), 128, activation=tb.nn.relu)
        vectors = tb.layers.dense(hidden, 32)
        return vectors / tb.sqrt(tb.reduce_sum(tb.square(vectors), 1, keepdims=True) + 1e-8)


def step_fn(one: tb.Tensor, two: tb.Tensor) -> tuple[tb.Tensor, tb.Tensor]:
    """One update; returns the loss and the share of pictures that are found among all others."""
    first, others = features(one), tb.reshape(tb.all_gather(features(two)), [REPLICAS * BATCH, 32])
    logits = tb.matmul(first, others, transpose_b=True) / 0.1
    labels = tb.cast(tb.replica_id(), tb.int64) * BATCH + tb.constant(np.arange(BATCH))
    loss = tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    found = tb.reduce_mean(tb.cast(tb.equal(tb.argmax(logits, 1), labels), tb.float32))
    with tb.control_dependencies([optimizer.minimize(loss)]):
        return tb.identity(loss), found


replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=REPLICAS, sync="ssgd")
with replicator.context():
    tb.set_random_seed(0)
    optimizer = replicator.wrap_optimizer(tb.train.AdamOptimizer(0.002))
for step, (losses, found) in enumerate(replicator.train(step_fn, input_fn, steps=100), 1):
    if step in (1, 100):
        print(f"step {step}: loss {losses.mean():.3f}, found among 64: {found.mean():.3f}")
