"""Recurrent networks in both directions over loops: results and slopes of the unrolled ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tests.ops_contract.sample import normal

X = normal(3, 4, 2)  # batch, steps, features
LENGTHS = np.array([4, 2, 3], np.int32)


def _network(x: Any, lengths: Any, **options: Any) -> list[Any]:
    """Outputs, last states and slopes of all variables and of the inputs."""
    cells = [tb.nn.rnn_cell.BasicRNNCell(units) for units in (3, 5)]
    outputs, states = tb.nn.bidirectional_dynamic_rnn(*cells, x, lengths, dtype=tb.float32, **options)
    losses = [tb.reduce_sum(tb.square(each)) for each in (*outputs, *states)]
    slopes = tb.gradients(tb.add_n(losses), [x, *tb.trainable_variables()])
    return [*outputs, *states, *slopes]


@pytest.mark.parametrize(
    "way",
    ["steps unknown", *(pytest.param(way, marks=pytest.mark.slow) for way in ("lengths as data", "swapped"))],
)
@pytest.mark.parametrize("time_major", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_loops_in_both_directions_are_the_unrolled_network(way: str, time_major: bool) -> None:
    value = X.transpose(1, 0, 2).copy() if time_major else X
    dims: list[int | None] = [None if n == 4 and way == "steps unknown" else n for n in value.shape]
    with tb.Graph().as_default(), tb.Session() as session:
        x, lengths = tb.placeholder(tb.float32, dims), tb.placeholder(tb.int32, [3])
        with tb.variable_scope("network"):
            given = None if way == "steps unknown" else LENGTHS if way == "swapped" else lengths
            found = _network(x, given, swap_memory=way == "swapped", time_major=time_major)
        assert {op.type for op in session.graph.get_operations()} >= {"Enter", "NextIteration"}
        variables = tb.trainable_variables()
        names = [
            f"network/bidirectional_rnn/{way}/basic_rnn_cell/{part}"
            for way in ("fw", "bw")
            for part in ("kernel", "bias")
        ]
        assert [v.op.name for v in variables] == names
        with tb.variable_scope("network", reuse=True):
            known = tb.placeholder(tb.float32, value.shape)
            constant = None if way == "steps unknown" else LENGTHS
            expected = _network(known, constant, time_major=time_major)
        session.run(tb.global_variables_initializer())
        for number, v in enumerate(variables):
            v.load(0.5 * normal(*v.shape.as_list(), seed=number), session)
        got, wanted = session.run([found, expected], {x: value, known: value, lengths: LENGTHS})
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_one_cell_for_both_directions_is_refused_in_loops_too() -> None:
    cell = tb.nn.rnn_cell.BasicRNNCell(3)
    with (
        tb.Graph().as_default(),
        pytest.raises(tb.errors.InvalidArgumentError, match="one cell is given twice"),
    ):
        tb.nn.bidirectional_dynamic_rnn(cell, cell, tb.placeholder(tb.float32, [3, None, 2]))
