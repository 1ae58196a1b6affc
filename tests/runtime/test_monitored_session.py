"""`tb.train.MonitoredSession`: initialises, runs its hooks, ends with the input."""

from __future__ import annotations

import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError


@pytest.fixture(autouse=True)
def own_graph():
    with tb.Graph().as_default():
        yield


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
        self.calls.append(run_values)

    def end(self, session):
        self.calls.append("end")


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
        *["before", 1],
        *["before", 2],
        *["before", 3],
        "before",
        3,
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


def test_a_hook_that_never_stops_is_refused():
    with pytest.raises(InvalidArgumentError, match="at least 1 step, got 0"):
        tb.train.StopAtStepHook(0)
