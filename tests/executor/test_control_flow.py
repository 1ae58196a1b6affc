"""Control flow in sessions: TensorFlow 1's documented cases of cond, case and while_loop."""

import re
import threading

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import CancelledError, FailedPreconditionError, InvalidArgumentError


@pytest.fixture(autouse=True, params=[False, True], ids=["dynamic", "compiled"])
def session(request):
    """compiled: loops of a known number of iterations are unrolled in the plan."""
    with tb.Graph().as_default(), tb.Session(config=tb.ConfigProto(compiles_loops=request.param)) as session:
        yield session


def scalar(name="x"):
    return tb.placeholder(tb.float64, [], name=name)


def slope(function, at, step=1e-5):
    return (function(at + step) - function(at - step)) / (2 * step)


# Conds --------------------------------------------------------------------------------------------------


def test_only_the_branch_that_is_taken_has_effects(session):
    x, v = scalar(), tb.Variable(10.0, name="v", trainable=False)
    session.run(v.initializer)
    y = tb.cond(x > 0, lambda: tb.assign_add(v, 1.0), lambda: tb.assign_sub(v, 2.0))
    assert session.run([y, v], {x: 1.0}) == [11.0, 11.0]
    assert session.run([y, v], {x: -1.0}) == [9.0, 9.0]


def test_a_loop_in_a_branch_that_is_known_not_to_be_taken(session):
    x = scalar()
    loop = lambda: tb.while_loop(lambda i, a: i < 3, lambda i, a: [i + 1, a * x], [0, x])[1]  # noqa: E731
    assert session.run(tb.cond(tb.constant(False), loop, lambda: x + 1.0), {x: 2.0}) == 3.0
    assert session.run(tb.cond(tb.constant(True), loop, lambda: x + 1.0), {x: 2.0}) == 16.0


def test_branches_of_operations_and_of_nests(session):
    x, v = scalar(), tb.Variable(0.0, name="v", trainable=False)
    session.run(v.initializer)
    done = tb.cond(x > 0, lambda: tb.assign(v, 5.0).op, lambda: tb.no_op())
    session.run(done, {x: -1.0})
    assert session.run(v) == 0.0
    session.run(done, {x: 1.0})
    assert session.run(v) == 5.0
    nest = tb.cond(x > 0, lambda: {"a": x, "b": [x * 2.0]}, lambda: {"a": x - 1.0, "b": [x]})
    assert session.run(nest, {x: 3.0}) == {"a": 3.0, "b": [6.0]}
    assert session.run(nest, {x: -3.0}) == {"a": -4.0, "b": [-3.0]}


def test_control_dependencies_around_and_inside_a_branch(session):
    x, v = scalar(), tb.Variable(0.0, name="v", trainable=False)
    session.run(v.initializer)
    first = tb.assign_add(v, 1.0)
    with tb.control_dependencies([first]):
        y = tb.cond(x > 0, lambda: v.read_value() * 10.0, lambda: v.read_value())
    assert session.run(y, {x: 1.0}) == 10.0

    def inside():
        with tb.control_dependencies([first]):
            return tb.identity(x)

    assert session.run(tb.cond(x > 0, inside, lambda: x), {x: 2.0}) == 2.0
    assert session.run(v) == 2.0


def test_writes_and_reads_around_a_cond_keep_program_order(session):
    x, v = scalar(), tb.Variable(1.0, name="v", trainable=False)
    session.run(v.initializer)
    before = tb.identity(v.read_value())
    changed = tb.cond(x > 0, lambda: tb.assign(v, 7.0), lambda: v.read_value())
    after = tb.identity(v.read_value())
    assert session.run([before, changed, after], {x: 1.0}) == [1.0, 7.0, 7.0]


