"""GraphDefs as protocol buffers: round trips, other readers and writers of the format, and bad bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import DataLossError, InvalidArgumentError
from tensorbow.graph import GraphDef
from tests.graph.graph_def_programs import SMALL, call

pytest.importorskip("google.protobuf", reason="the format needs protobuf")
graph_pb2 = pytest.importorskip("tensorboardX.proto.graph_pb2", reason="another reader of the format")


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
    return graph


def losses(graph: tb.Graph) -> list[bytes]:
    draw = np.random.default_rng(1)
    shape = graph.get_tensor_by_name("images:0").shape.as_list()
    feeds = {"images:0": draw.normal(size=shape), "labels:0": draw.integers(0, 10, 4)}
    with graph.as_default(), tb.Session() as session:
        session.run(tb.global_variables_initializer())
        return [session.run(["loss:0", "train"], feeds)[0].tobytes() for _ in range(3)]


@pytest.mark.parametrize("name", ["lenet", pytest.param("resnet8", marks=pytest.mark.slow)])
def test_a_network_goes_there_and_back_with_its_bits(name: str, tmp_path: Path) -> None:
    graph = network(name)
    graph_def = graph.as_graph_def()
    path = tb.train.write_graph(graph, tmp_path, "graph.pb", as_text=False)
    assert tb.train.read_graph(path).to_json() == graph_def.to_json()
    with tb.Graph().as_default() as copy:
        tb.import_graph_def(Path(path).read_bytes(), name="")
    assert losses(copy) == losses(graph)
    other = graph_pb2.GraphDef()
    other.ParseFromString(graph_def.SerializeToString())
    ops = {node.op for node in other.node}
    assert {"Placeholder", "VariableV2", "Const", "Identity", "MatMul", "Conv2D", "Relu"} <= ops
    matmul = next(node for node in other.node if node.op == "MatMul")
    assert (matmul.attr["T"].type, matmul.attr["transpose_a"].b) == (1, False)
    convolution = next(node for node in other.node if node.op == "Conv2D")
    assert convolution.attr["data_format"].s == b"NHWC"
    assert len(convolution.attr["strides"].list.i) == 4


@pytest.mark.parametrize("name", sorted({sample.op.name for sample in SMALL}))
@pytest.mark.sampled(6)
def test_every_op_keeps_its_attributes(name: str) -> None:
    for sample in [each for each in SMALL if each.op.name == name][:2]:
        with tb.Graph().as_default() as graph:
            call(sample)
        graph_def = graph.as_graph_def()
        blob = graph_def.SerializeToString()
        again = GraphDef.FromString(blob)
        assert again.to_json() == graph_def.to_json()
        assert again.SerializeToString() == blob
        other = graph_pb2.GraphDef()
        other.ParseFromString(blob)
        names = [node.name for node in other.node if "_tensorbow_part" not in node.attr]
        assert names == [node.name for node in graph_def.node]


def foreign() -> Any:
    """A small network as TensorFlow writes it: typed lists of values, short names of inputs, no shapes."""
    graph = graph_pb2.GraphDef()

    def add(name: str, op: str, inputs: tuple[str, ...] = (), **types: int) -> Any:
        node = graph.node.add(name=name, op=op, input=inputs)
        for key, number in types.items():
            node.attr[key].type = number
        return node

    x = add("x", "Placeholder", dtype=1)
    x.attr["shape"].shape.dim.add(size=-1)
    x.attr["shape"].shape.dim.add(size=3)
    w = add("w", "Const", dtype=1)
    w.attr["value"].tensor.dtype = 1
    for extent in (3, 2):
        w.attr["value"].tensor.tensor_shape.dim.add(size=extent)
    w.attr["value"].tensor.float_val.extend([1, 2, 3, 0.5])  # the last one repeats
    product = add("product", "MatMul", ("x", "w"), T=1)
    product.attr["transpose_a"].b = False
    product.attr["transpose_b"].b = False
    bias = add("bias", "Const", dtype=1)
    bias.attr["value"].tensor.dtype = 1
    bias.attr["value"].tensor.tensor_shape.dim.add(size=2)
    bias.attr["value"].tensor.tensor_content = np.float32([10, -100]).tobytes()
    added = add("added", "BiasAdd", ("product", "bias:0"), T=1)
    added.attr["data_format"].s = b"NHWC"
    add("y", "Relu", ("added", "^x"), T=1)
    return graph


def test_a_graph_of_another_writer_runs() -> None:
    with tb.Graph().as_default(), tb.Session() as session:
        (y,) = tb.import_graph_def(foreign().SerializeToString(), name="", return_elements=["y:0"])
        value = session.run(y, {"x:0": [[1, 2, 3]]})
    np.testing.assert_allclose(value, [[1 + 6 + 1.5 + 10, 0]])


def changed(change: Callable[[Any], None]) -> bytes:
    graph = foreign()
    change(graph)
    blob: bytes = graph.SerializeToString()
    return blob


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"\x0a\xff\xff", "truncated or no GraphDef"),
        (foreign().SerializeToString()[:-3], "truncated or no GraphDef"),
        (foreign().SerializeToString() + b"\x12\x02\x0a\x00", "function .*: expected a name"),
        (changed(lambda g: g.node.add(op="NoOp")), "node 6 '': expected a name"),
        (
            changed(lambda g: setattr(g.node[4].attr["data_format"], "s", b"NCHW")),
            "expected NHWC, got b'NCHW'",
        ),
        (changed(lambda g: setattr(g.node[0].attr["dtype"], "type", 21)), "DataType 21 is not supported"),
        (
            changed(lambda g: g.node[1].attr["value"].tensor.float_val.extend([1] * 9)),
            r"tensor float32\[3, 2\] with 13 values",
        ),
        (
            changed(lambda g: g.node[3].attr["value"].tensor.tensor_shape.dim.add(size=1 << 40)),
            "at most 268,435,456 bytes",
        ),
    ],
)
def test_what_is_no_graph(blob: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        GraphDef.FromString(blob)
    (tmp_path / "graph.pb").write_bytes(blob)
    with pytest.raises((InvalidArgumentError, DataLossError), match=r"graph\.pb: .*" + message):
        tb.train.read_graph(tmp_path / "graph.pb")


def test_an_op_that_is_unknown_here() -> None:
    blob = changed(lambda g: g.node.add(name="z", op="FancyOp", input=["y"]))
    with tb.Graph().as_default(), pytest.raises(tb.errors.TensorBowError, match="FancyOp"):
        tb.import_graph_def(blob, name="")


def test_parse_replaces_the_content() -> None:
    blob = foreign().SerializeToString()
    graph_def = tb.Graph().as_graph_def()
    assert graph_def.ParseFromString(blob) == len(blob)
    assert [node.name for node in graph_def.node][:2] == ["x", "w"]
    with pytest.raises(InvalidArgumentError, match="expected data to be bytes of a GraphDef"):
        graph_def.ParseFromString("text")  # type: ignore[arg-type]


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_changed_bytes_are_read_or_refused(position: int, byte: int) -> None:
    blob = bytearray(foreign().SerializeToString())
    blob[position % len(blob)] = byte
    try:
        graph_def = GraphDef.FromString(bytes(blob))
        with tb.Graph().as_default():
            tb.import_graph_def(graph_def, name="")
    except tb.errors.TensorBowError:
        pass


# TensorFlow's own ops -----------------------------------------------------------------------------------


def message_of(graph: tb.Graph) -> Any:
    message = graph_pb2.GraphDef()
    message.ParseFromString(graph.as_graph_def().SerializeToString())
    return message


def recurrent(trains: bool) -> tb.Graph:
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, [2, None, 3])
        outputs, _ = tb.nn.dynamic_rnn(tb.nn.rnn_cell.BasicLSTMCell(4), x, dtype=tb.float32)
        if trains:
            tb.train.AdamOptimizer(0.1).minimize(tb.reduce_mean(tb.square(outputs)))
    return graph


@pytest.mark.parametrize("name", ["lenet", "resnet8", "lstm", "training lstm"])
def test_ordinary_graphs_are_of_ops_of_tensorflow(name: str) -> None:
    graph = recurrent("training" in name) if "lstm" in name else network(name)
    own = {node.op for node in message_of(graph).node if node.op.startswith("TensorBow>")}
    assert own == ({"TensorBow>StackPush", "TensorBow>StackPop"} if "training" in name else set())


def test_attributes_are_inputs_where_tensorflow_has_them_so() -> None:
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, [4, 6, 5], name="x")
        v = tb.Variable(tb.zeros([3]), name="v")
        tb.reduce_mean(x, [0, 2], keepdims=True, name="mean")
        tb.identity(x[1, ..., ::-2, None], name="strided")
        tb.concat([x, x], 1, name="joined")
        tb.nn.top_k(x, 2, name="best")
        tb.train.MomentumOptimizer(0.5, 0.9).minimize(tb.reduce_sum(v * v), name="train")
        tb.TensorArray(tb.float32, 3, name="array").unstack(x[:3])
    nodes = {node.name: node for node in message_of(graph).node}

    def constants(name: str) -> dict[str, Any]:
        found = (item for item in nodes[name].input if item in nodes and nodes[item].op == "Const")
        return {
            item.rpartition("/")[2]: np.frombuffer(
                nodes[item].attr["value"].tensor.tensor_content, np.int32
            ).tolist()
            for item in found
        }

    assert (nodes["mean"].op, list(nodes["mean"].input), constants("mean")) == (
        *("Mean", ["x", "mean/axis"], {"axis": [0, 2]}),
    )
    assert nodes["mean"].attr["keep_dims"].b
    sliced = nodes["strided"].input[0]
    assert constants(sliced) == {"begin": [1, 0, 0, 0], "end": [2, 0, 0, 0], "strides": [1, 1, -2, 1]}
    masks = {
        key: nodes[sliced].attr[f"{key}_mask"].i
        for key in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    assert masks == {"begin": 4, "end": 4, "ellipsis": 2, "new_axis": 8, "shrink_axis": 1}
    assert (nodes["joined"].attr["N"].i, constants("joined")) == (2, {"axis": [1]})
    assert (nodes["best"].op, constants("best")) == ("TopKV2", {"k": [2]})
    update = next(node for node in nodes.values() if node.op == "ApplyMomentum")
    assert update.input[:3] == ["v", "v/Momentum", "train/learning_rate"]
    assert nodes["train/learning_rate"].op == "PlaceholderWithDefault"
    assert {nodes[item[1:]].op for item in update.input if item.startswith("^")} >= {"Mul"}
    array = next(node for node in nodes.values() if node.op == "TensorArrayV3")
    assert not array.attr["clear_after_read"].b
    assert not {"role", "decayed", "combine"} & set(nodes["v"].attr)


def test_constants_that_loops_read_are_in_their_frame_there() -> None:
    with tb.Graph().as_default() as graph:
        tb.while_loop(lambda i: i < 5, lambda i: i + 2, [0])
    nodes = {node.name: node for node in message_of(graph).node}
    less, plus = nodes["while/Less"], nodes["while/Add"]
    assert (less.input[1], plus.input[1]) == ("while/Less/input1", "while/Add/input1")
    for name in (less.input[1], plus.input[1]):
        assert (nodes[name].op, list(nodes[name].input)) == ("Const", ["^while/Merge"])


@pytest.mark.parametrize("shrinkage", [0.0, 0.25])
def test_updates_with_regularisation_are_those_of_tensorflow(shrinkage: float) -> None:
    with tb.Graph().as_default() as graph, tb.Session() as session:
        w = tb.Variable(np.array([0.5, -0.25], np.float32), name="w")
        loss = tb.reduce_sum(tb.square(w - 1.0))
        optimizers = [
            tb.train.FtrlOptimizer(0.1, -0.75, 0.1, 0.5, 0.1, l2_shrinkage_regularization_strength=shrinkage),
            tb.train.ProximalAdagradOptimizer(0.1, 0.1, 0.5),
            tb.train.ProximalGradientDescentOptimizer(0.1, 0.5),
        ]
        updates = [each.minimize(loss).name for each in optimizers]
        initial = tb.global_variables_initializer().name
        session.run(initial)
        for update in updates:
            session.run(update)
        expected = session.run("w:0")
    message = message_of(graph)
    nodes = [node for node in message.node if node.op.startswith("Apply")]
    made = {node.op: sum(not item.startswith("^") for item in node.input) for node in nodes}
    ftrl = {"ApplyFtrlV2": 9} if shrinkage else {"ApplyFtrl": 8}
    assert made == {**ftrl, "ApplyProximalAdagrad": 6, "ApplyProximalGradientDescent": 5}
    for node in message.node:  # as other writers have them
        if not node.name.startswith(("Ftrl/", "Proximal")):
            continue
        for key in [key for key in node.attr if key.startswith("_")]:
            del node.attr[key]
    with tb.Graph().as_default(), tb.Session() as session:
        tb.import_graph_def(message.SerializeToString(), name="")
        session.run(initial)
        for update in updates:
            session.run(update)
        np.testing.assert_array_equal(session.run("w:0"), expected)


def test_constant_inputs_of_other_writers_become_attributes() -> None:
    """Without what this library adds, as after another program has written the graph again."""
    with tb.Graph().as_default() as graph, tb.Session() as session:
        x = tb.placeholder(tb.float32, [4, 6, 5], name="x")
        parts = tb.split(x, [1, 2, 3], axis=1)
        outputs = [
            tb.reduce_max(x, 1),
            tb.transpose(x[1:, ..., ::-1, 0], [1, 0]),
            tb.concat([parts[1], parts[2]], 1),
            tb.gather(x, [2, 0], axis=1),
            tb.pad(x, [[0, 1], [1, 0], [0, 0]], constant_values=2.0),
            tb.one_hot(tb.argmax(x, 1), 6, on_value=3.0),
            tb.cumsum(tb.expand_dims(x, 1), 2, exclusive=True),
            tb.nn.top_k(x, 2)[0] * tb.tile([[2.0, 1.0]], [6, 1]),
            tb.TensorArray(tb.float32, 4).unstack(x).gather([3, 0]),
        ]
        names = [tb.identity(each, name=f"out{number}").name for number, each in enumerate(outputs)]
        feeds = {"x:0": np.random.default_rng(0).standard_normal((4, 6, 5)).astype(np.float32)}
        expected = session.run(names, feeds)
    message = message_of(graph)
    for node in message.node:
        for key in [key for key in node.attr if key.startswith("_")]:
            del node.attr[key]
    with tb.Graph().as_default() as read, tb.Session() as session:
        tb.import_graph_def(message.SerializeToString(), name="")
        assert {"Max", "Transpose", "StridedSlice", "Split", "OneHot"} <= {
            op.type for op in read.get_operations()
        }
        for got, other in zip(session.run(names, feeds), expected, strict=True):
            np.testing.assert_array_equal(got, other)
    lonely = next(node for node in message.node if node.op == "Max")
    lonely.input[1] = "x"
    with pytest.raises(InvalidArgumentError, match=r"'Max': its input 1 \('x:0'\) has to be a constant here"):
        GraphDef.FromString(message.SerializeToString())
