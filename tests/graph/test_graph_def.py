"""A graph written to JSON and read again: the same text, the same graph, the same bits in another process."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph.attribute_json import decode_attribute, encode_attribute

ROOT = Path(tb.__file__).resolve().parent.parent
NAN = np.array([0x7FC12345, 0xFF800001, 0x80000000], np.uint32).view(np.float32)  # bits that must stay

# Both processes define the user's op and run the step so.
PROGRAM = """
import hashlib, sys
import numpy as np
import tensorbow as tb

def cube(call):
    call.outputs[0][...] = call.inputs[0] ** call.attrs["power"]

Cube = tb.define_op(
    "MyCube",
    spec=lambda inputs, attrs: tb.TensorSpec(inputs[0].shape, inputs[0].dtype),
    gradient=lambda op, g: [g * tb.constant(op.attrs["power"], op.inputs[0].dtype) * op.inputs[0] ** 2.0],
    inputs=("x",),
    attrs={"power": 3},
    kernel=cube,
)

def build():
    x = tb.placeholder(tb.float32, [None, 5], name="x")
    w = tb.Variable(tb.random_normal([5, 4], stddev=0.3), name="w")
    noise = tb.random_uniform(tb.shape(x), seed=7)
    step = tb.Variable(0, trainable=False, name="step")
    loss = tb.reduce_mean(Cube(tb.matmul(x + noise, w) + [0.5, 1.0, -0.25, 2.0]), name="loss")
    tb.train.MomentumOptimizer(0.01, 0.9, weight_decay=0.1).minimize(loss, global_step=step, name="train")
    with tb.control_dependencies([tb.no_op("before")]):
        tb.identity(x[:, 1:3][..., ::-1], name="slice")
    tb.variables_initializer(tb.global_variables(), name="init")

def digest(prefix=""):
    values = []
    with tb.Session() as session:
        session.run(prefix + "init")
        for n in range(5):
            x = np.random.default_rng(n).normal(size=(n + 2, 5)).astype(np.float32)
            values += session.run([prefix + "loss:0", prefix + "slice:0", prefix + "train"],
                                  {prefix + "x:0": x})[:2]
        values += session.run(tb.global_variables())
    return hashlib.sha256(b"".join(np.asarray(v).tobytes() for v in values)).hexdigest()
