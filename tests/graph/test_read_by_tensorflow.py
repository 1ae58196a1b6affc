"""GraphDefs as TensorFlow reads and runs them, where it is installed: equal results of ops and programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.graph.protobuf.op_spelling import DERIVED
from tensorbow.graph.protobuf.tensorflow_forms import FORMS
from tests.graph.graph_def_programs import SMALL, call

tf = pytest.importorskip("tensorflow", reason="compares with TensorFlow").compat.v1

# Ops whose results depend on more than their inputs, or which take no tensors of a program.
UNLIKE = {
    "AvgPoolGrad": "takes a constant shape there",
    "CheckNumerics": "writes to the log",
    "FusedBatchNorm": "the saved values of its gradient are others on a CPU",
    "FusedBatchNormGrad": "without its forward op",
    "Copy": "is written as Identity",
}
RANDOM = ("RandomStandardNormal", "RandomUniform", "TruncatedNormal")


def read(graph_def: tb.GraphDef) -> Any:
    """A graph of TensorFlow."""
    message = tf.GraphDef()
    message.ParseFromString(graph_def.SerializeToString())
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(message, name="")
    return graph


def run_there(graph_def: tb.GraphDef, fetches: Any, feeds: Any, *before: str) -> Any:
    with tf.Session(graph=read(graph_def)) as session:
        for each in before:
            session.run(each)
        return session.run(fetches, feeds)


def close(found: Any, expected: Any, rtol: float = 2e-4) -> None:
    for one, other in zip(found, expected, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize(
    "name", sorted({*FORMS, *DERIVED} & {sample.op.name for sample in SMALL} - set(UNLIKE))
)
def test_ops_compute_the_same_there(name: str) -> None:
    samples = [each for each in SMALL if each.op.name == name and comparable(each)][:8]
    if not samples:
        pytest.skip("no sample that TensorFlow has an op for")
    for sample in samples:
        with tb.Graph().as_default() as graph, tb.Session() as session:
            fetches, feeds = call(sample)
            tb.variables_initializer(tb.global_variables(), name="init")
            if tb.global_variables():
                session.run("init")
            expected = session.run(fetches, feeds)
        graph_def = graph.as_graph_def()
        op = next(node for node in read(graph_def).get_operations() if node.name == "made")
        assert not op.type.startswith("TensorBow>")
        found = run_there(graph_def, fetches, feeds, "init")
        if name in RANDOM:
            assert [np.shape(each) for each in found] == [np.shape(each) for each in expected]
        else:
            close(found, expected)


def comparable(sample: Any) -> bool:
    """False for what TensorFlow has no op for, or computes otherwise by its documentation."""
    shapes = {array.shape for array in sample.inputs}
    floats = [array for array in sample.inputs if array.dtype.kind == "f"]
    tiny = any(
        ((array != 0) & (np.abs(array) < 1.2e-38)).any() for array in floats
    )  # it flushes them to zero
    name, kinds = sample.op.name, {array.dtype.name for array in sample.inputs}
    return not (
        sample.complete_attrs.get("weight_decay")
        or tiny
        or (name.endswith("Grad") and "Pool" not in name and "Bias" not in name and len(shapes) > 1)
        or (name == "DepthwiseConv2dNative" and sample.empty)
        or (name == "Range" and sample.expected_outputs[0].size == 0)
        or (name == "IntegerPow" and (len(kinds) > 1 or "uint8" in kinds))
        or (name == "GatherV2" and sample.inputs[1].dtype.name not in ("int32", "int64"))
    )


def network(name: str) -> tb.Graph:
    with tb.Graph().as_default() as graph:
        tb.set_random_seed(3)
        side, channels = (32, 3) if name.startswith("res") else (28, 1)
        images = tb.placeholder(tb.float32, [4, side, side, channels], name="images")
        labels = tb.placeholder(tb.int32, [4], name="labels")
        outputs = tb.models.get_model(name)(images, labels, training=True, classes=10)
        with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
            update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(outputs.loss)
        tb.group(update, name="train")
        tb.identity(outputs.loss, name="loss")
        tb.variables_initializer(tb.global_variables(), name="init")
    return graph


@pytest.mark.parametrize(("name", "steps"), [("lenet", 4), ("resnet32", 2)])
def test_training_steps_give_the_same_losses_there(name: str, steps: int) -> None:
    graph = network(name)
    graph_def = graph.as_graph_def()
    theirs = read(graph_def)
    own = {op.type for op in theirs.get_operations() if op.type.startswith("TensorBow>")}
    assert own == set()
    draw = np.random.default_rng(1)
    shape = graph.get_tensor_by_name("images:0").shape.as_list()
    feeds = {"images:0": draw.normal(size=shape).astype(np.float32), "labels:0": draw.integers(0, 10, 4)}
    with graph.as_default(), tb.Session() as session, tf.Session(graph=theirs) as other:
        session.run("init")
        for variable in tb.global_variables():
            value, initializer = session.run(variable), variable.initializer
            other.run(initializer.name, {initializer.inputs[1].name: value})
            np.testing.assert_array_equal(other.run(f"{variable.op.name}:0"), value)
        for _ in range(steps):  # rounding differs, and grows from step to step
            mine, found = (each.run(["loss:0", "train"], feeds)[0] for each in (session, other))
            np.testing.assert_allclose(found, mine, rtol=2e-3)


def test_an_lstm_of_a_loop_gives_the_same_outputs_there() -> None:
    with tb.Graph().as_default() as graph, tb.Session() as session:
        x = tb.placeholder(tb.float32, [2, None, 3], name="x")
        outputs, state = tb.nn.dynamic_rnn(tb.nn.rnn_cell.BasicLSTMCell(4), x, dtype=tb.float32)
        tb.identity(outputs, name="outputs")
        tb.identity(state[0], name="state")
        tb.variables_initializer(tb.global_variables(), name="init")
        session.run("init")
        feeds = {"x:0": np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)}
        expected = session.run(["outputs:0", "state:0"], feeds)
        given = {v.initializer.inputs[1].name: session.run(v) for v in tb.global_variables()}
    graph_def = graph.as_graph_def()
    own = {op.type for op in read(graph_def).get_operations() if op.type.startswith("TensorBow>")}
    assert own == set()
    with tf.Session(graph=read(graph_def)) as other:
        other.run("init", given)
        close(other.run(["outputs:0", "state:0"], feeds), expected)


def test_loops_branches_and_functions_compute_the_same_there() -> None:
    with tb.Graph().as_default() as graph, tb.Session() as session:
        x = tb.placeholder(tb.float32, [3], name="x")
        w = tb.constant([1.0, 2.0, 0.5])

        @tb.Defun(tb.float32)
        def scaled(a):
            return tb.reduce_sum(a * w, 0, keepdims=True) * tb.nn.top_k(a, 2)[0][0]

        def body(i, a):
            inner = tb.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b * 0.5 + scaled(b)), [0, a])[1]
            return i + 1, tb.cond(tb.equal(i % 2, 0), lambda: inner + 1.0, lambda: tb.sin(a) * 2.0)

        tb.identity(tb.while_loop(lambda i, a: i < 5, body, [0, x])[1], name="y")
        tb.identity(tb.map_fn(lambda row: row * row + 1.0, x), name="z")
        feeds = {"x:0": np.array([0.3, -0.4, 0.9], np.float32)}
        expected = session.run(["y:0", "z:0"], feeds)
    close(run_there(graph.as_graph_def(), ["y:0", "z:0"], feeds), expected)


def test_queues_work_there() -> None:
    with tb.Graph().as_default() as graph:
        queue = tb.FIFOQueue(8, [tb.float32, tb.int32], [[2], []], name="queue")
        put = queue.enqueue_many(
            [tb.constant([[1.0, 2], [3, 4], [5, 6]]), tb.constant([7, 8, 9])], name="put"
        )
        taken, number = queue.dequeue(name="one")
        tb.identity(queue.size(), name="size")
        many, _ = queue.dequeue_many(2, name="many")
    names = [taken.name, number.name, "size:0", many.name]
    with tf.Session(graph=read(graph.as_graph_def())) as session:
        session.run(put.name)
        found = [*session.run(names[:2]), *(session.run(name) for name in names[2:])]
    close(found, [[1, 2], 7, 2, [[3, 4], [5, 6]]])


def test_what_tensorflow_writes_is_read() -> None:
    """Its own constants for axes, sizes and indices, and its loops."""
    rng = np.random.default_rng(2)
    images, labels = rng.standard_normal((4, 6, 6, 3)).astype(np.float32), np.array([1, 0, 3, 2])
    with tf.Graph().as_default() as graph:
        tf.disable_control_flow_v2()
        tf.disable_resource_variables()
        x = tf.placeholder(tf.float32, [4, 6, 6, 3], name="x")
        y = tf.nn.conv2d(
            tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]),
            tf.constant(rng.standard_normal((3, 3, 3, 5)).astype(np.float32)),
            [1, 2, 2, 1],
            "VALID",
        )
        y = tf.transpose(tf.nn.relu(y), [0, 3, 1, 2])[:, 1:, ::-1, 0]
        a, b = (
            tf.split(tf.concat([y, y * 2.0], 1), 2, 2)
            if int(y.shape[2]) % 2 == 0
            else tf.split(tf.concat([y, y * 2.0], 1), [1, 2], 2)
        )
        total = tf.reduce_sum(tf.tile(a, [1, 1, 2]), [1, 2]) + tf.reduce_mean(b, axis=[1, 2])
        hot = tf.one_hot(labels, 5, on_value=2.0)
        logits = tf.expand_dims(total, 1) * tf.gather(hot, [3, 1, 0, 2])
        values, where = tf.nn.top_k(logits, 3)
        loop = tf.while_loop(
            lambda i, v: i < 4, lambda i, v: [i + 1, v * 0.5 + tf.cumsum(v, 1)], [0, logits]
        )[1]
        outputs = [values, tf.cast(where, tf.float32), tf.cast(tf.argmax(logits, 1), tf.float32), loop]
        for number, each in enumerate(outputs):
            tf.identity(each, name=f"out{number}")
        with tf.Session() as session:
            expected = session.run(outputs, {x: images})
    names = [f"out{number}:0" for number in range(len(outputs))]
    with tb.Graph().as_default():
        tb.import_graph_def(graph.as_graph_def().SerializeToString(), name="")
        with tb.Session() as session:
            close(session.run(names, {"x:0": images}), expected)


def test_functions_of_tensorflow_are_read() -> None:
    import tensorflow

    @tensorflow.function
    def inner(a):
        return tensorflow.reduce_sum(a * a, axis=1, keepdims=True)

    @tensorflow.function
    def outer(a):
        return inner(a) * 2.0 + inner(a + 1.0)

    concrete = outer.get_concrete_function(tensorflow.TensorSpec([None, 3], tensorflow.float32, "a"))
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    with tb.Graph().as_default():
        tb.import_graph_def(concrete.graph.as_graph_def().SerializeToString(), name="")
        with tb.Session() as session:
            found = session.run(tb.get_default_graph().get_operations()[-1].outputs[0], {"a:0": value})
    close([found], [concrete(tensorflow.constant(value)).numpy()])
