"""Variables, their scopes, and templates: the behaviour that TensorFlow 1's cases of these check."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, TensorBowError


def names(variables):
    return [variable.name for variable in variables]


# Variables: VariablesTestCase


def test_values_are_missing_before_initialisation(session):  # testInitialization
    v0 = tb.Variable(0.0, name="v0")
    assert (v0.name, v0.shape.as_list(), v0.dtype) == ("v0:0", [], tb.float32)
    with pytest.raises(FailedPreconditionError, match="v0"):
        session.run(v0)
    session.run(v0.initializer)
    assert session.run(v0) == 0.0


def test_variables_initialised_from_variables(session):  # testInitializationOrder
    drawn = tb.Variable(tb.random_uniform([3, 6]), name="random")
    after = tb.Variable(drawn.initialized_value() + drawn.initialized_value())
    last = tb.Variable(after.initialized_value() + 2.0)
    session.run(tb.global_variables_initializer())
    a, b, c = session.run([drawn, after, last])
    np.testing.assert_allclose(b, 2 * a)
    np.testing.assert_allclose(c, b + 2)


def test_assignments(session):  # testAssignments
    v = tb.Variable(0.0)
    plus, minus, four = v.assign_add(1.0), v.assign_sub(2.0), v.assign(4.0)
    session.run(v.initializer)
    assert [session.run(each) for each in (plus, minus, four, plus, four)] == [1.0, -1.0, 4.0, 5.0, 4.0]
    assert session.run(v) == 4.0


@pytest.mark.parametrize("value", [[1.0, 2.0], [[1.0]], 1 + 2j, "text"], ids=str)
def test_values_that_do_not_fit(graph, value):  # testAssignDifferentShapes
    v = tb.Variable(0.0)
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        v.assign(value)


def test_operators(session):  # testOperators
    a, b = tb.Variable(6.0), tb.Variable(4.0)
    session.run(tb.global_variables_initializer())
    found = [
        a + b,
        a - b,
        a * b,
        a / b,
        a // b,
        a % b,
        a**2.0,
        -a,
        abs(-a),
        2.0 + a,
        2.0 - a,
        3.0 * a,
        12.0 / a,
    ]
    assert session.run(found) == [10.0, 2.0, 24.0, 1.5, 1.0, 2.0, 36.0, -6.0, 6.0, 8.0, -4.0, 18.0, 2.0]
    assert session.run([a < b, a >= b]) == [False, True]
    rows = tb.Variable([[20.0, 10.0], [30.0, 40.0]])
    session.run(rows.initializer)
    np.testing.assert_array_equal(session.run([rows[0], rows[:, 1]]), [[20, 10], [10, 40]])
    np.testing.assert_array_equal(session.run(tb.matmul(rows, rows)), [[700, 600], [1800, 1900]])


def test_variables_are_not_iterated(graph):  # testIterable
    for value in (0.0, [0.0, 1.0]):
        with pytest.raises(TypeError):
            iter(tb.Variable(value))


def test_collections(graph):  # testCollections, testCollectionsWithScope
    w = tb.Variable(0.0, name="w")
    x = tb.Variable(1.0, name="x", trainable=False)
    y = tb.Variable(2.0, name="y", collections=["foo", "bar"], trainable=True)
    with tb.name_scope("scope"):
        z = tb.Variable(3.0, name="z")
    assert names(tb.global_variables()) == names([w, x, z])
    assert names(tb.trainable_variables()) == names([w, y, z])
    assert names(tb.get_collection("foo")) == names(tb.get_collection("bar")) == ["y:0"]
    assert names(tb.global_variables("scope")) == ["scope/z:0"]


def test_local_variables(session):  # testGetLocalVar
    local = tb.get_variable(
        "l", [], initializer=tb.ones_initializer(), collections=[tb.GraphKeys.LOCAL_VARIABLES]
    )
    assert names(tb.local_variables()) == ["l:0"]
    assert tb.global_variables() == []
    session.run(tb.local_variables_initializer())
    assert session.run(local) == 1.0


def test_initial_values_by_functions(session):  # testInitializerFunction
    w = tb.Variable(lambda: tb.fill([2, 3], 1.5), dtype=tb.float32, name="w")
    assert w.shape.as_list() == [2, 3]
    session.run(w.initializer)
    np.testing.assert_array_equal(session.run(w), np.full((2, 3), 1.5))
    with pytest.raises((TensorBowError, ValueError)):
        tb.Variable(lambda: tb.placeholder(tb.float32, [None]), dtype=tb.float32)


def test_nothing_is_no_initial_value(graph):
    for wrong in (None, object(), [1, [2, 3]]):
        with pytest.raises((TensorBowError, TypeError, ValueError)):
            tb.Variable(wrong)


def test_initialisation_ignores_control_dependencies(session):  # testControlDepsInit...
    never = tb.placeholder(tb.float32, [], name="never_fed")
    with tb.control_dependencies([never]):
        v = tb.Variable(2.0)
    session.run(v.initializer)
    assert session.run(v) == 2.0


def test_a_variable_made_in_a_loop_is_read_outside(session):
    def body(i, x):
        return i + 1, x * tb.get_variable("factor", [], initializer=tb.constant_initializer(3.0))

    with tb.variable_scope("s", reuse=tb.AUTO_REUSE):
        x = tb.while_loop(lambda i, x: i < 2, body, [0, 1.0])[1]
        factor = tb.get_variable("factor", [])
    session.run(tb.global_variables_initializer())
    assert session.run([x, factor * 2.0]) == [9.0, 6.0]


def test_a_variable_made_in_a_branch_is_read_outside(session):
    p = tb.placeholder(tb.bool, [])
    y = tb.cond(p, lambda: tb.get_variable("v", initializer=4.0) * 2.0, lambda: tb.constant(0.0))
    (v,) = tb.global_variables()
    session.run(v.initializer)
    assert session.run([y, v + 1.0], {p: True}) == [8.0, 5.0]
    assert session.run([y, v + 1.0], {p: False}) == [0.0, 5.0]


def test_variables_of_no_element(session):  # testZeroSizeVarInitialized, testTrainingWithZeroSizeVar
    empty, w = tb.Variable(tb.zeros([0, 2])), tb.Variable(tb.ones([2, 2]))
    loss = tb.reduce_sum(empty) + tb.reduce_sum(w)
    step = tb.train.GradientDescentOptimizer(1.0).minimize(loss)
    session.run(tb.global_variables_initializer())
    session.run(step)
    assert session.run(empty).shape == (0, 2)
    np.testing.assert_array_equal(session.run(w), np.zeros((2, 2)))


def test_scattered_writes(session):
    v = tb.Variable(np.zeros(4, np.float32))
    session.run(v.initializer)
    session.run(tb.scatter_update(v, [1, 3], [5.0, 6.0]))
    session.run(tb.scatter_add(v, [1, 1], [1.0, 1.0]))
    np.testing.assert_array_equal(session.run(tb.scatter_sub(v, [3], [2.0])), [0, 7, 0, 4])


# Scopes: VariableScopeTest


def test_get_variable(graph):  # testGetVar
    v = tb.get_variable("v", [1])
    with pytest.raises((TensorBowError, ValueError), match="v"):
        tb.get_variable("v", [1])
    with tb.variable_scope(tb.get_variable_scope(), reuse=True):
        assert tb.get_variable("v", [1]) is v
        with pytest.raises((TensorBowError, ValueError)):
            tb.get_variable("v", [2])
        with pytest.raises((TensorBowError, ValueError)):
            tb.get_variable("v", [1], tb.float64)
        with pytest.raises((TensorBowError, ValueError), match="missing"):
            tb.get_variable("missing", [1])


def test_names_of_scopes(graph):  # testVarScopeNameScope
    with tb.name_scope("testA"):
        with tb.variable_scope("tower") as tower:
            with tb.name_scope("scope") as scope:
                assert scope == "testA/tower/scope/"
            v = tb.get_variable("v", [])
        with tb.variable_scope(tower), tb.name_scope("scope2") as scope:
            assert scope == "testA/tower_1/scope2/"
    assert v.name == "tower/v:0"
    with tb.variable_scope("tower"), tb.name_scope("scope") as scope:
        assert scope == "tower/scope/"


def test_scopes_reuse_and_reenter(graph):  # testVarScopeReuse, testVarScopeReuseParam
    with tb.variable_scope("root") as outer:
        assert not outer.reuse
        v = tb.get_variable("v", [])
        with tb.variable_scope(outer, reuse=True) as again:
            assert again.reuse
            assert tb.get_variable("v", []) is v
            with tb.variable_scope("inner") as inner:
                assert inner.reuse  # inherited
        with tb.variable_scope("inner") as inner:
            assert not inner.reuse
    with tb.variable_scope(outer):
        assert tb.get_variable_scope().name == "root"
        with pytest.raises((TensorBowError, ValueError)):
            tb.get_variable("v", [])


def test_auto_reuse(graph):  # testVarScopeGetOrCreateReuse
    def make():
        with tb.variable_scope("root", reuse=tb.AUTO_REUSE):
            return tb.get_variable("v", [])

    assert make() is make()


@pytest.mark.parametrize("reuse", [3, "yes", [True]], ids=str)
def test_what_is_no_reuse(graph, reuse):
    with pytest.raises((TensorBowError, TypeError, ValueError)), tb.variable_scope("root", reuse=reuse):
        pass


def test_default_names_are_made_unique(graph):  # testVarOpScope, testVarOpScopeUniqueNames*
    def made(default):
        with tb.variable_scope(None, default_name=default):
            return tb.get_variable("w", []).name

    assert [made("d"), made("d"), made("d1"), made("d")] == ["d/w:0", "d_1/w:0", "d1/w:0", "d_2/w:0"]
    with tb.variable_scope("outer"):
        assert [made("d"), made("d")] == ["outer/d/w:0", "outer/d_1/w:0"]
    with tb.variable_scope("given", default_name="d"):
        assert tb.get_variable("w", []).name == "given/w:0"


def test_a_default_name_under_reuse(graph):  # testVarOpScopeReuseError
    with (
        pytest.raises((TensorBowError, ValueError)),
        tb.variable_scope(None, default_name="d", reuse=True),
    ):
        tb.get_variable("w", [])


def test_a_scope_has_a_name(graph):
    with pytest.raises((TensorBowError, TypeError, ValueError)), tb.variable_scope(None):
        pass


def test_initializers_of_scopes(session):  # testVarScopeInitializer
    with tb.variable_scope("tower", initializer=tb.constant_initializer(0.3)) as tower:
        a = tb.get_variable("a", [])
        with tb.variable_scope("inner"):
            b = tb.get_variable("b", [])
        with tb.variable_scope(tower, initializer=tb.constant_initializer(0.5)):
            c = tb.get_variable("c", [])
        d = tb.get_variable("d", [], initializer=tb.constant_initializer(0.7))
    session.run(tb.global_variables_initializer())
    np.testing.assert_allclose(session.run([a, b, c, d]), [0.3, 0.3, 0.5, 0.7], rtol=1e-6)


def test_dtypes_of_scopes(graph):  # testVarScopeDType
    with tb.variable_scope("tower", dtype=tb.float64):
        assert tb.get_variable("a", []).dtype == tb.float64
        with tb.variable_scope("inner", dtype=tb.float32):
            assert tb.get_variable("b", []).dtype == tb.float32
        assert tb.get_variable("c", [], tb.float32).dtype == tb.float32


def test_regularizers_of_scopes(session):  # testVarScopeRegularizer
    def square(scale):
        return lambda v: scale * tb.reduce_sum(v * v)

    start = tb.constant_initializer(2.0)
    with tb.variable_scope("tower", regularizer=square(1.0), initializer=start):
        tb.get_variable("a", [])
        with tb.variable_scope("inner", regularizer=square(10.0)):
            tb.get_variable("b", [])
        tb.get_variable("c", [], regularizer=lambda v: None)
    with tb.variable_scope("tower", reuse=True):
        tb.get_variable("a", [])  # no second loss
    losses = tb.get_collection(tb.GraphKeys.REGULARIZATION_LOSSES)
    session.run(tb.global_variables_initializer())
    assert session.run(losses) == [4.0, 40.0]


def test_initial_values(session):  # testInitializeFromValue
    v = tb.get_variable("v", initializer=tb.constant(1.5))
    w = tb.get_variable("w", initializer=[[1, 2], [3, 4]])
    n = tb.get_variable("n", initializer=np.float64(2.0))
    session.run(tb.global_variables_initializer())
    assert session.run(v) == 1.5
    np.testing.assert_array_equal(session.run(w), [[1, 2], [3, 4]])
    assert (w.dtype.is_integer, n.dtype) == (True, tb.float64)
    with pytest.raises((TensorBowError, ValueError)):
        tb.get_variable("x", [3], initializer=tb.constant([1.0, 2.0, 3.0]))
    with pytest.raises((TensorBowError, ValueError)):
        tb.get_variable("y")


def test_the_default_initialiser(session):
    a, b = tb.get_variable("a", [100, 50]), tb.get_variable("b", [3], tb.int32)
    session.run(tb.global_variables_initializer())
    limit = np.sqrt(6 / 150)
    found = session.run(a)
    assert np.abs(found).max() <= limit
    assert found.std() > limit / 3
    np.testing.assert_array_equal(session.run(b), [0, 0, 0])


def test_variables_of_a_scope(graph):  # testGetTrainableVars..., testGetGlobalVars...
    with tb.variable_scope("a"):
        tb.get_variable("x", [])
        tb.get_variable("y", [], trainable=False)
    with tb.variable_scope("ab"):
        tb.get_variable("z", [])
    assert names(tb.trainable_variables("a/")) == ["a/x:0"]
    assert names(tb.global_variables("a/")) == ["a/x:0", "a/y:0"]
    assert names(tb.global_variables("a")) == ["a/x:0", "a/y:0", "ab/z:0"]


def test_two_graphs_have_variables_of_their_own(kernels_of_cases):  # testTwoGraphs
    for _ in range(2):
        with tb.Graph().as_default():
            tb.get_variable("v", [1])
            with pytest.raises((TensorBowError, ValueError)):
                tb.get_variable("v", [1])


def test_partitioned_variables(session):  # VariableScopeWithPartitioningTest
    split = tb.variable_axis_size_partitioner(max_shard_bytes=16)
    with tb.variable_scope("scope", partitioner=split) as scope:
        v = tb.get_variable("v", [4, 2])
        scalar = tb.get_variable("scalar", [])
    assert isinstance(scalar, tb.Variable)
    assert v.name == "scope/v"
    assert len(list(v)) == 2
    with tb.variable_scope(scope, reuse=True):
        assert tb.get_variable("v") is v or list(tb.get_variable("v", [4, 2])) == list(v)
    with (
        tb.variable_scope("scope", reuse=True, partitioner=tb.fixed_size_partitioner(4)),
        pytest.raises((TensorBowError, ValueError)),
    ):
        tb.get_variable("v", [4, 2])
    session.run(tb.global_variables_initializer())
    assert session.run(tb.convert_to_tensor(v)).shape == (4, 2)


# Templates: TemplateTest


def scaled(x, name="w"):
    return x * tb.get_variable(name, [], initializer=tb.constant_initializer(3.0))


def test_a_template_shares_its_variables(session):  # test_template_with_internal_reuse, test_end_to_end
    template = tb.make_template("s1", scaled)
    a, b = template(tb.constant(1.0)), template(tb.constant(2.0))
    assert names(tb.trainable_variables()) == ["s1/w:0"]
    session.run(tb.global_variables_initializer())
    assert session.run([a, b]) == [3.0, 6.0]


def test_two_templates_keep_apart(graph):  # test_same_unique_name_raise_error, test_unique_name...
    one, two = tb.make_template("s", scaled), tb.make_template("s", scaled)
    one(tb.constant(1.0)), two(tb.constant(1.0)), one(tb.constant(2.0))
    assert names(tb.trainable_variables()) == ["s/w:0", "s_1/w:0"]


def test_a_template_in_a_scope(graph):  # test_template_in_scope
    template = tb.make_template("s1", scaled)
    with tb.variable_scope("outer"):
        template(tb.constant(1.0))
    template(tb.constant(1.0))
    assert names(tb.trainable_variables()) == ["outer/s1/w:0"]


def test_arguments_of_a_template(graph):  # test_make_template
    template = tb.make_template("s1", scaled, name="other")
    template(tb.constant(1.0))
    assert names(tb.trainable_variables()) == ["s1/other:0"]


def test_a_template_makes_no_further_variables(graph):  # test_enforces_no_extra_trainable_variables
    numbers = iter(range(3))
    template = tb.make_template("s", lambda: tb.get_variable(f"v{next(numbers)}", []))
    template()
    with pytest.raises((TensorBowError, ValueError)):
        template()


def test_templates_in_templates(graph):  # test_nested_templates
    def outer(x):
        return tb.make_template("inner", scaled)(x)

    template = tb.make_template("outer", outer)
    template(tb.constant(1.0))
    template(tb.constant(1.0))
    assert names(tb.trainable_variables()) == ["outer/inner/w:0"]


def test_what_is_no_template(graph):
    for wrong in (3, None, "text"):
        with pytest.raises((TensorBowError, TypeError)):
            tb.make_template("s", wrong)


def test_two_reads_around_a_write(session):
    v = tb.Variable(1.0)
    session.run(v.initializer)
    before = v.read_value()
    with tb.control_dependencies([before]):
        write = v.assign(5.0)
    with tb.control_dependencies([write]):
        after = v.read_value()
    assert session.run([before, after]) == [1.0, 5.0]
    with pytest.raises(InvalidArgumentError):
        tb.assign(3, 4)
