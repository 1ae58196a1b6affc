"""Graphs that the tests of GraphDef write, change and read: a small training step, and one of every op."""

import json

import tensorbow as tb
from tensorbow.errors import TensorBowError
from tests.ops_contract.collection import all_samples

SMALL = [s for s in all_samples() if sum(a.nbytes for a in s.inputs) < 50_000]


def call(sample):
    """The op on constants, placeholders and variables as it needs them; fetches, feeds, variables."""
    values, feeds = [], {}
    for index, array in enumerate(sample.inputs):
        if index in sample.op.writes:
            values.append(tb.Variable(array, trainable=False, name=f"v{index}"))
        elif index in (*sample.op.shape_inputs, *sample.constant):
            values.append(tb.constant(array))
        else:
            open_shape = index % 2 and not sample.op.name.startswith(
                ("Sma", "Outer")
            )  # which want equal extents
            values.append(tb.placeholder(array.dtype, [None] * array.ndim if open_shape else array.shape))
            feeds[values[-1].name] = array
    made = sample.op(*values, name="made", **sample.attrs)
    outputs = made if isinstance(made, tuple) else (made,)
    return [output.name for output in outputs], feeds


def honest():
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, [None, 4], name="x")
        w = tb.Variable(tb.random_normal([4, 3], seed=3), name="w")
        y = tb.add(tb.matmul(x, w, name="product"), 1.0, name="y")
        tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_mean(y[:, ::2]))
        tb.split(y, [1, 2], axis=1, name="split")
        tb.nn.max_pool(tb.zeros([1, 4, 4, 1]), 2, 2, "SAME", name="pool")
        return json.loads(graph.as_graph_def().to_json())


HONEST = honest()


def imported(content):
    with tb.Graph().as_default() as graph:
        before = tb.constant(0.0, name="before")
        try:
            tb.import_graph_def(tb.GraphDef.from_json(json.dumps(content)), name="")
        except TensorBowError:
            assert graph.get_operations() == [before.op], "something was added"
            assert tb.global_variables() == []
            raise
        return graph
