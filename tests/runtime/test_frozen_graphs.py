"""`tb.graph_util`: graphs with constants in place of variables, parts of graphs, removed nodes."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

pytestmark = pytest.mark.usefixtures("graph")


X = np.array([[1, 2], [3, 4]], np.float32)


def net() -> None:
    """A layer `out` of `x`, by a weight and a bias, and a training operation `train`."""
    x = tb.placeholder(tb.float32, [None, 2], name="x")
    w = tb.Variable(np.array([[1, 2, 3], [4, 5, 6]], np.float32), name="w")
    b = tb.Variable(np.ones(3, np.float32), name="b")
    y = tb.add(tb.matmul(x, w), b)
    tb.identity(tb.check_numerics(y, "wrong"), name="out")
    tb.train.GradientDescentOptimizer(0.1).minimize(tb.reduce_sum(y), name="train")


def run_alone(graph_def: tb.GraphDef, name: str = "out:0") -> np.ndarray:
    """The value of a tensor of a GraphDef without variables."""
    with tb.Graph().as_default() as graph, tb.Session() as session:
        tb.import_graph_def(graph_def, name="")
        assert not tb.global_variables()
        return session.run(name, {graph.get_tensor_by_name("x:0"): X})


def ops(graph_def: tb.GraphDef) -> dict[str, str]:
    return {node.name: node.op for node in graph_def.node}


def test_a_trained_graph_runs_without_its_variables(graph):
    net()
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        session.run("train", {"x:0": X})
        expected = session.run("out:0", {"x:0": X})
        frozen = tb.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["out"])
        after = session.run("w:0")
    assert set(ops(frozen).values()) == {
        *("Placeholder", "Const", "Identity", "MatMul", "Add", "CheckNumerics")
    }
    assert ops(frozen)["w"] == "Const"
    assert ops(frozen)["w/read"] == "Identity"
    np.testing.assert_array_equal(run_alone(frozen), expected)
    np.testing.assert_array_equal(run_alone(frozen, "w:0"), after)
    np.testing.assert_array_equal(run_alone(tb.GraphDef.from_json(frozen.to_json())), expected)
    np.testing.assert_array_equal(run_alone(tb.GraphDef.FromString(frozen.SerializeToString())), expected)


def test_variables_are_chosen_by_their_names(graph):
    net()
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        convert, definition = tb.graph_util.convert_variables_to_constants, graph.as_graph_def()
        some = ops(convert(session, definition, ["out"], variable_names_whitelist=["w"]))
        others = ops(convert(session, definition, ["out"], variable_names_blacklist=["w"]))
    assert (some["w"], some["b"], some["b/read"]) == ("Const", "Variable", "ReadVariable")
    assert (others["w"], others["b"]) == ("Variable", "Const")


def test_variables_in_loops_and_branches(graph):
    x = tb.placeholder(tb.float32, [2, 2], name="x")
    w = tb.Variable(np.array([[0.5, 1], [1, 0.5]], np.float32), name="w")
    grown = tb.while_loop(
        lambda a: tb.reduce_sum(a) < 50.0, lambda a: [tb.matmul(a, w)], [x], return_same_structure=True
    )[0]
    tb.identity(tb.cond(tb.reduce_sum(x) > 0.0, lambda: grown + w, lambda: grown), name="out")
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        expected = session.run("out:0", {x: X})
        frozen = tb.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["out"])
    np.testing.assert_array_equal(run_alone(frozen), expected)


def test_a_partitioned_variable_and_rows_of_a_table(graph):
    tb.placeholder(tb.float32, [2, 2], name="x")
    with tb.variable_scope("t", partitioner=tb.fixed_size_partitioner(2)):
        table = tb.get_variable("rows", [5, 3])
    rows = tb.nn.embedding_lookup(table, [4, 0, 3], partition_strategy="div")
    tb.identity(rows, name="out")
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        expected = session.run("out:0")
        frozen = tb.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["out", "x"])
    np.testing.assert_array_equal(run_alone(frozen), expected)


def test_what_cannot_become_a_constant(graph):
    net()
    convert, definition = tb.graph_util.convert_variables_to_constants, graph.as_graph_def()
    with tb.Session() as session:
        with pytest.raises(FailedPreconditionError, match=r"\bw\b"):
            convert(session, definition, ["out"])
        session.run(tb.global_variables_initializer())
        with pytest.raises(InvalidArgumentError, match=r"takes variable '[wb]' itself"):
            convert(session, definition, ["train"])
        with pytest.raises(NotFoundError, match="no node 'none'"):
            convert(session, definition, ["none"])
        with pytest.raises(InvalidArgumentError, match="expected sess to be a session"):
            convert(None, definition, ["out"])
    with tb.Session(graph=tb.Graph()) as other, pytest.raises(NotFoundError, match="no variable 'b'"):
        convert(other, definition, ["out"])


def test_a_part_of_a_graph(graph):
    net()
    part = tb.graph_util.extract_sub_graph(graph.as_graph_def(), ["MatMul"])
    assert ops(part) == {"x": "Placeholder", "w": "Variable", "w/read": "ReadVariable", "MatMul": "MatMul"}
    with pytest.raises(NotFoundError, match="no node 'none'"):
        tb.graph_util.extract_sub_graph(graph.as_graph_def(), ["none"])


def test_nodes_of_training_are_removed(graph):
    x = tb.placeholder(tb.float32, [None, 2], name="x")
    a = tb.identity(tb.check_numerics(tb.identity(x, name="i"), "wrong", name="c"), name="a")
    y = tb.add(a, a, name="y")
    waited = tb.identity(y, name="waited")
    with tb.control_dependencies([waited]):
        after = tb.identity(y, name="after")
    tb.identity(tb.multiply(after, 2.0), name="out")
    smaller = tb.graph_util.remove_training_nodes(graph.as_graph_def(), ["out"])
    assert sorted(n for n, op in ops(smaller).items() if op != "Const") == [
        *("Mul", "after", "out", "waited", "x", "y")
    ]
    (y_node,) = (node for node in smaller.node if node.name == "y")
    assert y_node.input == ["x:0", "x:0"]
    np.testing.assert_array_equal(run_alone(smaller), 4 * X)
    assert "out" not in ops(tb.graph_util.remove_training_nodes(graph.as_graph_def()))


def test_loops_stay_as_they_are(graph):
    x = tb.placeholder(tb.float32, [2, 2], name="x")
    loop = tb.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tb.identity(a) * 2.0), [0, tb.identity(x)])
    tb.identity(loop[1], name="out")
    smaller = tb.graph_util.remove_training_nodes(graph.as_graph_def(), ["out"])
    np.testing.assert_array_equal(run_alone(smaller), 8 * X)
