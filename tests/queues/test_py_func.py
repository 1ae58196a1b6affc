"""py_func: values, several results, effects, errors of the function and of its results."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError


def test_results_go_on_in_the_graph_and_inputs_are_the_functions_own(session):
    x = tb.placeholder(tb.float32, [None])

    def halves(a, k):
        a /= k  # an array of its own
        return a[a > 1], len(a)

    large, count = tb.py_func(halves, [x, tb.constant(2.0)], [tb.float32, tb.int64])
    fed = np.float32([1, 4, 6])
    values, number = session.run([large * 10, count + 1], {x: fed})
    np.testing.assert_array_equal(values, [20, 30])
    assert number == 4
    np.testing.assert_array_equal(fed, [1, 4, 6])
    assert tb.gradients(tb.reduce_sum(large), x) == [None]


def test_a_list_of_one_dtype_gives_a_list_of_one_tensor(session):
    (twice,) = tb.py_func(lambda a: a * 2, [np.float32(3)], [tb.float32])
    assert session.run([twice, tb.py_func(lambda a: a * 2, [np.float32(4)], tb.float32)]) == [6, 8]


@pytest.mark.parametrize("stateful", [True, False])
def test_a_function_is_called_in_each_step(session, stateful):
    seen = []
    x = tb.placeholder(tb.int32, [])
    note = tb.py_func(seen.append, [x], [], stateful=stateful)
    for number in (3, 3, 5):
        session.run(note, {x: number})
    assert seen == [3, 3, 5]


def test_errors_name_the_op_and_the_cause(session):
    def fails(a):
        raise KeyError("nothing there")

    with pytest.raises(InvalidArgumentError, match=r"PyFunc.*nothing there") as caught:
        session.run(tb.py_func(fails, [1], tb.int32, name="lookup"))
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(InvalidArgumentError, match="of float64, expected float32 as in Tout"):
        session.run(tb.py_func(lambda a: np.ones(2), [1], tb.float32))
    with pytest.raises(InvalidArgumentError, match="returned 2 values, expected 1"):
        session.run(tb.py_func(lambda a: (a, a), [1], tb.int32))
