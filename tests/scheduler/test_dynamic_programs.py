"""Programs with ops of the host beside replicas: sessions, Replicators, trainers and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import TrainedModel
from tensorbow.errors import InvalidArgumentError
from tests.scheduler_rig.running import same_bits

RNG = np.random.default_rng(7)
X = RNG.normal(size=(48, 5)).astype(np.float32)
Y = (X @ RNG.normal(size=(5, 1))).astype(np.float32)


def loss_of(x: Any, y: Any) -> Any:
    """Mean error over the examples whose label is above -0.5."""
    w = tb.get_variable("w", [5, 1], initializer=tb.constant_initializer(0.1))
    return tb.reduce_mean(tb.boolean_mask(tb.square(tb.matmul(x, w) - y), tb.squeeze(y, [1]) > -0.5))


def by_hand(batches: list[list[np.ndarray]], rounds: int) -> list[list[float]]:
    """Losses of two replicas by SMA, in float64; batches: positions in the data, by round and replica."""
    z, weights, losses = np.full((5, 1), 0.1), [np.full((5, 1), 0.1)] * 2, []
    for round in range(rounds):
        gradients, found = [], []
        for replica, w in enumerate(weights):
            rows = batches[round][replica]
            kept = rows[Y[rows, 0] > -0.5]
            errors = X[kept] @ w - Y[kept]
            found.append(float(np.mean(errors**2)))
            gradients.append(2 * X[kept].T @ errors / len(kept))
        corrections = [0.5 * (w - z) for w in weights]
        weights = [w - 0.1 * g - c for w, g, c in zip(weights, gradients, corrections, strict=True)]
        z = z + sum(corrections)
        losses.append(found)
    return losses


def test_a_session_of_replicas_trains_and_evaluates_a_masked_loss() -> None:
    batches = [np.split(np.arange(48)[8 * n : 8 * n + 8], 2) for n in range(3)]
    with tb.Graph().as_default():
        x, y = tb.placeholder(tb.float32, [None, 5]), tb.placeholder(tb.float32, [None, 1])
        loss = loss_of(x, y)
        seen = tb.Variable(0, trainable=False, name="seen")
        count = tb.assign_add(seen, tb.cast(tb.size(tb.where(y > -0.5)), tb.int32) // 2)
        train = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tb.TensorBowSession(replicas_per_device=2) as session:
            session.run(tb.global_variables_initializer())
            for round, losses in enumerate(by_hand(batches, 3)):
                rows = np.concatenate(batches[round])
                found = session.run([loss, train], {x: X[rows], y: Y[rows]})[0]
                assert found == pytest.approx(np.mean(losses), rel=1e-5)
            text = str(session.explain([loss, train], {x: X[:8], y: Y[:8]}))
            assert "why: Where boolean_mask/Where is control flow or an op of the host (made at" in text
            assert "the dynamic part of a replica:" in text
            (weights,) = (session.run(v) for v in tb.trainable_variables())
            kept = Y[:, 0] > -0.5
            expected = np.mean((X[kept] @ weights - Y[kept]) ** 2)
            assert session.run(loss, {x: X, y: Y}) == pytest.approx(expected, rel=1e-5)
            session.run(count, {x: X, y: Y})  # writes z and every replica, in the dynamic mode
            assert [int(session.replica_values(index)["seen"]) for index in range(2)] == [kept.sum()] * 2


def test_replicas_of_a_session_take_batches_from_its_queue() -> None:
    """The pipeline of a program for one device: a queue that a thread fills, and a step that dequeues."""
    with tb.Graph().as_default():
        queue = tb.FIFOQueue(16, [tb.float32, tb.float32], shapes=[[5], [1]])
        put = queue.enqueue_many([tb.constant(X), tb.constant(Y)])
        tb.train.add_queue_runner(tb.train.QueueRunner(queue, [put]))
        x, y = queue.dequeue_many(4)
        loss = loss_of(x, y)
        train = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tb.TensorBowSession(replicas_per_device=2) as session:
            session.run(tb.global_variables_initializer())
            coordinator = tb.train.Coordinator()
            threads = tb.train.start_queue_runners(session, coordinator)
            found = [session.run([loss, train])[0] for _ in range(4)]
            coordinator.request_stop()
            session.run(queue.close(cancel_pending_enqueues=True))
            coordinator.join(threads)
    batches = [np.split(np.arange(48)[8 * n : 8 * n + 8], 2) for n in range(4)]
    np.testing.assert_allclose(found, np.mean(by_hand(batches, 4), 1), rtol=1e-5)


def test_threads_fill_queues_while_the_replicas_of_a_session_wait_for_them() -> None:
    """Two stages, of which one counts epochs in a variable; the end of the data ends the run."""
    with tb.Graph().as_default():
        row = tb.train.slice_input_producer([X, Y], num_epochs=2, shuffle=False, capacity=1)
        loss = loss_of(*tb.train.batch(row, 4, capacity=4))
        train = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tb.TensorBowSession(replicas_per_device=2) as session:
            session.run([tb.global_variables_initializer(), tb.local_variables_initializer()])
            coordinator, steps = tb.train.Coordinator(), 0
            threads = tb.train.start_queue_runners(session, coordinator)
            with coordinator.stop_on_exception():
                while not coordinator.should_stop():
                    session.run(train)
                    steps += 1
            coordinator.join(threads)
    assert steps == 2 * len(X) // 8


@pytest.mark.parametrize("devices", [["/cpu:0"], ["/cpu:0", "/cpu:1"]])
def test_a_replicator_has_masks_and_functions_in_its_step(devices: list[str]) -> None:
    def step_fn(batch: Any) -> Any:
        loss = loss_of(*batch)
        doubled = tb.py_func(lambda loss: 2 * loss, [loss], tb.float32, stateful=False)
        doubled.set_shape([])
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
        return loss, doubled, tb.all_sum(loss) / 2.0, optimizer.minimize(loss)

    batches = [[np.arange(4) + 8 * n + 4 * replica for replica in range(2)] for n in range(3)]

    def input_fn(replica_id: int) -> Any:
        for round in batches:
            yield X[round[replica_id]], Y[round[replica_id]]

    expected = by_hand(batches, 3)
    with tb.Graph().as_default(), tb.MultiGpuReplicator(devices, 2 // len(devices), sync="sma") as replicator:
        step = replicator.run(step_fn, input_fn)
        with tb.Session() as session:
            replicator.init(session)
            for losses in expected:
                loss, doubled, mean, _ = session.run(step)
                np.testing.assert_allclose(loss, losses, rtol=1e-5)
                np.testing.assert_array_equal(doubled, 2 * loss)
                np.testing.assert_allclose(mean, [np.mean(losses)] * 2, rtol=1e-5)
            assert "mode: dynamic: the forward and backward pass" in str(session.explain(step))
    with tb.Graph().as_default(), tb.MultiGpuReplicator(devices, 2 // len(devices), sync="sma") as replicator:
        found = [result[0] for result in replicator.train(step_fn, input_fn)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def over_parts(replicator: Any, parts: range) -> Any:
    """A step with a loop of as many iterations as its batch asks for, a mask, and a function of the host.

    parts: of a replica; the loop's body is in the last one.
    """

    def part(index: int) -> Any:
        return replicator.logical_device(parts[index])

    def step_fn(batch: Any) -> Any:
        x, y, count = batch
        hidden = tb.layers.dense(x, 3, name="first")

        def body(i: Any, state: Any) -> Any:
            with part(-1):
                return i + 1, tb.tanh(tb.layers.dense(state, 3, name="again", reuse=tb.AUTO_REUSE))

        with part(-1):
            tb.layers.dense(hidden, 3, name="again")
        hidden = tb.while_loop(lambda i, state: i < count, body, [0, hidden])[1]
        with part(-1):
            errors = tb.boolean_mask(tb.square(tb.layers.dense(hidden, 1, name="last") - y), y[:, 0] > -0.5)
            factors = tb.py_func(lambda errors: np.minimum(errors, 1), [errors], tb.float32, stateful=False)
            loss = tb.reduce_mean(errors * factors)
        loss.set_shape([])
        optimizer = replicator.wrap_optimizer(tb.train.AdamOptimizer(0.02))
        return loss, tb.all_sum(loss), optimizer.minimize(loss)

    return step_fn


@pytest.mark.parametrize("sync", ["sma", "ssgd"])
@pytest.mark.sampled(1)
def test_replicas_of_several_devices_have_the_bits_of_one_and_go_on_from_a_file(
    sync: str, tmp_path: Path
) -> None:
    def input_fn(replica_id: int) -> Any:
        for n in range(replica_id, 40, 2):
            yield X[n : n + 8], Y[n : n + 8], np.int32(n % 4)

    devices = [f"/cpu:{index}" for index in range(4)]
    found = []
    for split, first, last in ((False, 0, 6), (True, 0, 6), (True, 3, 6)):
        with tb.Graph().as_default(), tb.Session() as session:
            tb.set_random_seed(2)
            per = 2 if split else 1
            replicator = tb.MultiGpuReplicator(devices[:: 2 // per], num_gpus_per_replica=per, sync=sync)
            with replicator:
                step = replicator.run(over_parts(replicator, range(per)), input_fn)
                replicator.init(session)
                if first:
                    replicator.restore(tmp_path / "state")
                losses = []
                for number in range(first, last):
                    if split and not first and number == 3:
                        replicator.save(tmp_path / "state")
                    losses.append(session.run(step)[0])
                found.append((losses, [replicator.replica_values(n, slots=True) for n in range(2)]))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][0][3:], found[2][0])
    for other in found[1:]:
        for own, theirs in zip(found[0][1], other[1], strict=True):
            assert same_bits(own, theirs)


def model(inputs: Any, labels: Any, training: bool) -> Any:
    """A model whose loss leaves examples out, and has a function of Python while it trains."""
    outputs = tb.layers.dense(tb.layers.dense(inputs, 4, activation=tb.tanh), 1)
    errors = tb.boolean_mask(tb.square(outputs - labels), tb.squeeze(labels, [1]) < 2.0)
    if training:
        weights = tb.py_func(lambda errors: np.minimum(errors, 1), [errors], tb.float32, stateful=False)
        weights.set_shape([None, 1])
        errors *= tb.stop_gradient(weights)
    return tb.reduce_mean(errors), outputs


def trained(**options: Any) -> Any:
    data = tb.data.ArrayDataset(X, Y)
    return tb.fit(model, data, batch_size=4, replicas_per_device=2, learning_rate=0.05, **options)


def test_a_users_model_is_fitted_resumed_and_used(tmp_path: Path) -> None:
    trained(epochs=1, output=str(tmp_path))
    resumed = trained(epochs=2, output=str(tmp_path), resume="auto")
    whole = trained(epochs=2)
    assert resumed.result.metrics == whole.result.metrics
    with TrainedModel(tmp_path) as found:
        assert found.predict(X[:2]).shape == (2, 1)


class Rounds(tb.Callback):
    """Keeps what a run tells of its rounds."""

    def __init__(self) -> None:
        self.told: list[tuple[int, float, int]] = []

    def on_round(self, run: Any, report: Any) -> None:
        self.told.append((report.round, sum(report.losses), run.round))


def test_rounds_of_a_launch_change_no_result_of_a_run_and_are_told_in_order() -> None:
    one, several = Rounds(), Rounds()
    runs = [
        trained(epochs=2, steps_per_launch=steps, callbacks=[each])
        for steps, each in ((1, one), (4, several))
    ]
    assert runs[0].result.metrics == runs[1].result.metrics
    assert [told[:2] for told in one.told] == [told[:2] for told in several.told]
    assert [told[2] for told in several.told][:8] == [4] * 4 + [8] * 4


def masked_step(replicator: Any, stateful: bool) -> Any:
    def step_fn(batch: Any) -> Any:
        loss = loss_of(*batch)
        seen = tb.py_func(lambda loss: loss, [loss], tb.float32, stateful=stateful, name="seen")
        seen.set_shape([])
        return seen, replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1)).minimize(loss)

    return step_fn


def rows_of(replica_id: int) -> Any:
    for n in range(6):
        rows = np.arange(4) + 8 * n + 4 * replica_id
        yield X[rows], Y[rows]


def test_a_replicator_launches_several_dynamic_rounds_where_it_may_do_them_again() -> None:
    found = []
    for steps in (1, 3):
        with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2, sync="sma") as replicator:
            losses = []
            for number, (loss, _) in enumerate(
                replicator.train(masked_step(replicator, False), rows_of, steps_per_launch=steps)
            ):
                losses.append(loss.tolist())
                if number == 3:  # within a launch
                    losses.append(replicator.central_values()["w"].tolist())
            found.append(losses)
    assert found[0] == found[1]
    with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2, sync="sma") as replicator:
        words = r"steps_per_launch=3: expected 1 or 'auto', since rounds .* the effects of PyFunc seen"
        with pytest.raises(InvalidArgumentError, match=words):
            next(replicator.train(masked_step(replicator, True), rows_of, steps_per_launch=3))


def test_a_model_that_cannot_be_saved_is_refused_with_a_remedy() -> None:
    def broken(inputs: Any, labels: Any, training: bool) -> Any:
        outputs = tb.layers.dense(inputs, 1)
        error = tb.py_func(lambda a, b: np.abs(a - b), [outputs, labels], tb.float32, name="far")
        error.set_shape([None, 1])
        return tb.reduce_mean(tb.square(outputs - labels)) + 0.0 * tb.reduce_sum(error), outputs

    with pytest.raises(
        InvalidArgumentError, match=r"saved with its run.*PyFunc far.*where `training` is true alone"
    ):
        tb.fit(broken, tb.data.ArrayDataset(X, Y), epochs=1, batch_size=4)


@pytest.mark.slow
def test_members_of_a_sweep_have_masks() -> None:
    def masked(inputs: Any, labels: Any, training: bool) -> Any:
        outputs = tb.layers.dense(inputs, 1)
        return tb.reduce_mean(tb.boolean_mask(tb.square(outputs - labels), labels < 2.0)), outputs

    data = tb.data.ArrayDataset(X, Y)
    both = tb.sweep(masked, data, grid={"learning_rate": [0.01, 0.05]}, epochs=1, batch_size=4)
    alone = tb.sweep(masked, data, grid={"learning_rate": [0.05]}, epochs=1, batch_size=4)
    assert both.members[1].figures == alone.members[0].figures
