"""Sequences of more steps than are unrolled in the graph: a loop of few ops, with the unrolled results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import fold as folding
from tensorbow.compiler.fold import fold
from tensorbow.compiler.prune import prune
from tensorbow.specs import TensorSpec

STEPS = 70


def _network(x: Any, **options: Any) -> list[tb.Tensor]:
    cell = tb.nn.rnn_cell.BasicRNNCell(2)
    outputs, state = tb.nn.dynamic_rnn(cell, x, dtype=tb.float64, **options)
    return [outputs, state, *tb.gradients(tb.reduce_sum(outputs**2), [x, *tb.trainable_variables()])]


def test_a_long_sequence_is_a_loop_of_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    value, lengths = np.random.default_rng(3).normal(size=(3, 5, 2)), [5, 1, 4]
    config = tb.ConfigProto(compiles_loops=False)
    with tb.Graph().as_default() as graph, tb.Session(config=config) as session:
        x = tb.placeholder(tb.float64, value.shape)
        with tb.variable_scope("", reuse=tb.AUTO_REUSE):
            wanted = _network(x, sequence_length=lengths)
            assert not any(op.type == "Enter" for op in graph.get_operations())
            monkeypatch.setattr("tensorbow.layers.rnn.MOST_STEPS", 4)
            found = _network(x, sequence_length=lengths)
            assert any(op.type == "Enter" for op in graph.get_operations())
        session.run(tb.global_variables_initializer())
        for got, expected in zip(*session.run([found, wanted], {x: value}), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


def test_a_long_sequence_in_both_directions_is_few_ops() -> None:
    cells = [tb.nn.rnn_cell.BasicRNNCell(2) for _ in range(2)]
    with tb.Graph().as_default() as graph:
        outputs, _ = tb.nn.bidirectional_dynamic_rnn(*cells, tb.placeholder(tb.float32, [3, STEPS, 2]))
        assert outputs[1].shape == [3, STEPS, 2]
        assert sum(op.type == "MatMul" for op in graph.get_operations()) == 4  # of two loops, and before each


@pytest.mark.parametrize("long", [True, False])
def test_devices_without_loops_unroll_a_known_number_of_steps_however_long(
    long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "MOST_UNROLLED", 50)
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float64, [3, STEPS if long else None, 2])
        found = _network(x)
        fed = {x: TensorSpec((3, STEPS, 2), tb.float64)}
        ops = prune([each.op for each in found], fed)
        if long:
            program = fold(ops, fed, found)
            assert sum(node.definition.name == "MatMul" for node in program.nodes) >= 3 * STEPS - 2
            assert any(f"unrolled, {STEPS} iterations" in note for note in program.notes)
        else:
            with pytest.raises(tb.errors.InvalidArgumentError, match="too long to unroll: over 50 ops"):
                fold(ops, fed, found)


def test_a_graph_keeps_that_its_loop_unrolls() -> None:
    with tb.Graph().as_default() as graph:
        _network(tb.placeholder(tb.float64, [3, STEPS, 2]))
    with tb.Graph().as_default() as copy:
        tb.import_graph_def(graph.as_graph_def(), name="")
    contexts = {op.context for op in copy.get_operations() if op.context is not None}
    assert len(contexts) == 2
    assert all(context.unrolls_fully for context in contexts)
