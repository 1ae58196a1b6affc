"""`Replicator.train` by first come, first served: who takes what, and what it shares replicas with."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.data import BatchRecipe
from tensorbow.devices import CpuDevice, LaunchLog, find_races
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.first_come_training import MODEL, Training, input_fn
from tests.scheduler_rig.running import complete_while, cpu_devices, gpu_devices, null_devices, within

pytestmark = pytest.mark.filterwarnings("ignore:central_values")  # of independent replicas, replica 0's

SYNCS = [
    {"sync": "sma"},
    {"tau": 3, "mu": 0.5},
    {"tau": 2, "staleness": 1},
    {"sync": "easgd", "tau": 4},
    {"sync": "none"},
]


# Who takes what -----------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("devices", "per_device"), [(1, 1), (1, 3), (2, 1), (2, 2)])
@pytest.mark.parametrize("options", SYNCS, ids=str)
def test_the_values_follow_from_who_took_what(kernels, takers, options, devices, per_device):
    """Also where they are read between two rounds, which may be later ones than was handed out."""
    training = Training(cpu_devices(devices, delays=4), per_device, 30, **options)
    for count in (1, 6, 11):
        done = training.rounds(count)
        assert done <= training.check_values(takers, devices) <= done + 16
    assert training.rounds() == 30
    assert training.check_values(takers, devices) == 30


def one_stands_still(**options):
    """Two replicas and 16 steps: replica 1 ends its first task when replica 0 has done all but its two."""
    goes_on, done = threading.Event(), []

    def stands():
        assert goes_on.wait(60), "replica 0 waits for it"

    training = Training([CpuDevice("/cpu:0"), CpuDevice("/cpu:1", delay=stands)], 1, 16, **options)
    training.replicator.init()
    replica = training.replicator._running.stepper.engine.learners.replicas[0]
    original = replica.launch

    def one_done(event):
        done.append(event)
        if len(done) == 30:
            goes_on.set()

    def launch(*arguments):
        event = original(*arguments)
        event.on_done(one_done)
        return event

    replica.launch = launch
    return training


@pytest.mark.parametrize("options", [{"tau": 16}, {"sync": "none"}], ids=str)
def test_a_replica_that_stands_still_holds_up_nobody(kernels, takers, options):
    training = one_stands_still(**options)
    assert within(training.rounds) == 16
    assert takers == [0, 1, 0, 1, *[0] * 28]
    training.check_values(takers, 2)


def test_averaging_restarts_where_a_schedule_jumps(takers):
    """Also where the run begins anew, after a look, and replicas have taken unequally many steps."""
    rate = tb.train.PiecewiseConstant([4, 17], [0.1, 0.1, 0.1])
    devices = [CpuDevice("/cpu:0"), CpuDevice("/cpu:1", delay=lambda: time.sleep(1e-3))]
    training = Training(devices, 1, 30, rate=rate, tau=3, mu=0.5)
    for count in (2, 3, 10, None):
        training.rounds(count)
        training.check_values(takers, 2, restarts_before=(5, 18))


@pytest.mark.parametrize("options", [{"tau": 4}, {"sync": "none"}], ids=str)
def test_a_schedule_follows_the_rounds(kernels, options):
    devices = [CpuDevice("/cpu:0"), CpuDevice("/cpu:1", delay=lambda: time.sleep(1e-3))]
    repl = tb.MultiGpuReplicator(devices, 1, dispatch="fcfs", **options)
    with repl.context():
        w = tb.Variable(0.0, name="w")
        moved = tb.Variable(0.0, trainable=False, combine="sum", name="moved")
        rate = tb.train.PiecewiseConstant([3, 9], [1.0, 8.0, 64.0])
        optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(rate))

    def step_fn():
        before = tb.identity(w)
        with tb.control_dependencies([before]):
            update = optimizer.minimize(tb.identity(w))
        with tb.control_dependencies([update]):
            return tb.group(moved.assign_add(before - w))

    assert len([*repl.train(step_fn, steps=20)]) == 20
    assert repl.read(moved) == 2 * sum(map(rate, range(20)))


@pytest.mark.slow
@pytest.mark.parametrize("data_on_device", ["always", "never"])
def test_batches_of_a_data_set(kernels, takers, data_on_device):
    digits, _ = tb.data.load("digits")
    repl = tb.MultiGpuReplicator(cpu_devices(2, delays=1), 2, tau=4, dispatch="fcfs")
    source = tb.DatasetBatches(digits, 8, 4, seed=1)

    def step_fn(images, labels):
        loss = tb.models.get_model("logreg")(images, labels, training=True, classes=10).loss
        optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.01, 0.9))
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(labels), tb.identity(loss)

    steps = repl.train(step_fn, lambda: source, 30, data_on_device=data_on_device)
    found = [labels for labels, _ in steps]
    recipes = source.recipes(range(30))
    for round, labels in enumerate(found):
        for number in range(4):
            expected = BatchRecipe.of(recipes, round, number).arrays()[1]
            assert labels[number].tolist() == expected.tolist()
    assert len(takers) == 120


@pytest.mark.slow
@needs_compiler
def test_gpus(takers):
    with emulated_runtime() as runtime:
        devices = gpu_devices(runtime, 2)
        rate = tb.train.PiecewiseConstant([4], [0.1, 0.01])
        training = Training(devices, 2, 12, tau=2, rate=rate)
        assert training.rounds() == 12
        assert training.replicator.read(training.tasks) == len(takers) == 48
        for device in devices:
            device.close()
        del training, devices, device
        gc.collect()  # pinned memory goes back


def test_no_races_however_tasks_end():
    log = LaunchLog()
    held = null_devices(2, log, hold=True)
    training = Training(held, 2, 12, tau=2, staleness=1)

    def work():
        for count, _ in enumerate(training.loop, 1):
            if count % 5 == 0:
                training.replicator.central_values()
        return count

    assert complete_while(work, held, 3) == 12
    assert find_races(log) == []


@pytest.mark.slow
@settings(max_examples=15)
@given(
    st.lists(st.sampled_from(["next", "next", "look", "read", "evaluate", "load"]), max_size=14),
    st.sampled_from(SYNCS),
    st.integers(0, 5),
)
def test_looks_and_changes_at_any_time(actions, options, seed):
    with tb.Graph().as_default():
        training = Training(cpu_devices(1, delays=seed), 3, inputs=input_fn(10), **options)
        repl, k, done, added = training.replicator, 3, 0, 0
        evaluation = repl.run(lambda: tb.identity(training.tasks.value()))
        with tb.Session() as session:
            for action in actions:
                if action == "next" and done < 10:
                    done = training.rounds(1)
                if not done:
                    continue
                if action == "load":
                    repl.load_variables({"tasks": repl.central_values()["tasks"] + 5})
                    added += 5
                elif action == "evaluate":
                    assert (session.run(evaluation).sum() - added) % k == 0
                elif action != "next":
                    found = repl.read(training.tasks) if action == "read" else repl.central_values()["tasks"]
                    assert (found - added) % k == 0
                    assert k * done <= found - added <= k * (done + 16)
            assert training.rounds() == 10
        assert repl.read(training.tasks) == 30 + added
        assert repl.read(training.numbers) == sum(range(30))


def test_two_loops_in_turn(takers):
    repl = tb.MultiGpuReplicator(cpu_devices(1, delays=2), 2, tau=2, dispatch="fcfs")
    with repl.context():
        w = tb.Variable(MODEL.initial["w"], name="w")
        tasks = tb.Variable([0, 0], trainable=False, combine="sum", name="tasks")

    def loop_of(which, count):
        def step_fn(x, number):
            loss = tb.reduce_sum(tb.square(w - x))
            update = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.01)).minimize(loss)
            with tb.control_dependencies([update, tasks.assign_add([1 - which, which])]):
                return tb.identity(number)

        return repl.train(step_fn, input_fn(count))

    first, second = loop_of(0, 7), loop_of(1, 5)
    repl.init()
    for number in range(5):
        for loop in (first, second):
            assert next(loop).tolist() == [2 * number, 2 * number + 1]
    assert [numbers.tolist() for numbers in first] == [[10, 11], [12, 13]]
    assert [*second] == []
    assert repl.read(tasks).tolist() == [14, 10]
    repl.shutdown()


def test_batches_of_several_sizes():
    sizes = [4, 4, 2, 2, 4, 3]
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2, dispatch="fcfs")

    def step_fn(x):
        w = tb.get_variable("w", initializer=np.ones(3, np.float32))
        loss = tb.reduce_mean(x * w)
        return loss, repl.wrap_optimizer(tb.train.GradientDescentOptimizer(1e-9)).minimize(loss)

    def batches(replica_id):
        return [np.full((size, 3), 10 * round + replica_id, np.float32) for round, size in enumerate(sizes)]

    losses = [loss for loss, _ in repl.train(step_fn, batches, smaller_batch="compile")]
    np.testing.assert_allclose(losses, [[10 * round, 10 * round + 1] for round in range(6)], 1e-5, 1e-5)


def test_evaluations_have_each_replicas_number_and_draws():
    """Also those built after tasks of both replicas with the second batch of a step."""
    with tb.Graph().as_default():
        training = one_stands_still(sync="none")
        repl = training.replicator

        def evaluate():
            return tb.replica_id(), tb.random_uniform([2], seed=4)

        early = repl.run(evaluate)
        with tb.Session() as session:
            training.rounds(15)
            late = repl.run(evaluate)
            for results in (early, late):
                numbers, drawn = session.run(results)
                assert numbers.tolist() == [0, 1]
                assert drawn[0].tolist() != drawn[1].tolist()
            assert training.rounds() == 16


@pytest.mark.slow
def test_the_number_of_replicas_is_tuned(takers):
    def step_fn(x, number):
        w = tb.get_variable("w", initializer=MODEL.initial["w"])
        loss = tb.reduce_sum(tb.square(w - x))
        return number, repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.01)).minimize(loss)

    repl = tb.MultiGpuReplicator(["/cpu:0"], dispatch="fcfs", tau=2)
    count = repl.tune(step_fn, input_fn(), most=2, window_seconds=0.01)
    takers.clear()
    assert len([*repl.train(step_fn, input_fn(), 4)]) == 4
    assert len(takers) == 4 * count