"""


def in_another_process(body, *words):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM + body, *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.slow
def test_another_process_computes_the_same_bits(tmp_path):
    path = tmp_path / "graph.json"
    write = "build()\ntb.train.write_graph(tb.get_default_graph(), *sys.argv[1:])\nprint(digest())"
    (built,) = in_another_process(write, tmp_path, "graph.json")
    read = (
        "tb.import_graph_def(tb.train.read_graph(sys.argv[1]), name=sys.argv[2])\n"
        "print(digest(sys.argv[2] and sys.argv[2] + '/'))\n"
        "text = tb.get_default_graph().as_graph_def().to_json()\n"
        "if not sys.argv[2]: print(text == open(sys.argv[1], encoding='utf-8').read())"
    )
    assert in_another_process(read, path, "") == [built, "True"]
    assert in_another_process(read, path, "copy") == [built]


def round_trip(graph, **options):
    copy = tb.Graph()
    with copy.as_default():
        tb.import_graph_def(tb.GraphDef.from_json(graph.as_graph_def().to_json()), **options)
    return copy


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**70),
        0.1,
        -0.0,
        float("inf"),
        "text \u00e4 \ud800",
        b"\0\xff",
        (),
        [],
        [1, (2.0, None), "a"],
        slice(None, 3, -1),
        Ellipsis,
        tb.float64,
        np.float32(0.1),
        np.int64(2**62),
        {"a": (1, 2)},
        tb.TensorShape([None, 3]),
        tb.TensorSpec(None, "int32"),
    ],
    ids=repr,
)
def test_attributes_keep_type_and_value(value):
    encoded = json.loads(json.dumps(encode_attribute(value), allow_nan=False))
    back = decode_attribute(encoded)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64", "float16"])
def test_arrays_keep_every_bit(dtype):
    array = (np.arange(24) % 2).astype(dtype).reshape(2, 3, 4).transpose(2, 0, 1)
    back = decode_attribute(encode_attribute(array))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)
    assert decode_attribute(encode_attribute(NAN)).tobytes() == NAN.tobytes()
    assert decode_attribute(encode_attribute(np.array(3, dtype))).shape == ()
    assert decode_attribute(encode_attribute(np.empty((0, 5), dtype))).shape == (0, 5)


def test_a_function_has_no_place_in_a_graph_def(graph):
    op = tb.define_op(
        "TestGraphDefFunction",
        spec=lambda inputs, attrs: inputs[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        attrs={"f": None},
        kernel=lambda call: None,
        replace=True,
    )
    op(tb.constant(1.0), f=len, name="called")
    with pytest.raises(
        InvalidArgumentError, match=r"TestGraphDefFunction called: attribute 'f'.*builtin.*test_graph_def.py"
    ):
        graph.as_graph_def().to_json()


def test_variables_come_back_with_all_that_belongs_to_them(graph):
    w = tb.Variable(np.ones((2, 3)), name="w", combine="mean", decayed=False)
    n = tb.Variable(4, name="n", trainable=False)
    loss = tb.reduce_sum(w * w)
    optimizer = tb.train.MomentumOptimizer(0.5, 0.9)
    optimizer.minimize(loss)
    graph.add_to_collection("mine", loss)
    graph.add_to_collection("mine", n)
    graph.add_to_collection("mine", ("text", 3))
    graph.add_to_collection("mine", object())  # has no place in a file
    copy = round_trip(graph, name="net")
    with copy.as_default():
        w2, n2, slot = tb.global_variables()
        assert tb.trainable_variables() == [w2]
        tensor, same, value = copy.get_collection("mine")
        assert (tensor.name, same, value) == ("net/Sum:0", n2, ("text", 3))
        assert slot.op.attrs["slot_of"] == "net/w"
        assert (w2.op.attrs["combine"], w2.op.attrs["decayed"]) == ("mean", False)
        with tb.Session() as session:
            session.run(tb.global_variables_initializer())
            session.run([w2.assign_add(np.ones((2, 3))), n2.assign(5)])
            assert session.run(tensor) == 24
            assert session.run(tb.gradients(tensor, w2)[0])[0, 0] == 4
            assert session.run(n2) == 5


def test_devices_colocation_controls_and_shapes_come_back(graph):
    with tb.device("/cpu:1"):
        a = tb.placeholder(tb.float32, name="a")
        a.set_shape([None, 2])
    with tb.colocate_with(a), tb.control_dependencies([a]):
        tb.constant(1.0, name="b")
    copy = round_trip(graph, name="")
    b = copy.get_operation_by_name("b")
    assert copy.get_tensor_by_name("a:0").shape == [None, 2]
    assert (b.device, [c.name for c in b.colocation], [c.name for c in b.control_inputs]) == (
        "/device:CPU:1",
        ["a"],
        ["a"],
    )
    with tb.Graph().as_default() as other, tb.device("/cpu:2"):
        tb.constant(0.0, name="c")
        tb.import_graph_def(other.as_graph_def(), name="x")
        assert other.get_operation_by_name("x/c").device == "/device:CPU:2"


def test_errors_name_the_line_of_the_first_process(graph):
    tb.matmul(tb.placeholder(tb.float32, name="x"), tb.constant([[1.0]]), name="y")
    copy = round_trip(graph, name="")
    words = r"needed but not fed.*test_graph_def\.py:\d+ in"
    with tb.Session(graph=copy) as session, pytest.raises(InvalidArgumentError, match=words):
        session.run("y:0")


def test_input_map_and_return_elements(graph):
    x = tb.placeholder(tb.float32, [3], name="x")
    tb.add(x, 1.0, name="y")
    graph_def = graph.as_graph_def()
    with tb.Graph().as_default():
        mine = tb.constant([1.0, 2.0, 3.0])
        y, op = tb.import_graph_def(graph_def, {"x": mine}, ["y:0", "y"])
        assert (y.name, op, op.inputs[0]) == ("import/y:0", y.op, mine)
        again = tb.import_graph_def(graph_def, {"x:0": [5, 6, 7.0]}, ["y:0"])[0]
        assert again.name == "import_1/y:0"
        with tb.Session() as session:
            np.testing.assert_array_equal(session.run(again), [6, 7, 8])
        with pytest.raises(InvalidArgumentError, match=r"Attempted to map inputs.*\[z\]"):
            tb.import_graph_def(graph_def, {"z": mine})
        with pytest.raises(InvalidArgumentError, match=r"node 2 'y'.*dtype"):
            tb.import_graph_def(graph_def, {"x": tb.constant([1, 2, 3])})
        with pytest.raises(NotFoundError, match="no node for 'z:0'"):
            tb.import_graph_def(graph_def, return_elements=["z:0"])
        with pytest.raises(NotFoundError, match="has no output 1, only 1"):
            tb.import_graph_def(graph_def, return_elements=["y:1"])


def test_step_scalars_with_one_key_are_one(graph):
    tb.step_scalar("rate", tb.float32, 0.5)
    graph_def = graph.as_graph_def()
    with tb.Graph().as_default() as other:
        first = tb.step_scalar("rate", tb.float32, 0.5)
        second = tb.import_graph_def(graph_def, return_elements=["rate:0"])[0]
        assert tb.step_scalar("rate", tb.float32, 0.5) is first
        with tb.Session() as session:
            assert session.run(first + second) == 1
    with tb.Graph().as_default() as other:
        tb.step_scalar("rate", tb.float32, 0.25)
        with pytest.raises(InvalidArgumentError, match=r"'rate' is float32 with default 0.25 already"):
            tb.import_graph_def(graph_def)
        assert len(other.get_operations()) == 1


def test_extract_keeps_what_is_needed(graph):
    x = tb.placeholder(tb.float32, [2], name="x")
    w = tb.Variable([1.0, 2.0], name="w")
    tb.multiply(x, w, name="y")
    tb.add(x, 1.0, name="other")
    part = graph.as_graph_def().extract(["y:0"])
    assert [node.name for node in part.node] == ["x", "w", "w/read", "y"]
    with pytest.raises(NotFoundError, match="no node 'z'"):
        graph.as_graph_def().extract(["z"])
