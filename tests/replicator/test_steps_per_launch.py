"""Several rounds a launch under `Replicator.train`: results, values, files and errors of one a launch."""

from __future__ import annotations

import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from replicator import lockstep_loop
from tensorbow.errors import AbortedError, InvalidArgumentError, NumericsError
from tensorbow.training import load_arrays
from tests.scheduler_rig.running import same_bits

SYNCS = [
    {"sync": "sma", "tau": 1},
    {"sync": "sma", "tau": 3, "mu": 0.3},
    {"sync": "sma", "staleness": 1},
    {"sync": "sma", "ssgd_from": 9},
    {"sync": "ssgd"},
    {"sync": "easgd"},
    {"sync": "diloco", "tau": 3},
    {"sync": "diloco", "tau": 2, "staleness": 1},
    {"sync": "none"},
]
DEVICES = [(["/cpu:0"], 1), (["/cpu:0"], 3), (["/cpu:0", "/cpu:1"], (1, 2)), (["/cpu:0", "/cpu:1"], 1)]


pytestmark = [
    pytest.mark.usefixtures("native_kernels"),
    pytest.mark.filterwarnings("ignore:central_values. replicas with sync='none'"),
]


def batches(replica_id, count=None):
    draw = np.random.default_rng(replica_id)
    x, y = np.empty((4, 5), np.float32), np.empty((4, 3), np.float32)
    for _ in iter(int, 1) if count is None else range(count):
        x[...], y[...] = draw.normal(size=x.shape), draw.normal(size=y.shape)
        yield x, y  # the same arrays for every batch


class Training:
    """A loop over a step with dropout, a schedule that restarts averaging, and statistics."""

    def __init__(
        self, steps_per_launch, steps=25, devices=("/cpu:0",), per_device=2, inputs=batches, **options
    ):
        options = options or {"sync": "sma"}
        with tb.Graph().as_default():
            self.replicator = repl = tb.MultiGpuReplicator(list(devices), per_device, **options)
            with repl.context():
                tb.set_random_seed(3)
                rate = tb.train.PiecewiseConstant([7], [0.1, 0.05])
                optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(rate, 0.9))
                self.w = tb.Variable(np.full((5, 3), 0.2, np.float32), name="w")
                self.seen = tb.Variable(0, trainable=False, combine="sum", name="seen")

            def step_fn(x, y):
                loss = tb.reduce_mean(tb.square(tb.matmul(tb.nn.dropout(x, rate=0.3), self.w) - y))
                update = tb.group(optimizer.minimize(loss), self.seen.assign_add(4))
                with tb.control_dependencies([update]):
                    return {"loss": tb.identity(loss), "more": (update, [tb.reduce_sum(x, 0)], None)}

            self.loop = repl.train(step_fn, inputs, steps, steps_per_launch=steps_per_launch)

    def rounds(self, count=None):
        taken = self.loop if count is None else (next(self.loop) for _ in range(count))
        return [
            (each["loss"].tolist(), each["more"][0], each["more"][1][0].tolist(), each["more"][2])
            for each in taken
        ]

    def values(self):
        repl = self.replicator
        own = [repl.replica_values(replica, slots=True) for replica in range(repl.num_replicas)]
        named = {f"{number}/{name}": value for number, of in enumerate(own) for name, value in of.items()}
        return {**repl.central_values(), **named}


def whole(steps_per_launch, **options):
    training = Training(steps_per_launch, **options)
    return training.rounds(), training.replicator.central_values()


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "per_device"), DEVICES)
@pytest.mark.parametrize("options", SYNCS, ids=lambda options: "-".join(map(str, options.values())))
def test_the_bits_are_those_of_one_round_a_launch(launches, options, devices, per_device):
    if options.get("ssgd_from") and per_device == (1, 2):
        pytest.skip("the mean gradient needs equal replicas")
    given = {"devices": devices, "per_device": per_device, "steps": 40, **options}
    rounds, central = whole(1, **given)
    assert len(rounds) == 40
    for steps in (4, "auto"):
        launches.clear()
        found, values = whole(steps, **given)
        assert found == rounds
        assert same_bits(values, central)
        assert sum(launches) == 40
        assert len(launches) < 40


