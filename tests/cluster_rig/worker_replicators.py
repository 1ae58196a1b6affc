"""A `MultiWorkerReplicator` of two workers beside one process with as many replicas; the program of a test.

Arguments: a folder for checkpoints, and which cases: some or all.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler.workers.group import LoneWorker
from tensorbow.errors import AbortedError, InvalidArgumentError

FOLDER, CASES = Path(sys.argv[1]), sys.argv[2]
workers = tb.worker_group()
tb.set_random_seed(5)
RANK, PER_WORKER, REPLICAS = workers.rank, 2, 4
rng = np.random.default_rng(1)
IMAGES, LABELS = rng.normal(size=(64, 6)).astype(np.float32), rng.integers(0, 3, 64)


def replicator_of(alone: bool, **options: Any) -> tb.Replicator:
    if alone:
        return tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], 2, **options)
    return tb.MultiWorkerReplicator(["/cpu:0"], PER_WORKER, **options)


def step_of(replicator: tb.Replicator) -> Any:
    with replicator.context():
        optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9))

    def step_fn(images: Any, labels: Any) -> dict[str, Any]:
        hidden = tb.layers.dense(images, 5, activation=tb.nn.relu, name="hidden")
        logits = tb.layers.dense(hidden, 10, name="logits")
        loss = tb.losses.sparse_softmax_cross_entropy(labels, logits)
        total = tb.all_reduce(loss, "sum")
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return {"loss": tb.identity(loss), "total": total, "id": tb.identity(tb.replica_id())}

    return step_fn


def by_replica(context: tb.InputContext) -> Iterator[Any]:
    assert context.num_replicas == context.num_input_pipelines == REPLICAS, context
    own = np.random.default_rng(context.replica_id)
    while True:
        rows = own.integers(0, 64, 4)
        yield IMAGES[rows], LABELS[rows]


def by_worker(context: tb.InputContext) -> Iterator[Any]:
    """Rows of all replicas, of which a worker gives its own."""
    own = np.random.default_rng(7)
    while True:
        rows = own.integers(0, 64, 4 * REPLICAS).reshape(context.num_workers, -1)[context.worker_id]
        yield IMAGES[rows], LABELS[rows]


def of_dataset() -> tb.DatasetBatches:
    return tb.DatasetBatches(tb.data.load("digits")[0], batch_size=4, replicas=REPLICAS, seed=3)


def trained(alone: bool, input_fn: Any, steps: int = 30, **more: Any) -> tuple[list[Any], dict[str, Any]]:
    replication = more.pop("replication", tb.PER_REPLICA)
    replicator = replicator_of(alone, **more)
    step_fn = step_of(replicator)
    if input_fn is of_dataset:
        inner = step_fn

        def step_fn(images: Any, labels: Any) -> Any:
            return inner(tb.reshape(images, [4, 784]), labels)

    results = [*replicator.train(step_fn, input_fn, steps, replication)]
    return results, replicator.central_values()


def is_near(one: Any, other: Any, what: str) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6, err_msg=what)


def equals_one_process() -> None:
    cases: list[tuple[Any, dict[str, Any]]] = [
        (by_replica, {"sync": "sma", "tau": 2}),
        (by_worker, {"replication": tb.PER_WORKER, "sync": "ssgd"}),
        (of_dataset, {}),
    ]
    steps = 30 if CASES == "all" else 6
    for input_fn, options in cases if CASES == "all" else cases[:1]:
        results, z = trained(False, input_fn, steps, **options)
        expected, expected_z = trained(True, input_fn, steps, **options)
        assert len(results) == len(expected) == steps
        for ours, theirs in zip(results, expected, strict=True):
            assert ours["id"].tolist() == [2 * RANK, 2 * RANK + 1]
            is_near(ours["loss"], theirs["loss"][2 * RANK : 2 * RANK + 2], input_fn.__name__)
            is_near(ours["total"], theirs["total"][:2], input_fn.__name__)
        for name, value in z.items():
            is_near(value, expected_z[name], name)


def saves_and_goes_on() -> None:
    """One file has all replicas; a Replicator of one process goes on from it, too."""
    path, rest = FOLDER / "state", []
    replicator = replicator_of(False, sync="sma")
    for number, results in enumerate(replicator.train(step_of(replicator), by_replica, 8), 1):
        if number == 5:
            assert replicator.save(path) == 5
        elif number > 5:
            rest.append(results["loss"])
    again = replicator_of(False, sync="sma")
    step = again.run(step_of(again), by_replica)
    with tb.Session() as session:
        again.init(session)
        assert again.restore(path) == 5
        assert [session.run(step["loss"]).tolist() for _ in rest] == [each.tolist() for each in rest]
        again.shutdown()
    workers.barrier()


def ends_of_inputs_are_told() -> None:
    def ends(context: tb.InputContext) -> Iterator[Any]:
        for _ in range(6 if context.worker_id else 20):
            yield IMAGES[:4], LABELS[:4]

    replicator = replicator_of(False, sync="sma")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len([*replicator.train(step_of(replicator), ends)]) == 6
    told = [str(each.message) for each in caught]
    assert any("all replicas end with the first" in each for each in told), told
    assert RANK == 1 or any("worker 1" in each for each in told), told

    def fails(context: tb.InputContext) -> Iterator[Any]:
        yield IMAGES[:4], LABELS[:4]
        if context.worker_id == 0:
            raise OSError("the disk is gone")
        while True:
            yield IMAGES[:4], LABELS[:4]

    replicator = replicator_of(False, sync="sma")
    warnings.simplefilter("ignore")  # of equal batches
    with pytest.raises(AbortedError, match="the disk is gone") as failed:
        list(replicator.train(step_of(replicator), fails))
    assert RANK == 0 or "worker 0" in str(failed.value), failed.value


def sessions_train_together() -> None:
    """Each worker feeds its half of a global batch; z is that of one process, which is fed all of it."""
    seeded, found = np.random.default_rng(2), []
    batches = [seeded.integers(0, 64, 4 * REPLICAS) for _ in range(6)]
    for alone in (False, True):
        with tb.Graph().as_default():
            tb.set_random_seed(5 if alone or RANK == 0 else 6)  # the initial values are worker 0's
            x = tb.placeholder(tb.float32, [None, 6])
            labels = tb.placeholder(tb.int64, [None])
            logits = tb.layers.dense(x, 10, name="logits")
            loss = tb.losses.sparse_softmax_cross_entropy(labels, logits)
            update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
            devices = ["/cpu:0", "/cpu:1"] if alone else ["/cpu:0"]
            more = {"workers": LoneWorker()} if alone else {}
            with tb.Session("tensorbow", devices=devices, replicas_per_device=PER_WORKER, **more) as session:
                session.run(tb.global_variables_initializer())
                for rows in batches:
                    own = rows if alone else np.split(rows, workers.size)[RANK]
                    result, _ = session.run([logits, update], {x: IMAGES[own], labels: LABELS[own]})
                    assert result.shape == (len(own), 10)
                found.append(session.run(tb.trainable_variables()))
    for ours, theirs in zip(*found, strict=True):
        is_near(ours, theirs, "a session")
    with pytest.raises(InvalidArgumentError, match="expected a number with 2 workers, got 'auto'"):
        tb.Session("tensorbow", replicas_per_device="auto")


def differences_are_told() -> None:
    replicator = replicator_of(False, sync="sma")
    with replicator.context():
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))

    def step_fn(images: Any, labels: Any) -> Any:
        loss = tb.reduce_mean(tb.layers.dense(images, 3))
        ways = [tb.all_sum, tb.all_gather]
        joined = [each(loss) for each in (ways if RANK == 0 else reversed(ways))]
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return [tb.identity(each) for each in joined]

    replicator.run(step_fn, by_replica)
    with pytest.raises(
        InvalidArgumentError, match=r"worker 0 of 2.* has .*AllSum.* worker 1 of 2.* has .*AllGather"
    ):
        replicator.init()


def different_numbers_choose_one_synchroniser() -> None:
    for counts, sync in (((1, 1), "ssgd"), ((1, 2), "sma"), ((2, 1), "sma")):
        replicator = tb.MultiWorkerReplicator(["/cpu:0"], counts[RANK])
        assert (replicator.synchronisation.sync, replicator.num_replicas) == (sync, sum(counts))


equals_one_process()
different_numbers_choose_one_synchroniser()
saves_and_goes_on()
if CASES == "all":
    ends_of_inputs_are_told()
    sessions_train_together()
differences_are_told()
print(f"worker {RANK} is done")
