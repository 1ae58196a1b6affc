"""Loops over cells that a function steers: the results of dynamic_rnn, own outputs, loop states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.sample import normal

pytestmark = pytest.mark.usefixtures("session")

X = normal(5, 3, 2)  # steps, batch, features
LENGTHS = np.array([2, 5, 3])


def test_the_results_of_dynamic_rnn(session: tb.Session) -> None:
    cell = tb.nn.rnn_cell.BasicLSTMCell(4)
    steps = tb.TensorArray(tb.float32, 5).unstack(tb.constant(X))

    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        following = cell.zero_state(3, tb.float32) if output is None else state
        finished = time >= tb.constant(LENGTHS, tb.int32)
        step = steps.read(tb.minimum(time, 4))
        return finished, step, following, output, None

    outputs, last, loop_state = tb.nn.raw_rnn(cell, loop_fn)
    assert loop_state is None
    expected, state = tb.nn.dynamic_rnn(
        cell, tb.constant(X), LENGTHS, time_major=True, scope="rnn", dtype=tb.float32
    )
    total = tb.reduce_sum(outputs.stack()), tb.reduce_sum(expected)
    assert len(tb.trainable_variables()) == 2
    slopes = [tb.gradients(each, tb.trainable_variables()) for each in total]
    session.run(tb.global_variables_initializer())
    got, wanted = session.run([(outputs.stack(), last, slopes[0]), (expected, state, slopes[1])])
    for a, b in zip(_leaves(got), _leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def _leaves(nest: Any) -> list[Any]:
    return [leaf for each in nest for leaf in _leaves(each)] if isinstance(nest, (list, tuple)) else [nest]


def test_own_outputs_and_a_loop_state(session: tb.Session) -> None:
    cell = tb.nn.rnn_cell.GRUCell(2)

    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        if output is None:
            return tb.zeros([3], tb.bool), tb.constant(X[0]), cell.zero_state(3), tb.zeros([], tb.int32), 0
        numbers = tb.fill([3], time * 10)
        return time >= tb.constant([1, 3, 2]), tb.constant(X[0]), state, numbers, loop_state + 1

    emitted, _, count = tb.nn.raw_rnn(cell, loop_fn)
    session.run(tb.global_variables_initializer())
    rows, steps = session.run([emitted.stack(), count])
    assert rows.tolist() == [[10, 10, 10], [0, 20, 20], [0, 30, 0]]
    assert steps == 3


def test_refusals() -> None:
    with pytest.raises(InvalidArgumentError, match="expected cell to be a cell such as"):
        tb.nn.raw_rnn(3, lambda *_: None)
    cell = tb.nn.rnn_cell.GRUCell(2)
    with pytest.raises(InvalidArgumentError, match="of which the first three are not None"):
        tb.nn.raw_rnn(cell, lambda *_: (tb.zeros([3], tb.bool), tb.constant(X[0]), None, None, None))
