"""`member_sweep`: the order of the peers' examples, the best peer, and the bound of a step's products."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest


def test_a_member_sees_every_example_once_in_an_epoch_in_its_own_order() -> None:
    from member_sweep_peers import BATCH_SIZE, Orders

    both, second = Orders(96, 3, 2), Orders(96, 4, 1)
    parts = [both.next(steps) for steps in (2, 3, 1, 6)]
    assert [part.shape for part in parts] == [(steps, 2, BATCH_SIZE) for steps in (2, 3, 1, 6)]
    rows = np.concatenate(parts).swapaxes(0, 1).reshape(2, 2, 96)  # member, epoch, example
    assert (np.sort(rows) == np.arange(96)).all()
    assert len({order.tobytes() for order in rows.reshape(4, 96)}) == 4
    assert (second.next(12).ravel() == rows[1].ravel()).all()


def test_the_best_peer_of_each_kind() -> None:
    from harness import Measured
    from member_sweep import ENGINE, best_peers

    rates = {
        ENGINE: 9.0,
        "PyTorch vmap": 2.0,
        "PyTorch sequential": 3.0,
        "JAX vmap": 4.0,
        "JAX sequential": 5.0,
    }
    measured = {name: Measured([rate]) for name, rate in rates.items()}
    assert best_peers(measured) == {
        "of all": "JAX sequential",
        "of PyTorch": "PyTorch sequential",
        "of JAX": "JAX sequential",
        "with vmap": "JAX vmap",
    }
    assert best_peers({ENGINE: Measured([9.0])}) == {}


def test_operations_are_those_of_the_products_of_a_step() -> None:
    """Two of the first layer, whose inputs need no gradient, and three of the second."""
    from member_sweep import OPERATIONS

    import tensorbow as tb
    from tensorbow.compiler.placement import flops_of

    with tb.Graph().as_default():
        hidden = tb.layers.dense(tb.placeholder(tb.float32, [16, 784]), 128, tb.nn.relu)
        labels = tb.placeholder(tb.int64, [16])
        loss = tb.losses.sparse_softmax_cross_entropy(labels, tb.layers.dense(hidden, 10))
        needed = {gradient.op for gradient in tb.gradients(loss, tb.trainable_variables())}
    waiting = [*needed]
    while waiting:
        further = {end.op for end in waiting.pop().inputs} - needed
        needed |= further
        waiting += further
    products = [op for op in needed if op.type == "MatMul"]
    assert len(products) == 5
    shapes = [[[end.shape.as_list() for end in ends] for ends in (op.inputs, op.outputs)] for op in products]
    found = [flops_of("MatMul", op.attrs, *each) for op, each in zip(products, shapes, strict=True)]
    assert sum(found) == OPERATIONS


@pytest.mark.parametrize(
    ("operations_per_second", "said"),
    [
        (None, None),
        (2.0, "more than 2.00 times as fast as the best peer: 5 times is out of reach."),
        (6.0, "best peer."),
    ],
)
def test_a_target_beyond_the_products_is_out_of_reach(
    operations_per_second: float | None, said: str | None
) -> None:
    """The best peer makes one step a second."""
    from harness import cores
    from member_sweep import ENGINE, OPERATIONS, PRODUCTS, REPLICATOR, table

    of_core = operations_per_second and operations_per_second * OPERATIONS / cores()
    rates = {ENGINE: 1.5, REPLICATOR: 1.25, "JAX vmap": 1.0}
    details = {
        "member_steps_per_second": {name: {"median": rate} for name, rate in rates.items()},
        "best_peers": {"of all": "JAX vmap"},
        "peak_of_a_core": of_core,
        "left_out": {},
    }
    made = table(details, Namespace(windows=1, seconds=1.0))
    assert [row[3:] for row in made.rows if row[0] == ENGINE] == [[1.5, "missed"]]
    if said is None:
        assert PRODUCTS not in [row[0] for row in made.rows]
        assert len(made.remarks) == 2
    else:
        assert [row[3:] for row in made.rows if row[0] == PRODUCTS] == [[operations_per_second, None]]
        assert made.remarks[-1].endswith(said)
