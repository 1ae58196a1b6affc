"""A `MultiWorkerReplicator` of three workers with a backup, one of which is held up; the program of a test.

Argument: a folder that all of them see.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import AbortedError
from tensorbow.graph import Kernel, KernelCall
from tensorbow.ops.definition import define_op

FOLDER = Path(sys.argv[1])
PATIENCE_S = 60
workers = tb.worker_group()
RANK, WORKERS = workers.rank, workers.size
LATE, SEEN = WORKERS - 1, 5  # this worker's first gradient waits until worker 0 computes that of round 5


def _wait(call: KernelCall) -> None:
    case, number = int(call.inputs[1][0]), int(call.inputs[1][1])
    gate = FOLDER / f"gate{case}"
    if RANK == 0 and number == SEEN:
        gate.touch()
    ends = time.monotonic() + PATIENCE_S
    while RANK == LATE and number == 0 and not gate.exists():
        assert time.monotonic() < ends
        time.sleep(1e-3)
    np.copyto(call.outputs[0], call.inputs[0])


Gated = define_op(
    "TestGatedByFile",
    spec=lambda inputs, attrs: inputs[0],
    gradient=lambda op, g: [g, None],
    inputs=("value", "about"),
    kernel=Kernel(run=_wait),
    doc="The value, when there is a file.",
)


def training(case: int, steps: Callable[[int], int]) -> tuple[tb.Replicator, Any, Any]:
    """A replicator, its step_fn and its input_fn: the loss is (w - x)^2 / 2, and x the replica's number.

    steps: for how many rounds a worker has inputs.
    """
    replicator = tb.MultiWorkerReplicator(["/cpu:0"], 1, backup=1)

    def input_fn(context: tb.InputContext) -> Iterator[Any]:
        for number in range(steps(context.worker_id)):
            yield np.float32(context.replica_id), np.int32([case, number])
        if RANK == 1 and case == 3:
            raise OSError("the disk is gone")

    def step_fn(x: Any, about: Any) -> Any:
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.5))
        w = tb.get_variable("w", [], initializer="zeros")
        with tb.control_dependencies([optimizer.minimize(tb.square(w - Gated(x, about)) * 0.5)]):
            return {"x": tb.identity(x), "row": tb.fill([2], x)}

    return replicator, step_fn, input_fn


def members_of(told: list[list[float]]) -> list[list[float]]:
    """The numbers of the replicas that counted in each round, of all workers."""
    every = workers.all_gather(told)
    return [sorted(x for own in of_round for x in own) for of_round in zip(*every, strict=True)]


def expected(members: list[list[float]]) -> float:
    w = 0.0
    for xs in members:
        w -= 0.5 * float(np.mean([w - x for x in xs]))
    return w


def steps_do_not_wait_for_the_late_one() -> None:
    replicator, step_fn, input_fn = training(1, lambda worker: 1000)
    assert replicator.synchronisation.sync == "ssgd"
    told, central = [], {}
    for number, results in enumerate(replicator.train(step_fn, input_fn, steps=40), 1):
        assert results["row"].shape == (len(results["x"]), 2)
        told.append(results["x"].tolist())
        if number == 20:
            central = replicator.central_values()
    members = members_of(told)
    assert len(members) == 40
    assert all(len({*each}) == WORKERS - 1 for each in members), members
    assert all(LATE not in each for each in members[:SEEN]), members
    np.testing.assert_allclose(replicator.central_values()["w"], expected(members), rtol=1e-5)
    ends = [expected(members[:end]) for end in range(20, 41)]  # the replicas may be ahead
    assert min(abs(float(central["w"]) - each) for each in ends) < 1e-5
    assert len({*workers.all_gather(central["w"].tobytes())}) == 1


def the_end_of_one_input_ends_all() -> None:
    replicator, step_fn, input_fn = training(2, lambda worker: 21 if worker == 1 else 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        members = members_of([each["x"].tolist() for each in replicator.train(step_fn, input_fn)])
    assert len(members) == 21
    np.testing.assert_allclose(replicator.central_values()["w"], expected(members), rtol=1e-5)


def a_failure_of_one_ends_all() -> None:
    replicator, step_fn, input_fn = training(3, lambda worker: 20 if worker == 1 else 1000)
    told = []

    def train() -> None:
        for results in replicator.train(step_fn, input_fn):
            told.append(results["x"].tolist())

    with pytest.raises(AbortedError, match="the disk is gone") as failed:
        train()
    assert RANK == 1 or "worker 1" in str(failed.value), failed.value
    assert len(members_of(told)) == 20


steps_do_not_wait_for_the_late_one()
the_end_of_one_input_ends_all()
a_failure_of_one_ends_all()
print(f"worker {RANK} is done")
