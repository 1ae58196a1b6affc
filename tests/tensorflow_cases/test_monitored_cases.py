"""Monitored sessions and hooks: TensorFlow 1's cases of `monitored_session_test` and of the hooks' tests."""

from __future__ import annotations

import os

import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError, TensorBowError


class Noting(tb.train.SessionRunHook):
    """Notes the calls of a session, and adds arguments to its runs."""

    def __init__(self, arguments=None, stops_after=None):
        self.calls, self.values = [], []
        self._arguments, self._stops_after = arguments, stops_after

    def begin(self):
        self.calls.append("begin")

    def after_create_session(self, session):
        self.calls.append("created")

    def before_run(self, run_context):
        self.calls.append("before")
        self.original = run_context.original_args
        return self._arguments

    def after_run(self, run_context, run_values):
        self.calls.append("after")
        self.values.append(run_values.results)
        if self._stops_after is not None and len(self.values) >= self._stops_after:
            run_context.request_stop()

    def end(self, session):
        self.calls.append("end")


@pytest.fixture
def step(graph):
    """The operation that adds 1 to the global step."""
    return tb.assign_add(tb.train.get_or_create_global_step(), 1)


def steps_of(folder):
    """Steps of a folder's checkpoints."""
    names = [name for name in os.listdir(folder) if name.endswith(".safetensors")]
    return sorted(int(name.removesuffix(".safetensors").rpartition("-")[2]) for name in names)


# Sessions: MonitoredSessionTest, WrappedSessionTest, CoordinatedSessionTest


def test_variables_are_initialised(graph):  # test_defaults
    a, b = tb.Variable(42), tb.Variable(1.0)
    with tb.train.MonitoredSession() as session:
        assert session.run([a, b]) == [42, 1.0]


def test_it_is_the_default_session(graph):
    x = tb.constant(3.0)
    with tb.train.MonitoredSession() as session:
        assert session.graph is graph
        assert x.eval() == 3.0
    assert tb.get_default_session() is None


def test_the_last_step(step):  # test_last_step
    with tb.train.MonitoredSession(hooks=[tb.train.StopAtStepHook(last_step=3)]) as session:
        found = []
        while not session.should_stop():
            found.append(session.run(step))
    assert found == [1, 2, 3]


def test_the_number_of_steps(step, tmp_path):  # test_num_steps
    for expected in ([1, 2, 3], [4, 5, 6]):
        found = []
        with tb.train.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_checkpoint_steps=3, hooks=[tb.train.StopAtStepHook(num_steps=3)]
        ) as session:
            while not session.should_stop():
                found.append(session.run(step))
        assert found == expected


def test_steps_of_several_at_once(graph):  # test_stop_based_with_multiple_steps
    by_four = tb.assign_add(tb.train.get_or_create_global_step(), 4)
    with tb.train.MonitoredSession(hooks=[tb.train.StopAtStepHook(num_steps=10)]) as session:
        found = []
        while not session.should_stop():
            found.append(session.run(by_four))
    assert found == [4, 8, 12]


@pytest.mark.parametrize("options", [{}, {"num_steps": 10, "last_step": 20}], ids=["none", "both"])
def test_one_of_both_limits(graph, options):  # test_raise_in_both_last_step_and_num_steps
    with pytest.raises((TensorBowError, ValueError), match="num_steps"):
        tb.train.StopAtStepHook(**options)


def test_the_end_of_the_input_ends_the_block(graph):  # test_exit_cleanly_on_out_of_range_exception
    hook, x = Noting(), tb.constant(1.0)
    with tb.train.MonitoredSession(hooks=[hook]) as session:
        session.run(x)
        raise OutOfRangeError("the end")
    assert hook.calls[-1] == "end"
    assert session.should_stop()


def test_the_end_of_a_queue_ends_the_loop(graph):
    queue = tb.FIFOQueue(3, tb.int32, [[]])
    fill, close, take = queue.enqueue_many([[1, 2]]), queue.close(), queue.dequeue()
    found = []
    with tb.train.MonitoredSession() as session:
        session.run(fill)
        session.run(close)
        while not session.should_stop():
            found.append(session.run(take))
    assert found == [1, 2]


def test_other_errors_pass_through(graph):  # test_raises_regular_exceptions_in_with_body
    hook = Noting()
    with pytest.raises(RuntimeError, match="regular"), tb.train.MonitoredSession(hooks=[hook]):
        raise RuntimeError("regular exception")
    assert "end" not in hook.calls


