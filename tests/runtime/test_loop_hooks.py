"""Hooks of monitored sessions that log, watch the loss, feed and end."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError


@pytest.fixture
def step() -> Any:
    """A global step that each run raises by one."""
    with tb.Graph().as_default():
        yield tb.train.get_or_create_global_step().assign_add(1)


def run(step: Any, *hooks: Any, steps: int = 7) -> None:
    with tb.train.MonitoredSession(hooks=[*hooks, tb.train.StopAtStepHook(steps)]) as session:
        while not session.should_stop():
            session.run(step)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tensorbow"]


def test_tensors_are_logged_every_so_many_steps_and_at_the_end(step, caplog):
    caplog.set_level(logging.INFO, "tensorbow")
    run(step, tb.train.LoggingTensorHook({"step": step}, every_n_iter=3, at_end=True))
    logged = lines(caplog)
    assert [line.split(" (")[0] for line in logged] == ["step = 1", "step = 4", "step = 7", "step = 8"]
    assert logged[1].endswith(" sec)")
    caplog.clear()
    hook = tb.train.LoggingTensorHook(
        [step], at_end=True, formatter=lambda values: f"now {values[step.name]}"
    )
    run(step, hook, steps=1)
    assert lines(caplog) == ["now 2"]
    caplog.clear()
    run(step, tb.train.LoggingTensorHook([step], every_n_secs=1e6), steps=2)
    assert lines(caplog) == [f"{step.name} = 1"]


def test_a_loss_that_is_not_finite_ends_the_loop(step, caplog):
    loss = tb.where(step > 3, np.nan, 1.0)
    with pytest.raises(tb.train.NanLossDuringTrainingError, match=r"NanTensorHook: .* is not finite; lower"):
        run(step, tb.train.NanTensorHook(loss))
    done = []
    hook = tb.train.FinalOpsHook({"step": tb.train.get_global_step()})
    run(step, tb.train.NanTensorHook(loss, fail_on_nan_loss=False), hook, steps=9)
    done.append(int(hook.final_ops_values["step"]))
    assert done == [4]
    assert "the loop is asked to stop" in lines(caplog)[-1]


def test_steps_per_second(step, caplog):
    caplog.set_level(logging.INFO, "tensorbow")
    run(step, tb.train.StepCounterHook(3))
    assert len(lines(caplog)) == 2  # at steps 4 and 7, since step 1
    assert all(float(line.removeprefix("global_step/sec: ")) > 0 for line in lines(caplog))
    with pytest.raises(InvalidArgumentError, match="StepCounterHook: expected either every_n"):
        tb.train.StepCounterHook(3, 1.0)


def test_a_hook_counts_anew_in_another_session(step, caplog):
    caplog.set_level(logging.INFO, "tensorbow")
    hook = tb.train.LoggingTensorHook({"step": step}, every_n_iter=5)
    for _ in range(2):
        run(step, hook, steps=2)
    assert [line.split(" (")[0] for line in lines(caplog)] == ["step = 1", "step = 1"]


def test_feeds_come_from_a_function(step):
    x = tb.placeholder(tb.float32, [])
    total = tb.Variable(0.0)
    numbers = iter([1.0, 2.0, 4.0])
    hook = tb.train.FinalOpsHook(total)
    add = tb.group(step, total.assign_add(x))
    run(add, tb.train.FeedFnHook(lambda: {x: next(numbers)}), hook, steps=3)
    assert hook.final_ops_values == 7


def test_a_worker_waits_for_the_global_step(step, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "tensorbow")
    hook = tb.train.GlobalStepWaiterHook(3)
    monkeypatch.setattr(hook, "PAUSE_S", 0.0)
    reads = iter([0, 1, 2, 3])
    context = type("Context", (), {"session": type("Session", (), {"run": lambda self, _: next(reads)})()})()
    hook.begin()
    hook.before_run(context)
    assert lines(caplog) == ["Waiting for global step 3 before starting training."]
    assert next(reads, None) is None
    hook.before_run(context)  # does not wait again
    with tb.Graph().as_default(), pytest.raises(FailedPreconditionError, match="expected a global step"):
        tb.train.GlobalStepWaiterHook(3).begin()


def test_either_steps_or_seconds(step):
    for wrong in ({}, {"every_n_iter": 1, "every_n_secs": 1.0}):
        with pytest.raises(InvalidArgumentError, match="LoggingTensorHook: expected either every_n"):
            tb.train.LoggingTensorHook([step], **wrong)
    with pytest.raises(InvalidArgumentError, match="expected tensors to be a list of tensors, or"):
        tb.train.LoggingTensorHook(3, 1)
