"""`Replicator.train` by first come, first served: who takes what, the order of results, and all ends."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from scheduler import Stepper, Synchronisation
from tensorbow.data import BatchRecipe
from tensorbow.devices import CpuDevice, LaunchLog, find_races
from tensorbow.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    NumericsError,
)
from tensorbow.kernels import ReferenceBackend, backends
from tensorbow.training import load_arrays
from tests.scheduler.test_scheduler_races import complete_while
from tests.scheduler_rig.programs import FUSE, Fuse, well
from tests.scheduler_rig.reference import FirstComeAveraging
from tests.scheduler_rig.running import cpu_devices, null_devices, within

MODEL = well()
SIZE = 7
SYNCS = [
    {"sync": "sma"},
    {"tau": 3, "mu": 0.5},
    {"tau": 2, "staleness": 1},
    {"sync": "easgd", "tau": 4},
    {"sync": "none"},
]


@pytest.fixture(autouse=True, params=["native", "reference"])
def backend(request, monkeypatch):
    if request.param == "reference":
        monkeypatch.setitem(backends._backends, "cpu", ReferenceBackend())
        return
    pytest.importorskip("llvmlite")
    from tensorbow.kernels.native.backend import NativeBackend

    monkeypatch.setitem(backends._backends, "cpu", NativeBackend())


@pytest.fixture
def takers(monkeypatch):
    """The replica of each batch whose result is there, in order."""
    taken = []
    results = Stepper.results

    def recorded(self):
        found = results(self)
        taken.extend(found.replicas)
        return found

    monkeypatch.setattr(Stepper, "results", recorded)
    return taken


def input_fn(rounds=None, batch=MODEL.batch):
    """The model's batches, in the same array each time, with their numbers in the whole run."""

    def batches(context):
        i, k, x = context.replica_id, context.num_replicas, np.empty(SIZE, np.float32)
        round = 0
        while rounds is None or round < rounds:
            x[...] = batch(round, i)[0]
            yield x, np.int64(round * k + i)
            round += 1

    return batches


class Training:
    """A loop over the steps of `programs.well`, which count themselves and add up their batches' numbers."""

    def __init__(
        self, devices=("/cpu:0",), per_device=2, steps=None, inputs=None, fuse=False, rate=0.1, **options
    ):
        options = {"dispatch": "fcfs", **options}
        train = {name: options.pop(name) for name in ("prefetch", "steps_per_launch") if name in options}
        with tb.Graph().as_default():
            self.replicator = repl = tb.MultiGpuReplicator(list(devices), per_device, **options)
            with repl.context():
                optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(rate, 0.9))
                w = tb.Variable(MODEL.initial["w"], name="w")
                self.tasks = tb.Variable(0, trainable=False, combine="sum", name="tasks")
                self.numbers = tb.Variable(np.int64(0), trainable=False, combine="sum", name="numbers")

            def step_fn(x, number):
                seen = Fuse(x, name="the_fuse") if fuse else x
                loss = tb.reduce_sum(tb.square(w - seen)) * 0.5
                done = [optimizer.minimize(loss), self.tasks.assign_add(1), self.numbers.assign_add(number)]
                with tb.control_dependencies(done):
                    return {"number": tb.identity(number), "more": (tb.group(*done), tb.identity(loss))}

            self.loop = repl.train(step_fn, inputs or input_fn(), steps, **train)
        self.numbers_seen = []

    def rounds(self, count=None):
        """Takes results; checks that they are in order, row i of batch i."""
        k = self.replicator.num_replicas
        for result in self.loop if count is None else (next(self.loop) for _ in range(count)):
            expected = len(self.numbers_seen) + np.arange(k)
            assert result["number"].tolist() == expected.tolist()
            assert result["more"][0] is None
            assert result["more"][1].shape == (k,)
            self.numbers_seen += expected.tolist()
        return len(self.numbers_seen) // k

    def check_values(self, takers, device_count=1, restarts_before=()):
        """Compares with what follows from who took what; returns the rounds that the values have."""
        repl = self.replicator
        k, central = repl.num_replicas, repl.central_values()
        rounds, rest = divmod(len(takers), k)
        assert not rest
        reference = FirstComeAveraging(MODEL.initial["w"], k, repl.synchronisation, device_count)
        reference.run(MODEL.batch, takers, 0, restarts_before)
        if repl.synchronisation.averages(k):
            assert central["w"].tobytes() == reference.z.tobytes()
        assert repl.read(self.tasks) == rounds * k
        assert repl.read(self.numbers) == sum(range(rounds * k))
        if rounds and repl._stepper is not None:
            counts = Counter(takers)
            for index in range(k):
                values = repl.replica_values(index)
                assert values["w"].tobytes() == reference.w[index].tobytes()
                assert values["tasks"] == counts[index]
        return rounds


