"""Supervisors and looper threads: TensorFlow 1's cases of `supervisor_test` and of `coordinator_test`."""

from __future__ import annotations

import logging
import threading
from collections import Counter

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
)


@pytest.fixture
def v(graph):
    return tb.Variable(np.array([1, 2], np.float32), name="v")


def events_of(folder):
    """Events of the newest event file of a folder."""
    newest = sorted(folder.glob("events.out.tfevents.*"), key=lambda path: int(path.name.split(".")[-1]))[-1]
    return list(tb.train.summary_iterator(newest))


@pytest.fixture
def written(monkeypatch):
    """Counts the summaries that are written: `written("first", 3)` waits for three more of the tag.

    The first of them may have been computed before the call, the second one has not.
    """
    counts, changed, add = Counter(), threading.Condition(), tb.summary.FileWriter.add_event

    def counted(writer, event, *step):
        add(writer, event, *step)
        with changed:
            for value in event.summary.value:
                counts[value.tag] += 1
            changed.notify_all()

    def wait(tag, count):
        with changed:
            wanted = counts[tag] + count
            assert changed.wait_for(lambda: counts[tag] >= wanted, timeout=20)

    monkeypatch.setattr(tb.summary.FileWriter, "add_event", counted)
    return wait


def summaries_of(folder):
    """Steps and values of all summaries in a folder's newest file, by their tags."""
    found = {}
    for event in events_of(folder):
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


# Summaries ----------------------------------------------------------------------------------------------


def test_summaries_are_written_in_the_background(v, tmp_path, written):  # testStandardServicesWithGlobalStep
    later = tb.assign_add(tb.train.create_global_step(), np.int64(5))
    tb.summary.scalar("first", v[0])
    supervisor = tb.train.Supervisor(logdir=tmp_path, save_summaries_secs=0.01)
    with supervisor.managed_session() as session:
        assert session.run(later) == 5
        written("first", 3)
        written("global_step/sec", 1)
    found = summaries_of(tmp_path)
    assert found["first"][-1] == (5, 1.0)
    events = events_of(tmp_path)
    assert any(event.graph_def for event in events)
    assert [event.step for event in events if event.session_log.status == 1] == [0]  # START
    with supervisor.managed_session():  # writes a file of its own, from the restored step
        pass
    assert [event.step for event in events_of(tmp_path) if event.session_log.status == 1] == [5]


def test_a_given_summary_without_a_step(v, tmp_path, written):  # testStandardServicesWithoutGlobalStep
    tb.summary.scalar("left_out", v[1])
    summary = tb.summary.scalar("first", v[0])
    supervisor = tb.train.Supervisor(logdir=tmp_path, summary_op=summary, save_summaries_secs=0.01)
    assert supervisor.summary_op is summary
    with supervisor.managed_session():
        written("first", 2)
    assert set(summaries_of(tmp_path)) == {"first"}


@pytest.mark.parametrize("given", [False, True])
def test_a_program_writes_its_own_summaries(v, tmp_path, given):  # testChiefCanWriteEvents
    x = tb.placeholder(tb.float32, [])
    summary = tb.summary.scalar("x", x * v[0])
    step = tb.train.create_global_step()
    writer = {"summary_writer": tb.summary.FileWriter(tmp_path)} if given else {"logdir": tmp_path}
    supervisor = tb.train.Supervisor(summary_op=None, global_step=step, **writer)
    with supervisor.managed_session(close_summary_writer=False) as session:
        supervisor.summary_computed(session, session.run(summary, {x: 3}))
        supervisor.summary_computed(session, session.run(summary, {x: 4}), global_step=7)
    supervisor.summary_writer.flush()
    assert summaries_of(tmp_path) == {"x": [(0, 3.0), (7, 4.0)]}
    with supervisor.managed_session() as session:
        supervisor.summary_computed(session, session.run(summary, {x: 5}), global_step=8)
    with pytest.raises(FailedPreconditionError, match="closed"):
        supervisor.summary_writer.add_summary(b"", 9)


