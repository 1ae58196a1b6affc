"""Ends of `Replicator.train` by first come, first served: files, errors, interrupts; what is refused."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Synchronisation
from tensorbow.devices import CpuDevice
from tensorbow.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    NumericsError,
)
from tensorbow.training import load_arrays
from tests.scheduler_rig.first_come_training import SIZE, Training, input_fn, spoilt
from tests.scheduler_rig.programs import FUSE
from tests.scheduler_rig.running import cpu_devices, within

pytestmark = pytest.mark.filterwarnings("ignore:central_values")  # of independent replicas, replica 0's

# Files --------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
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

    device = CpuDevice("/cpu:0", delay=lambda: time.sleep(5e-3))
    training = Training([device], inputs=failing)
    if looks:  # when they have failed, and some of those before are not begun
        training.rounds(1)
        training.check_values(takers)
    with pytest.raises(AbortedError, match="batch 7, failed: OSError: lost"):
        training.rounds()
    assert len(training.numbers_seen) == 14
    assert training.check_values(takers) == 7


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", [{"tau": 4}, {"sync": "none"}], ids=str)
@pytest.mark.parametrize("looks", [False, True])
def test_a_nan_stop_comes_after_the_results_before(kernels, options, looks):
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


def test_a_failing_op_names_the_step():
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

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored: background jobs are so
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


@pytest.mark.slow
def test_an_interrupt_ends_what_has_begun():
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
    with pytest.raises(
        InvalidArgumentError, match=r"dispatch and backup: expected inputs .* are drawn .* \(prefetch=0"
    ):
        Training(prefetch=0)
    with pytest.raises(InvalidArgumentError, match=r"are drawn .* function that is called for"):
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
