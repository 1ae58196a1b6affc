"""Two workers that choose one number of replicas together; the program of a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler.replicas import device_plans
from tensorbow.errors import AbortedError, ResourceExhaustedError

workers = tb.worker_group()
WINDOW_S, MOST = 0.02, 3
require_room = device_plans.DevicePlans.require_room


def batches(context: tb.InputContext) -> Iterator[Any]:
    own = np.random.default_rng(context.replica_id)
    for _ in range(2000):  # tuning begins anew where the input ends
        images = own.normal(size=(4, 6)).astype(np.float32)
        yield images, (images[:, 0] > 0).astype(np.int32)


def step_of(replicator: tb.Replicator) -> Any:
    def step_fn(images: Any, labels: Any) -> Any:
        optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9))
        logits = tb.layers.dense(images, 2, name="logits")
        loss = tb.losses.sparse_softmax_cross_entropy(labels, logits)
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    return step_fn


def tuned(**options: Any) -> tb.MultiWorkerReplicator:
    replicator = tb.MultiWorkerReplicator(["/cpu:0"], "auto")
    chosen = replicator.tune(
        step_of(replicator), batches, most=MOST, window_seconds=WINDOW_S, max_seconds=3.0, **options
    )
    assert replicator.replicas_per_device == (chosen,)
    assert workers.all_gather(chosen) == [chosen] * 2
    losses = [*replicator.train(step_of(replicator), batches, 20)]
    assert replicator.num_replicas == 2 * chosen
    assert all(loss.shape == (chosen,) and np.isfinite(loss).all() for loss in losses)
    assert len(losses) == 20
    return replicator


assert 1 <= tuned().replicas_per_device[0] <= MOST

# What does not fit on one worker fits on none.
tried = set()


def scarce(self: Any, replicas: int, *more: Any) -> None:
    tried.add(replicas)
    if workers.rank == 1 and replicas > 1:
        raise ResourceExhaustedError("no room, as the test asks")
    require_room(self, replicas, *more)


device_plans.DevicePlans.require_room = scarce  # type: ignore[method-assign]
assert tuned().replicas_per_device == (1,)
assert tried == {1, 2}, tried
device_plans.DevicePlans.require_room = require_room  # type: ignore[method-assign]

# An error of one worker's program ends the tuning of both, which may tune again.
replicator = tb.MultiWorkerReplicator(["/cpu:0"], "auto")


def failing(images: Any, labels: Any) -> Any:
    if workers.rank == 1:
        raise ValueError("of worker 1's program")
    return step_of(replicator)(images, labels)


def failing_input(context: tb.InputContext) -> Iterator[Any]:
    yield from (
        batch for _, batch in zip(range(5 if workers.rank == 1 else 2000), batches(context), strict=False)
    )
    raise ValueError("of worker 1's program")


for step, inputs in ((failing, batches), (step_of(replicator), failing_input)):
    with pytest.raises((ValueError, AbortedError), match="of worker 1's program"):
        replicator.tune(step, inputs, most=MOST, window_seconds=WINDOW_S)
assert replicator.replicas_per_device == (1,)
assert 1 <= replicator.tune(step_of(replicator), batches, most=2, window_seconds=WINDOW_S) <= 2
replicator.shutdown()
print(f"worker {workers.rank} is done", flush=True)