@pytest.mark.slow
def test_a_launch_has_as_many_rounds_as_asked_for(launches, monkeypatch):
    calls = itertools.count()
    monkeypatch.setattr(lockstep_loop, "perf_counter", lambda: next(calls) * 1e-4)  # a round takes 0.2 ms
    whole(4, steps=20)
    assert launches == [1, 4, 3, 4, 4, 4]  # averaging restarts before round 8
    launches.clear()
    whole("auto", steps=200)
    assert launches[:31] == [1] * 31
    assert max(launches) > 4


@pytest.mark.slow
@pytest.mark.parametrize("steps_per_launch", [4, "auto"])
def test_inputs_that_end_or_fail_do_so_at_the_same_round(steps_per_launch):
    def failing(replica_id):
        yield from batches(replica_id, 41 if replica_id else 60)
        raise OSError("lost")

    expected = Training(1, steps=None, inputs=lambda replica_id: batches(replica_id, 41)).rounds()
    assert len(expected) == 41
    inputs = lambda replica_id: batches(replica_id, 41 + replica_id)  # noqa: E731
    with pytest.warns(
        UserWarning, match="train: 41 steps: the input of replica 0 .* while that of replica 1"
    ):
        assert Training(steps_per_launch, steps=None, inputs=inputs).rounds() == expected
    with pytest.warns(UserWarning, match="train: 41 of 50 steps: the input of replica 0 has ended after 41"):
        assert Training(steps_per_launch, steps=50, inputs=inputs).rounds() == expected
    training = Training(steps_per_launch, steps=None, inputs=failing)
    found = []
    with pytest.raises(AbortedError, match="the input of replica 1, batch 41, failed: OSError: lost"):
        found.extend(each["loss"].tolist() for each in training.loop)
    assert found == [loss for loss, *_ in expected]
    training = Training(steps_per_launch, steps=None, inputs=failing)
    assert training.rounds(41) == expected
    with pytest.raises(AbortedError, match="the input of replica 1, batch 41, failed: OSError: lost"):
        next(training.loop)


@pytest.mark.slow
def test_a_round_that_is_not_finite_raises_at_its_turn():
    def inputs(replica_id):
        for number, (x, y) in enumerate(batches(replica_id)):
            yield (np.full_like(x, np.inf) if number == 17 and replica_id == 1 else x), y

    values, messages = [], []
    for steps in (1, 8):
        training = Training(steps, inputs=inputs)
        assert len(training.rounds(17)) == 17
        with pytest.raises(
            NumericsError, match=r"replica 1 is not finite at step 17; its batch has NaN"
        ) as error:
            next(training.loop)
        messages.append(str(error.value))
        values.append(training.replicator.central_values())
    assert messages[0] == messages[1]
    assert same_bits(*values)


ACTIONS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(["look", "save", "evaluate", "train"])), max_size=6
)


def acted(steps_per_launch, actions, path, options):
    """Everything that a caller sees who does something else between rounds."""
    training = Training(steps_per_launch, steps=None, **options)
    repl, found = training.replicator, []
    with tb.Graph().as_default() as graph:
        further = {
            "evaluate": repl.run(lambda: tb.reduce_sum(training.w)),
            "train": repl.run(lambda: training.w.assign_add(tb.ones_like(training.w))),
        }
    with tb.Session(graph=graph) as session:
        for rounds, action in actions:
            found += training.rounds(rounds + 1)
            if action in further:
                found.append(session.run(further[action]).tolist())
            elif action == "save":
                repl.save(path)
                found += sorted((name, value.tolist()) for name, value in load_arrays(path)[0].items())
            else:
                found += sorted((name, value.tolist()) for name, value in training.values().items())
        found += training.rounds(3)
    training.loop.close()
    found += sorted((name, value.tolist()) for name, value in repl.central_values().items())
    return found


@pytest.mark.slow
@settings(max_examples=8)
@given(actions=ACTIONS, options=st.sampled_from([{"sync": "sma", "tau": 2}, {"sync": "none"}]))
def test_whoever_looks_between_rounds_sees_those_before(tmp_path_factory, actions, options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lockstep_loop, "COPIES", 10**6)  # rounds of several launches are done again
        path = tmp_path_factory.mktemp("state") / "state"
        assert acted(6, actions, path, options) == acted(1, actions, path, options)


