"""Regression on a table: several named inputs, standardised columns, and the share of variance explained.

python examples/tabular_regression.py
"""

import numpy as np
from sklearn.datasets import load_diabetes

import tensorbow as tb

table = load_diabetes(scaled=False)
sex = table.feature_names.index("sex")
numbers = np.delete(table.data, sex, 1).astype(np.float32)
groups = (table.data[:, sex] - 1).astype(np.int64)  # 0 or 1
target = table.target.astype(np.float32)
train, test = np.split(np.random.default_rng(0).permutation(len(target)), [350])
numbers = (numbers - numbers[train].mean(0)) / numbers[train].std(0)
center, scale = target[train].mean(), target[train].std()


def rows(chosen: np.ndarray) -> dict[str, np.ndarray]:
    """The inputs and the target of some rows, by name."""
    return {
        "numbers": numbers[chosen],
        "group": groups[chosen],
        "target": (target[chosen] - center) / scale,
    }


def predicted(batch: dict[str, tb.Tensor]) -> tb.Tensor:
    """Standardised target [batch]: a network of the numbers, and a vector learnt for each group."""
    with tb.variable_scope("model", reuse=tb.AUTO_REUSE):
        vectors = tb.get_variable("groups", [2, 4])
        inputs = tb.concat([batch["numbers"], tb.gather(vectors, batch["group"])], 1)
        return tb.layers.dense(tb.layers.dense(inputs, 32, activation=tb.nn.relu), 1)[:, 0]


def step_fn(batch: dict[str, tb.Tensor]) -> tb.Tensor:
    """One update; returns the mean squared error of the batch."""
    loss = tb.reduce_mean(tb.square(predicted(batch) - batch["target"]))
    with tb.control_dependencies([optimizer.minimize(loss)]):
        return tb.identity(loss)


def input_fn(replica_id: int) -> tb.data.Dataset:
    """Batches of 10 rows, in an order of each replica's own."""
    return tb.data.Dataset.from_tensor_slices(rows(train)).shuffle(350, seed=replica_id).batch(10).repeat()


replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=4)
with replicator.context():
    tb.set_random_seed(0)
    rate = tb.train.CosineDecay(0.01, 300)
    optimizer = replicator.wrap_optimizer(tb.train.AdamOptimizer(rate))
for _ in replicator.train(step_fn, input_fn, steps=300):
    pass

with tb.Graph().as_default():
    feeds = {
        name: tb.placeholder(array.dtype, [None, *array.shape[1:]]) for name, array in rows(test).items()
    }
    output = predicted(feeds)
    with tb.Session() as session:
        values = replicator.central_values()
        session.load_variables({v.op.name: values[v.op.name] for v in tb.trainable_variables()})
        guess = session.run(output, {feeds[name]: array for name, array in rows(test).items()})
errors = np.square(guess - rows(test)["target"])
print(f"share of variance explained: {1 - errors.mean() / rows(test)['target'].var():.3f}")
