"""Steps whose batches devices make from a data set that they keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tensorbow as tb
from scheduler import DatasetBatches
from tensorbow.data import ImageDataset, load_synthetic
from tensorbow.errors import InvalidArgumentError
from tensorbow.training import load_arrays
from tests.scheduler_rig.running import same_bits

STEPS, BATCH = 40, 6
train_set, _ = tb.data.load("digits")


class OwnFill(ImageDataset):
    """A data set that makes its batches in its own way, so that devices cannot."""

    def fill(self, *arguments, **named):
        super().fill(*arguments, **named)


own_fill = OwnFill(
    **{name: getattr(train_set, name) for name in ("name", "images", "labels", "classes", "mean", "std")}
)


def trained(input_fn, steps=STEPS, replicas=3, saves=None, restores=None, **options):
    """Losses, z, and whether a device makes the batches."""
    with tb.Graph().as_default():
        repl = tb.MultiGpuReplicator(["/cpu:0"], replicas)
        with repl.context():
            tb.set_random_seed(0)
            optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.02, 0.9))

        def step_fn(images, labels):
            loss = tb.models.get_model("logreg")(images, labels, training=True, classes=10).loss
            with tb.control_dependencies([optimizer.minimize(loss)]):
                return tb.identity(loss)

        with repl:
            loop = repl.train(step_fn, input_fn, None, **options)
            repl.init()
            kept = repl._running.stepper.engine.learners.replicas[0].data
            if restores is not None:
                repl.restore(restores)
            losses = [next(loop).tolist() for _ in range(steps)]
            if saves is not None:
                repl.save(saves)
            loop.close()
        return losses, repl.central_values(), kept is not None


def by_hand(batches, replicas=3):
    """The same batches, made by an engine's source on the host."""

    def input_fn(replica_id):
        for round in range(10_000):
            recipes = batches.recipes(range(round, round + 1))
            yield tb.data.BatchRecipe.of(recipes, 0, replica_id).arrays()

    return input_fn


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_batches_for_all_replicas_are_those_of_an_engine():
    batches = DatasetBatches(train_set, BATCH, 3, seed=5)
    expected, z, kept = trained(by_hand(batches))
    assert not kept
    for options in (
        {"steps_per_launch": 1},
        {},
        {"data_on_device": "never"},
        {"input_replication": tb.PER_WORKER, "data_on_device": "always"},
    ):
        losses, values, kept = trained(lambda: batches, **options)
        assert kept is (options.get("data_on_device") != "never")
        assert losses == expected
        assert same_bits(values, z)


@pytest.mark.slow
def test_each_replica_may_have_an_order_of_its_own():
    """Two epochs, so that orders change at different rounds of launches."""
    few = replace(train_set, images=train_set.images[:100], labels=train_set.labels[:100])
    sources = [DatasetBatches(few, BATCH, 1, seed) for seed in (8, 9, 8)]

    def by_replica(replica_id):
        for round in range(1000):
            yield tb.data.BatchRecipe.of(sources[replica_id].recipes(range(round, round + 1)), 0, 0).arrays()

    expected, z, _ = trained(by_replica)
    losses, values, kept = trained(lambda replica_id: sources[replica_id])
    assert kept
    assert losses == expected
    assert same_bits(values, z)


@pytest.mark.slow
def test_a_file_has_the_position_in_the_data(tmp_path):
    input_fn = lambda: DatasetBatches(train_set, BATCH, 3, seed=5)  # noqa: E731
    expected, z, _ = trained(input_fn)
    trained(input_fn, 23, saves=tmp_path / "state")
    assert load_arrays(tmp_path / "state")[1]["replicator"]["positions"] == [[23, 0]]
    losses, values, _ = trained(input_fn, STEPS - 23, restores=tmp_path / "state")
    assert losses == expected[23:]
    assert same_bits(values, z)


