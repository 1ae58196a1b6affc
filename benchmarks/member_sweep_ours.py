"""TensorBow's side of `member_sweep`: independent replicas, trained by a Replicator and by the engine."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from harness import MOMENTUM, Window, paced
from member_sweep_peers import BATCH_SIZE, CLASSES, HIDDEN, rates
from ours import made_up_data

import tensorbow as tb


def loss_of(images: Any, labels: Any) -> Any:
    """Mean cross-entropy of a batch."""
    hidden = tb.layers.dense(tb.reshape(images, [-1, 784]), HIDDEN, tb.nn.relu, name="hidden")
    logits = tb.layers.dense(hidden, CLASSES, name="logits")
    return tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def replicator_window(stack: ExitStack, members: int, steps_per_launch: int) -> Window:
    """Members with rates, seeds and orders of the examples of their own, by `Replicator.train`."""
    data = made_up_data("mlp")
    replicator = stack.enter_context(
        tb.MultiGpuReplicator(["/cpu:0"], members, sync="none", seeds=list(range(members)))
    )

    def step_fn(images: Any, labels: Any) -> Any:
        loss = loss_of(images, labels)
        rate = tb.per_replica(rates(members).tolist())
        optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(rate, MOMENTUM))
        return loss, optimizer.minimize(loss)

    def input_fn(replica_id: int) -> tb.DatasetBatches:
        return tb.DatasetBatches(data, BATCH_SIZE, replicas=1, seed=replica_id)

    with tb.Graph().as_default():
        training = replicator.train(step_fn, input_fn, steps_per_launch=steps_per_launch)
    stack.callback(training.close)
    losses: list[Any] = []

    def run(launches: int) -> None:
        losses[:] = [next(training)[0] for _ in range(launches * steps_per_launch)]

    return paced(run, members * steps_per_launch)


def engine_window(stack: ExitStack, members: int, steps_per_launch: int) -> Window:
    """Members that share one learning rate and one order of the examples, by `LearningEngine.run`.

    Native code makes the batches from the uint8 pictures.
    """
    data = made_up_data("mlp")
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        images = tb.placeholder(tb.float32, [None, *data.image_shape])
        labels = tb.placeholder(tb.int64, [None])
        loss = loss_of(images, labels)
        update = tb.train.MomentumOptimizer(float(rates(members)[0]), MOMENTUM).minimize(loss)
        program = tb.StepProgram((images, labels), loss, update)
    engine = stack.enter_context(
        tb.LearningEngine(
            program,
            BATCH_SIZE,
            ["/cpu:0"],
            members,
            tb.Synchronisation("none"),
            steps_per_launch=steps_per_launch,
        )
    )
    source = tb.DatasetBatches(data, BATCH_SIZE, members, seed=1, steps_per_launch=steps_per_launch)
    source.keep_on_devices(engine.learners)
    engine.initialize()
    losses: list[Any] = []

    def run(launches: int) -> None:
        losses.clear()
        rounds = range(engine.round, engine.round + launches * steps_per_launch)
        engine.run(source.open, rounds.start, rounds.stop, lambda results: losses.append(results.losses))

    return paced(run, members * steps_per_launch)
