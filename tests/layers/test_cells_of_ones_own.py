"""Cells that a program defines, states in one tensor, and scopes that are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, UnimplementedError
from tensorbow.nn import rnn_cell

X = np.random.default_rng(4).normal(size=(2, 3, 4)).astype(np.float32)


class LeakyCell(rnn_cell.RNNCell):
    """A cell that averages its state and a dense layer of it and the inputs."""

    def __init__(self, units: int, name: str | None = None):
        super().__init__(name=name)
        self._units = units

    @property
    def state_size(self) -> int:
        return self._units

    @property
    def output_size(self) -> int:
        return self._units

    def call(self, inputs: tb.Tensor, state: Any) -> tuple[tb.Tensor, Any]:
        rate = tb.get_variable("rate", [], initializer="ones")
        new = 0.5 * state + rate * tb.layers.dense(tb.concat([inputs, state], 1), self._units)
        return new, new


class CellWithoutCall(rnn_cell.RNNCell):
    """A cell that lacks its step."""

    state_size, output_size = 2, 2


@pytest.fixture(autouse=True)
def session():
    config = tb.ConfigProto(compiles_loops=False)
    with tb.Graph().as_default(), tb.Session(config=config) as session:
        tb.set_random_seed(2)
        yield session


@pytest.mark.parametrize("steps", [3, None])
def test_variables_of_a_cell_are_made_once_and_shared_by_its_steps(session, steps):
    x = tb.placeholder(tb.float32, [2, steps, 4])
    outputs, state = tb.nn.dynamic_rnn(LeakyCell(2), x, dtype=tb.float32)
    names = [f"rnn/leaky_cell/{part}" for part in ("rate", "dense/kernel", "dense/bias")]
    assert [v.op.name for v in tb.trainable_variables()] == names
    session.run(tb.global_variables_initializer())
    kernel = session.run(tb.trainable_variables()[1])
    found, last = session.run([outputs, state], {x: X})
    h = np.zeros((2, 2), np.float32)
    for step in range(3):
        h = 0.5 * h + np.concatenate([X[:, step], h], 1) @ kernel
        np.testing.assert_allclose(found[:, step], h, rtol=1e-5)
    np.testing.assert_array_equal(last, found[:, -1])


def test_each_cell_has_variables_of_its_own():
    first, second = LeakyCell(2), LeakyCell(2, name="named")
    x = tb.constant(X[:, 0])
    for cell in (first, second, first, LeakyCell(2)):
        cell(x, cell.zero_state(2))
    scopes = [v.op.name.rpartition("/")[0] for v in tb.trainable_variables() if v.op.name.endswith("rate")]
    assert scopes == ["leaky_cell", "named", "leaky_cell_1"]


def test_a_cell_without_a_step_says_what_to_define():
    with pytest.raises(UnimplementedError, match="CellWithoutCall: expected a method call"):
        CellWithoutCall()(tb.zeros([1, 2]), tb.zeros([1, 2]))


def test_states_in_one_tensor_are_the_tuples_side_by_side(session):
    def stacked(is_tuple: bool) -> rnn_cell.MultiRNNCell:
        cells = [
            rnn_cell.LSTMCell(3, num_proj=2, state_is_tuple=is_tuple),
            rnn_cell.BasicLSTMCell(2, state_is_tuple=is_tuple),
        ]
        return rnn_cell.MultiRNNCell(cells, state_is_tuple=is_tuple)

    x = tb.constant(X)
    assert stacked(False).state_size == 9
    with tb.variable_scope("", reuse=tb.AUTO_REUSE):
        outputs, ((c, h), (c2, h2)) = tb.nn.dynamic_rnn(stacked(True), x)
        beside, state = tb.nn.dynamic_rnn(stacked(False), x)
    assert len(tb.trainable_variables()) == 5
    session.run(tb.global_variables_initializer())
    wanted, found = session.run([[outputs, tb.concat([c, h, c2, h2], 1)], [beside, state]])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_projections_are_clipped(session):
    cell = rnn_cell.LSTMCell(3, num_proj=2, proj_clip=0.01)
    outputs, _ = tb.nn.dynamic_rnn(cell, tb.constant(X))
    session.run(tb.global_variables_initializer())
    assert np.abs(session.run(outputs)).max() == np.float32(0.01)


def test_a_scope_that_is_given_is_entered_under_its_whole_name():
    with tb.variable_scope("model") as scope:
        pass
    with tb.variable_scope("elsewhere"):
        tb.nn.dynamic_rnn(rnn_cell.GRUCell(2), tb.constant(X), scope=scope)
    assert {v.op.name.partition("/gru_cell/")[0] for v in tb.trainable_variables()} == {"model"}
    with pytest.raises(InvalidArgumentError, match="expected scope to be a string or a tb"):
        tb.nn.dynamic_rnn(rnn_cell.GRUCell(2), tb.constant(X), scope=3)
