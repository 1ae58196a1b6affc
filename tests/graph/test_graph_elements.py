"""Looking elements up, collections, finalize, the picture, and the user's lines."""

import threading

import numpy as np
import pytest

import tensorbow as tb
from scheduler import build_program
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from tensorbow.graph.user_lines import blame
from tensorbow.models import get_model

pytestmark = pytest.mark.usefixtures("graph")


def test_elements_by_name(graph):
    x = tb.placeholder(tb.float32, [2], name="x")
    assert graph.get_operation_by_name("x") is x.op
    assert graph.get_tensor_by_name("x:0") is x
    assert graph.as_graph_element("x:0") is x
    assert graph.as_graph_element("x") is x.op
    v = tb.Variable(1.0, name="v")
    assert graph.as_graph_element(v) is graph.get_tensor_by_name("v:0")
    assert (v.initializer.name, v.value().name) == ("v/Assign", "v/read:0")


def test_unknown_names_suggest_what_is_close(graph):
    tb.constant(1.0, name="accuracy")
    with pytest.raises(NotFoundError, match=r"no operation 'acuracy'; did you mean accuracy?"):
        graph.get_operation_by_name("acuracy")
    with pytest.raises(NotFoundError, match="no tensor 'accuracy:1': Const accuracy has outputs 0 to 0"):
        graph.get_tensor_by_name("accuracy:1")
    with pytest.raises(InvalidArgumentError, match="no tensor name: expected 'operation:index'"):
        graph.get_tensor_by_name("accuracy")


def test_consumers_and_version(graph):
    x = tb.placeholder(tb.float32, [2])
    assert graph.version == 1
    y, z = tb.add(x, x), tb.negative(x)
    assert x.consumers() == [y.op, z.op]
    assert graph.version == 3 == len(graph.get_operations())


def test_collections(graph):
    w = tb.Variable([1.0], name="w")
    i = tb.Variable(1, name="i")
    hidden = tb.Variable(1.0, name="h", collections=[])
    own = tb.Variable(1.0, name="o", collections=["mine"], trainable=False)
    assert tb.global_variables() == [w, i]
    assert tb.trainable_variables() == [w, hidden]  # integers are never trained
    assert graph.get_collection("mine") == [own]
    graph.get_collection("mine").clear()
    assert graph.get_collection("mine") == [own]
    assert graph.get_collection("nothing") == []


def test_collections_of_a_scope(graph):
    with tb.variable_scope("generator"):
        w, step = tb.get_variable("w", [2]), tb.get_variable("step", [], trainable=False)
    other = tb.Variable([1.0], name="generator2/w")
    graph.add_to_collection(tb.GraphKeys.LOCAL_VARIABLES, step)
    assert tb.trainable_variables("generator/") == [w]
    assert tb.trainable_variables("generator") == [w, other]  # a match at the beginning, as in TensorFlow
    assert tb.global_variables("generator/") == [w, step]
    assert tb.local_variables("generator/s") == [step]
    assert tb.local_variables("generator/w") == []
    for thing in (w.op, 5):
        graph.add_to_collection("mine", thing)
    assert tb.get_collection("mine", "generator/") == [w.op]  # what has no name is left out
    assert tb.get_collection("mine") == [w.op, 5]
    with pytest.raises(InvalidArgumentError, match=r"get_collection: expected scope .* got '\('.*re\.escape"):
        tb.get_collection("mine", "(")


def test_a_finalized_graph_is_read_only(graph):
    x = tb.constant(1.0)
    graph.finalize()
    assert graph.finalized
    with pytest.raises(FailedPreconditionError, match="cannot add a Neg: the graph is finalized"):
        tb.negative(x)
    with pytest.raises(FailedPreconditionError, match="finalized"):
        graph.add_to_collection("c", x)
    with tb.Session() as session:
        assert session.run(x) == 1.0


def test_tensors_of_two_graphs_do_not_mix():
    x = tb.constant(1.0, name="x")
    with tb.Graph().as_default():
        y = tb.constant(1.0, name="y")
        with pytest.raises(InvalidArgumentError, match=r"input y:0 is from another graph|input x:0 is from"):
            tb.add(x, y)


def test_ops_go_to_the_graph_of_their_inputs():
    x = tb.constant(1.0)
    with tb.Graph().as_default():
        assert (x + 1.0).graph is x.graph
        assert tb.Variable(1.0).graph is not x.graph