# Who takes what -----------------------------------------------------------------------------------


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("devices", "per_device"), [(1, 1), (1, 3), (2, 1), (2, 2)])
@pytest.mark.parametrize("options", SYNCS, ids=str)
def test_the_values_follow_from_who_took_what(takers, options, devices, per_device):
    """Also where they are read between two rounds, which may be later ones than was handed out."""
    training = Training(cpu_devices(devices, delays=4), per_device, 30, **options)
    for count in (1, 6, 11):
        done = training.rounds(count)
        assert done <= training.check_values(takers, devices) <= done + 16
    assert training.rounds() == 30
    assert training.check_values(takers, devices) == 30


@pytest.mark.parametrize("options", [{"tau": 16}, {"sync": "none"}], ids=str)
def test_a_replica_that_stands_still_holds_up_nobody(takers, options):
    """Replica 1 ends the first of its two tasks when replica 0 has done all others of 16 rounds."""
    goes_on, done = threading.Event(), []

    def stands():
        assert goes_on.wait(60), "replica 0 waits for it"

    devices = [CpuDevice("/cpu:0"), CpuDevice("/cpu:1", delay=stands)]
    training = Training(devices, 1, 16, **options)
    training.replicator.init()
    replica = training.replicator._engine.learners.replicas[0]
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
    assert within(training.rounds) == 16
    assert takers == [0, 1, 0, 1, *[0] * 28]
    training.check_values(takers, 2)
    training.replicator.shutdown()


def test_a_fast_replica_takes_more(takers):
    devices = [CpuDevice("/cpu:0"), CpuDevice("/cpu:1", delay=lambda: time.sleep(4e-3))]
    training = Training(devices, 1, 40, tau=10)
    assert training.rounds() == 40
    assert Counter(takers)[0] > 1.5 * Counter(takers)[1] > 0
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
def test_a_schedule_follows_the_rounds(options):
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


@pytest.mark.parametrize("data_on_device", ["always", "never"])
def test_batches_of_a_data_set(takers, data_on_device):
    digits, _ = tb.data.load("digits")
    repl = tb.MultiGpuReplicator(cpu_devices(2, delays=1), 2, tau=4, dispatch="fcfs")
    source = tb.DatasetBatches(digits, 8, 4, seed=1)

    def step_fn(images, labels):
        loss = tb.models.get_model("logreg").heads(images, labels, 10, training=True).loss
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


def test_evaluations_are_as_ever():
    """They have each replica's number and draws, also where tasks before were of other batches."""
    with tb.Graph().as_default():
        training = Training(cpu_devices(2, delays=5), 1, 9, sync="none")
        repl = training.replicator

        def evaluate():
            return tb.replica_id(), tb.random_uniform([2], seed=4)

        early = repl.run(evaluate)
        with tb.Session() as session:
            training.rounds(5)
            numbers, drawn = session.run(early)
            late = repl.run(evaluate)
            assert session.run(late[0]).tolist() == numbers.tolist() == [0, 1]
            assert drawn[0].tolist() != drawn[1].tolist()
            assert training.rounds() == 9


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


# Files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"tau": 3}, {"sync": "none"}], ids=str)
def test_a_file_has_the_inputs_position_that_belongs_to_its_values(tmp_path, options):
    training = Training(cpu_devices(2, delays=8), 1, 20, inputs=input_fn(20), **options)
    training.rounds(4)
    training.replicator.save(tmp_path / "state")
    saved, metadata = load_arrays(tmp_path / "state")
    ((taken, _),) = metadata["replicator"]["positions"]
    assert 4 <= taken == metadata["round"] <= 20
    assert sum(saved[f"replica{index}/tasks"] for index in range(2)) == 2 * taken
    assert training.rounds() == 20
    again = Training(cpu_devices(2, delays=9), 1, inputs=input_fn(20), **options)
    again.replicator.restore(tmp_path / "state")
    again.numbers_seen = [*range(2 * taken)]
    values = again.replicator.replica_values(1)
    assert values["w"].tobytes() == saved["replica1/w"].tobytes()
    assert again.rounds() == 20
    assert again.replicator.read(again.numbers) == sum(range(40))


