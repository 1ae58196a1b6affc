"""Scaffolds, creators of sessions, and what tells which variables have values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")


def names(report: Any) -> list[str]:
    return [name.decode() for name in report]


def test_variables_without_a_value_are_reported() -> None:
    a, b = tb.Variable(1.0, name="a"), tb.Variable(np.zeros(2), name="b")
    local = tb.get_local_variable("local", [], initializer=tb.zeros_initializer())
    report, of_one = tb.report_uninitialized_variables(), tb.report_uninitialized_variables([b])
    ready = tb.is_variable_initialized(a)
    assert (report.dtype, ready.dtype, ready.shape) == (tb.string, tb.bool, [])
    with tb.Session() as session:
        assert names(session.run(report)) == ["a", "b", "local"]
        session.run(a.initializer)
        assert session.run([ready, tb.is_variable_initialized(b)]) == [True, False]
        assert names(session.run(report)) == ["b", "local"]
        session.load_variables({"b": [1.0, 2.0]})
        assert (names(session.run(report)), len(session.run(of_one))) == (["local"], 0)
        session.run(local.initializer)
        assert session.run(report).shape == (0,)
        assert session.run(tb.report_uninitialized_variables([])).shape == (0,)
    with tb.Session() as session:
        assert names(session.run(report)) == ["a", "b", "local"]


@pytest.mark.parametrize("target", ["", "tensorbow"])
def test_the_default_pieces(target: str) -> None:
    w = tb.Variable(3.0, name="w")
    count = tb.get_local_variable("count", [], initializer=tb.ones_initializer())
    scaffold = tb.train.Scaffold()
    with tb.train.MonitoredTrainingSession(target, scaffold=scaffold) as session:
        assert session.run([w, count]) == [3.0, 1.0]
    assert scaffold.init_op is not None
    assert scaffold.summary_op is None
    assert isinstance(scaffold.saver, tb.train.Saver)
    with tb.train.MonitoredSession() as session:
        assert session.run([w, count]) == [3.0, 1.0]


def test_pieces_of_ones_own_run_in_order(tmp_path: Path) -> None:
    weights = tb.placeholder(tb.float32, [3], name="weights")
    w, bias = tb.Variable(weights, name="w"), tb.Variable(0.0, name="bias")
    seen = tb.get_local_variable("seen", [3], initializer=tb.zeros_initializer())
    start = tb.group(w.initializer, bias.initializer)
    calls: list[Any] = []

    def init_fn(scaffold: Any, session: Any) -> None:
        calls.append((scaffold, session.run(w).tolist()))
        session.run(bias.assign_add(5.0))

    def run(value: float) -> list[Any]:
        scaffold = tb.train.Scaffold(
            init_op=start,
            init_feed_dict={weights: np.full(3, value)},
            init_fn=init_fn,
            local_init_op=seen.assign(w * 2.0),
            local_init_feed_dict={},
        )
        options = {"scaffold": scaffold, "checkpoint_dir": tmp_path, "save_checkpoint_steps": 10}
        with tb.train.MonitoredTrainingSession(**options) as session:
            found = session.run([w, bias, seen])
            session.run(w.assign_add([1.0, 1.0, 1.0]))
        assert all(each[0] is scaffold for each in calls[-1:] if value == 2.0)
        return [each.tolist() for each in found]

    assert run(2.0) == [[2.0] * 3, 5.0, [4.0] * 3]
    assert [each[1] for each in calls] == [[2.0] * 3]
    assert run(7.0) == [[3.0] * 3, 5.0, [6.0] * 3]  # restored: neither init_op nor init_fn
    assert len(calls) == 1


def test_an_init_op_that_forgets_a_variable_is_told(tmp_path: Path) -> None:
    a, *_ = [tb.Variable(float(i), name=name) for i, name in enumerate("abcdef")]
    words = r"Scaffold: after init_op, init_fn and local_init_op there is no value for b, c, d and 2 more"
    with pytest.raises(FailedPreconditionError, match=words):
        tb.train.MonitoredTrainingSession(scaffold=tb.train.Scaffold(init_op=a.initializer))
    never = tb.constant(["something"])
    with pytest.raises(FailedPreconditionError, match="no value for something;"):
        tb.train.MonitoredTrainingSession(scaffold=tb.train.Scaffold(ready_op=never))

    def fill(scaffold: Any, session: Any) -> None:
        session.load_variables(dict.fromkeys("bcdef", 9.0))

    scaffold = tb.train.Scaffold(init_op=a.initializer, init_fn=fill)
    with tb.train.MonitoredTrainingSession(scaffold=scaffold) as session:
        assert session.run(tb.global_variables()) == [0.0, *[9.0] * 5]


def test_a_saver_of_ones_own_saves_and_restores(tmp_path: Path) -> None:
    kept, other = tb.Variable(1.0, name="kept"), tb.Variable(1.0, name="other")
    both = tb.group(kept.assign_add(1.0), other.assign_add(1.0))
    for expected in ([2.0, 2.0], [3.0, 2.0]):
        scaffold = tb.train.Scaffold(saver=tb.train.Saver([kept]))
        creator = tb.train.ChiefSessionCreator(scaffold, checkpoint_dir=tmp_path)
        hook = tb.train.CheckpointSaverHook(tmp_path, save_steps=1, scaffold=scaffold)
        with tb.train.MonitoredSession(creator, hooks=[hook]) as session:
            session.run(both)
            assert session.run([kept, other]) == expected
    path = tb.train.latest_checkpoint(tmp_path)
    assert [name for name, _ in tb.train.list_variables(path)] == ["kept"]
    creator = tb.train.ChiefSessionCreator(checkpoint_filename_with_path=path)
    creator.scaffold.saver = tb.train.Saver([kept])
    with tb.train.MonitoredSession(creator) as session:
        assert session.run([kept, other]) == [3.0, 1.0]


def test_summaries_and_hooks_of_the_chief(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    step = tb.train.get_or_create_global_step()
    tb.summary.scalar("step", tb.cast(step, tb.float32))
    own = tb.summary.scalar("own", tb.constant(2.5), collections=[])
    count = step.assign_add(1)
    hook = tb.train.StopAtStepHook(4)
    for scaffold, tag in ((None, "step"), (tb.train.Scaffold(summary_op=own), "own")):
        folder = tmp_path / tag
        options: dict[str, Any] = {"save_summaries_steps": 2, "summary_dir": folder, "scaffold": scaffold}
        with tb.train.MonitoredTrainingSession(chief_only_hooks=[hook], **options) as session:
            while not session.should_stop():
                session.run(count)
        (path,) = folder.iterdir()
        events = [value.tag for event in tb.train.summary_iterator(path) for value in event.summary.value]
        assert events == [tag, tag]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tb.train.Scaffold(init_fn=3), "expected init_fn to be"),
        (lambda: tb.train.Scaffold(init_op="init"), "expected init_op to be an operation or a tensor"),
        (lambda: tb.train.Scaffold(saver="s"), r"expected saver to be a tb\.train\.Saver"),
        (lambda: tb.train.ChiefSessionCreator(None, "", None, "a", "b"), "checkpoint_dir or checkpoint_file"),
        (lambda: tb.train.MonitoredSession(3), r"expected session_creator to be a tb\.train\.SessionCreator"),
        (
            lambda: tb.train.MonitoredSession(tb.train.ChiefSessionCreator(), target="tensorbow"),
            "expected session_creator or options of a session, got both; give target to the creator",
        ),
        (
            lambda: tb.train.MonitoredTrainingSession(save_summaries_steps=3),
            "need a checkpoint_dir or",
        ),
        (
            lambda: tb.train.CheckpointSaverHook(
                "a", 1, saver=tb.train.Saver([tb.Variable(1.0)]), scaffold=tb.train.Scaffold()
            ),
            "expected saver or scaffold, got both",
        ),
        (
            lambda: tb.train.MonitoredSession(tb.train.WorkerSessionCreator()),
            "needs the target of a tb",
        ),
    ],
)
def test_wrong_pieces_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        make()


def test_a_scaffold_takes_the_pieces_of_another() -> None:
    w = tb.Variable(3.0, name="w")
    calls: list[Any] = []
    first = tb.train.Scaffold(
        init_op=w.assign(5.0).op, init_fn=lambda scaffold, session: calls.append((scaffold, session.run(w)))
    )
    first.finalize()
    second = tb.train.Scaffold(copy_from_scaffold=first)
    third = tb.train.Scaffold(init_op=w.assign(7.0).op, copy_from_scaffold=second)
    assert (second.init_op, second.saver, second.local_init_op) == (first.init_op, None, None)
    for scaffold, value in ((second, 5.0), (third, 7.0)):
        with tb.train.MonitoredTrainingSession(scaffold=scaffold) as session:
            assert session.run(w) == value
    assert calls == [(second, 5.0), (third, 7.0)]
    with pytest.raises(InvalidArgumentError, match="expected copy_from_scaffold to be a tb"):
        tb.train.Scaffold(copy_from_scaffold=3)  # type: ignore[arg-type]


def test_pieces_in_collections_of_the_graph() -> None:
    w = tb.Variable(3.0, name="w")
    local = tb.get_local_variable("local", [], initializer=tb.zeros_initializer())
    keys = tb.GraphKeys
    for key, piece in ((keys.INIT_OP, w.assign(4.0).op), (keys.LOCAL_INIT_OP, local.assign(6.0).op)):
        tb.add_to_collection(key, piece)
    with tb.train.MonitoredTrainingSession() as session:
        assert session.run([w, local]) == [4.0, 6.0]
    made = tb.train.Scaffold.get_or_default("ready_op", "mine", tb.no_op)
    assert tb.train.Scaffold.get_or_default("ready_op", "mine", lambda: None) is made
    assert tb.train.Scaffold.get_or_default("saver", "none", lambda: None) is None
    assert tb.get_collection("none") == []
    with tb.Session() as session:
        session.run(tb.train.Scaffold.default_local_init_op())
        assert session.run(local) == 0
    tb.add_to_collection(keys.INIT_OP, w.initializer)
    with pytest.raises(InvalidArgumentError, match=r"'init_op', got 2; give .*tb\.train\.Scaffold\(init_op="):
        tb.train.MonitoredTrainingSession()
