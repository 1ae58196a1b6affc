"""`tb.train.MonitoredSession`: initialises, runs its hooks, ends with the input."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)

pytestmark = pytest.mark.usefixtures("graph")


class Recorder(tb.train.SessionRunHook):
    def __init__(self):
        self.calls = []

    def begin(self):
        self.calls.append("begin")

    def after_create_session(self, session):
        self.calls.append("created")

    def before_run(self, run_context):
        self.calls.append("before")

    def after_run(self, run_context, run_values):
        self.calls.append((run_context.original_args.fetches, run_values.results))

    def end(self, session):
        self.calls.append("end")


class Asking(tb.train.SessionRunHook):
    """Adds `args` to every run."""

    def __init__(self, args):
        self.args = args
        self.seen = []

    def before_run(self, run_context):
        return self.args

    def after_run(self, run_context, run_values):
        self.seen.append(run_values.results)


@pytest.mark.parametrize("target", ["", "tensorbow"])
def test_hooks_add_fetches_and_feeds_to_the_run(target):
    x = tb.placeholder(tb.float32, [], name="x")
    scale = tb.placeholder(tb.float32, [], name="scale")
    y = x * scale
    many = Asking(tb.train.SessionRunArgs({"double": y * 2.0, "all": [x, "scale:0"]}))
    feeding = Asking(tb.train.SessionRunArgs(None, {scale: 3.0}))
    without = Asking(None)
    hooks = [many, without, feeding, Asking(tb.train.SessionRunArgs(y, feed_dict={}))]
    with tb.train.MonitoredSession(hooks=hooks, target=target) as session:
        for number in (1.0, 2.0):
            assert session.run(y, {"x:0": number}) == 3 * number
    assert many.seen == [{"double": 6 * n, "all": [n, 3]} for n in (1, 2)]
    assert hooks[-1].seen == [3, 6]
    assert feeding.seen == without.seen == [None, None]


def test_a_hook_s_fetches_run_once_beside_the_caller_s():
    counter = tb.Variable(0, name="counter")
    step = counter.assign_add(1)
    hook = Asking(tb.train.SessionRunArgs([step, step.op]))
    with tb.train.MonitoredSession(hooks=[hook]) as session:
        assert [session.run(step) for _ in range(2)] == [1, 2]
    assert hook.seen == [[1, None], [2, None]]


@pytest.mark.parametrize(
    ("feeds", "given", "words"),
    [
        ([{"x:0": 1.0}, {}], {"x:0": 2.0}, "x:0 is fed by the caller and by Asking; feed it in one place"),
        ([{"x:0": 1.0}, {"x:0": 1.0}], {}, "x:0 is fed by Asking and by Asking"),
        ([{"nobody:0": 1.0}], {}, "run: feed_dict: .*nobody"),
        ([5], {}, "run: expected feed_dict to be a dictionary of values by tensor or name, got int 5"),
    ],
)
def test_feeds_of_hooks_that_do_not_go_together(feeds, given, words):
    x = tb.placeholder(tb.float32, [], name="x")
    hooks = [Asking(tb.train.SessionRunArgs(None, feed)) for feed in feeds]
    with (
        tb.train.MonitoredSession(hooks=hooks) as session,
        pytest.raises((InvalidArgumentError, NotFoundError), match=words),
    ):
        session.run(x + 1.0, {x if key == "x:0" else key: value for key, value in given.items()})


def test_hooks_give_options_of_the_run():
    x = tb.placeholder(tb.float32, [])
    seen = []

    class Tracing(Asking):
        def after_run(self, run_context, run_values):
            seen.append((run_values.options, run_values.run_metadata))

    full = tb.RunOptions(trace_level=tb.RunOptions.FULL_TRACE)
    hooks = [Tracing(tb.train.SessionRunArgs(x + 1.0, options=full)), Tracing(None)]
    metadata = tb.RunMetadata()
    with tb.train.MonitoredSession(hooks=hooks) as session:
        session.run(x * 2.0, {x: 1.0})
        session.run(x * 2.0, {x: 1.0}, tb.RunOptions(timeout_in_ms=60_000), metadata)
    options = [each for each, _ in seen]
    assert options[0] is options[1] is full
    assert options[2] == tb.RunOptions(trace_level=tb.RunOptions.FULL_TRACE, timeout_in_ms=60_000)
    assert seen[2][1] is metadata
    for _, found in seen:
        (device,) = found.step_stats.dev_stats
        assert {node.timeline_label.split()[0] for node in device.node_stats} == {"Mul", "Add"}
    with (
        tb.train.MonitoredSession(hooks=[Asking(tb.train.SessionRunArgs(x, None, 3))]) as session,
        pytest.raises(InvalidArgumentError, match=r"expected options to be a tb\.RunOptions or None"),
    ):
        session.run(x, {x: 1.0})


def test_contexts_of_a_hook_end_with_the_run():
    x, left = tb.placeholder(tb.float32, [2]), []

    class Entering(tb.train.SessionRunHook):
        def before_run(self, run_context):
            run_context.during.callback(left.append, "left")

        def after_run(self, run_context, run_values):
            left.append("after")

    with tb.train.MonitoredSession(hooks=[Entering()]) as session:
        session.run(x, {x: [1.0, 2.0]})
        with pytest.raises(InvalidArgumentError):
            session.run(x, {x: [1.0]})
    assert left == ["left", "after", "left"]


def test_hooks_end_with_close_and_with_an_exhausted_iterator():
    recorder, input_s = Recorder(), iter(())
    session = tb.train.MonitoredSession(hooks=[recorder])
    session.close()
    session.close()
    assert recorder.calls == ["begin", "created", "end"]
    with tb.train.MonitoredSession(hooks=[recorder]):
        next(input_s)
    assert recorder.calls == ["begin", "created", "end"] * 2


def test_what_before_run_returns_is_args_or_nothing():
    with (
        tb.train.MonitoredSession(hooks=[Asking({"x": 1})]) as session,
        pytest.raises(
            InvalidArgumentError, match=r"Asking.before_run: expected tb.train.SessionRunArgs or None"
        ),
    ):
        session.run(tb.constant(1.0))


def test_it_initialises_counts_and_stops():
    counter = tb.Variable(0, name="counter")
    step = counter.assign_add(1)
    recorder = Recorder()
    with tb.train.MonitoredSession(hooks=[recorder, tb.train.StopAtStepHook(3)]) as session:
        while not session.should_stop():
            session.run(step)
        assert session.run(counter) == 3
        assert counter.eval() == 3
    assert recorder.calls == [
        "begin",
        "created",
        *["before", (step, None)] * 3,
        *["before", (counter, None)],
        "end",
    ]
    assert session.should_stop()
    with pytest.raises(FailedPreconditionError, match="monitored session is closed"):
        session.run(step)


def test_only_the_end_of_the_input_goes_no_further():
    closed = []
    with tb.train.MonitoredSession() as session:
        session.on_close(lambda: closed.append(True))
        raise OutOfRangeError("over")
    assert closed == [True]
    session = tb.train.MonitoredSession()
    session.on_close(lambda: closed.append(True))
    with pytest.raises(ValueError, match="other"), session:
        raise ValueError("other")
    assert closed == [True, True]


def test_hooks_end_only_without_errors():
    recorder = Recorder()
    with pytest.raises(ValueError, match="stop"), tb.train.MonitoredSession(hooks=[recorder]):
        raise ValueError("stop")
    assert "end" not in recorder.calls


def test_over_replicas_by_target():
    tb.Variable(1.0)
    with tb.train.MonitoredSession(target="tensorbow", replicas_per_device=3) as session:
        assert isinstance(session._session, tb.TensorBowSession)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "One of num_steps or last_step must be specified"),
        (
            {"num_steps": 3, "last_step": 3},
            "Only one of num_steps or last_step can be specified, got 3 and 3",
        ),
        ({"num_steps": 0}, "a whole number of at least 1 or None, got int 0"),
        ({"last_step": -2}, "a whole number of at least 1 or None, got int -2"),
        ({"num_steps": True}, "a whole number of at least 1 or None, got bool True"),
        ({"last_step": 2.5}, "a whole number of at least 1 or None, got float 2.5"),
    ],
)
def test_a_hook_that_does_not_know_when_to_stop_is_refused(options, words):
    with pytest.raises(InvalidArgumentError, match=words):
        tb.train.StopAtStepHook(**options)


def trained():
    """A model's update that counts global steps."""
    w = tb.Variable(1.0)
    step = tb.train.get_or_create_global_step()
    return step, tb.train.GradientDescentOptimizer(0.1).minimize(tb.square(w), global_step=step)


