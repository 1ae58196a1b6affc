"""`import_graph_def` inside control dependencies, name scopes and device scopes, as TensorFlow has it."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb

pytestmark = pytest.mark.usefixtures("graph")


def model():
    """A variable that is doubled, and a sum of constants and an input."""
    with tb.Graph().as_default() as graph:
        w = tb.Variable(np.float32(3.0), name="w")
        tb.multiply(w, 2.0, name="doubled")
        x = tb.placeholder(tb.float32, [], name="x")
        tb.add(tb.add(x, tb.constant(1.0), name="first"), x, name="second")
        tb.no_op("nothing")
        tb.reshape(tb.random_normal([2, 3], seed=1, name="random"), [3, 2], name="reshaped")
        return graph.as_graph_def()


def controls(graph, name):
    return [op.name for op in graph.get_operation_by_name(name).control_inputs]


def test_nodes_that_read_no_other_get_the_control_dependencies(graph):
    a, b = tb.no_op("a"), tb.no_op("b")
    with tb.control_dependencies([a]), tb.control_dependencies([b]):
        tb.import_graph_def(model(), name="in")
    for name in ("in/first", "in/nothing"):
        assert controls(graph, name) == ["a", "b"]
    for name in ("in/second", "in/reshaped", "in/w", "in/x"):
        assert controls(graph, name) == []
    with tb.control_dependencies([a]), tb.control_dependencies(None):
        tb.import_graph_def(model(), name="free")
    assert controls(graph, "free/first") == []


@pytest.mark.parametrize("name", ["in/doubled", "in/second", "in/reshaped", "in/nothing"])
def test_all_of_it_runs_after_them(graph, name):
    counter = tb.Variable(0, name="counter")
    with tb.control_dependencies([counter.assign_add(1)]):
        tb.import_graph_def(model(), name="in")
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        before = session.run(counter)
        session.run(name if name == "in/nothing" else f"{name}:0", {"in/x:0": 2.0})
        assert session.run(counter) == before + 1


def test_a_read_comes_after_the_write_it_depends_on(graph):
    tb.import_graph_def(model(), name="")
    (w,) = tb.global_variables()
    with tb.control_dependencies([w.assign(5.0)]):
        tb.import_graph_def(
            graph.as_graph_def().extract(["doubled"]), name="again", input_map={"w:0": w.op.outputs[0]}
        )
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        assert session.run("doubled:0") == 6
        assert session.run("again/doubled:0") == 10


def test_what_is_mapped_has_no_control_dependency_of_its_own(graph):
    x = tb.constant(2.0, name="mine")
    with tb.control_dependencies([x]):
        tb.import_graph_def(model(), {"x:0": x}, name="in")
    assert controls(graph, "in/first") == []
    assert controls(graph, "in/nothing") == ["mine"]


def test_they_travel_with_the_graph(graph):
    with tb.control_dependencies([tb.no_op("a")]):
        tb.import_graph_def(model(), name="in")
    text = graph.as_graph_def().to_json()
    with tb.Graph().as_default() as copy:
        tb.import_graph_def(tb.GraphDef.from_json(text), name="")
    assert controls(copy, "in/first") == ["a"]


def test_name_scopes_and_devices_nest(graph):
    with tb.name_scope("outer"), tb.device("/cpu:1"):
        tb.import_graph_def(model(), name="in")
        tb.import_graph_def(model(), name="in")
        tb.import_graph_def(model())
    names = [op.name for op in graph.get_operations() if op.name.endswith("second")]
    assert names == ["outer/in/second", "outer/in_1/second", "outer/import/second"]
    assert graph.get_operation_by_name("outer/in_1/second").device == "/device:CPU:1"
