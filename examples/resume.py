"""A training run that is stopped and resumed has the bits of one that was not.

python examples/resume.py
"""

import tempfile
from pathlib import Path

import numpy as np

import tensorbow as tb

digits, _ = tb.data.load("digits")
examples = tb.data.Dataset.from_tensor_slices(digits.batch())
folder = Path(tempfile.mkdtemp())


def input_fn(replica_id: int) -> tb.data.Dataset:
    """Batches of 16 examples, in an order of each replica's own."""
    return examples.shuffle(len(digits), seed=replica_id).batch(16).repeat()


def train(steps: int, file: Path, resume: bool = False) -> dict[str, np.ndarray]:
    """Trains two replicas with dropout and saves them; returns the weights of z."""
    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2)
    with replicator.context():
        tb.set_random_seed(0)
        rate = tb.train.CosineDecay(0.02, 60)
        optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(rate, 0.9))

    def step_fn(images: tb.Tensor, labels: tb.Tensor) -> tb.Tensor:
        hidden = tb.layers.dense(tb.layers.flatten(images), 64, activation=tb.nn.relu)
        logits = tb.layers.dense(tb.nn.dropout(hidden, rate=0.2, seed=1), 10)
        loss = tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    with tb.Graph().as_default(), tb.Session() as session, replicator:
        losses = replicator.run(step_fn, input_fn, smaller_batch="drop")
        replicator.init(session)
        if resume:
            replicator.restore(file)
        for _ in range(steps):
            values = session.run(losses)
        replicator.save(file)
        print(f"after {steps} steps more: loss {values.mean():.6f}")
        return replicator.central_values()


whole = train(60, folder / "whole")
train(25, folder / "part")
resumed = train(35, folder / "part", resume=True)
equal = all(np.array_equal(whole[name], resumed[name]) for name in whole)
print("the same bits:", equal)