def test_nobody_writes_without_a_writer(v, tmp_path):  # testNonChiefCannotWriteEvents and its like
    summary, said = tb.summary.scalar("first", v[0]), "requires a summary_writer; give the chief's"
    for options in (
        {},
        {"is_chief": False, "logdir": tmp_path},
        {"logdir": tmp_path, "summary_writer": None},
    ):
        supervisor = tb.train.Supervisor(**options)
        assert supervisor.summary_writer is None
        with tb.Session() as session:
            session.run(tb.global_variables_initializer())
            with pytest.raises(FailedPreconditionError, match=said):
                supervisor.summary_computed(session, session.run(summary))
    with pytest.raises(FailedPreconditionError, match="only the chief saves"):
        tb.train.Supervisor(is_chief=False).start_standard_services(tb.Session())
    assert not list(tmp_path.iterdir())


def test_a_summary_that_needs_feeds_is_told_of_once(v, tmp_path, caplog):
    tb.summary.scalar("x", tb.placeholder(tb.float32, [], name="x"))
    tried = threading.Semaphore(0)
    supervisor = tb.train.Supervisor(logdir=tmp_path, save_summaries_secs=0.001)
    run = tb.Session.run

    def counted(*arguments, **named):
        tried.release()
        return run(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch, supervisor.managed_session() as session:
        patch.setattr(type(session), "run", counted)
        for _ in range(4):
            assert tried.acquire(timeout=10)
        assert not supervisor.should_stop()
    (line,) = caplog.messages
    assert "no summary was saved: placeholder x (float32[]) is needed but not fed" in line
    assert "give summary_op=None" in line


# Values of variables ------------------------------------------------------------------------------------


def test_init_op_is_fed(graph):  # testInitOpWithFeedDict
    p = tb.placeholder(tb.float32, [2])
    v = tb.Variable(p, name="v")
    supervisor = tb.train.Supervisor(init_op=v.initializer, init_feed_dict={p: [5, 6]})
    with supervisor.managed_session() as session:
        assert session.run(v).tolist() == [5, 6]


def test_init_fn_and_no_init_op(v):  # testInitFn
    seen = []
    supervisor = tb.train.Supervisor(
        init_op=None, init_fn=lambda session: seen.append(v.load([3, 4], session))
    )
    assert supervisor.init_op is None
    with supervisor.managed_session() as session:
        assert session.run(v).tolist() == [3, 4]
    assert len(seen) == 1


def test_what_ready_op_names_has_no_value(v):  # testInitOpFails
    for options in ({}, {"ready_op": tb.report_uninitialized_variables([v])}):
        supervisor = tb.train.Supervisor(init_op=tb.no_op(), **options)
        with pytest.raises(FailedPreconditionError, match="there is no value for v; have the checkpoint"):
            supervisor.prepare_or_wait_for_session()
    unchecked = tb.train.Supervisor(init_op=tb.no_op(), ready_op=None, ready_for_local_init_op=None)
    with unchecked.managed_session() as session:
        session.run(v.initializer)


def test_pieces_of_collections(v):
    tb.add_to_collection(tb.GraphKeys.READY_OP, ready := tb.constant([], tb.string, [0]))
    tb.add_to_collection(tb.GraphKeys.INIT_OP, init := v.assign([7.0, 8.0]))
    supervisor = tb.train.Supervisor()
    assert (supervisor.ready_op, supervisor.init_op) == (ready, init)
    with supervisor.managed_session() as session:
        assert session.run(v).tolist() == [7, 8]


def test_local_variables_follow_the_restored_ones(v, tmp_path):  # testReadyForLocalInitOpRestoreFromCheckp...
    local = tb.Variable(v * 3, collections=[tb.GraphKeys.LOCAL_VARIABLES], name="local")
    with tb.train.Supervisor(logdir=tmp_path).managed_session() as session:
        assert session.run(local).tolist() == [3, 6]
        v.load([10, 20], session)
    saver = tb.train.Saver([v])
    w = tb.Variable(5.0, name="w")  # of no checkpoint
    supervisor = tb.train.Supervisor(logdir=tmp_path, saver=saver)
    with supervisor.managed_session() as session:
        assert [session.run(each).tolist() for each in (v, local, w)] == [[10, 20], [30, 60], 5]
    own = tb.train.Supervisor(logdir=tmp_path, local_init_op=local.assign([0.0, 1.0]), saver=None)
    with own.managed_session() as session:  # a saver that is None restores nothing
        assert [session.run(each).tolist() for each in (v, local)] == [[1, 2], [0, 1]]
    with pytest.raises(FailedPreconditionError, match="no value for local"):
        tb.train.Supervisor(local_init_op=None).prepare_or_wait_for_session()


def test_a_session_manager_makes_the_sessions(v, tmp_path):
    class Noting(tb.train.SessionManager):
        def prepare_session(self, master, **options):
            self.noted = options
            return super().prepare_session(master, **options)

    manager = Noting(ready_op=tb.report_uninitialized_variables())
    supervisor = tb.train.Supervisor(logdir=tmp_path, session_manager=manager)
    assert supervisor.session_manager is manager
    with supervisor.managed_session() as session:
        assert session.run(v).tolist() == [1, 2]
    assert manager.noted["checkpoint_dir"] == tmp_path
    assert manager.noted["init_op"] is supervisor.init_op
    assert isinstance(tb.train.Supervisor().session_manager, tb.train.SessionManager)


def test_a_chief_waits_for_a_checkpoint(v, tmp_path):
    supervisor = tb.train.Supervisor(logdir=tmp_path / "there")

    def save():
        with tb.Session(graph=v.graph) as session, v.graph.as_default():
            v.load([8, 9], session)
            tb.train.Saver([v]).save(session, str(tmp_path / "there" / "model"))

    thread = threading.Timer(0.05, save)
    thread.start()
    session = supervisor.prepare_or_wait_for_session(wait_for_checkpoint=True)
    thread.join()
    assert session.run(v).tolist() == [8, 9]
    supervisor.stop()


def test_only_a_cluster_has_a_chief(v):
    with pytest.raises(InvalidArgumentError, match=r"is_chief=False needs the target of a tb\.train\.Server"):
        tb.train.Supervisor(is_chief=False).prepare_or_wait_for_session()
    server = tb.train.Server.create_local_server()
    try:
        other = tb.train.Supervisor(is_chief=False)
        with pytest.raises(DeadlineExceededError, match=r"waited 0\.1 s: the chief has not initialised v;"):
            other.prepare_or_wait_for_session(server.target, max_wait_secs=0.1)
        with tb.train.Supervisor().managed_session(server.target) as chief:
            v.load([6, 7], chief)
            assert other.prepare_or_wait_for_session(server.target).run(v).tolist() == [6, 7]
            other.stop()
    finally:
        server.stop()


# Threads ------------------------------------------------------------------------------------------------


def test_own_loops_end_with_the_session(v):  # testLoop and its like of coordinator_test
    seen, enough = [], threading.Event()

    def note(*arguments, **named):
        seen.append((*arguments, named))
        if len(seen) == 3:
            enough.set()

    supervisor = tb.train.Supervisor()
    with supervisor.managed_session():
        thread = supervisor.loop(0.001, note, args=(1,), kwargs={"a": 2})
        assert enough.wait(10)
    assert not thread.is_alive()
    assert set(map(str, seen)) == {"(1, {'a': 2})"}


def test_an_error_of_a_loop_ends_the_training(v):  # testManagedSessionUserError and its like
    def fail():
        raise ValueError("of a loop")

    supervisor = tb.train.Supervisor()

    def train():
        with supervisor.managed_session():
            supervisor.loop(None, fail)
            supervisor.wait_for_stop()

    with pytest.raises(ValueError, match="of a loop"):
        train()
    assert supervisor.should_stop()
    with supervisor.managed_session():  # begins anew
        assert not supervisor.should_stop()
        with supervisor.stop_on_exception():
            raise OutOfRangeError("the end")
        assert supervisor.should_stop()


def test_a_looper_thread_calls_its_methods_in_order():
    class Noting(tb.train.LooperThread):
        def start_loop(self):
            self.noted = ["start"]

        def run_loop(self):
            self.noted.append("loop")
            self._coord.request_stop()

        def stop_loop(self):
            self.noted.append("stop")

    coordinator = tb.train.Coordinator()
    thread = Noting(coordinator, 3600)
    thread.start()
    coordinator.join()
    assert thread.noted == ["start", "loop", "stop"]


def test_rates_of_steps_are_logged_without_summaries(v, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    tb.train.create_global_step()
    supervisor = tb.train.Supervisor(logdir=tmp_path, save_summaries_secs=0.001)
    with supervisor.managed_session():
        while not any(line.startswith("global_step/sec: 0") for line in caplog.messages):
            assert not supervisor.coord.wait_for_stop(0.01)
    assert not list(tmp_path.glob("events*"))