def test_launches_end_where_a_look_is_expected(launches, monkeypatch):
    monkeypatch.setattr(lockstep_loop, "COPIES", 10**6)
    training = Training(6, steps=None, sync="none")
    for _ in range(4):
        training.rounds(10)
        training.replicator.central_values()
    assert launches == [1, 6, 6, 6, 3, 6, 4, 6, 4, 6, 4]  # 13, of which 9 are done again; then tens
    training.loop.close()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"sync": "sma", "staleness": 1}, {"sync": "ssgd"}], ids=str)
def test_the_newest_values_are_read_by_another_thread_without_rounds_done_again(launches, options):
    reference = Training(1, steps=40, **options)
    z = [reference.replicator.central_values() for _ in reference.loop]
    training = Training(6, steps=40, **options)
    launches.clear()
    seen = []
    with ThreadPoolExecutor(1) as other:
        for step, _ in enumerate(training.loop, 1):
            done, values = other.submit(training.replicator.newest_values).result(60)
            assert step <= done < step + 6
            assert same_bits(values, z[done - 1])
            seen.append(done)
    assert sum(launches) == 40
    assert len(set(seen)) < 20  # several rounds a launch
    assert same_bits(training.replicator.central_values(), z[-1])
    done, values = training.replicator.newest_values()
    assert done == 40
    assert same_bits(values, z[-1])


@pytest.mark.slow
def test_a_run_goes_on_from_a_file_of_the_middle_of_a_launch(tmp_path):
    expected = Training(1, steps=30).rounds()
    training = Training(8, steps=30)
    assert training.rounds(13) == expected[:13]
    training.replicator.save(tmp_path / "state")
    assert training.rounds(5) == expected[13:18]
    training.loop.close()
    for steps in (1, 5):
        again = Training(steps, steps=17)
        repl = again.replicator
        repl.init()
        with repl:
            repl.restore(tmp_path / "state")
            assert again.rounds() == expected[13:]


@pytest.mark.slow
def test_a_loop_that_is_left_keeps_the_values_of_its_last_round():
    values = []
    for steps in (1, 8):
        training = Training(steps)
        for number, _ in enumerate(training.loop):
            if number == 10:
                break
        training.loop.close()
        values.append(training.replicator.central_values())
    assert same_bits(*values)


@pytest.mark.slow
def test_two_loops_in_turn():
    found = []
    for steps in (1, 4):
        training = Training(steps, steps=None)
        repl, rounds = training.replicator, []
        with repl.context():
            optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.01))

        def other_fn(x, y, w=training.w, optimizer=optimizer):
            loss = tb.reduce_sum(tb.square(w))
            with tb.control_dependencies([optimizer.minimize(loss)]):
                return tb.identity(loss)

        other = repl.train(other_fn, batches, steps_per_launch=steps)
        repl.init()
        with repl:
            for _ in range(9):
                rounds += training.rounds(3)
                rounds += [next(other).tolist() for _ in range(2)]
            rounds.append({name: value.tolist() for name, value in repl.central_values().items()})
            training.loop.close()
            other.close()
        found.append(rounds)
    assert found[0] == found[1]


@pytest.mark.slow
def test_smaller_batches_end_a_launch(launches):
    def inputs(replica_id):
        for number in range(20):
            yield np.full((3 if number % 7 == 6 else 4, 2), number + replica_id, np.float32)

    found = []
    for steps in (1, 5):
        with tb.Graph().as_default():
            repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
            with repl.context():
                w = tb.Variable(np.ones((2, 1), np.float32), name="w")
                optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(1e-4))

            def step_fn(x, w=w, optimizer=optimizer):
                loss = tb.reduce_mean(tb.square(tb.matmul(x, w)))
                with tb.control_dependencies([optimizer.minimize(loss)]):
                    return tb.identity(loss)

            launches.clear()
            loop = repl.train(step_fn, inputs, smaller_batch="compile", steps_per_launch=steps)
            found.append([each.tolist() for each in loop])
    assert launches == [1, 5, 1, 5, 1, 1, 5, 1]
    assert len(found[0]) == 20
    assert found[0] == found[1]