def test_errors_of_a_hook_pass_through(graph):  # test_regular_exception_pass_through_run
    class Raising(tb.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            raise RuntimeError("from the hook")

    x = tb.constant(1.0)
    with (
        pytest.raises(RuntimeError, match="from the hook"),
        tb.train.MonitoredSession(hooks=[Raising()]) as session,
    ):
        session.run(x)


def test_should_stop_after_close(graph):  # test_should_stop_on_close, test_close_twice
    session = tb.train.MonitoredSession()
    assert not session.should_stop()
    session.close()
    session.close()
    assert session.should_stop()
    with pytest.raises((FailedPreconditionError, RuntimeError), match="closed"):
        session.run([])


def test_it_may_be_used_without_with(graph):  # test_with_statement_and_close
    v = tb.Variable(5)
    session = tb.train.MonitoredSession()
    assert session.run(v) == 5
    session.close()


@pytest.mark.parametrize("hooks", [3, [3], [tb.train.SessionRunHook]], ids=str)
def test_what_is_no_hook(graph, hooks):
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.train.MonitoredSession(hooks=hooks)


# Hooks: HookedSessionTest


def test_hooks_are_called_around_every_run(graph):  # testCallsHooksBeginEnd
    hook, x = Noting(), tb.constant(1.0)
    with tb.train.MonitoredSession(hooks=[hook]) as session:
        session.run(x)
        session.run(x)
    assert hook.calls == ["begin", "created", "before", "after", "before", "after", "end"]


def test_begin_may_add_to_the_graph(graph):
    class Adding(tb.train.SessionRunHook):
        def begin(self):
            self.v = tb.Variable(7, name="of_the_hook")

        def before_run(self, run_context):
            return tb.train.SessionRunArgs(self.v)

        def after_run(self, run_context, run_values):
            self.found = run_values.results

    hook = Adding()
    with tb.train.MonitoredSession(hooks=[hook]) as session:
        session.run([])
    assert hook.found == 7


def test_a_hook_stops_the_loop(graph):  # testShouldStop
    hook, x = Noting(stops_after=2), tb.constant(1.0)
    with tb.train.MonitoredSession(hooks=[hook]) as session:
        assert not session.should_stop()
        session.run(x)
        assert not session.should_stop()
        session.run(x)
        assert session.should_stop()


def test_hooks_get_what_they_fetch(graph):  # testFetchesHookArgs
    one, two = Noting(tb.train.SessionRunArgs([tb.constant(1), tb.constant(2)])), Noting()
    three = Noting(tb.train.SessionRunArgs({"a": tb.constant([0, 0]), "b": tb.constant(5).op}))
    with tb.train.MonitoredSession(hooks=[one, two, three]) as session:
        session.run([])
    assert one.values == [[1, 2]]
    assert two.values == [None]
    assert three.values[0]["a"].tolist() == [0, 0]
    assert three.values[0]["b"] is None


def test_hooks_see_the_callers_arguments(graph):
    x = tb.placeholder(tb.float32, [])
    y, hook = x + 1.0, Noting()
    with tb.train.MonitoredSession(hooks=[hook]) as session:
        assert session.run(y, {x: 2.0}) == 3.0
    assert hook.original.fetches is y
    assert hook.original.feed_dict == {x: 2.0}


def test_hooks_feed(graph):  # testOnlyHooksHaveFeeds, testBothHooksAndUserHaveFeeds
    a, b, c = (tb.placeholder(tb.float32, []) for _ in range(3))
    total = a + b + c
    hooks = [
        Noting(tb.train.SessionRunArgs(None, {a: 5.0})),
        Noting(tb.train.SessionRunArgs([total], {b: 10.0})),
    ]
    with tb.train.MonitoredSession(hooks=hooks) as session:
        assert session.run(total, {c: 1.0}) == 16.0
        assert session.run(total, {c: 2.0}) == 17.0
    assert hooks[1].values == [[16.0], [17.0]]


@pytest.mark.parametrize("caller", [False, True], ids=["hooks", "caller"])
def test_a_tensor_is_fed_once(graph, caller):  # testHooksFeedConflicts, testHooksAndUserFeedConflicts
    a = tb.placeholder(tb.float32, [])
    y = a + 1.0
    hooks = [Noting(tb.train.SessionRunArgs(None, {a: 5.0})) for _ in range(1 if caller else 2)]
    with (
        tb.train.MonitoredSession(hooks=hooks) as session,
        pytest.raises((TensorBowError, RuntimeError), match="fed"),
    ):
        session.run(y, {a: 1.0} if caller else None)


# Checkpoints: MonitoredTrainingSessionTest, CheckpointSaverHookTest


def test_a_session_goes_on_from_its_checkpoint(step, tmp_path):  # test_saving_restoring_checkpoint
    with tb.train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
        assert session.run(step) == 1
        assert session.run(step) == 2
    with tb.train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
        assert session.run(tb.train.get_global_step()) == 2
        assert session.run(step) == 3


def test_checkpoints_every_so_many_steps(
    step, tmp_path
):  # test_save_checkpoint_steps, test_save_steps_saves_periodically
    with tb.train.MonitoredTrainingSession(checkpoint_dir=tmp_path, save_checkpoint_steps=3) as session:
        for _ in range(7):
            session.run(step)
        assert steps_of(tmp_path) == [3, 6]
    assert steps_of(tmp_path) == [3, 6, 7]  # and at the end: test_save_saves_at_end


def test_checkpoints_every_so_many_seconds(step, tmp_path):  # test_save_checkpoint_secs
    with tb.train.MonitoredTrainingSession(checkpoint_dir=tmp_path, save_checkpoint_secs=1e-9) as session:
        session.run(step)
        session.run(step)
        assert steps_of(tmp_path) == [1, 2]


def test_a_checkpoint_after_the_training_is_not_written_twice(step, tmp_path):
    with tb.train.MonitoredTrainingSession(checkpoint_dir=tmp_path, save_checkpoint_steps=2) as session:
        session.run(step)
        session.run(step)
        written = os.stat(tb.train.latest_checkpoint(tmp_path)).st_mtime_ns
    assert os.stat(tb.train.latest_checkpoint(tmp_path)).st_mtime_ns == written


def test_an_error_saves_nothing(step, tmp_path):
    session = tb.train.MonitoredTrainingSession(checkpoint_dir=tmp_path)
    session.run(step)
    with pytest.raises(RuntimeError), session:
        raise RuntimeError("fault")
    assert tb.train.latest_checkpoint(tmp_path) is None


def test_a_saver_of_ones_own(step, tmp_path):  # test_custom_saving
    v = tb.Variable(5.0, name="v")
    hook = tb.train.CheckpointSaverHook(
        tmp_path, save_steps=1, saver=tb.train.Saver([v]), checkpoint_basename="own"
    )
    with tb.train.MonitoredSession(hooks=[hook]) as session:
        session.run(step)
    assert tb.train.list_variables(tb.train.latest_checkpoint(tmp_path)) == [("v", [])]
    assert os.path.basename(tb.train.latest_checkpoint(tmp_path)).startswith("own-1")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"save_secs": 1, "save_steps": 1},
        {"save_steps": 0},
        {"save_secs": -1},
        {"save_steps": 1, "saver": 3},
    ],
    ids=str,
)
def test_arguments_that_do_not_fit(tmp_path, options):  # test_raise_when_saver_and_scaffold_both_present, ...
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.train.CheckpointSaverHook(tmp_path, **options)