@pytest.mark.slow
def test_a_training_and_an_evaluation_in_a_session():
    """Devices keep the first of two data sets; each step counts its own batches."""
    test_set = replace(train_set, name="other")
    sources = {"train": (train_set, "auto"), "test": (test_set, "auto")}
    found = []
    for by_hand_too in (False, True):
        with tb.Graph().as_default(), tb.Session() as session, tb.MultiGpuReplicator(["/cpu:0"], 2) as repl:
            with repl.context():
                w = tb.Variable(np.zeros((784, 10), np.float32), name="w")
                optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))

            def loss_of(images, labels, w=w):
                logits = tb.matmul(tb.reshape(images, [-1, 784]), w)
                losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
                return tb.reduce_mean(losses)

            def train_fn(images, labels, optimizer=optimizer, loss_of=loss_of):
                loss = loss_of(images, labels)
                return loss, optimizer.minimize(loss)

            steps = []
            for step_fn, (data, when) in zip((train_fn, loss_of), sources.values(), strict=True):
                batches = DatasetBatches(data, BATCH, 2, seed=1)
                given = by_hand(batches) if by_hand_too else lambda batches=batches: batches
                steps.append(repl.run(step_fn, given, data_on_device=when))
            repl.init(session)
            assert by_hand_too or repl._running.stepper.engine.learners.replicas[0].data.dataset is train_set
            found.append([session.run(step)[0].tolist() for _ in range(5) for step in (steps[0], [steps[1]])])
            if not by_hand_too:
                images = tb.DatasetBatches(train_set, 9, 2, seed=1)
                more = repl.run(loss_of, lambda images=images: images)
                found.append(session.run(more).shape)
    assert found[0] == found[2]
    assert found[1] == (2,)


def test_what_is_refused():
    def refused(message, source, **options):
        with pytest.raises(InvalidArgumentError, match=message):
            trained(source, steps=1, **options)

    batches = DatasetBatches(train_set, BATCH, 3, seed=5)
    other, _ = load_synthetic()
    refused(
        "expected one for 2 replicas, or for one replica each, got 3; make it", lambda: batches, replicas=2
    )
    alone = DatasetBatches(train_set, BATCH, 1, seed=5)
    refused("one for 3 replicas, got 1; make", lambda: alone, input_replication=tb.PER_WORKER)
    refused("leave smaller_batch and input_split_fn out", lambda: batches, smaller_batch="pad")
    mixed = [DatasetBatches(train_set, size, 1, seed=5) for size in (BATCH, BATCH, 4)]
    refused("same data set and batch_size .* of 4 for replica 2", lambda replica_id: mixed[replica_id])
    mixed = [DatasetBatches(data, BATCH, 1, seed=5) for data in (train_set, other, other)]
    refused("same data set and batch_size .* for replica 1", lambda replica_id: mixed[replica_id])
    refused(r"input_fn gave the data set 'digits/train'.*give tb.DatasetBatches", lambda: train_set)
    refused("expected data_on_device to be", lambda: batches, data_on_device="sometimes")
    by_itself = DatasetBatches(own_fill, BATCH, 3, seed=5)
    refused("data_on_device: .* in its own way; choose", lambda: by_itself, data_on_device="always")
    losses, _, kept = trained(lambda: by_itself, steps=2)
    assert not kept
    assert losses == trained(by_hand(by_itself), steps=2)[0]


def test_always_for_two_data_sets_is_refused():
    other = replace(train_set, name="other")
    with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 1) as repl:
        for data in (train_set, other):
            batches = DatasetBatches(data, BATCH, 1, seed=5)
            repl.run(lambda x, y: tb.reduce_sum(x), lambda b=batches: b, data_on_device="always")
        with pytest.raises(InvalidArgumentError, match="expected one data set for all steps"):
            repl.init()


@pytest.mark.slow
def test_replicas_of_several_devices_get_batches_of_the_host():
    found = []
    for devices, more in ((["/cpu:0", "/cpu:1"], {"num_gpus_per_replica": 2}), (["/cpu:0"], {})):
        for when in ("auto", "always") if more else ("auto",):
            with tb.Graph().as_default(), tb.MultiGpuReplicator(devices, 2, "sma", **more) as repl:
                with repl.context():
                    tb.set_random_seed(0)
                    w = tb.Variable(np.zeros((784, 10), np.float32), name="w")
                    optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))

                def step_fn(images, labels, w=w, optimizer=optimizer):
                    logits = tb.matmul(tb.reshape(images, [-1, 784]), w)
                    losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
                    loss = tb.reduce_mean(losses)
                    with tb.control_dependencies([optimizer.minimize(loss)]):
                        return tb.identity(loss)

                batches = DatasetBatches(train_set, BATCH, 2, seed=1)
                loop = repl.train(step_fn, lambda b=batches: b, 5, data_on_device=when)
                if when == "always":
                    with pytest.raises(InvalidArgumentError, match="replicas with several devices each"):
                        next(loop)
                else:
                    found.append([each.tolist() for each in loop])
    assert found[0] == found[1]