def test_case_takes_the_first_true_condition(session):
    x = scalar()
    pairs = [(x > 10.0, lambda: x * 2.0), (x > 0.0, lambda: x * 3.0)]
    y = tb.case(pairs, default=lambda: -x)
    assert [session.run(y, {x: value}) for value in (11.0, 1.0, -4.0)] == [22.0, 3.0, 4.0]
    strictly = tb.case(pairs, default=lambda: -x, exclusive=True)
    assert session.run(strictly, {x: 1.0}) == 3.0
    with pytest.raises(InvalidArgumentError, match=r"case: conditions 0, 1 are true at once"):
        session.run(strictly, {x: 11.0})


def test_gradients_of_conds_of_any_order(session):
    x = scalar()

    def y_of(value):
        return value**3 if value > 0 else 5 * value

    y = tb.cond(x > 0, lambda: x * x * x, lambda: tb.cond(x > -1.0, lambda: 5.0 * x, lambda: x * 5.0))
    (first,) = tb.gradients(y, x)
    (second,) = tb.gradients(first, x)
    for value in (2.0, -0.5, -3.0):
        assert session.run(first, {x: value}) == pytest.approx(slope(y_of, value))
    assert session.run(second, {x: 2.0}) == pytest.approx(12.0)
    assert session.run(second, {x: -0.5}) == 0.0


# Loops --------------------------------------------------------------------------------------------------


def test_a_loop_counts_and_one_of_no_iteration_returns_what_entered(session):
    n = tb.placeholder(tb.int32, [])
    i = tb.while_loop(lambda i: i < n, lambda i: i + 1, [0])
    assert [session.run(i, {n: limit}) for limit in (10, 0, -5)] == [10, 0, 0]
    same = tb.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a), [0, tb.constant([1.0, 2.0])])
    np.testing.assert_array_equal(session.run(same[1]), [1.0, 2.0])
    most = tb.while_loop(lambda i: i < 10, lambda i: i + 1, [0], maximum_iterations=4)
    assert session.run(most) == 4


@pytest.mark.parametrize("parallel", [1, 2, 10])
def test_nested_loops_with_conds_and_invariants(session, parallel):
    x = scalar()

    def inner(i, total):
        return tb.while_loop(
            lambda j, t: j < i, lambda j, t: (j + 1, t + x), [0, total], parallel_iterations=parallel
        )[1]

    def body(i, total):
        even = tb.equal(i % 2, 0)
        return i + 1, tb.cond(even, lambda: inner(i, total), lambda: total * 2.0)

    result = tb.while_loop(
        lambda i, t: i < 6, body, [0, tb.constant(1.0, tb.float64)], parallel_iterations=parallel
    )[1]
    expected = 1.0
    for i in range(6):
        expected = expected + i * 0.5 if i % 2 == 0 else expected * 2.0
    assert session.run(result, {x: 0.5}) == expected


def test_a_loop_that_writes_a_variable_runs_one_iteration_after_the_other(session):
    v = tb.Variable(0, name="v", trainable=False)
    session.run(v.initializer)

    def body(i, history):
        with tb.control_dependencies([tb.assign_add(v, i)]):
            return i + 1, tb.concat([history, tb.expand_dims(v.read_value(), 0)], 0)

    i, history = tb.while_loop(
        lambda i, h: i < 5,
        body,
        [0, tb.constant([-1])],
        shape_invariants=[tb.TensorShape([]), tb.TensorShape([None])],
    )
    with tb.control_dependencies([i]):
        last = v.read_value()
    found = session.run([i, history, last])
    assert found[0] == 5
    np.testing.assert_array_equal(found[1], [-1, 0, 1, 3, 6, 10])
    assert found[2] == 10


@pytest.mark.sampled(1)
def test_random_numbers_in_a_loop_differ_in_every_iteration(session):
    def body(i, h):
        return i + 1, tb.concat([h, tb.random_uniform([1])], 0)

    shapes = [tb.TensorShape([]), tb.TensorShape([None])]
    drawn = tb.while_loop(lambda i, h: i < 4, body, [0, tb.constant([2.0])], shape_invariants=shapes)[1]
    assert len(set(session.run(drawn).tolist())) == 5


