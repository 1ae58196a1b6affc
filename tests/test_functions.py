"""Functions of graphs: one operation a call, expanded by the compiler, with gradients, in GraphDefs."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph import NodeDef
from tensorbow.graph.function_def import FunctionDef

pytestmark = pytest.mark.usefixtures("graph")

AT = np.random.default_rng(0).standard_normal((4, 3)) * 0.3


def values(fetched, feeds=None, **options):
    with tb.Session(**options) as session:
        if tb.global_variables():
            session.run(tb.global_variables_initializer())
        return session.run(fetched, feeds)


def defined(w):
    """A layer as a function that reads w, and the same in Python."""

    def layer(a):
        return tb.tanh(tb.matmul(a, w) + tb.reduce_sum(a, 1, keepdims=True))

    return tb.Defun(tb.float64, func_name="layer")(layer), layer


def test_a_defined_function_is_one_operation_in_each_call(graph):
    @tb.Defun(tb.float32, tb.float32)
    def affine(x, y):
        total = x * 2.0 + y
        return {"total": total, "same": x}

    x = tb.placeholder(tb.float32, [2])
    before = graph.version
    first = affine(x, x)
    assert graph.version == before + 1
    second = affine(1.0, 2.0, name="named")
    assert (first["total"].op.type, first["total"].op.name) == ("Call", "affine")
    assert first["total"].shape == [2]
    assert second["total"].op.name == "named"
    gradient = tb.gradients(first["total"], x)[0]
    found = values([first, second["total"], gradient], {x: [1.0, 1.0]})
    assert (found[0]["total"].tolist(), found[0]["same"].tolist()) == ([3, 3], [1, 1])
    assert (found[1], found[2].tolist()) == (4, [3, 3])
    with pytest.raises(InvalidArgumentError, match="expected 2 arguments, got 1"):
        affine(x)
    with pytest.raises(InvalidArgumentError, match="expected a function that makes no variable"):
        tb.Defun(tb.float32)(lambda a: tb.get_variable("v", [1]) * a)
    v = tb.Variable(1.0)
    with pytest.raises(InvalidArgumentError, match=r"Defun .*: it writes or refers to variable .*outside"):
        tb.Defun(tb.float32)(lambda a: tb.assign(v, a))
    with pytest.raises(InvalidArgumentError, match=r"affine: Add: .*\[2\].*\[3\]"):
        affine(x, tb.zeros([3]))


def test_a_gradient_of_its_own_replaces_that_of_the_operations():
    x, w = tb.placeholder(tb.float32, [2]), tb.constant([2.0, 3.0])

    @tb.Defun(tb.float32, python_grad_func=lambda inputs, grad: [grad * 7.0 * inputs[0]])
    def square(a):
        return a * a + tb.identity(w)

    @tb.Defun(tb.float32, python_grad_func=lambda inputs, grad: grad * 5.0)
    def noisy(a):
        return a + tb.random_uniform([2])

    y, z = square(x), noisy(x)
    found = values([y, tb.gradients(y, x)[0], tb.gradients(z, x)[0]], {x: [1.0, 3.0]})
    assert [v.tolist() for v in found] == [[3, 12], [7, 21], [5, 5]]


@pytest.mark.parametrize("dynamic", [False, True])
def test_calls_compute_and_differentiate_as_what_they_stand_for(dynamic):
    x = tb.placeholder(tb.float64, [None, 3])
    w = tb.Variable(np.eye(3) * 0.5 + 0.1, name="w")
    found = []
    for layer in defined(w):
        y = layer(tb.sin(layer(x)))
        loss = tb.reduce_sum(y * y)
        if dynamic:
            loss = tb.reduce_sum(tb.boolean_mask(y, y[:, 0] > -5.0) ** 2.0)
        first = tb.gradients(loss, [x, w])
        found.append([loss, *first, *tb.gradients(tb.reduce_sum(first[1] * w), [x, w])])
    one, other = values(found, {x: AT})
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_what_a_derivative_computes_again_is_computed_once():
    x = tb.placeholder(tb.float64, [4, 3])
    w = tb.Variable(np.eye(3), name="w")
    layer, plain = defined(w)
    with tb.Session() as session:
        lines = [
            str(session.explain(tb.gradients(tb.reduce_sum(each(each(x))), [x, w]), {x: AT}))
            for each in (layer, plain)
        ]
    counts = [next(line for line in text.splitlines() if line.startswith("segment")) for text in lines]
    assert counts[0] == counts[1]
    assert "layer/Tanh" in lines[0]


def test_calls_in_loops_branches_and_functions():
    x = tb.placeholder(tb.float64, [None, 3])
    w = tb.Variable(np.eye(3) * 0.5, name="w")
    layer, plain = defined(w)

    @tb.Defun(tb.float64)
    def twice(a):
        return layer(layer(a)) + w[0, 0]

    def program(one, two):
        looped = tb.while_loop(
            lambda i, a: i < 3, lambda i, a: (i + 1, tb.cond(i < 1, lambda: one(a), lambda: two(a))), [0, x]
        )[1]
        rows = tb.map_fn(lambda row: one(tb.expand_dims(row, 0))[0], looped)
        return [rows, *tb.gradients(rows, [x, w])]

    calls = program(layer, twice)
    plainly = program(plain, lambda a: plain(plain(a)) + w[0, 0])
    for compiles in (True, False):
        config = tb.ConfigProto(compiles_loops=compiles)
        for a, b in zip(*values([calls, plainly], {x: AT}, config=config), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_a_shape_that_is_an_argument():
    @tb.Defun(tb.float32, tb.int32)
    def shaped(a, rows):
        return tb.reshape(a, tb.stack([rows, -1])) * 2.0

    a, n = tb.placeholder(tb.float32, [12]), tb.placeholder(tb.int32, [])
    y = shaped(a, n)
    (gradient,) = tb.gradients(y * y, a)
    for rows in (2, 6):
        found, slope = values([y, gradient], {a: np.arange(12), n: rows})
        assert found.shape == (rows, 12 // rows)
        np.testing.assert_array_equal(slope, np.arange(12) * 8)


def test_functions_that_are_not_plain_are_added_by_each_call(graph):
    @tb.Defun(tb.float32)
    def noisy(a):
        return a + tb.random_uniform([2])

    x = tb.constant([0.0, 0.0])
    first, second = noisy(x), noisy(x)
    assert "Call" not in {op.type for op in graph.get_operations()}
    assert first.op.name.startswith("noisy/")
    a, b = values([first, second])
    assert set(a).isdisjoint(b)


def test_functions_on_two_devices():
    x = tb.placeholder(tb.float64, [None, 3])
    w = tb.Variable(np.eye(3) * 0.5, name="w")
    layer, plain = defined(w)
    with tb.device("/cpu:1"):
        there = layer(x)
    with tb.device("/cpu:0"):
        here = layer(there)
    np.testing.assert_allclose(*values([here, plain(plain(x))], {x: AT}), rtol=1e-12)


@pytest.mark.slow
def test_functions_in_the_step_of_replicas():
    def step_fn(batch):
        u = tb.get_variable("u", [3, 3], initializer=tb.constant_initializer(0.2))
        square = tb.Defun(tb.float32)(lambda a: tb.square(tb.tanh(tb.matmul(a, u)) - 0.3))
        loss = tb.reduce_mean(square(batch))
        return loss, replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.5)).minimize(loss)

    def input_fn(replica_id):
        while True:
            yield np.full((4, 3), 0.5 + replica_id, np.float32)

    with tb.MultiGpuReplicator(["/cpu:0"], 2) as replicator, tb.Session() as session:
        loss, train = replicator.run(step_fn, input_fn)
        replicator.init(session)
        losses = [session.run([loss, train])[0].mean() for _ in range(4)]
    assert losses[-1] < losses[0]


# GraphDefs ----------------------------------------------------------------------------------------------


def written():
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float64, [None, 3], name="x")
        w = tb.constant(np.eye(3) * 0.5, name="w")
        layer, _ = defined(tb.identity(w))
        twice = tb.Defun(tb.float64, func_name="twice")(lambda a: layer(layer(a)))
        y = tb.identity(twice(layer(x)), name="y")
        tb.identity(tb.gradients(y, x)[0], name="dx")
    return graph


@pytest.mark.parametrize("binary", [False, True])
def test_functions_go_there_and_back(binary):
    if binary:
        pytest.importorskip("google.protobuf", reason="the format needs protobuf")
    graph = written()
    graph_def = graph.as_graph_def()
    assert [function.name for function in graph_def.library] == ["layer", "twice", "layer_grad", "twice_grad"]
    assert len(graph_def.node) < 20
    text = graph_def.to_json()
    with tb.Graph().as_default() as read:
        tb.import_graph_def(graph_def.SerializeToString() if binary else text, name="")
        assert read.as_graph_def().to_json() == text
        x, y, dx = (read.get_tensor_by_name(f"{name}:0") for name in ("x", "y", "dx"))
        found = values([y, dx, *tb.gradients(y, x), *tb.gradients(dx, x)], {x: AT})
    with graph.as_default():
        x, y, dx = (graph.get_tensor_by_name(f"{name}:0") for name in ("x", "y", "dx"))
        expected = values([y, dx, dx, *tb.gradients(dx, x)], {x: AT})
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    part = graph_def.extract(["y"])
    assert [function.name for function in part.library] == ["layer", "twice"]


def test_a_function_in_a_graph_def_that_is_not_plain_is_expanded():
    """As in a GraphDef of another writer: with a loop, several results, and control inputs of its call."""
    with tb.Graph().as_default() as graph:
        a = tb.placeholder(tb.float64, [None], name="a")
        tb.identity(tb.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * a), [0, a])[1], name="cube")
    body = list(graph.as_graph_def().node)
    for node in body:
        node.context = ""
    function = FunctionDef("power", ["a"], ["cube:0", "a:0"], body)
    call = [
        NodeDef("x", "Placeholder", [], {"dtype": tb.float64, "shape": None}),
        NodeDef("before", "NoOp"),
        NodeDef("one", "Call", ["x:0", "^before"], {"f": "power"}),
        NodeDef("two", "Call", ["one:0"], {"f": "power"}),
        NodeDef("sum", "Add", ["two:0", "one:1", "^one"]),
    ]
    with tb.Graph().as_default() as read:
        (total, one) = tb.import_graph_def(
            tb.GraphDef(call, library=[function]), return_elements=["sum:0", "one:0"], name="all"
        )
        assert {"all/one/cube", "all/two/cube"} <= {op.name for op in read.get_operations()}
        found = values([total, one], {"all/x:0": [2.0, 0.5]})
    np.testing.assert_array_equal(found, [[2.0**16 + 2, 0.5**16 + 0.5], [16, 0.5**4]])


def lie(change):
    content = copy.deepcopy(HONEST)
    change(content)
    return content


HONEST = json.loads(written().as_graph_def().to_json())


def _set(index, key, value):
    return lambda content: content["library"][index].update({key: value})


def _call_itself(content):
    node = content["library"][0]["node"][-1]
    node.update(op="Call", attr={"f": "layer"}, input=["arg0:0", "captured:0"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["library"].pop(0), "there is no function 'layer'"),
        (lambda c: c["library"].append(c["library"][0]), "two functions are named 'layer'"),
        (_set(0, "output", ["gone:0"]), "function 'layer': there is no node for 'gone:0'"),
        (_set(0, "input", ["Tanh"]), "function 'layer'.*input 'Tanh:0' is no Placeholder|no node"),
        (_set(0, "input", ["arg0"]), "takes|inputs|Placeholder"),
        (_set(0, "input", 3), "function 'layer': expected a name, and lists"),
        (_set(0, "node", [{"name": "a"}]), "op must be a text"),
        (_set(1, "name", "other"), "there is no function 'twice'"),
        (_call_itself, "'layer'.*calls itself"),
        (lambda c: c.update(library=3), "library must be a list"),
        (lambda c: c["library"][0].update(more=1), "must be an object of name, input, output and node"),
    ],
)  # fmt: skip
def test_lies_about_functions_are_named(change, words):
    with tb.Graph().as_default() as read:
        with pytest.raises((InvalidArgumentError, NotFoundError), match=words):
            tb.import_graph_def(json.dumps(lie(change)), name="")
        assert read.get_operations() == []


def test_functions_that_call_each_other_too_often_are_refused():
    body = [NodeDef("a", "Placeholder", [], {"dtype": tb.float32, "shape": None})]
    library = [FunctionDef("f0", ["a"], ["b:0"], [*body, NodeDef("b", "Neg", ["a:0"])])]
    for n in range(1, 40):
        calls = [
            NodeDef(name, "Call", [item], {"f": f"f{n - 1}"}) for name, item in (("b", "a:0"), ("c", "b:0"))
        ]
        library.append(FunctionDef(f"f{n}", ["a"], ["c:0"], [*copy.deepcopy(body), *calls]))
    nodes = [*copy.deepcopy(body), NodeDef("y", "Call", ["a:0"], {"f": "f39"})]
    with (
        tb.Graph().as_default(),
        pytest.raises(InvalidArgumentError, match="stands for more than 262,144 op"),
    ):
        tb.import_graph_def(tb.GraphDef(nodes, library=library), name="")