# Ends ---------------------------------------------------------------------------------------------


def test_inputs_that_end():
    assert Training(inputs=input_fn(9)).rounds() == 9
    with pytest.warns(UserWarning, match="train: 9 of 12 steps: the input of replica 0 has ended after 9"):
        assert Training(steps=12, inputs=input_fn(9)).rounds() == 9


@pytest.mark.parametrize("looks", [False, True])
def test_inputs_that_fail_do_so_after_the_results_before(takers, looks):
    def failing(context):
        yield from input_fn(7)(context)
        raise OSError("lost")

    training = Training(inputs=failing)
    if looks:  # when they have failed, and some of those before are not begun
        training.rounds(1)
        training.check_values(takers)
    with pytest.raises(AbortedError, match="batch 7, failed: OSError: lost"):
        training.rounds()
    assert len(training.numbers_seen) == 14
    assert training.check_values(takers) == 7


def spoilt(round, batch_number, number):
    """The model's batches, one of which holds a number it should not."""

    def batch(t, i):
        (x,) = MODEL.batch(t, i)
        if (t, i) == (round, batch_number):
            x[-1] = number
        return (x,)

    return input_fn(None, batch)


@pytest.mark.parametrize("options", [{"tau": 4}, {"sync": "none"}], ids=str)
@pytest.mark.parametrize("looks", [False, True])
def test_a_nan_stop_comes_after_the_results_before(options, looks):
    training = Training(cpu_devices(1, delays=3), 2, 20, inputs=spoilt(6, 1, np.nan), **options)
    for _ in range(6):
        training.rounds(1)
        if looks:  # it may be in flight then
            assert np.isfinite(training.replicator.replica_values(1)["w"]).all()
    with pytest.raises(NumericsError, match=r"replica \d is not finite at step 6; its batch has NaN"):
        training.rounds()
    assert training.numbers_seen == [*range(12)]
    assert np.isfinite(training.replicator.central_values()["w"]).all()


def test_a_nan_can_be_skipped():
    training = Training(steps=12, inputs=spoilt(6, 1, np.nan), on_nan="skip", tau=2)
    assert training.rounds() == 12
    assert np.isfinite(training.replicator.central_values()["w"]).all()


def test_a_failing_op_names_the_step(backend):
    training = Training(steps=20, inputs=spoilt(5, 0, FUSE), fuse=True, tau=3)
    with pytest.raises(InvalidArgumentError, match=r"replica \d at step 5: TestFuse the_fuse: ValueError"):
        training.rounds()
    assert training.numbers_seen == [*range(10)]
    with pytest.raises(FailedPreconditionError, match="replica_values: there are no replicas"):
        training.replicator.replica_values(0)


def test_replicas_that_stay_go_on_after_an_error():
    training = Training(steps=20, inputs=spoilt(3, 0, np.nan), tau=2)
    training.replicator.init()
    training.replicator.shutdown()
    training.replicator.init()
    with pytest.raises(NumericsError):
        training.rounds()
    again = Training(steps=6, tau=2)
    again.replicator.init()
    assert again.rounds() == 6


def test_leaving_early_ends_what_has_begun():
    device = CpuDevice("/cpu:0", delay=lambda: time.sleep(1e-3))
    training = Training([device], 3)
    training.rounds(4)
    training.loop.close()
    assert device.memory.held_nbytes == 0
    tasks = training.replicator.read(training.tasks)
    assert tasks % 3 == 0
    assert 12 <= tasks <= 60
    device.close()


def test_leaving_early_tells_of_an_error_in_what_has_begun():
    """Of one replica, which has two tasks on its stream."""
    training = Training(per_device=1, inputs=spoilt(1, 0, np.nan), sync="sma")
    training.rounds(1)
    with pytest.warns(
        UserWarning, match="train: 1 steps, and a later one, which had begun, has failed: a gr"
    ):
        training.loop.close()


