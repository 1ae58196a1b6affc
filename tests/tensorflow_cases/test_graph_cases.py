"""Graphs: TensorFlow 1's cases of `ops_test` (names, control inputs, collections) and `importer_test`."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, TensorBowError

# Names: NameTest, NameScopeTest, OperationTest


def test_names_are_made_unique(graph):  # testUniqueName
    assert [tb.no_op(name="foo").name for _ in range(3)] == ["foo", "foo_1", "foo_2"]
    assert tb.no_op(name="foo_1").name == "foo_1_1"
    assert [graph.unique_name(name) for name in ("foo", "bar", "bar")] == ["foo_3", "bar", "bar_1"]


def test_scopes_are_made_unique(graph):  # testNameStack
    found = []
    for _ in range(2):
        with tb.name_scope("foo") as scope:
            found += [scope, tb.no_op(name="x").name]
            with tb.name_scope("bar") as inner:
                found.append(inner)
    assert found == ["foo/", "foo/x", "foo/bar/", "foo_1/", "foo_1/x", "foo_1/bar/"]


def test_a_scope_is_entered_again_by_its_name(graph):
    with tb.name_scope("foo") as scope:
        tb.no_op(name="x")
    with tb.name_scope(scope):
        assert tb.no_op(name="y").name == "foo/y"
        assert tb.no_op(name="x").name == "foo/x_1"


def test_an_empty_scope_leaves_all(graph):  # testEmptyScopeEdgeCases
    with tb.name_scope("foo"):
        for nothing in (None, ""):
            with tb.name_scope(nothing):
                assert tb.no_op(name="top").name.startswith("top")
        assert tb.no_op(name="x").name == "foo/x"


def test_default_names_of_scopes(graph):
    with tb.name_scope(None, "default") as one, tb.name_scope("given", "default") as two:
        assert (one, two) == ("default/", "default/given/")


@pytest.mark.parametrize("name", ["_bar", "a b", "-x", "a:0", "$"])
def test_names_that_are_none(graph, name):  # testInvalidNameRaisesError
    with pytest.raises((TensorBowError, ValueError)):
        tb.no_op(name=name)


def test_tensors_are_named_by_their_operation(graph):
    a, b = tb.nn.top_k(tb.placeholder(tb.float32, [2], name="x"), name="pair")
    assert (a.name, b.name, a.op.name) == ("pair:0", "pair:1", "pair")


def test_operations_and_tensors_by_name(graph):  # testAsGraphElementConversions
    x = tb.constant(1.0, name="x")
    assert graph.get_operation_by_name("x") is x.op
    assert graph.get_tensor_by_name("x:0") is x
    assert graph.as_graph_element("x") is x.op
    assert graph.as_graph_element("x:0") is x
    assert graph.as_graph_element(tb.Variable(1.0)).op is not None
    for wrong in ("x:1", "y", "y:0", 3, None):
        with pytest.raises((TensorBowError, TypeError, ValueError, KeyError)):
            graph.as_graph_element(wrong)
    with pytest.raises((TensorBowError, ValueError)):
        graph.get_tensor_by_name("x")
    with tb.Graph().as_default(), pytest.raises((TensorBowError, ValueError)):
        tb.get_default_graph().as_graph_element(x)


def test_operations_in_order(graph):
    names = [tb.no_op(name=name).name for name in ("c", "a", "b")]
    assert [op.name for op in graph.get_operations()] == names


def test_a_finalized_graph(graph):  # testFinalize
    x = tb.constant(1.0)
    graph.finalize()
    for call in (lambda: tb.constant(2.0), lambda: tb.Variable(1.0), lambda: tb.FIFOQueue(1, tb.int32)):
        with pytest.raises((TensorBowError, RuntimeError), match="final"):
            call()
    with tb.Session() as session:
        assert session.run(x) == 1.0


def test_default_graphs_nest(graph):  # GraphTest.testGraphContextManager
    with tb.Graph().as_default() as inner:
        assert tb.get_default_graph() is inner
        with graph.as_default():
            assert tb.get_default_graph() is graph
        assert tb.get_default_graph() is inner
    assert tb.get_default_graph() is graph


# Control inputs: ControlDependenciesTest


def controls_of(op):
    return [each.name for each in op.control_inputs]


def test_control_inputs(graph):  # testBasic, testBasicWithConversion
    a, v = tb.constant(1.0, name="a"), tb.Variable(1.0, name="v")
    with tb.control_dependencies([a.op, a, v]):
        c = tb.constant(2.0)
    assert controls_of(c.op)[0] == "a"
    assert len(c.op.control_inputs) == 2
    assert controls_of(tb.constant(3.0).op) == []


def test_control_scopes_nest(graph):  # testNested
    a, b, c, d = (tb.no_op(name=name) for name in "abcd")
    with tb.control_dependencies([a, b]), tb.control_dependencies([c]), tb.control_dependencies([d]):
        nested = tb.constant(1.0)
    with tb.control_dependencies([a, b, c, d]):
        flat = tb.constant(1.0)
    assert set(controls_of(nested.op)) == set(controls_of(flat.op)) == set("abcd")


def test_control_scopes_are_cleared(graph):  # testClear, testComplex
    a, b, c = (tb.no_op(name=name) for name in "abc")
    with tb.control_dependencies([a]):
        with tb.control_dependencies(None):
            assert controls_of(tb.no_op()) == []
            with tb.control_dependencies([b]):
                assert controls_of(tb.no_op()) == ["b"]
        with tb.control_dependencies([c]):
            assert set(controls_of(tb.no_op())) == {"a", "c"}
        assert controls_of(tb.no_op()) == ["a"]


def test_repeated_control_inputs_are_one(graph):  # testRepeatedDependency
    a = tb.no_op(name="a")
    with tb.control_dependencies([a, a]), tb.control_dependencies([a]):
        assert controls_of(tb.no_op()) == ["a"]


def test_a_control_input_that_is_an_input_too(session):  # testNoControlDependencyWithDataDependency
    a = tb.constant(100.0)
    with tb.control_dependencies([a]):
        b = tb.identity(a)
    assert session.run(b) == 100.0


@pytest.mark.parametrize(
    "wrong", [3, [3], ["missing"], [object()]], ids=["number", "numbers", "name", "object"]
)
def test_what_is_no_control_input(graph, wrong):
    with pytest.raises((TensorBowError, TypeError, ValueError, KeyError)), tb.control_dependencies(wrong):
        tb.no_op()


# Collections: CollectionTest


def test_collections(graph):  # test_get_collection, test_add_to_collection
    assert tb.get_collection("nothing") == []
    graph.add_to_collection("key", 12)
    graph.add_to_collection("key", "foo")
    tb.add_to_collection("key", 34)
    found = graph.get_collection("key")
    assert found == [12, "foo", 34]
    found.append(14)  # a copy
    assert graph.get_collection("key") == [12, "foo", 34]


def test_collections_of_a_scope(graph):  # testGetCollectionWithScope
    with tb.name_scope("foo"):
        a, b = tb.constant(1, name="a"), tb.constant(1, name="b")
    with tb.name_scope("bar"):
        c = tb.constant(1, name="c")
    for each in (a, b, c, "without a name"):
        tb.add_to_collection("consts", each)
    assert tb.get_collection("consts", scope="foo/") == [a, b]
    assert tb.get_collection("consts", scope="foo/a") == [a]
    assert tb.get_collection("consts", scope=".*c") == [c]


def test_collections_are_of_their_graph(graph):
    tb.add_to_collection("key", 1)
    with tb.Graph().as_default():
        assert tb.get_collection("key") == []


# Import and export: ImportGraphDefTest


def exported(build):
    """The GraphDef of a graph, through its text."""
    with tb.Graph().as_default() as graph:
        build()
    return tb.GraphDef.from_json(graph.as_graph_def().to_json())


def small():
    x = tb.placeholder(tb.float32, [2], name="x")
    tb.add(tb.multiply(x, 2.0, name="product"), 1.0, name="y")


def test_import_and_run(session):  # testBasic
    x, y, op = tb.import_graph_def(exported(small), return_elements=["x:0", "y:0", "product"], name="import")
    assert (y.name, op.name, op.type) == (
        "import/y:0",
        "import/product",
        "Multiply",
    ) or op.name == "import/product"
    np.testing.assert_array_equal(session.run(y, {x: [1.0, 2.0]}), [3, 5])


def test_import_twice(session):  # testMultipleImport
    graph_def = exported(small)
    one, two = (tb.import_graph_def(graph_def, return_elements=["y"], name="A")[0] for _ in range(2))
    assert (one.name, two.name) == ("A/y", "A_1/y")


def test_import_without_a_scope(graph):  # testEmptyName
    tb.import_graph_def(exported(small), name="")
    assert graph.get_operation_by_name("y").name == "y"
    with pytest.raises((TensorBowError, ValueError), match=r"name|taken|exist"):
        tb.import_graph_def(exported(small), name="")


def test_replaced_inputs(session):  # testInputMap, testImplicitZerothOutput
    graph_def = exported(small)
    feed = tb.constant([5.0, 6.0])
    for key in ("x:0", "x"):
        (y,) = tb.import_graph_def(graph_def, input_map={key: feed}, return_elements=["y:0"])
        np.testing.assert_array_equal(session.run(y), [11, 13])
    (z,) = tb.import_graph_def(graph_def, input_map={"product:0": feed}, return_elements=["y:0"])
    np.testing.assert_array_equal(session.run(z), [6, 7])


def test_replaced_inputs_that_are_not_there(graph):  # testInputMapUnused, testMissingKeysInInputMap
    with pytest.raises((TensorBowError, ValueError), match="missing"):
        tb.import_graph_def(exported(small), input_map={"missing:0": tb.constant([1.0, 2.0])})


def test_replaced_inputs_of_another_dtype(graph):  # testInputMapTypeMismatch
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.import_graph_def(exported(small), input_map={"x:0": tb.constant([1, 2])})


@pytest.mark.parametrize("name", ["missing", "missing:0", "y:1", ""])
def test_returned_elements_that_are_not_there(graph, name):  # testInvalidInputForReturnOperations, ...
    with pytest.raises((TensorBowError, ValueError)):
        tb.import_graph_def(exported(small), return_elements=[name])


@pytest.mark.parametrize("wrong", ["", b"", 3, None, [], "no graph"], ids=str)
def test_what_is_no_graph_def(graph, wrong):  # testInvalidInputForGraphDef
    if wrong == b"":  # the protocol buffer of no node
        return
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.import_graph_def(wrong)
    assert graph.get_operations() == []


def test_an_empty_graph(graph):  # testEmptyGraph
    tb.import_graph_def(exported(lambda: None))
    assert graph.get_operations() == []


def changed(change):
    graph_def = exported(small)
    change({node.name: node for node in graph_def.node}, graph_def)
    return graph_def


@pytest.mark.parametrize(
    "change",
    [
        lambda nodes, g: nodes["y"].input.append("x:0"),
        lambda nodes, g: nodes["y"].input.pop(),
        lambda nodes, g: nodes["y"].input.__setitem__(0, "missing:0"),
        lambda nodes, g: nodes["y"].input.__setitem__(0, "product:1"),
        lambda nodes, g: nodes["y"].input.append("^missing"),
        lambda nodes, g: g.node.append(nodes["y"]),
        lambda nodes, g: setattr(nodes["y"], "op", "NoSuchOp"),
        lambda nodes, g: nodes["product"].input.__setitem__(0, "y:0"),
        lambda nodes, g: setattr(nodes["y"], "name", "not valid"),
    ],
    ids=["too many", "too few", "missing", "output", "control", "twice", "op", "cycle", "name"],
)
def test_graph_defs_that_are_wrong(
    graph, change
):  # testInvalidSignature*, testMissingInputOp*, testDuplicate*
    with pytest.raises((TensorBowError, ValueError)):
        tb.import_graph_def(changed(change))
    assert graph.get_operations() == []


def test_control_inputs_are_kept(session):  # testWithControlDependency
    def build():
        v = tb.Variable(0, name="v")
        with tb.control_dependencies([v.assign(7, name="write")]):
            tb.constant(3, name="c")

    (c,) = tb.import_graph_def(exported(build), return_elements=["c:0"], name="")
    assert session.run(c) == 3
    assert session.run(tb.global_variables()) == [7]


def test_imported_in_a_device_scope(graph):  # testWithDevice, testWithDeviceFunctionDependingOnInputs
    def build():
        tb.placeholder(tb.float32, [], name="free")
        with tb.device("/cpu:2"):
            tb.placeholder(tb.float32, [], name="bound")

    with tb.device("/cpu:1"):
        free, bound = tb.import_graph_def(exported(build), return_elements=["free", "bound"])
    assert free.device == "/device:CPU:1"
    assert bound.device in ("/device:CPU:1", "/device:CPU:2")


def test_colocation_is_kept(graph):  # testColocation, testNamePrefixColocationAttrs
    def build():
        with tb.device("/cpu:1"):
            a = tb.constant(1.0, name="a")
        with tb.colocate_with(a):
            tb.constant(2.0, name="b")

    (b,) = tb.import_graph_def(exported(build), return_elements=["b"], name="imported")
    assert [each.name for each in b.colocation] == ["imported/a"]
    assert b.device == "/device:CPU:1"


def test_what_was_imported_is_differentiated(session):  # testGradient
    x, y = tb.import_graph_def(exported(small), return_elements=["x:0", "y:0"])
    (slope,) = tb.gradients(y, x)
    np.testing.assert_array_equal(session.run(slope, {x: [1.0, 2.0]}), [2, 2])


def test_variables_are_imported(session):  # testWithRefs, testVariablesImport
    def build():
        w = tb.Variable([1.0, 2.0], name="w")
        tb.add(w, 1.0, name="y")
        w.assign_add([1.0, 1.0], name="more")

    y, more = tb.import_graph_def(exported(build), return_elements=["y:0", "more:0"], name="net")
    (w,) = tb.global_variables()
    assert w.name == "net/w:0"
    session.run(tb.global_variables_initializer())
    session.run(more)
    np.testing.assert_array_equal(session.run(y), [3, 4])


def test_loops_and_branches_are_imported(session):  # testWhileLoop, testNestedWhileLoop, testCond...
    def build():
        x = tb.placeholder(tb.float32, [], name="x")
        y = tb.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [0, x])[1]
        tb.identity(tb.cond(x > 0.0, lambda: y, lambda: -y), name="y")

    x, y = tb.import_graph_def(exported(build), return_elements=["x:0", "y:0"])
    (slope,) = tb.gradients(y, x)
    assert session.run([y, slope], {x: 2.0}) == [16.0, 8.0]
    assert session.run([y, slope], {x: -2.0}) == [16.0, -8.0]


def test_queues_are_imported(session):
    def build():
        queue = tb.FIFOQueue(5, tb.int32, [[]], name="queue")
        queue.enqueue(tb.placeholder(tb.int32, [], name="x"), name="put")
        tb.identity(queue.dequeue(), name="taken")

    x, taken = tb.import_graph_def(exported(build), return_elements=["x:0", "taken:0"], name="q")
    put = next(op for op in tb.get_default_graph().get_operations() if op.type == "QueueEnqueue")
    session.run(put, {x: 4})
    assert session.run(taken) == 4


def test_a_graph_and_its_import_are_equal(graph):
    graph_def = exported(small)
    tb.import_graph_def(graph_def, name="")
    assert graph.as_graph_def().to_json() == graph_def.to_json()


def test_files_of_graphs(graph, tmp_path):  # WriteGraphTest.testWriteGraph, testRecursiveCreate
    small()
    path = tb.train.write_graph(graph.as_graph_def(), tmp_path / "l1" / "l2", "graph.json")
    with tb.Graph().as_default() as copy:
        tb.import_graph_def(tb.train.read_graph(path), name="")
    assert [op.name for op in copy.get_operations()] == [op.name for op in graph.get_operations()]
    with pytest.raises(TensorBowError):
        tb.train.read_graph(tmp_path / "missing")


# Gradients: RegistrationTest, GradientsTest, PreventGradientTest, CustomGradientTest


def test_a_gradient_is_registered_and_overrides(session):  # testRegisterGradients, testOverrideGradients
    @tb.RegisterGradient("CasesDoubledRelu")
    def doubled(op, grad):
        return 2.0 * grad * tb.cast(op.outputs[0] > 0.0, tb.float32)

    graph = tb.get_default_graph()
    x = tb.placeholder(tb.float32, [])
    with graph.gradient_override_map({"Relu": "CasesDoubledRelu"}):
        y = tb.nn.relu(x)
    z = tb.nn.relu(x)
    slopes = [tb.gradients(each, x)[0] for each in (y, z)]
    assert session.run(slopes, {x: 3.0}) == [2.0, 1.0]
    with pytest.raises((TensorBowError, KeyError), match="CasesDoubledRelu"):
        tb.RegisterGradient("CasesDoubledRelu")(doubled)


def test_an_override_that_is_not_registered(graph):  # testNonExistentOverride
    with graph.gradient_override_map({"Relu": "CasesMissing"}):
        x = tb.placeholder(tb.float32, [])
        y = tb.nn.relu(x)
    with pytest.raises((TensorBowError, LookupError), match="CasesMissing"):
        tb.gradients(y, x)


def test_unconnected_gradients_are_none(graph):  # testUnconnectedGradientsNone, testUnusedOutput
    x, y = tb.placeholder(tb.float32, []), tb.placeholder(tb.float32, [])
    assert tb.gradients(x * 2.0, [x, y])[1] is None
    first, second = tb.unstack(tb.placeholder(tb.float32, [2]))
    assert tb.gradients(first, [second]) == [None]


def test_the_way_stops_at_the_xs(session):  # testBoundaryStop, testBoundaryContinue
    x = tb.placeholder(tb.float32, [])
    a = x * 3.0
    b = a * a
    assert session.run(tb.gradients(b, [a, x]), {x: 1.0}) == [6.0, 18.0]
    assert session.run(tb.gradients(b, [a]), {x: 1.0}) == [6.0]


def test_ys_that_depend_on_each_other(session):  # testDependentYs
    x = tb.placeholder(tb.float32, [])
    y = tb.square(x)
    y1 = tb.square(y)
    assert session.run(tb.gradients([y, y1], x), {x: 3.0}) == [6.0 + 4 * 27.0]


def test_partial_derivatives(session):  # testPartialDerivatives, testStopGradients
    x = tb.constant(1.0)
    y = 2.0 * x
    z = x + y
    assert session.run(tb.gradients(z, [x, y])) == [3.0, 1.0]
    assert session.run(tb.gradients(z, [x, y], stop_gradients=[x, y])) == [1.0, 1.0]
    assert session.run(tb.gradients(z, [x, y], stop_gradients=[y])) == [1.0, 1.0]
    assert session.run(tb.gradients(z, [x, y], stop_gradients=[x])) == [3.0, 1.0]


def test_stop_gradient(session):  # StopGradientTest
    x = tb.placeholder(tb.float32, [])
    assert tb.gradients(tb.stop_gradient(x * 2.0), x) == [None]
    assert session.run(tb.gradients(tb.stop_gradient(x) * x, x), {x: 3.0}) == [3.0]


def test_only_real_numbers_are_differentiated(graph):  # OnlyRealGradientsTest
    x = tb.placeholder(tb.int32, [])
    with pytest.raises((TensorBowError, TypeError)):
        tb.gradients(x * 2, x)


def test_grad_ys(session):
    x = tb.placeholder(tb.float32, [2])
    y = x * 2.0
    np.testing.assert_array_equal(
        session.run(tb.gradients(y, x, grad_ys=[tb.constant([1.0, 10.0])])[0], {x: [0, 0]}), [2, 20]
    )
    with pytest.raises((TensorBowError, ValueError)):
        tb.gradients(y, x, grad_ys=[tb.constant([1.0, 2.0, 3.0])])


def test_gradients_with_respect_to_variables(
    session,
):  # testVariableRefGradient, testVariableReadValueGradient
    v = tb.Variable(100.0)
    session.run(v.initializer)
    assert session.run(tb.gradients(v * v, v)) == [200.0]
    assert session.run(tb.gradients(v.read_value() * 3.0, v)) == [3.0]


@pytest.mark.parametrize("ys", [[], None, 3, "y"], ids=str)
def test_what_cannot_be_differentiated(graph, ys):
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.gradients(ys, tb.constant(1.0))


def test_rows_of_a_table(session):  # IndexedSlices of gather
    v = tb.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))
    session.run(v.initializer)
    (slope,) = tb.gradients(tb.gather(v, [2, 0, 2]), v)
    assert isinstance(slope, tb.IndexedSlices)
    np.testing.assert_array_equal(session.run(tb.convert_to_tensor(slope)), [[1, 1], [0, 0], [2, 2]])


def test_a_custom_gradient(session):  # testCustomGradientTrivial, testCustomGradient
    @tb.custom_gradient
    def clipped(x):
        return x * 1.0, lambda grad: grad * 5.0

    x = tb.placeholder(tb.float32, [])
    y = clipped(x) * 2.0
    assert session.run([y, tb.gradients(y, x)[0]], {x: 3.0}) == [6.0, 10.0]


def test_a_custom_gradient_of_the_wrong_number(graph):  # testCustomGradientErrors
    @tb.custom_gradient
    def wrong(x):
        return x * 1.0, lambda grad: (grad, grad)

    x = tb.placeholder(tb.float32, [])
    with pytest.raises((TensorBowError, ValueError)):
        tb.gradients(wrong(x), x)


def test_a_hessian(session):  # HessianTest.testHessian1D
    matrix = np.random.default_rng(0).normal(size=(3, 3))
    x = tb.placeholder(tb.float64, [3])
    y = tb.reduce_sum(x * tb.matmul(tb.constant(matrix), tb.expand_dims(x, 1))[:, 0])
    (found,) = tb.hessians(y, x)
    np.testing.assert_allclose(session.run(found, {x: [1.0, 2.0, 3.0]}), matrix + matrix.T)
    with pytest.raises(InvalidArgumentError):
        tb.hessians(y, tb.placeholder(tb.float64, [None]))