def test_inputs_that_are_not_known_ahead(launches):
    asked = []

    def inputs():
        return lambda: (asked.append(len(launches)), next(source))[1]

    source = batches(0)
    whole("auto", steps=60, per_device=1, inputs=inputs)
    assert set(launches) == {1}
    assert asked[1:] == list(range(1, 60))
    with pytest.raises(InvalidArgumentError, match=r"or 'auto', since inputs are .* called for each step"):
        next(Training(3, inputs=inputs).loop)


@pytest.mark.slow
def test_steps_that_run_one_by_one():
    with tb.Graph().as_default():
        repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
        with repl.context():
            w = tb.Variable(np.ones(2, np.float32), name="w")
            optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))

        def update(x):
            return optimizer.minimize(tb.reduce_sum(w * x))

        def inputs():
            return np.ones(2, np.float32)

        with pytest.raises(InvalidArgumentError, match=r"since inputs are drawn when .*prefetch=0"):
            next(repl.train(update, inputs, prefetch=0, steps_per_launch=2))
        with pytest.raises(InvalidArgumentError, match="since the step updates no trainable variable"):
            next(repl.train(tb.reduce_sum, inputs, steps_per_launch=2))
        assert [each.tolist() for each in repl.train(tb.reduce_sum, inputs, 40)] == [[2, 2]] * 40


@pytest.mark.slow
def test_a_step_for_replicas_that_are_there_has_room_for_its_launches(launches):
    found = []
    for steps in (1, 100):
        training = Training(steps, steps=300, sync="none")
        w = training.w
        launches.clear()
        with training.replicator as repl, tb.Graph().as_default():
            repl.run(lambda w=w: tb.reduce_sum(w))
            repl.init()
            found.append(training.rounds())
            loop = repl.train(lambda x, y, w=w: w.assign_add(tb.ones_like(w)), batches, 150)
            found[-1] += [each.tolist() for each in loop]
    assert max(launches[:5]) == 100
    assert max(launches[5:]) > 4
    assert found[0] == found[1]


def test_other_refusals(reference_kernels):
    with pytest.raises(InvalidArgumentError, match=r"steps_per_launch=2: several steps .* need native code"):
        next(Training(2).loop)
    for wrong in (0, 5000, "all"):
        with pytest.raises(InvalidArgumentError, match="train: expected steps_per_launch to be"):
            Training(wrong)
    assert len(Training("auto").rounds()) == 25


def test_large_results_are_launched_round_by_round(launches):
    with tb.Graph().as_default():
        repl = tb.MultiGpuReplicator(["/cpu:0"], 1)
        with repl.context():
            w = tb.Variable(np.ones(300_000, np.float32), name="w")
            optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))

        def step_fn():
            with tb.control_dependencies([optimizer.minimize(tb.reduce_sum(w))]):
                return tb.identity(w)

        assert all(each.shape == (1, 300_000) for each in repl.train(step_fn, steps=40))
    assert set(launches) == {1}


INTERRUPTED = """
import os, signal, threading
import numpy as np
import tensorbow as tb

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored: background jobs are so
repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
with repl.context():
    w = tb.Variable(np.zeros((256, 256), np.float32), name="w")
    count = tb.Variable(0, trainable=False, combine="first", name="count")
    optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(1e-6))

def batches(replica_id):
    draw = np.random.default_rng(0)
    yield from [(draw.normal(size=(256, 256)).astype(np.float32),)] * 1_000_000

def step_fn(x):
    loss = tb.reduce_mean(tb.square(tb.matmul(x, w) - 1.0))
    with tb.control_dependencies([optimizer.minimize(loss), count.assign_add(1)]):
        return tb.identity(loss)

done = 0
try:
    for _ in repl.train(step_fn, batches, steps_per_launch=4096):
        done += 1
        if done == 1:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
except KeyboardInterrupt:
    print(done, repl.central_values()["count"])
"""


@pytest.mark.slow
def test_an_interrupt_leaves_the_values_of_the_last_round_handed_out():
    """Holds also where a launch of the rounds asked for would take minutes.

    In a process of its own: Hypothesis sets a callback of the garbage collector, and Python drops an
    interrupt that comes in one.
    """
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    done, count = map(int, ran.stdout.split())
    assert 0 < done <= count <= done + 1  # it may come between a round and its caller