def test_a_shutdown_within_the_loop():
    training = Training()
    training.rounds(3)
    within(training.replicator.shutdown)
    with pytest.raises(FailedPreconditionError, match="the replicas are not there"):
        training.rounds()
    assert training.replicator.read(training.tasks) % 2 == 0


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
import tensorbow as tb

tb.set_random_seed(0)
repl = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], 1, tau=4, dispatch="fcfs")
with repl.context():
    w = tb.Variable(np.zeros((256, 8), np.float32), name="w")
    tasks = tb.Variable(0, trainable=False, combine="sum", name="tasks")

def step_fn(x):
    loss = tb.reduce_mean(tb.square(tb.matmul(x, w) - 1.0))
    update = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(1e-3)).minimize(loss)
    with tb.control_dependencies([update, tasks.assign_add(1)]):
        return tb.identity(loss)

done = 0
try:
    for _ in repl.train(step_fn, lambda: [np.ones((256, 256), np.float32)] * 1_000_000):
        done += 1
        if done == 1:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
except KeyboardInterrupt:
    print(done, repl.read(tasks))
"""


def test_an_interrupt_ends_what_has_begun(backend):
    """In a process of its own: Hypothesis sets a callback of the garbage collector, and Python drops an
    interrupt that comes in one."""
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    done, tasks = map(int, ran.stdout.split())
    assert 0 < 2 * done <= tasks <= 2 * (done + 17)


# Refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sync": "ssgd"}, "dispatch: expected round_robin with ssgd"),
        ({"ssgd_from": 5}, "dispatch: expected round_robin with ssgd"),
        ({"num_gpus_per_replica": 2}, "dispatch: expected round_robin for replicas with several devices"),
        ({"sync": "none", "seeds": [1, 2]}, "seeds: expected sync 'none' and dispatch 'round_robin'"),
        ({"dispatch": "lifo"}, "dispatch: expected one of round_robin, fcfs, got 'lifo'"),
    ],
    ids=str,
)
def test_options_that_do_not_go_with_it(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], **{"dispatch": "fcfs", **options})


def test_the_default_synchronisation_is_sma():
    repl = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], dispatch="fcfs")
    assert repl.synchronisation == Synchronisation("sma", dispatch="fcfs")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: tb.all_sum(tb.ones([])), "dispatch: expected round_robin for a step with exchanges"),
        (lambda: tb.per_replica([0.1, 0.2]), "round_robin for a step with tb.per_replica, as any replica"),
        (lambda: tb.cast(tb.replica_id(), tb.float32), "round_robin for a step with tb.replica_id"),
    ],
)
def test_steps_whose_result_depends_on_the_replica(wrong, message):
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none", dispatch="fcfs")

    def step_fn():
        w = tb.get_variable("w", initializer=np.float32(1))
        return repl.wrap_optimizer(tb.train.GradientDescentOptimizer(wrong())).minimize(tb.square(w))

    with pytest.raises(InvalidArgumentError, match=message):
        repl.train(step_fn)


def test_a_schedule_that_would_count_each_replicas_own_steps():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none", dispatch="fcfs")

    def step_fn():
        w = tb.get_variable("w", initializer=np.float32(1))
        rate = tb.train.PiecewiseConstant([4], [0.1, 0.01])
        return tb.train.GradientDescentOptimizer(rate).minimize(tb.square(w))

    with pytest.raises(InvalidArgumentError, match=r"round_robin for an optimiser .* replicator.wrap_optim"):
        repl.train(step_fn)


def test_inputs_that_are_not_there_ahead():
    with pytest.raises(InvalidArgumentError, match=r"round_robin, as inputs are drawn .* \(prefetch=0"):
        Training(prefetch=0)
    with pytest.raises(InvalidArgumentError, match=r"round_robin, as .* function that is called for"):
        Training(inputs=lambda: lambda: (np.zeros(SIZE, np.float32), np.int64(0)))
    with pytest.raises(InvalidArgumentError, match=r"steps_per_launch=2: .* with dispatch round_robin"):
        Training(steps_per_launch=2).rounds()


def test_a_run_of_a_step_that_trains():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2, dispatch="fcfs")

    def step_fn():
        w = tb.get_variable("w", initializer=np.float32(1))
        return repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1)).minimize(tb.square(w))

    with pytest.raises(InvalidArgumentError, match=r"round_robin for run, which waits for all .* train"):
        repl.run(step_fn)
