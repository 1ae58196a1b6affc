"""Embeddings in parts train as whole ones do, whatever the optimiser, the parts and their order."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

ROWS = 7
WHOLE = np.linspace(-1, 1, 2 * ROWS, dtype=np.float32).reshape(ROWS, 2)
STEPS = ([3, 6, 3], [0, 5, 2], [4, 4, 1], [6, 1, 3])  # row 0 of a part is not in all
OPTIMIZERS = {
    "sgd": lambda: tb.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tb.train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: tb.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: tb.train.AdagradOptimizer(0.1),
    "adadelta": lambda: tb.train.AdadeltaOptimizer(0.5, epsilon=1e-2),
    "rmsprop": lambda: tb.train.RMSPropOptimizer(0.1, momentum=0.9),
    "centered rmsprop": lambda: tb.train.RMSPropOptimizer(0.1, momentum=0.9, centered=True),
    "ftrl": lambda: tb.train.FtrlOptimizer(0.1, l1_regularization_strength=0.1),
    "adam": lambda: tb.train.AdamOptimizer(0.1),
    "adamw": lambda: tb.train.AdamWOptimizer(0.1),
    "decayed": lambda: tb.train.MomentumOptimizer(0.1, 0.9, weight_decay=0.1),
}


def rows_of(part, count, strategy):
    """The rows of the table that a part has."""
    if strategy == "mod":
        return np.arange(part, ROWS, count)
    return np.array_split(np.arange(ROWS), count)[part]


def parts_of(count, strategy):
    return [tb.Variable(WHOLE[rows_of(part, count, strategy)]) for part in range(count)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.usefixtures("reference_kernels")
def test_parts_train_as_the_whole(optimizer):
    tables = {(1, "div"): tb.Variable(WHOLE)}
    for count, strategy in ((2, "div"), (3, "div"), (2, "mod"), (3, "mod")):
        tables[count, strategy] = parts_of(count, strategy)
    ids = tb.placeholder(tb.int32, [3])
    losses = [
        tb.reduce_sum(tb.square(tb.nn.embedding_lookup(table, ids, strategy) - 0.5))
        for (_, strategy), table in tables.items()
    ]
    update = OPTIMIZERS[optimizer]().minimize(tb.add_n(losses))
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        for step in STEPS:
            session.run(update, {ids: step})
        expected, *others = session.run(list(tables.values()))
    assert abs(expected - WHOLE).max() > 0.01
    for (count, strategy), parts in zip(list(tables)[1:], others, strict=True):
        for number, part in enumerate(parts):
            np.testing.assert_allclose(part, expected[rows_of(number, count, strategy)], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("strategy", ["div", pytest.param("mod", marks=pytest.mark.slow)])
def test_gradients_of_parts(strategy):
    """Rows of other parts have the index -1, and are nothing in a dense gradient, a norm, an accumulator."""
    parts, whole = parts_of(3, strategy), tb.Variable(WHOLE)
    ids = np.array([[5, 6], [5, 1]])
    of_parts, of_whole = (
        tb.gradients(tb.reduce_sum(tb.nn.embedding_lookup(table, ids, strategy) ** 2), variables)
        for table, variables in ((parts, parts), (whole, [whole]))
    )
    sums = tb.SparseConditionalAccumulator(tb.float32, [3, 2])
    add = sums.apply_indexed_slices_grad(of_parts[0])
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        expected = session.run(tb.convert_to_tensor(of_whole[0]))
        for number, dense in enumerate(session.run([*map(tb.convert_to_tensor, of_parts)])):
            np.testing.assert_allclose(dense, expected[rows_of(number, 3, strategy)])
        assert -1 in session.run(of_parts[1].indices)
        norms = session.run([tb.global_norm(of_parts), tb.global_norm(of_whole)])
        np.testing.assert_allclose(*norms, rtol=1e-6)
        session.run(add)
        taken = session.run(tb.convert_to_tensor(sums.take_indexed_slices_grad(1)))
        np.testing.assert_allclose(taken, expected[rows_of(0, 3, strategy)])


@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize("strategy", ["div", "mod"])
@pytest.mark.parametrize("wrong", [-1, -2, 7])
def test_ids_beyond_the_table_are_refused(strategy, wrong):
    parts = parts_of(3, strategy)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        with pytest.raises(InvalidArgumentError, match=r"GatherV2.* is not in \["):
            session.run(tb.nn.embedding_lookup(parts, [2, wrong], strategy))
