"""The end of a replicator's input, batches without examples, and how replicators show themselves."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

ONES = np.ones(2, np.float32)


@pytest.fixture(autouse=True)
def own_graph():
    with tb.Graph().as_default():
        yield


@pytest.fixture
def repl():
    with tb.MultiGpuReplicator(["/cpu:0"], 2) as replicator:
        yield replicator


def test_empty_batches(repl):
    """Their mean loss would be NaN, with gradients of zero."""
    empty, full = np.ones((0, 3), np.float32), np.ones((2, 3), np.float32)
    message = r"inputs\['x'\] of replica 0, batch 0: expected at least one example, got float32\[0, 3\]"
    for replication in (tb.PER_REPLICA, tb.PER_WORKER):
        with pytest.raises(InvalidArgumentError, match=message):
            repl.run(lambda i: i["x"], lambda: {"x": empty}, replication)
    with pytest.raises(InvalidArgumentError, match=r"inputs\[1\] of replica 0.* got int64\[0\]"):
        repl.run(lambda x, y: x, lambda: iter([(full, np.ones(0, np.int64))]))
    with pytest.raises(InvalidArgumentError, match=r"of replica 1, batch 0: expected float32\[2, 3\]"):
        repl.run(lambda x: x, lambda replica_id: iter([empty if replica_id else full]))
    assert repl.run(lambda x: x, lambda: np.ones((2, 0), np.float32)).shape == [2, 2, 0]


def test_input_that_ends_before_the_steps(repl):
    def step(x):
        return tb.reduce_sum(x)

    with pytest.warns(
        UserWarning, match="train: 2 of 5 steps: the input of replica 0 has ended after 2"
    ) as told:
        assert len(list(repl.train(step, lambda: iter([ONES] * 2), 5))) == 2
    assert (len(told), told[0].filename) == (1, __file__)
    assert len(list(repl.train(step, lambda: iter([ONES] * 2), 2))) == 2
    assert len(list(repl.train(step, lambda: iter([ONES] * 2)))) == 2


def test_what_a_replicator_looks_like(repl):
    assert repr(repl) == "<tb.MultiGpuReplicator 2 on /cpu:0; sync sma>"
    with tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], (1, 2), "ssgd") as several:
        assert repr(several) == "<tb.MultiGpuReplicator 1 on /cpu:0, 2 on /cpu:1; sync ssgd>"
