"""Training runs that are traced."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scheduler.training.running.trainer
from scheduler import RoundResults, Trainer, TrainingConfig, TrainingResult
from scheduler.training.running.run_trace import RunTrace
from tensorbow.errors import InvalidArgumentError, NumericsError, ResourceExhaustedError
from tensorbow.specs import Array
from tensorbow.timeline import CURRENT, TraceFile
from tests.scheduler_rig.kept_lines import Lines

Options = Callable[..., TrainingConfig]
Run = Callable[..., TrainingResult]
ROUNDS = 7  # of an epoch

# Where tasks are single launches, averaging included, there are no spans to look at.
pytestmark = pytest.mark.usefixtures("reference_kernels")


def read(path: Path) -> list[dict[str, Any]]:
    events = json.loads(path.read_text())["traceEvents"]
    assert isinstance(events, list)
    return events


def by_row(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The spans by the name of their stream, without the number of the engine."""
    events = read(path)
    names = {
        (event["pid"], event["tid"]): event["args"]["name"].partition(" ")[2]
        for event in events
        if event["name"] == "thread_name"
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names.values()}
    for event in events:
        if event["ph"] == "X":
            found[names[event["pid"], event["tid"]]].append(event)
    return found


def labels(spans: list[dict[str, Any]]) -> list[str]:
    return [span["name"] for span in spans if span["cat"] == "work"]