@pytest.mark.sampled(1)
def test_gradients_of_loops(session):
    x = scalar()

    def body(i, t):
        _, t = tb.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, t * x), [0, t])
        return i + 1, tb.cond(tb.equal(i % 2, 0), lambda: t * x * t, lambda: tb.sin(t) + x)

    y = tb.while_loop(lambda i, t: i < 4, body, [0, x])[1]
    (g,) = tb.gradients(y, x)

    def plain(x):
        t = x
        for i in range(4):
            t = t * x**i
            t = t * x * t if i % 2 == 0 else np.sin(t) + x
        return t

    assert session.run(y, {x: 0.7}) == pytest.approx(plain(0.7))
    assert session.run(g, {x: 0.7}) == pytest.approx(slope(plain, 0.7), rel=1e-6)
    (second,) = tb.gradients(g, x)
    expected = slope(lambda t: slope(plain, t, 1e-4), 0.7, 1e-4)
    assert session.run(second, {x: 0.7}) == pytest.approx(expected, rel=1e-5)


def test_gradients_of_loops_whose_body_reads_tensors_of_unknown_extents(session):
    """What the body of the gradient computes is known to less than the loop's variables are."""
    x, w = tb.placeholder(tb.float64, [None, 3]), tb.placeholder(tb.float64, [3, 1])
    wide = tb.placeholder(tb.float64, [3, None])
    start = tb.placeholder(tb.float64, [2, 3])

    def body(i, v, h):
        choice = tb.cond(tb.equal(i, 1), lambda: tb.matmul(h, wide), lambda: h * tb.reduce_sum(w))
        choice.set_shape([2, 3])
        return i + 1, v + tb.reduce_mean(tb.matmul(x, w)), choice

    _, v, h = tb.while_loop(lambda i, *_: i < 3, body, [0, tb.constant([1.0], tb.float64), start])
    found = tb.gradients([tb.reduce_sum(v), tb.reduce_sum(h)], [w, wide, start])
    assert [each.shape.as_list() for each in found] == [[3, 1], [3, None], [2, 3]]
    a = np.array([[1.0, 2, 3], [4, 5, 7]])
    weights, square = np.array([[0.5], [0.25], [1.0]]), np.array([[1.0, 2, 0], [0, 1, 1], [3, 0, 1]])
    dw, dsquare, da = session.run(found, {x: a, w: weights, wide: square, start: a})
    s = weights.sum()
    np.testing.assert_allclose(dw, a.mean(0)[:, None] * 3 + 2 * s * (a @ square).sum())
    np.testing.assert_allclose(dsquare, np.repeat(a.sum(0)[:, None], 3, 1) * s * s)
    np.testing.assert_allclose(da, np.repeat(square.sum(1)[None], 2, 0) * s * s)


def test_third_derivative_of_a_loop_of_a_fed_number_of_iterations(session):
    x, n = scalar(), tb.placeholder(tb.int32, [])
    y = tb.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, t * t * x), [0, x])[1]  # x**7, x**15
    for _ in range(3):
        (y,) = tb.gradients(y, x)
    assert session.run(y, {x: 0.9, n: 2}) == pytest.approx(7 * 6 * 5 * 0.9**4)
    assert session.run(y, {x: 0.9, n: 3}) == pytest.approx(15 * 14 * 13 * 0.9**12)
    assert session.run(y, {x: 0.9, n: 0}) == 0.0


def test_a_recurrent_network_of_variable_length_learns(session):
    weights = np.array([[0.5, -0.1], [0.2, 0.3]])
    w, n = tb.Variable(weights, name="w"), tb.placeholder(tb.int32, [])
    session.run(w.initializer)
    inputs = tb.constant(np.ones((1, 2)))
    h = tb.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, tb.tanh(tb.matmul(h, w))), [0, inputs])[1]
    loss = tb.reduce_sum(h)
    (g,) = tb.gradients(loss, w)

    def plain(weights, count):
        h = np.ones((1, 2))
        for _ in range(count):
            h = np.tanh(h @ weights)
        return h.sum()

    for count in (1, 3):
        for place in ((0, 1), (1, 0)):
            unit = np.zeros((2, 2))
            unit[place] = 1.0
            expected = slope(lambda t, unit=unit, count=count: plain(weights + t * unit, count), 0.0)
            assert session.run(g, {n: count})[place] == pytest.approx(expected)
    before = session.run(loss, {n: 3})
    session.run(tb.train.GradientDescentOptimizer(0.1).minimize(loss), {n: 3})
    assert session.run(loss, {n: 3}) < before