def test_default_graphs_are_a_stack_per_thread(graph):
    seen = []
    with tb.Graph().as_default() as inner:
        assert tb.get_default_graph() is inner
        thread = threading.Thread(target=lambda: seen.append(tb.get_default_graph()))
        thread.start()
        thread.join()
    assert tb.get_default_graph() is graph
    assert seen[0] is not inner
    with pytest.raises(FailedPreconditionError, match="leave it, or close the session, first"):
        tb.reset_default_graph()


def test_symbolic_tensors_are_not_values():
    x = tb.placeholder(tb.float32, [2], name="x")
    with pytest.raises(TypeError, match="x:0 is a symbolic tensor: it cannot be iterated"):
        list(x)
    with pytest.raises(TypeError, match="no truth value"):
        bool(x)
    with pytest.raises(TypeError, match=r"use session.run first"):
        np.array(x)
    v = tb.Variable([1.0, 2.0], name="v")
    with pytest.raises(TypeError, match="v:0 is a variable"):
        list(v)
    with pytest.raises(TypeError, match=r"use session.run first"):
        np.asarray(v)


def test_arrays_on_the_left_leave_the_operator_to_tensors_and_variables():
    v = tb.Variable(np.ones((2, 3), np.float32))
    x = tb.placeholder(tb.float32, [2, 3])
    array = np.ones((2, 3), np.float32)
    assert isinstance(array * v, tb.Tensor)
    assert isinstance(array - x, tb.Tensor)
    assert isinstance(v + array, tb.Tensor)


def test_set_shape_adds_and_never_contradicts():
    x = tb.placeholder(tb.float32, [None, 3], name="x")
    x.set_shape([5, None])
    assert x.shape == [5, 3]
    with pytest.raises(InvalidArgumentError, match="set_shape of x:0"):
        x.set_shape([6, 3])


def test_the_picture_has_ops_edges_and_control_edges(graph):
    x = tb.placeholder(tb.float32, [2, 3], name="x")
    y = tb.negative(x, name="y")
    with tb.control_dependencies([y]):
        tb.no_op("z")
    text = graph.to_dot('a "titled" gräph')
    assert text.splitlines()[0] == 'digraph "a \\"titled\\" gräph" {'
    assert 'n0 [label="x\\nPlaceholder", shape=ellipse];' in text
    assert 'n1 [label="y\\nNeg"];' in text
    assert 'n0 -> n1 [label="float32[2, 3]"];' in text
    assert "n1 -> n2 [style=dashed];" in text
    assert text.endswith("}\n")


def test_every_op_remembers_the_users_line():
    x = tb.placeholder(tb.float32, [2, 3])
    y = tb.reduce_mean(tb.tanh(x))  # the line
    (grad,) = tb.gradients(y, [x])
    assert y.op.source.file == __file__
    assert str(y.op.source).endswith(": y = tb.reduce_mean(tb.tanh(x))  # the line")
    assert str(grad.op.source).endswith("(grad,) = tb.gradients(y, [x])")


def test_a_users_module_with_a_packages_name_is_still_the_users():
    text = "import tensorbow as tb\n\ndef make():\n    return tb.constant(1.0)\n"
    module = {"__name__": "scheduler.mine"}
    exec(compile(text, "/somewhere/scheduler/mine.py", "exec"), module)
    assert module["make"]().op.source.file == "/somewhere/scheduler/mine.py"


def test_ops_of_a_shipped_model_are_made_where_the_program_calls_it():
    images = tb.placeholder(tb.float32, [None, 28, 28, 1])
    logits = get_model("lenet").logits(images, 10)
    assert logits.op.source.file == __file__


def test_ops_of_a_shipped_model_that_the_library_calls_are_made_in_the_model():
    data, _ = tb.data.make_synthetic(10, 10)
    program = build_program(get_model("lenet"), data, 0.9, 0.01, 0.0)
    logits = next(op for op in program.graph.get_operations() if op.name.startswith("fc2"))
    assert logits.source.file.endswith("lenet.py")


def test_blame_is_one_line_and_names_the_op_once():
    text = blame("Gather", "g", InvalidArgumentError("Gather: index 7\n  is out"), None)
    assert text == "Gather g: index 7 is out"
    assert blame("Gather", "g", ValueError(), None) == "Gather g: ValueError"
    assert blame("Gather", "g", KeyError("axis"), None) == "Gather g: KeyError: 'axis'"


def test_build_errors_say_op_reason_and_line():
    x = tb.placeholder(tb.float32, [2, 3])
    with pytest.raises(InvalidArgumentError) as caught:
        tb.matmul(x, x, name="product")
    assert "MatMul product: " in str(caught.value)
    assert "test_graph_elements.py" in str(caught.value)
    assert "\n" not in str(caught.value)