def test_a_trace_has_a_row_for_each_replica_and_z(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "trace.json"
    run(trace=path, trace_rounds=[2, 5], epochs=1)
    found = by_row(path)
    assert set(found) == {"replica 0", "replica 1", "z"}
    for replica in ("replica 0", "replica 1"):
        work = labels(found[replica])
        assert Counter(work[::2]) == {f"{replica} gradient": 3}
        assert len(work) == 6
        assert not set(work[1::2]) & {f"{replica} gradient"}
    kinds = ("exchange", "mirrored")
    assert labels(found["z"]) == [f"update, averaging 0: {kind} of /cpu:0" for kind in kinds] * 3
    for spans in found.values():
        assert all(span["dur"] >= 0 and span["ts"] >= 0 for span in spans)
        ends = [span["ts"] + span["dur"] for span in spans]
        assert all(end <= span["ts"] + 2e-3 for end, span in zip(ends, spans[1:], strict=False))
    counters = [event for event in read(path) if event["ph"] == "C"]
    assert 1 <= len(counters) <= 2
    assert all(event["args"]["images/s"] > 0 for event in counters)


def test_a_round_averages_after_all_its_gradients(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "trace.json"
    run(trace=path, trace_rounds=[0, 4], epochs=1)
    found = by_row(path)
    reduces = [span for span in found["z"] if "exchange" in span["name"]]
    for replica in ("replica 0", "replica 1"):
        work = [span for span in found[replica] if span["cat"] == "work"]
        for update, reduce in zip(work[1::2], reduces, strict=True):
            assert update["ts"] + update["dur"] <= reduce["ts"] + 2e-3


def test_without_rounds_the_first_hundred_are_traced(tmp_path: Path, run: Run) -> None:
    run(trace=tmp_path / "trace.json.gz")
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    assert sum(event["name"] == "replica 1 gradient" for event in events) == 2 * ROUNDS


@pytest.mark.slow
def test_tracing_changes_no_bit(tmp_path: Path, run: Run, model: Callable[[Path], dict[str, Array]]) -> None:
    run(output=tmp_path / "plain", staleness=1)
    run(output=tmp_path / "traced", staleness=1, trace=tmp_path / "trace.json", trace_rounds=[3, 9])
    plain, traced = model(tmp_path / "plain"), model(tmp_path / "traced")
    assert all(np.array_equal(plain[name], traced[name]) for name in plain)


def test_the_file_may_lie_in_the_folder_that_the_run_makes(tmp_path: Path, run: Run) -> None:
    run(output=tmp_path / "run", trace=tmp_path / "run" / "trace.json", epochs=1)
    assert len(labels(by_row(tmp_path / "run" / "trace.json")["z"])) == 2 * ROUNDS
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.endswith(".tmp")]


def test_a_file_that_cannot_be_written_is_refused_before_a_folder_is_made(
    tmp_path: Path, options: Options
) -> None:
    with pytest.raises(InvalidArgumentError, match="trace: cannot write"):
        Trainer(options(output=tmp_path / "run", trace=tmp_path / "nowhere" / "trace.json"))
    assert not list(tmp_path.iterdir())


def test_a_resumed_run_is_traced_from_where_it_goes_on(tmp_path: Path, options: Options) -> None:
    with Trainer(options(output=tmp_path, epochs=1)) as trainer:
        trainer.train()
    progress = Lines()
    with Trainer(options(output=tmp_path, resume="auto", trace=tmp_path / "t.json"), progress) as trainer:
        trainer.train()
    assert len(labels(by_row(tmp_path / "t.json")["z"])) == 2 * ROUNDS
    assert any(line.startswith(f"trace of rounds {ROUNDS} to {2 * ROUNDS - 1} in ") for line in progress.said)


def test_a_stopped_run_writes_what_there_is(tmp_path: Path, options: Options) -> None:
    with Trainer(options(trace=tmp_path / "t.json")) as trainer:
        original = trainer._trace.on_results

        def stop_in_round_three(results: RoundResults) -> None:
            original(results)
            if 3 in results.rounds:
                trainer.request_stop()

        trainer._trace.on_results = stop_in_round_three  # type: ignore[method-assign]
        assert trainer.train().interrupted
    rounds = len(labels(by_row(tmp_path / "t.json")["z"])) // 2
    assert 4 <= rounds < ROUNDS


def test_a_failing_run_writes_what_there_is(tmp_path: Path, run: Run) -> None:
    with pytest.raises(NumericsError):
        run(trace=tmp_path / "t.json", learning_rate=1e38, momentum=0.99)
    assert labels(by_row(tmp_path / "t.json")["replica 0"])[0] == "replica 0 gradient"
    assert CURRENT.tracer is None


def test_rounds_that_never_come_give_an_empty_trace_and_a_line(tmp_path: Path, options: Options) -> None:
    progress = Lines()
    with Trainer(options(trace=tmp_path / "t.json", trace_rounds=[500, 600]), progress) as trainer:
        trainer.train()
    assert read(tmp_path / "t.json") == []
    assert f"the trace in {tmp_path / 't.json'} is empty: round 500 was not reached" in progress.said


def test_a_disk_that_fills_is_an_error_of_its_own_or_a_line(
    tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: TraceFile, tracer: object) -> None:
        file.discard()
        raise ResourceExhaustedError("cannot write the trace: no space")

    monkeypatch.setattr(TraceFile, "save", full)
    with (
        Trainer(options(output=tmp_path / "a", trace=tmp_path / "t.json")) as trainer,
        pytest.raises(ResourceExhaustedError, match="no space"),
    ):
        trainer.train()
    assert (tmp_path / "a" / "model.safetensors").exists()
    progress = Lines()
    bad = options(trace=tmp_path / "t.json", learning_rate=1e38, momentum=0.99)
    with Trainer(bad, progress) as trainer, pytest.raises(NumericsError):
        trainer.train()
    assert "warning: cannot write the trace: no space" in progress.said


def test_a_path_that_cannot_be_written_is_refused_before_training(tmp_path: Path, options: Options) -> None:
    with pytest.raises(InvalidArgumentError, match="trace: cannot write"):
        Trainer(options(output=tmp_path / "run", trace=tmp_path))
    assert not (tmp_path / "run").exists()
    with pytest.raises(InvalidArgumentError, match="a folder that is there"):
        Trainer(options(trace=tmp_path / "nowhere" / "t.json"))


def test_a_run_that_does_not_begin_leaves_nothing(tmp_path: Path, options: Options) -> None:
    with pytest.raises(InvalidArgumentError):
        Trainer(options(trace=tmp_path / "t.json", batch_size=5000))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ("5", "trace_rounds: expected two rounds A:B with 0 <= A < B, as 10:60, got '5'"),
        ("a:b", "trace_rounds: expected two rounds"),
        ([1, 2, 3], "trace_rounds: expected two rounds"),
        ([1.5, 2], "trace_rounds: expected two rounds"),
        (650, "trace_rounds: expected two rounds"),
        ("6:6", "trace_rounds: expected two rounds A:B with 0 <= A < B, as 10:60, got '6:6'"),
        ("-1:6", "trace_rounds: expected two rounds"),
    ],
)
def test_rounds_that_make_no_sense(options: Options, rounds: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        options(trace="t.json", trace_rounds=rounds)


def test_rounds_need_a_trace(options: Options) -> None:
    with pytest.raises(InvalidArgumentError, match="trace_rounds: expected a trace to write them to"):
        options(trace_rounds="1:2")
    with pytest.raises(InvalidArgumentError, match="trace: expected a path, got ''"):
        options(trace="")
    assert options(trace="t.json", trace_rounds="1:2").to_dict()["trace_rounds"] == [1, 2]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, 20, [(5, False), (9, True), (20, False)]),
        (5, 9, [(9, True)]),
        (6, 8, [(8, True)]),
        (0, 5, [(5, False)]),
        (9, 12, [(12, False)]),
        (7, 12, [(9, True), (12, False)]),
    ],
)
def test_rounds_are_cut_where_tracing_begins_and_ends(
    tmp_path: Path, start: int, stop: int, expected: list[tuple[int, bool]]
) -> None:
    trace = RunTrace(str(tmp_path / "t.json"), (5, 9), batch_size=16)
    trace.begin(0)
    found = []
    for end, recording in trace.pieces(start, stop):
        with recording:
            found.append((end, CURRENT.tracer is not None))
    trace.close()
    assert found == expected


def test_figures_of_gpus_go_into_the_metrics(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, metrics: Callable[[Path], list[dict[str, Any]]]
) -> None:
    class Monitor:
        """Has figures for each stretch of training, and none while nothing is sampled."""

        def __init__(self, devices: list[Any]) -> None:
            self.names = [device.name.short for device in devices]
            self.stretches, self.open = 0, True

        @contextmanager
        def sampling(self) -> Any:
            yield
            self.stretches += 1

        def take(self) -> dict[str, dict[str, float]]:
            taken, self.stretches = self.stretches, 0
            return {name: {"power_watts": 250.0 + taken} for name in self.names if taken}

        def close(self) -> None:
            self.open = False

    monkeypatch.setattr(scheduler.training.running.trainer, "GpuMonitor", Monitor)
    run(output=tmp_path)
    records = metrics(tmp_path)
    assert [record["devices"] for record in records] == [{"/cpu:0": {"power_watts": 251.0}}] * 2


def test_without_gpus_the_metrics_have_no_devices(
    tmp_path: Path, run: Run, metrics: Callable[[Path], list[dict[str, Any]]]
) -> None:
    run(output=tmp_path, epochs=1)
    assert "devices" not in metrics(tmp_path)[0]