def test_saving_needs_a_folder(graph):
    with pytest.raises(InvalidArgumentError, match="checkpoint_dir"):
        tb.train.MonitoredTrainingSession(save_checkpoint_steps=3)


# The global step: training_util_test, basic_session_run_hooks_test


def test_there_is_one_global_step(graph):
    assert tb.train.get_global_step() is None
    made = tb.train.create_global_step()
    assert tb.train.get_global_step() is made
    assert tb.train.get_or_create_global_step() is made
    assert (made.dtype, made.trainable, made.shape.as_list()) == (tb.int64, False, [])
    with pytest.raises((TensorBowError, ValueError)):
        tb.train.create_global_step()


def test_an_optimiser_counts_the_global_step(graph):
    step, w = tb.train.get_or_create_global_step(), tb.Variable(1.0)
    train = tb.train.GradientDescentOptimizer(0.1).minimize(w * w, global_step=step)
    with tb.train.MonitoredSession(hooks=[tb.train.StopAtStepHook(last_step=4)]) as session:
        while not session.should_stop():
            session.run(train)
        assert step.eval() == 4


# Threads of queue runners: monitored_session_test, supervisor_test.testManagedSession with queue runners


def pipeline(fails=False):
    """Batches of an epoch, made by threads that count it in a local variable."""

    def checked(number):
        if fails and number == 3:
            raise ValueError("no number 3")
        return number

    number = tb.train.range_input_producer(5, num_epochs=1, shuffle=False).dequeue()
    checked_number = tb.py_func(checked, [number], tb.int32)
    checked_number.set_shape([])
    return tb.train.batch([checked_number], 2, allow_smaller_final_batch=True)


def test_a_monitored_session_fills_the_queues(graph):
    step, batch = tb.train.get_or_create_global_step(), pipeline()
    count, found, coordinators = step.assign_add(1), [], []

    class Told(tb.train.SessionRunHook):
        def after_create_session(self, session, coord):
            coordinators.append(coord)

    with tb.train.MonitoredTrainingSession(hooks=[Told()]) as session:
        while not session.should_stop():
            found.append(session.run([batch, count])[0].tolist())
    assert found == [[0, 1], [2, 3], [4]]
    assert [isinstance(each, tb.train.Coordinator) for each in coordinators] == [True]
    assert coordinators[0].should_stop()


def test_an_error_of_a_thread_ends_a_monitored_session(graph):
    batch = pipeline(fails=True)

    def train():
        with tb.train.MonitoredSession() as session:
            while not session.should_stop():
                session.run(batch)

    with pytest.raises(InvalidArgumentError, match="no number 3"):
        train()


def test_a_supervisor_fills_the_queues(graph):
    batch, found = pipeline(), []
    supervisor = tb.train.Supervisor()
    with supervisor.managed_session() as session:
        while not supervisor.should_stop():
            found.append(session.run(batch).tolist())
    assert found == [[0, 1], [2, 3], [4]]
    assert supervisor.coord.should_stop()