class StartAt(tb.train.SessionRunHook):
    """Hook that sets the global step, like a restored checkpoint."""

    def __init__(self, value):
        self.value = value

    def begin(self):
        self.assign = tb.train.get_global_step().assign(self.value)

    def after_create_session(self, session):
        session.run(self.assign)


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"num_steps": 5}, 12), ({"last_step": 10}, 10), ({"last_step": 7}, 8)],
)
def test_steps_are_counted_by_the_global_step(options, expected):
    step, update = trained()
    hooks = [StartAt(7), tb.train.StopAtStepHook(**options)]
    with tb.train.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run(update)
            session.run(step)  # a run that is no step
        assert session.run(step) == expected


def test_last_step_needs_a_global_step():
    tb.Variable(1.0)
    with pytest.raises(FailedPreconditionError, match="Global step should be created"):
        tb.train.MonitoredSession(hooks=[tb.train.StopAtStepHook(last_step=3)])


def test_hooks_begin_in_the_graph_of_the_session():
    with tb.Graph().as_default() as graph:
        step, update = trained()
    hook = tb.train.StopAtStepHook(last_step=2)
    with tb.train.MonitoredSession(hooks=[hook], graph=graph) as session:
        while not session.should_stop():
            session.run(update)
        assert session.run(step) == 2


