"""Explanations of replicated steps: replicas, synchroniser, memory, calls, exchanges."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError


def step_of(repl):
    def step_fn(x):
        w = tb.get_variable("w", [3, 1])
        loss = tb.reduce_mean(tb.square(tb.matmul(x, w)))
        update = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9)).minimize(loss)
        return repl.all_reduce(loss, "mean"), update

    return step_fn


def explained(session, fetch):
    return str(session.explain(fetch))


@pytest.mark.slow
def test_the_inside_of_a_replicated_step():
    with (
        tb.Graph().as_default(),
        tb.Session() as session,
        tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], (2, 1), tau=2) as repl,
    ):
        loss, _ = repl.run(step_of(repl), lambda: np.ones((4, 3), np.float32))
        mean = tb.reduce_mean(loss)
        before = explained(session, mean)
        assert "replicas: 3 (2 on /cpu:0, 1 on /cpu:1)" in before
        assert "synchroniser: sma, averaging every 2 rounds, alpha 0.3333, mu 0" in before
        assert "call replicator.init(session) to see memory, kernel calls" in before
        repl.init(session)
        text = explained(session, mean)
        assert "replicas: 3 (2 on /cpu:0, 1 on /cpu:1)" in text
        assert re.search(
            r"memory on /cpu:0: [\d,]+ bytes of each replica; z and what replicas share [\d,]+ bytes", text
        )
        assert re.search(r"segment gradient: \d kernel calls of each replica", text)
        assert re.search(r"segment update, averaging 0: \d kernel calls? of each replica", text)
        assert re.search(r"segment update, averaging 0: mirrored: \d kernel calls? of each device", text)
        assert "exchange AllSum in gradient: exchange: float32[], 4 bytes of each replica" in text
        assert "averaging 0: exchange: float32[3], 12 bytes of each replica" in text
        assert "the part of a replica:" in text
        assert text.index("the part of a device:") < text.index(
            "Mean                     Mean\n      (slab+0@"
        )
        assert session.run(mean) > 0  # an explanation changes nothing
        summary, parts = repl._running.stepper.engine.explain(0).split("\n\n", 1)
        assert summary.splitlines()[0] == "replicas: 3 (2 on /cpu:0, 1 on /cpu:1)"
        assert "MatMul" in parts
        with pytest.raises(InvalidArgumentError, match="explain: expected number to be of one of 1 programs"):
            repl._running.stepper.engine.explain(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"sync": "ssgd"}, "ssgd, every round on the mean gradient"),
        ({"sync": "none"}, "none, replicas are independent"),
        ({"mu": 0.5, "alpha": 0.25}, "sma, averaging every round, alpha 0.25, mu 0.5"),
    ],
)
def test_the_synchroniser(options, expected):
    with (
        tb.Graph().as_default(),
        tb.Session() as session,
        tb.MultiGpuReplicator(["/cpu:0"], 2, **options) as repl,
    ):
        loss, _ = repl.run(step_of(repl), lambda: np.ones((4, 3), np.float32))
        repl.init(session)
        assert f"synchroniser: {expected}\n" in explained(session, loss)


def test_one_replica():
    with tb.Graph().as_default(), tb.Session() as session, tb.NonReplicator() as repl:
        total = repl.run(tb.reduce_sum, lambda: np.ones((4, 3), np.float32))
        repl.init(session)
        text = explained(session, total)
        assert "replicas: 1 (1 on /cpu:0)\n      synchroniser: none\n      mode: planned\n" in text
        assert "exchanges: none" in text


@pytest.mark.slow
def test_replicas_with_several_devices():
    with (
        tb.Graph().as_default(),
        tb.Session() as session,
        tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], 2, num_gpus_per_replica=2) as repl,
    ):

        def step_fn(x):
            with repl.logical_device(0):
                hidden = tb.matmul(x, tb.get_variable("w", [3, 4]))
            with repl.logical_device(1):
                loss = tb.reduce_mean(tb.square(tb.matmul(hidden, tb.get_variable("v", [4, 1]))))
            return loss, repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1)).minimize(loss)

        loss, _ = repl.run(step_fn, lambda: np.ones((4, 3), np.float32))
        repl.init(session)
        text = explained(session, loss)
        assert "replicas: 2 (2 on /cpu:0 and /cpu:1)" in text
        assert "memory on /cpu:0: " in text
        assert "memory on /cpu:1: " in text
        assert text.count("the part of a replica:") == 2
