"""Backup workers of a Replicator: results are of the replicas whose gradients counted (OSDI 2016, 4.4)."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensorbow as tb
from scheduler.workers.group import LoneWorker
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Kernel, KernelCall
from tensorbow.ops.definition import define_op

GATE = threading.Event()


def _wait(call: KernelCall) -> None:
    if call.inputs[1]:
        GATE.wait(60)
    np.copyto(call.outputs[0], call.inputs[0])


Gated = define_op(
    "TestGatedByEvent",
    spec=lambda inputs, attrs: inputs[0],
    gradient=lambda op, g: [g, None],
    inputs=("value", "waits"),
    kernel=Kernel(run=_wait),
    doc="The value, when the gate is open, or at once.",
)


def replicator_of(backup: int, **options: object) -> tb.MultiGpuReplicator:
    return tb.MultiGpuReplicator(["/cpu:0"], 3, backup=backup, **options)


def training(replicator: tb.MultiGpuReplicator, held: int):
    """(step_fn, input_fn): the loss is (w - x)^2 / 2 with x = 1, 2 or 3 by replica; one replica waits in its
    first step for the gate."""

    def input_fn(context):
        for number in range(1000):
            waits = context.replica_id == held and number == 0
            yield np.float32(context.replica_id + 1), np.bool_(waits)

    def step_fn(x, waits):
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.5))
        w = tb.get_variable("w", [], initializer="zeros")
        loss = tb.square(w - Gated(x, waits)) * 0.5
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(x)

    return step_fn, input_fn


def test_steps_do_not_wait_for_backups_and_results_are_of_those_that_counted():
    GATE.clear()
    replicator = replicator_of(1)
    assert replicator.synchronisation.sync == "ssgd"
    assert "backup 1" in repr(replicator)
    w = 0.0
    for number, taken in enumerate(replicator.train(*training(replicator, held=2), steps=30)):
        assert taken.shape == (2,)
        if number < 10:
            assert sorted(taken) == [1, 2]  # replica 2 waits
        if number == 9:
            w = 0.0
            for _ in range(10):
                w -= 0.5 * np.mean([w - 1, w - 2])
            GATE.set()
    assert abs(replicator.central_values()["w"] - 2) < 1
    assert w == pytest.approx(1.5, abs=0.01)


def test_what_does_not_go_with_backups_is_refused():
    with pytest.raises(InvalidArgumentError, match="backup: expected fewer than the 3 replicas, got 3"):
        replicator_of(3)
    with pytest.raises(InvalidArgumentError, match="backup: expected 0 with sync 'sma'"):
        replicator_of(1, sync="sma")
    replicator = replicator_of(1)
    step_fn, input_fn = training(replicator, held=-1)
    with tb.Graph().as_default(), pytest.raises(InvalidArgumentError, match="backup: expected 0 for run"):
        replicator.run(step_fn, input_fn)
    meeting = replicator_of(1)

    def meets(x, waits):
        return step_fn(x, waits), tb.all_sum(x)

    with pytest.raises(InvalidArgumentError, match="backup: expected 0 for a step with exchanges"):
        next(iter(meeting.train(meets, input_fn, 3)))


class OneOfTwo(LoneWorker):
    size = 2


def test_several_workers_refuse_first_come_and_say_what_has_it():
    said = "dispatch: expected 'round_robin' with several workers, whose .* got 'fcfs'; .*MultiGpuReplicator"
    with pytest.raises(InvalidArgumentError, match=said):
        tb.MultiWorkerReplicator(["/cpu:0"], 3, workers=OneOfTwo(), dispatch="fcfs")
