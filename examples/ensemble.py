"""An ensemble: six networks of other initial values, trained side by side, and the mean of their predictions.

python examples/ensemble.py
"""

import numpy as np

import tensorbow as tb

digits, test = tb.data.load("digits")
MEMBERS = 6


def logits_of(images: tb.Tensor) -> tb.Tensor:
    """Logits [batch, 10] of a network with 32 hidden units."""
    with tb.variable_scope("model", reuse=tb.AUTO_REUSE):
        hidden = tb.layers.dense(tb.layers.flatten(images), 32, activation=tb.nn.relu)
        return tb.layers.dense(hidden, 10)


def train_step(images: tb.Tensor, labels: tb.Tensor) -> tb.Tensor:
    """One update; returns the loss."""
    losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits_of(images))
    loss = tb.reduce_mean(losses)
    with tb.control_dependencies([optimizer.minimize(loss)]):
        return tb.identity(loss)


def predict_step(images: tb.Tensor, labels: tb.Tensor) -> tb.Tensor:
    """Probabilities [batch, 10]."""
    return tb.nn.softmax(logits_of(images))


batches = tb.data.Dataset.from_tensor_slices(digits.batch()).shuffle(len(digits), seed=0).batch(16)
# Independent members (sync="none"): the same inputs, other initial values.
replicator = tb.MultiGpuReplicator(["/cpu:0"], MEMBERS, sync="none", seeds=range(MEMBERS))
with replicator.context():
    optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.005, 0.9))
with replicator:
    training = replicator.run(train_step, lambda: batches.repeat(), smaller_batch="drop")
    predictions = replicator.run(predict_step, lambda: test.batch())
    with tb.Session() as session:
        replicator.init(session)
        for _ in range(180):
            session.run(training)
        probabilities = session.run(predictions)  # [MEMBERS, examples, 10]
each = (probabilities.argmax(2) == test.labels).mean(1)
together = (probabilities.mean(0).argmax(1) == test.labels).mean()
print("accuracy of each member:", np.round(each, 3))
print(f"mean accuracy of a member: {each.mean():.3f}")
print(f"accuracy of the ensemble: {together:.3f}")
