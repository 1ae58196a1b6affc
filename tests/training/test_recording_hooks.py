"""Hooks that write summaries, rates of steps and traces, and listeners of checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError


@pytest.fixture
def step() -> Iterator[Any]:
    """A global step that each run raises by one."""
    with tb.Graph().as_default():
        yield tb.train.get_or_create_global_step().assign_add(1)


@pytest.fixture
def writers() -> Iterator[None]:
    pytest.importorskip("tensorboardX")
    yield
    tb.summary.FileWriterCache.clear()


def run(fetches: Any, *hooks: Any, steps: int = 7) -> None:
    with tb.train.MonitoredSession(hooks=[*hooks, tb.train.StopAtStepHook(steps)]) as session:
        while not session.should_stop():
            session.run(fetches)


def summaries(folder: Path) -> list[tuple[str, int]]:
    (path,) = folder.iterdir()
    events = tb.train.summary_iterator(path)
    return [(value.tag, event.step) for event in events for value in event.summary.value]


def traces(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("timeline-").removesuffix(".json")) for path in folder.iterdir())


def test_hooks_of_one_folder_share_a_file(step: Any, writers: None, tmp_path: Path) -> None:
    both = [tb.summary.scalar(name, tb.cast(step, tb.float32)) for name in "ab"]
    counter = tb.train.StepCounterHook(3, output_dir=tmp_path)
    saver = tb.train.SummarySaverHook(4, output_dir=tmp_path, summary_op=both)
    run(step, counter, saver, steps=6)
    rates = [at for tag, at in summaries(tmp_path) if tag == "global_step/sec"]
    assert len(rates) == 1
    assert [each for each in summaries(tmp_path) if each[0] in "ab"] == [
        ("a", 1),
        ("b", 1),
        ("a", 5),
        ("b", 5),
    ]
    with pytest.raises(InvalidArgumentError, match="StepCounterHook: expected output_dir or summary_writer"):
        tb.train.StepCounterHook(3, None, tmp_path, tb.summary.FileWriterCache.get(tmp_path))
    for wrong in ({}, {"save_steps": 1, "save_secs": 1.0}):
        with pytest.raises(InvalidArgumentError, match="SummarySaverHook: expected either save_steps or"):
            tb.train.SummarySaverHook(output_dir=tmp_path, **wrong)
    run(
        step, tb.train.SummarySaverHook(save_secs=1e6, output_dir=tmp_path / "s", summary_op=both[0]), steps=3
    )
    assert summaries(tmp_path / "s") == [("a", 1)]


def test_a_writer_that_was_closed_goes_on(writers: None, tmp_path: Path) -> None:
    writer = tb.summary.FileWriterCache.get(tmp_path)
    writer.close()
    assert tb.summary.FileWriterCache.get(tmp_path) is writer
    writer.add_graph(tb.Graph())


def test_monitored_sessions_write_rates_beside_summaries(step: Any, writers: None, tmp_path: Path) -> None:
    tb.summary.scalar("x", tb.constant(2.0))
    options: dict[str, Any] = {"save_summaries_secs": 1e6, "log_step_count_steps": 2, "summary_dir": tmp_path}
    hooks = [tb.train.StopAtStepHook(4)]
    with tb.train.MonitoredTrainingSession(hooks=hooks, **options) as session:
        assert [type(each).__name__ for each in session.hooks] == [
            "StepCounterHook",
            "SummarySaverHook",
            "StopAtStepHook",
        ]
        while not session.should_stop():
            session.run(step)
    assert [tag for tag, _ in summaries(tmp_path)] == ["x", "global_step/sec"]


@pytest.mark.parametrize("target", ["", "tensorbow"])
def test_traces_of_every_so_many_steps(step: Any, target: str, tmp_path: Path) -> None:
    total = tb.reduce_sum(tb.matmul(tb.ones([3, 4]), tb.cast(tb.fill([4, 5], step), tb.float32)))
    hook = tb.train.ProfilerHook(save_steps=2, output_dir=tmp_path / "traces")
    hooks = [hook, tb.train.StopAtStepHook(6)]
    with tb.train.MonitoredSession(hooks=hooks, target=target) as session:
        while not session.should_stop():
            session.run(total)
    assert traces(tmp_path / "traces") == [3, 5]
    for number in (3, 5):
        events = json.loads((tmp_path / "traces" / f"timeline-{number}.json").read_text())["traceEvents"]
        assert any(event["ph"] == "X" for event in events)
    run(step, tb.train.ProfilerHook(save_secs=1e6, output_dir=tmp_path / "none"), steps=3)
    assert traces(tmp_path / "none") == []


def test_a_trace_ends_with_a_run_that_fails(step: Any, tmp_path: Path) -> None:
    x = tb.placeholder(tb.float32, [2])
    hook = tb.train.ProfilerHook(1, output_dir=tmp_path)
    with tb.train.MonitoredSession(hooks=[hook]) as session:
        for value in ([1.0, 2.0], [1.0]):
            if len(value) < 2:
                with pytest.raises(InvalidArgumentError):
                    session.run(x, {x: value})
            else:
                session.run(x, {x: value})
        with (
            tb.profiler.trace(tmp_path / "other.json"),
            pytest.raises(FailedPreconditionError, match="expected no other trace"),
        ):
            session.run(step)
        (tmp_path / "other.json").unlink()
        session.run([x, step], {x: [1.0, 2.0]})
    assert traces(tmp_path) == [1]
    with pytest.raises(InvalidArgumentError, match="ProfilerHook: expected either save_steps or save_secs"):
        tb.train.ProfilerHook()


class Listening(tb.train.CheckpointSaverListener):
    def __init__(self, stops_at: int, folder: Path):
        self.calls: list[Any] = []
        self.stops_at, self.folder = stops_at, folder

    def begin(self) -> None:
        self.calls.append("begin")

    def before_save(self, session: tb.Session, global_step_value: int) -> None:
        self.calls.append(("before", global_step_value, tb.train.latest_checkpoint(self.folder) is None))

    def after_save(self, session: tb.Session, global_step_value: int) -> bool:
        newest = str(tb.train.latest_checkpoint(self.folder))
        assert newest.endswith(f"model.ckpt-{global_step_value}.safetensors")
        self.calls.append(("after", global_step_value))
        return global_step_value >= self.stops_at

    def end(self, session: tb.Session, global_step_value: int) -> None:
        self.calls.append(("end", global_step_value))


@pytest.mark.parametrize("saves_graph", [True, False])
def test_listeners_are_called_around_each_save(step: Any, saves_graph: bool, tmp_path: Path) -> None:
    tb.Variable(np.float32(1.0), name="w")
    listener = Listening(4, tmp_path)
    listeners = [listener, tb.train.CheckpointSaverListener()]
    saver = tb.train.CheckpointSaverHook(
        tmp_path, save_steps=2, listeners=listeners, save_graph_def=saves_graph
    )
    with tb.train.MonitoredSession(hooks=[saver]) as session:
        while not session.should_stop():
            session.run(step)
    assert listener.calls == [
        "begin",
        *[("before", 2, True), ("after", 2), ("before", 4, False), ("after", 4), ("end", 4)],
    ]
    assert any(tmp_path.glob("*.meta")) == saves_graph
    with pytest.raises(InvalidArgumentError, match="expected listeners to be a list of tb"):
        tb.train.CheckpointSaverHook(tmp_path, save_steps=2, listeners=[3])
