"""Gradients given by programs, templates, and functions as subgraphs."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from tensorbow.graph import REGISTERED_GRADIENTS


@pytest.fixture(autouse=True)
def graph():
    before = dict(REGISTERED_GRADIENTS)
    with tb.Graph().as_default() as graph:
        yield graph
    REGISTERED_GRADIENTS.clear()
    REGISTERED_GRADIENTS.update(before)


def values(fetches, feeds=None):
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        return session.run(fetches, feeds)


def test_guided_backpropagation_by_an_override_map(graph):
    @tb.RegisterGradient("GuidedRelu")
    def guided(op, gradient):
        return tb.where(gradient > 0, gradient, tb.zeros_like(gradient)) * tb.cast(
            op.inputs[0] > 0, gradient.dtype
        )

    x = tb.placeholder(tb.float32, [4])
    weights = tb.constant([1.0, -1.0, 1.0, -1.0])
    with graph.gradient_override_map({"Relu": "GuidedRelu"}):
        inside = tb.nn.relu(x)
    outside = tb.nn.relu(x)
    feeds = {x: [2.0, 2.0, -2.0, -2.0]}
    found = [tb.gradients(y * weights, x)[0] for y in (inside, outside)]
    assert [v.tolist() for v in values(found, feeds)] == [[1, 0, 0, 0], [1, -1, 0, 0]]
    copied = tb.GraphDef.from_json(graph.as_graph_def().to_json())
    with tb.Graph().as_default() as other:
        tb.import_graph_def(copied, name="")
        y, x2 = (other.get_tensor_by_name(each.name) for each in (inside, x))
        again = tb.gradients(y * weights.op.attrs["value"], x2)[0]
        assert values(again, {x2: feeds[x]}).tolist() == [1, 0, 0, 0]
    with pytest.raises(AlreadyExistsError, match="'GuidedRelu' is registered already"):
        tb.RegisterGradient("GuidedRelu")(guided)
    with graph.gradient_override_map({"Tanh": "Missing"}):
        y = tb.tanh(x)
    with pytest.raises(NotFoundError, match=r"Tanh .*'Missing' is not registered.*made at .*test_custom"):
        tb.gradients(y, x)


def test_a_custom_gradient_of_several_results_gets_all_of_theirs_at_once():
    """Clipping by the joint norm is not linear: one call with all gradients differs from the sum of two."""
    calls = []

    @tb.custom_gradient
    def clipped(a, b):
        def gradient(da, db):
            calls.append((da, db))
            norm = tb.sqrt(tb.reduce_sum(da * da) + tb.reduce_sum(db * db))
            return [da / norm, db / norm]

        return {"first": a * 2.0, "second": b}, gradient

    x, y = tb.placeholder(tb.float32, [2]), tb.placeholder(tb.float32, [1])
    result = clipped(x, y)
    assert set(result) == {"first", "second"}
    loss = tb.reduce_sum(result["first"] * 3.0) + tb.reduce_sum(result["second"] * x)
    found = tb.gradients(loss, [x, y])
    dx, dy = values(found, {x: [1.0, 2.0], y: [5.0]})
    da, db = np.array([3.0, 3.0]), 1.0 + 2.0
    norm = np.sqrt((da**2).sum() + db**2)
    np.testing.assert_allclose(dx, da / norm + 5.0, rtol=1e-6)
    np.testing.assert_allclose(dy, [db / norm], rtol=1e-6)
    assert len(calls) == 1
    one = tb.gradients(tb.reduce_sum(result["first"]), y)[0]  # nothing flows from the second: zeros
    assert values(one, {x: [1.0, 2.0], y: [5.0]}).tolist() == [0]


def test_a_custom_gradient_is_differentiated_again():
    @tb.custom_gradient
    def log1pexp(x):
        e = tb.exp(x)
        return tb.log(1.0 + e), lambda dy: dy * (1.0 - 1.0 / (1.0 + e))

    x = tb.placeholder(tb.float64, [])
    first = tb.gradients(log1pexp(x), x)[0]
    second = tb.gradients(first, x)[0]
    s = 1 / (1 + np.exp(-0.3))
    np.testing.assert_allclose(values([first, second], {x: 0.3}), [s, s * (1 - s)])
    assert values(first, {x: 0.0}) == 0.5


def test_a_custom_gradient_of_a_function_with_variables():
    w = tb.get_variable("w", initializer=np.float32(3.0))

    def scaled(x):
        def gradient(dy, variables):
            assert variables == [w]
            return dy * 10.0, [dy * 100.0]

        return x * w, gradient

    x = tb.placeholder(tb.float32, [])
    y = tb.custom_gradient(scaled)(x)
    assert values(tb.gradients(y * 2.0, [x, w]), {x: 1.0}) == [20, 200]
    update = tb.train.GradientDescentOptimizer(0.01).minimize(y)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        session.run(update, {x: 1.0})
        assert session.run(w) == 2
    with pytest.raises(InvalidArgumentError, match=r"reads trainable variables \(w\).*variables="):
        tb.custom_gradient(lambda x: (x * w, lambda dy: dy))(x)
    with pytest.raises(InvalidArgumentError, match=r"a function that returns \(ys, gradient\)"):
        tb.custom_gradient(lambda x: x)(x)
    wrong = tb.custom_gradient(lambda x: (x, lambda dy: [dy, dy]))(x)
    with pytest.raises(InvalidArgumentError, match=r"expected the gradient to give 1 tensors.*got 2"):
        tb.gradients(wrong, x)


def test_calls_of_a_template_share_their_variables(graph):
    def layer(x, scale):
        return x * tb.get_variable("w", initializer=np.float32(2.0)) * scale

    double = tb.make_template("layer", layer, scale=1.0)
    other = tb.make_template("layer", layer, create_scope_now_=True, scale=3.0)
    assert double.variable_scope is None
    results = [double(1.0), double(2.0, scale=10.0), other(1.0)]
    assert values(results) == [2, 40, 6]
    assert [v.op.name for v in tb.trainable_variables()] == ["layer_1/w", "layer/w"]
    names = iter(["w", "more"])
    changing = tb.make_template("any", lambda: tb.get_variable(next(names), [1]), unique_name_="own")
    changing()
    with pytest.raises(InvalidArgumentError, match="no variable own/more"):
        changing()
    with tb.Graph().as_default(), pytest.raises(InvalidArgumentError, match="of another graph"):
        double(1.0)


def test_no_gradient_is_registered_under_a_name():
    tb.NotDifferentiable("TestNothing")
    with pytest.raises(AlreadyExistsError, match="'TestNothing' is registered already"):
        tb.NoGradient("TestNothing")
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, [2])
        with graph.gradient_override_map({"Relu": "TestNothing"}):
            y = tb.nn.relu(x)
        assert tb.gradients(y, x) == [None]
        assert tb.gradients(tb.nn.relu(x), x) != [None]


def test_a_gradient_is_not_registered_for_an_op_that_is_there():
    with pytest.raises(InvalidArgumentError, match="got the op Sub, whose gradient is in its definition"):
        tb.RegisterGradient("Sub")
