"""Sessions that are restored, initialised or waited for: TensorFlow 1's cases of `session_manager_test`."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import DeadlineExceededError, FailedPreconditionError, InvalidArgumentError


def manager(**options):
    return tb.train.SessionManager(
        ready_op=tb.report_uninitialized_variables(), recovery_wait_secs=0.01, **options
    )


@pytest.fixture
def v(graph):
    return tb.Variable(np.array([1, 2], np.float32), name="v")


@pytest.fixture
def checkpoint(v, tmp_path):
    """A checkpoint in which v is [8, 9]; its saver."""
    saver = tb.train.Saver([v])
    with tb.Session() as session:
        v.load(np.array([8, 9], np.float32), session)
        saver.save(session, str(tmp_path / "model"), global_step=3)
    return saver


def test_init_op(v):  # testPrepareSessionSucceeds
    with manager().prepare_session("", tb.global_variables_initializer()) as session:
        assert session.run(v).tolist() == [1, 2]


def test_init_op_is_fed(graph):  # testPrepareSessionSucceedsWithInitFeedDict
    p = tb.placeholder(tb.float32, [2])
    v = tb.Variable(p, name="v")
    init = tb.global_variables_initializer()
    with manager().prepare_session("", init, init_feed_dict={p: [5, 6]}) as session:
        assert session.run(v).tolist() == [5, 6]


def test_init_fn(v):  # testPrepareSessionSucceedsWithInitFn
    with manager().prepare_session("", init_fn=lambda s: s.run(v.initializer)) as session:
        assert session.run(v).tolist() == [1, 2]


def test_nothing_gives_values(v):  # testPrepareSessionFails, testPrepareSessionDidNotInitLocalVariable...
    with pytest.raises(InvalidArgumentError, match="no checkpoint was restored; give an init_op"):
        manager().prepare_session("")
    with pytest.raises(FailedPreconditionError, match="there is no value for v; have the checkpoint"):
        manager().prepare_session("", tb.no_op())


def test_a_checkpoint_comes_before_init_op(v, checkpoint, tmp_path):
    init = tb.global_variables_initializer()
    with manager().prepare_session("", init, checkpoint, tmp_path) as session:
        assert session.run(v).tolist() == [8, 9]
    path = tb.train.latest_checkpoint(tmp_path)
    with manager().prepare_session(
        "", init, checkpoint, checkpoint_filename_with_path=path
    ) as session:  # testPrepareSessionSucceedsWithCheckpoint
        assert session.run(v).tolist() == [8, 9]
    with pytest.raises(
        InvalidArgumentError, match="expected checkpoint_dir or checkpoint_filename_with_path"
    ):
        manager().prepare_session("", init, checkpoint, tmp_path, path)


def test_a_session_is_recovered(v, checkpoint, tmp_path):  # testRecoverSession
    session, is_ready = manager().recover_session("", checkpoint, tmp_path / "none")
    with session:
        assert not is_ready
        assert not session.run(tb.is_variable_initialized(v))
    session, is_ready = manager().recover_session("", checkpoint, tmp_path)
    with session:
        assert is_ready
        assert session.run(v).tolist() == [8, 9]


def test_what_a_checkpoint_leaves_out_is_no_recovery(v, checkpoint, tmp_path):
    tb.Variable(1.0, name="w")  # testRecoverSessionNoChkptStillRunsLocalInitOp and its like
    session, is_ready = manager().recover_session("", checkpoint, tmp_path)
    with session:
        assert not is_ready
        assert session.run(v).tolist() == [8, 9]


def test_a_checkpoint_is_waited_for(v, tmp_path):  # testWaitForSessionReturnsNoneAfterTimeout
    saver = tb.train.Saver([v])
    session, is_ready = manager().recover_session(
        "", saver, tmp_path, wait_for_checkpoint=True, max_wait_secs=0.03
    )
    session.close()
    assert not is_ready

    def save():
        with tb.Session(graph=v.graph) as other:
            v.load(np.array([8, 9], np.float32), other)
            saver.save(other, str(tmp_path / "model"))

    thread = threading.Timer(0.05, save)
    thread.start()
    session, is_ready = manager().recover_session("", saver, tmp_path, wait_for_checkpoint=True)
    thread.join()
    with session:
        assert is_ready
        assert session.run(v).tolist() == [8, 9]


def test_local_variables_follow_the_global_ones(v):  # testPrepareSessionWithReadyForLocalInitOp
    w = tb.Variable(v.initialized_value() * 2, collections=[tb.GraphKeys.LOCAL_VARIABLES], name="w")
    x = tb.Variable(v * 3, collections=[tb.GraphKeys.LOCAL_VARIABLES], name="x")
    known = manager(
        local_init_op=tb.group(w.initializer, x.initializer),
        ready_for_local_init_op=tb.report_uninitialized_variables(tb.global_variables()),
    )
    with known.prepare_session("", tb.global_variables_initializer()) as session:
        assert [each.tolist() for each in session.run([v, w, x])] == [[1, 2], [2, 4], [3, 6]]
    with pytest.raises(FailedPreconditionError, match="no value for v"):
        known.prepare_session("", tb.no_op())


def test_local_init_op_is_fed(graph):  # testPrepareSessionWithLocalInitFeedDict and its like
    p = tb.placeholder(tb.float32, [])
    x = tb.Variable(p, collections=[tb.GraphKeys.LOCAL_VARIABLES], name="x")
    with manager(local_init_op=x.initializer, local_init_feed_dict={p: 4.0}).prepare_session("") as session:
        assert session.run(x) == 4


def test_a_worker_waits_for_its_chief(v):  # testWaitForSessionLocalInit, ...ReturnsNoneAfterTimeout
    server = tb.train.Server.create_local_server()
    try:
        init = tb.global_variables_initializer()
        with pytest.raises(
            DeadlineExceededError, match=r"waited 0\.02 s: the chief has not initialised v; start"
        ):
            manager().wait_for_session(server.target, max_wait_secs=0.02)
        worker = manager()
        with tb.Session(server.target) as chief:
            start = threading.Timer(0.05, chief.run, [init])
            start.start()
            with worker.wait_for_session(server.target, max_wait_secs=float("inf")) as session:
                assert session.run(v).tolist() == [1, 2]
            start.join()
    finally:
        server.stop()