def test_global_steps_of_replicas_count_rounds():
    step, update = trained()
    hook = tb.train.StopAtStepHook(last_step=4)
    with tb.train.MonitoredSession(hooks=[hook], target="tensorbow", replicas_per_device=3) as session:
        while not session.should_stop():
            session.run(update)
        assert session.run(step) == 4


def test_finding_the_global_step():
    assert tb.train.get_global_step() is None
    mine = tb.Variable(0, name="global_step", trainable=False)
    assert tb.train.get_global_step() is mine
    assert tb.train.get_or_create_global_step() is mine
    with pytest.raises(AlreadyExistsError, match="already exists"):
        tb.train.create_global_step()
    with tb.Graph().as_default() as graph:
        made = tb.train.create_global_step()
        assert (made.dtype, made.op.name) == (tb.int64, "global_step")
        assert made not in tb.trainable_variables()
    assert tb.train.get_global_step(graph) is made
    assert tb.train.get_global_step() is mine
    with tb.Graph().as_default():
        tb.Variable(0.5, name="global_step")
        with pytest.raises(InvalidArgumentError, match=r"a scalar integer, got global_step:0, float32"):
            tb.train.get_global_step()
    graph.add_to_collection("global_step", made)
    with pytest.raises(InvalidArgumentError, match="holds 2 items"):
        tb.train.get_global_step(graph)


def test_a_replicator_that_is_not_saved_is_warned_of(tmp_path):
    with tb.MultiGpuReplicator(["/cpu:0"], 2) as replicator:
        result = replicator.run(lambda x: tb.reduce_sum(x), lambda: np.ones(2, np.float32))
        replicator.init()  # without the session
        session = tb.train.MonitoredTrainingSession(checkpoint_dir=tmp_path, save_checkpoint_steps=2)
        with session, pytest.warns(UserWarning, match=r"neither restored nor saved: call replicator\.init"):
            session.run(result)


class Coordinated(tb.train.SessionRunHook):
    """Has the coordinator of each session."""

    def __init__(self):
        self.coordinators = []

    def after_create_session(self, session, coord):
        self.coordinators.append(coord)


def test_a_thread_of_a_hook_ends_the_loop():
    hook, x = Coordinated(), tb.constant(1)
    session = tb.train.MonitoredSession(hooks=[hook])
    session.run(x)
    assert not session.should_stop()
    hook.coordinators[0].request_stop(ValueError("of a thread"))
    assert session.should_stop()
    with pytest.raises(ValueError, match="of a thread"):
        session.close()


def test_the_error_of_the_block_comes_before_that_of_a_thread():
    hook = Coordinated()

    def block():
        with tb.train.MonitoredSession(hooks=[hook]):
            hook.coordinators[0].request_stop(ValueError("of a thread"))
            raise KeyError("of the block")

    with pytest.raises(KeyError, match="of the block"):
        block()


def test_a_creator_takes_the_options_itself():
    creator = tb.train.ChiefSessionCreator()
    with pytest.raises(InvalidArgumentError, match="give max_wait_secs to the creator"):
        tb.train.MonitoredSession(creator, max_wait_secs=3)