def test_gradients_inside_a_loop_newton(session):
    x = scalar()

    def body(i, z):
        f = z * z - x
        return i + 1, z - f / tb.gradients(f, z)[0]

    assert session.run(tb.while_loop(lambda i, z: i < 6, body, [0, x])[1], {x: 2.0}) == pytest.approx(2**0.5)


# Errors -------------------------------------------------------------------------------------------------


def test_what_stands_in_a_loop_or_branch_is_refused_outside(session):
    inside = []

    def body(i):
        inside.append(i + 5)
        return i + 1

    i = tb.while_loop(lambda i: i < 3, body, [0])
    with pytest.raises(InvalidArgumentError, match=r"fetch while/Add:0: it is in the loop"):
        session.run(inside[0])
    with pytest.raises(InvalidArgumentError, match=r"feed while/Less:0: it is in a tb.while_loop"):
        session.run(i, {"while/Less:0": True})
    with pytest.raises(InvalidArgumentError, match=r"made in a tb.while_loop and cannot be read outside"):
        inside[0] * 2
    x = scalar()
    tb.cond(x > 0, lambda: inside.append(x * 2.0) or x, lambda: x)
    with pytest.raises(InvalidArgumentError, match=r"the branch that makes it was not taken"):
        session.run(inside[1], {x: -1.0})
    assert session.run(inside[1], {x: 1.0}) == 2.0


def test_bodies_that_do_not_fit_are_refused(session):
    x = scalar()
    for call, words in (
        (lambda: tb.while_loop(lambda i: i < 3, lambda i: tb.cast(i, tb.float32), [0]), "use tb.cast"),
        (lambda: tb.while_loop(lambda i, j: i < 3, lambda i, j: i, [0, 1]), "1 values for 2 loop variables"),
        (lambda: tb.while_loop(lambda i: i, lambda i: i, [0]), "the condition is int32[]"),
        (lambda: tb.while_loop(lambda a: True, lambda a: tb.concat([a, a], 0), [tb.ones([2])]), "invariants"),
        (lambda: tb.while_loop(lambda: True, lambda: (), []), "loop_vars is empty"),
        (lambda: tb.cond(x > 0, lambda: x, lambda: 1), "return one dtype"),
        (lambda: tb.cond(x > 0, lambda: [x], lambda: x), "return the same nest"),
        (lambda: tb.cond(x, lambda: x, lambda: x), "expected a bool scalar"),
        (lambda: tb.cond(True, lambda: x, lambda: x), "use Python's `if`"),
    ):
        with pytest.raises(InvalidArgumentError, match=re.escape(words)):
            call()


def test_an_error_in_a_body_names_op_and_line_and_the_session_stays_usable(session):
    def explode(call):
        if call.inputs[0] == 2:
            raise RuntimeError("no such luck")
        np.copyto(call.outputs[0], call.inputs[0])

    op = tb.define_op(
        "TestExplode", spec=lambda i, a: i[0], gradient=tb.NOT_DIFFERENTIABLE, inputs=("x",), kernel=explode,
        replace=True,
    )  # fmt: skip
    n = tb.placeholder(tb.int32, [])
    i = tb.while_loop(lambda i: i < n, lambda i: op(i, name="bad") + 1, [0])
    assert session.run(i, {n: 2}) == 2
    with pytest.raises(
        InvalidArgumentError,
        match=r"(?m)while/bad: RuntimeError: no such luck \(made at .*op\(i.*in iteration 2 of loop 'while'$",
    ):
        session.run(i, {n: 5})
    assert session.run(i, {n: 1}) == 1


