"""Errors in a user's op are reported at once, with the op's name and the user's line."""

import re

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")

THIS = re.escape("test_ops_user_kernels.py")


def op(kernel, **options):
    options = {"gradient": tb.NOT_DIFFERENTIABLE, "spec": lambda i, a: i[0], "inputs": ("x",), **options}
    return tb.define_op("TestUserKernel", kernel=kernel, replace=True, **options)


def run(definition):
    x = tb.placeholder(tb.float32, [3], name="x")
    with tb.Session() as session:
        return session.run(definition(x, name="mine"), {x: [1, 2, 3]})


@pytest.mark.parametrize(
    "kernel",
    [
        lambda c: c.inputs[0] * 2,
        lambda c: (c.outputs[0], c.inputs[0] * 2),
        lambda c: 2,
        lambda c: [c.outputs[0]],
        lambda c: c.inputs[0],
    ],
)
def test_results_that_are_returned_instead_of_written(kernel):
    with pytest.raises(InvalidArgumentError, match=rf"TestUserKernel mine: .*returned.*{THIS}"):
        run(op(kernel))


@pytest.mark.parametrize(
    "kernel",
    [
        lambda c: np.power(c.inputs[0], 2, out=c.outputs[0]),
        lambda c: np.power(c.inputs[0], 2, out=c.outputs[0][...]),
        lambda c: np.divmod(c.inputs[0] ** 2, 1000, out=(np.empty_like(c.inputs[0]), c.outputs[0]))[:0],
        lambda c: np.copyto(c.outputs[0], c.inputs[0] ** 2),
    ],
)
def test_what_out_gives_back_may_be_returned(kernel):
    np.testing.assert_array_equal(run(op(kernel)), [1, 4, 9])


def test_inputs_cannot_be_written_unless_declared():
    def kernel(call):
        call.inputs[0][0] = 7
        call.outputs[0][...] = call.inputs[0]

    with pytest.raises(InvalidArgumentError, match=rf"TestUserKernel mine: .*read-only.*{THIS}"):
        run(op(kernel))
    with pytest.raises(ValueError, match="read-only"):
        tb.run_reference_kernel(op(kernel), [np.ones(3, np.float32)])
    definition = op(kernel, writes=(0,), alias=((0, 0),))
    v = tb.Variable(np.ones(3, np.float32))
    with tb.Session() as session:
        session.run(v.initializer)
        np.testing.assert_array_equal(session.run(definition(v)), [7, 1, 1])


def test_a_constant_input_does_not_hide_the_mistake():
    with pytest.raises(InvalidArgumentError, match=r"TestUserKernel.*returned"), tb.Session() as session:
        session.run(op(lambda c: c.inputs[0] * 2)(tb.constant([1.0, 2.0])))


def copy(call):
    np.copyto(call.outputs[0], call.inputs[0])


@pytest.mark.parametrize("result", [42, None, "float32", [42]])
def test_a_spec_rule_that_returns_no_spec(result):
    definition = op(copy, spec=lambda i, a: result)
    expected = rf"spec of TestUserKernel must return a TensorSpec or a sequence of them.*{THIS}"
    with pytest.raises(InvalidArgumentError, match=expected):
        definition(tb.constant([1.0]))


@pytest.mark.parametrize(
    ("rule", "got"),
    [
        (lambda op, g: g, "got Tensor"),
        (lambda op, g: None, "got NoneType"),
        (lambda op, g: [g, g], "got 2 results"),
        (lambda op, g: [2.0], r"got float 2\.0 in it"),
    ],
)
def test_a_gradient_rule_that_returns_no_list(rule, got):
    x = tb.placeholder(tb.float32, [3])
    y = op(copy, gradient=rule)(x)
    expected = rf"gradient of TestUserKernel must return a list of 1.*{got}"
    with pytest.raises(InvalidArgumentError, match=expected):
        tb.gradients(y, [x])


@pytest.mark.parametrize("given", [{}, {"gradient": None}, {"gradient": 3}])
def test_a_gradient_must_be_given(given):
    rules = {"spec": lambda i, a: i[0], "kernel": copy, "inputs": ("x",)}
    with pytest.raises(InvalidArgumentError, match=r"give gradient=, a rule or tb\.NOT_DIFFERENTIABLE"):
        tb.define_op("TestUserKernel", **rules, **given, replace=True)
