"""Results in columns: what a callback gets, and what it is task by task."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler import DatasetBatches, RoundResults, TaskResult, Trainer, TrainingConfig, gathered
from scheduler.training.running.run_trace import RunTrace
from tensorbow.devices import LaunchLog
from tensorbow.kernels import NullBackend, backends
from tensorbow.timeline import Tracer
from tests.scheduler_rig.programs import well
from tests.scheduler_rig.running import Prepared, engine_of, null_devices, within


def test_they_are_tasks_by_round_and_batch() -> None:
    results = RoundResults(range(7, 9), (1, 0), (0.1, 0.2, 0.3, 0.4), ((1, 2, 3, 4), "abcd"), (5.0, 6.0))
    assert list(results) == [
        TaskResult(1, 7, 0.1, (1, "a"), 5.0, 0),
        TaskResult(0, 7, 0.2, (2, "b"), 6.0, 1),
        TaskResult(1, 8, 0.3, (3, "c"), 5.0, 0),
        TaskResult(0, 8, 0.4, (4, "d"), 6.0, 1),
    ]


def test_those_of_a_round_come_from_its_tasks() -> None:
    tasks = [TaskResult(2, 4, 0.5, (1,), 1.5, 0), TaskResult(2, 4, 0.25, (3,), 2.5, 1)]
    results = RoundResults.of_round(tasks)
    assert list(results) == tasks
    assert (results.rounds, results.losses, results.metrics) == (range(4, 5), (0.5, 0.25), ((1, 3),))
    assert list(RoundResults.of_round([task._replace(metrics=()) for task in tasks])) == [
        task._replace(metrics=()) for task in tasks
    ]


def test_rounds_that_do_nothing_are_told_of_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """On null devices whose backend has round programs: what benchmarks of scheduling run."""
    monkeypatch.setitem(backends._backends, "null", NullBackend(launches_rounds=True))
    model, told = well(), list[RoundResults]()
    with engine_of(model, null_devices(2, LaunchLog()), 2, steps_per_launch=4) as engine:
        assert engine.learners.launches_rounds
        opened = gathered(Prepared(model.batch, 4).open, 4)
        assert within(lambda: engine.run(opened, 0, 10, told.append)) == 10
    assert [len(results.rounds) for results in told] == [4, 4, 2]
    assert [result.loss for results in told for result in results] == [0.0] * 40


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", ["sma", "none"])
def test_a_launch_gives_its_rounds_together(sync: str) -> None:
    """In whatever launches: the same losses and right answers of the same tasks."""
    config = TrainingConfig(model="logreg", dataset="synthetic", batch_size=8, sync=sync)
    with Trainer(config) as trainer:
        engine, data = trainer.engine, trainer._train_set
        values = engine.learners.values.state_arrays()
        told: dict[int, list[TaskResult]] = {}
        for steps in (1, 3, 8):
            engine.learners.values.load_state_arrays(values)
            engine.set_steps_per_launch(steps)
            batches = DatasetBatches(data, 8, engine.learners.count, seed=1, steps_per_launch=steps)
            lengths: list[int] = []
            tasks: list[TaskResult] = []

            def keep(results: RoundResults, lengths: list[int] = lengths, tasks: Any = tasks) -> None:
                lengths.append(len(results.rounds))
                tasks.extend(results)

            assert within(lambda: engine.run(batches.open, 0, 14, keep)) == 14  # noqa: B023
            assert lengths == [steps] * (14 // steps) + [14 % steps] * (14 % steps > 0)
            told[steps] = [task._replace(time_s=0.0) for task in tasks]
    assert told[1] == told[3] == told[8]
    assert [(task.round, task.batch_number) for task in told[1]] == [(n // 2, n % 2) for n in range(28)]
    assert {task.metrics[0] for task in told[1]} <= {right / 8 for right in range(9)}
    assert len({task.loss for task in told[1]}) > 14


def test_a_trace_counts_the_images_of_all_rounds_of_a_launch(tmp_path: Any) -> None:
    """Launches of four rounds of two tasks of 16 images, one a second."""
    trace = RunTrace(tmp_path / "t.json", [0, 12], 16)
    trace.begin(0)
    trace._tracer = tracer = Tracer()
    for launch in range(3):
        rounds = range(4 * launch, 4 * launch + 4)
        trace.on_results(RoundResults(rounds, (0, 1), (0.0,) * 8, (), (launch + 0.5, launch + 1.0)))
    assert [(at, rate) for _, at, rate in tracer.counters] == [(2.0, 128.0), (3.0, 128.0)]
    trace.close()