def test_an_error_in_nested_loops_names_all_iterations(session):
    n = tb.placeholder(tb.int32, [])

    def refuse(value):
        if value == 3:
            raise RuntimeError("no more")
        return value

    def inner(i):
        return tb.reshape(tb.py_func(refuse, [i], tb.int32), []) + 1

    def outer(j, total):
        return j + 1, total + tb.while_loop(lambda i: i <= j, inner, [tb.minimum(j, 2)], name="inner")

    both = tb.while_loop(lambda j, t: j < n, outer, [0, 0], parallel_iterations=1, name="outer")
    session.run(both, {n: 3})
    with pytest.raises(
        InvalidArgumentError,
        match=r"no more .*, in iteration 1 of loop 'outer/inner', in iteration 3 of loop 'outer'$",
    ):
        session.run(both, {n: 5})


def test_an_error_of_a_loop_without_feeds_names_the_iteration(session):
    def shrinks(i):
        return i + 1 + 0 * tb.TensorArray(tb.int32, 4 - i).write(1, i).size()

    with pytest.raises(InvalidArgumentError, match=r"index 1 is not in .*, in iteration 1 of loop 'while'$"):
        session.run(tb.while_loop(lambda i: i < 4, shrinks, [2]))


def test_steps_of_replicas_have_loops_with_ops_of_the_host():
    def step_fn(inputs):
        def body(a):
            return [tb.reshape(tb.py_func(lambda x: x * 2, [a], tb.float32), [2])]

        return tb.while_loop(lambda a: tb.reduce_sum(a) < 9.0, body, [inputs])

    batches = [np.full(2, value, np.float32) for value in (1, 3)]
    with tb.MultiGpuReplicator(["/cpu:0"], 2) as replicator, tb.Session() as session:
        step = replicator.run(step_fn, lambda replica_id: iter([batches[replica_id]]))
        replicator.init(session)
        np.testing.assert_array_equal(np.reshape(session.run(step), (2, 2)), [[8, 8], [6, 6]])


def test_explain_says_mode_and_reason(session):
    x = tb.placeholder(tb.float32, [])

    def body(i):
        return [tb.reshape(tb.py_func(lambda x: x * 2, [i], tb.float32), [])]

    i = tb.while_loop(lambda i: i < x, body, [1.0])
    text = str(session.explain(i, {x: 3}))
    assert text.startswith("mode: dynamic")
    assert re.search("is control flow|the number of iterations of loop while/while_context depends on", text)
    assert "loop while/while_context" in text
    assert session.explain(tb.constant(1.0) * 2.0).mode == "planned"


# Host functions and shapes ------------------------------------------------------------------------------


def host_op(name, function, **more):
    more = {"spec": lambda i, a: tb.TensorSpec([None], i[0].dtype), "inputs": ("x",), **more}
    return tb.define_op(name, gradient=tb.NOT_DIFFERENTIABLE, host=function, replace=True, **more)


def test_host_functions_give_shapes_that_depend_on_data(session):
    unique = host_op("TestUnique", lambda call: [np.unique(call.inputs[0])])
    x = tb.placeholder(tb.int32, [None])
    y = unique(x) * 2
    total = tb.reshape(tb.range(tb.reduce_sum(y)), [-1, 2])
    for values in ([1, 1, 2], [3, 1, 3, 1, 5]):
        expected = np.unique(values) * 2
        found, rows = session.run([y, total], {x: values})
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(rows, np.arange(expected.sum()).reshape(-1, 2))
    wrong = host_op("TestWrongDtype", lambda call: [np.ones(3)])
    with pytest.raises(InvalidArgumentError, match=r"output 0 of its host function is float64\[3\]"):
        session.run(wrong(x), {x: [1]})


def test_asynchronous_ops_wait_in_one_step_and_are_ended_by_another(session):
    waiting: list[tb.HostCall] = []

    def take(call):
        call.resources.get("waiting", lambda: waiting).append(call)

    def put(call):
        waiting.pop().done([call.inputs[0] * 10])
        return [call.inputs[0]]

    one = {"spec": lambda i, a: i[0], "stateful": True}
    taken = host_op("TestTake", take, asynchronous=True, **one)(tb.constant(1)) + 1
    given = host_op("TestPut", put, **one)(tb.constant(4))
    found = []
    thread = threading.Thread(target=lambda: found.append(session.run(taken)))
    thread.start()
    while not waiting:
        threading.Event().wait(0.001)
    assert session.run(given) == 4
    thread.join()
    assert found == [41]


def test_closing_a_session_cancels_what_waits():
    begun, cancelled = threading.Event(), []

    def forever(call):
        call.on_cancel(lambda: cancelled.append(call.name))
        begun.set()

    session = tb.Session()
    op = host_op("TestForever", forever, asynchronous=True, stateful=True)(tb.constant([1]), name="forever")
    errors = []

    def run():
        try:
            session.run(op)
        except CancelledError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait(10)
    session.close()
    thread.join(10)
    assert errors == ["the session was closed while the step ran"]
    assert cancelled == ["forever"]


def test_a_loop_ends_after_all_that_enters_it(session):
    """What another loop gives enters the second one, and only its number of elements is read behind it."""
    x = tb.placeholder(tb.float64, [2])
    (y,) = tb.while_loop(
        lambda a: tb.reduce_sum(a) < 9.0, lambda a: [a * 2.0], [x], return_same_structure=True
    )
    np.testing.assert_array_equal(session.run(tb.map_fn(lambda r: r * r, y), {x: [1, 2]}), [16, 64])


def test_a_branch_that_is_not_taken_needs_no_value_of_its_variables(session):
    w, given = tb.Variable([5.0, 6.0], name="w"), tb.placeholder(tb.bool, [])
    otherwise = tb.constant([0.0, 0.0])
    double = tb.cond(given, lambda: tb.cond(given, lambda: w * 2.0, lambda: otherwise), lambda: otherwise)
    reads = tb.cond(given, lambda: w.read_value() + 0.0, lambda: otherwise)
    writes = tb.cond(given, lambda: tb.assign(w, [1.0, 2.0]), lambda: otherwise)
    for result in (double, reads, writes):
        assert session.run(result, {given: False}).tolist() == [0.0, 0.0]
    for result in (double, reads):
        with pytest.raises(FailedPreconditionError, match="variables without a value: w"):
            session.run(result, {given: True})
    assert session.run(writes, {given: True}).tolist() == [1.0, 2.0]
    assert session.run(double, {given: True}).tolist() == [2.0, 4.0]
    (slope,) = tb.gradients(tb.reduce_sum(double + w), w)
    assert session.run(slope, {given: True}).tolist() == [3.0, 3.0]
    assert session.run(slope, {given: False}).tolist() == [1.0, 1.0]


def test_a_variable_that_a_branch_or_loop_writes_and_reads_is_read_behind_it(session):
    w, given = tb.Variable(5.0, name="w"), tb.placeholder(tb.bool, [])

    def grown(value):
        step = tb.assign_add(w, value)
        return w + 0.0 * step

    def written():
        step = tb.assign(w, 1.0)
        return w * 3.0 + 0.0 * step

    chosen = tb.cond(given, written, lambda: tb.constant(0.0))
    behind = w + 100.0
    count, last = tb.while_loop(lambda i, _: i < 3, lambda i, _: (i + 1, grown(2.0)), [0, 0.0])
    after = w + 1000.0
    session.run(w.initializer)
    assert session.run([chosen, behind, count, last, after], {given: False}) == [0.0, 105.0, 3, 11.0, 1011.0]
    assert session.run([chosen, behind, count, last, after], {given: True}) == [3.0, 101.0, 3, 7.0, 1007.0]
