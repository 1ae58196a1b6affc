from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensorbow.kernels.backends import backend_of_kind

Call = Callable[..., Any]
# Where CPU devices have native code a task is one launch, with a span of its own.
TASK = "step" if backend_of_kind("cpu").title.startswith("native") else "gradient"
QUICK = ("train", "logreg", "--dataset", "synthetic", "--epochs", "1")


def work(path: Path) -> list[str]:
    events = json.loads(path.read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("cat") == "work"]


def count(names: list[str], *tasks: str) -> int:
    """Number of spans of these tasks; the names of joint spans end with their rounds."""
    return sum(name.partition(",")[0] in tasks for name in names)


def test_train_writes_a_trace_and_says_so(call: Call, tmp_path: Path) -> None:
    ended = call(*QUICK, "--output", "run", "--trace", "run/trace.json", "--trace-rounds", "3:8")
    assert ended.status == 0
    assert "trace of rounds 3 to 7 in run/trace.json: " in ended.out
    assert count(work(tmp_path / "run" / "trace.json"), f"replica 1 {TASK}", "step of all replicas") == 5


@pytest.mark.sampled(1)
@pytest.mark.skipif(TASK != "step", reason="needs native code, of which a launch is a span")
@pytest.mark.parametrize("rounds", [1, 4])
def test_a_span_is_a_launch_as_the_help_says(call: Call, tmp_path: Path, rounds: int) -> None:
    assert "a span is a launch" in " ".join(call("train", "--help").out.split())
    call(*QUICK, "--trace", "trace.json", "--trace-rounds", "0:40", "--steps-per-launch", rounds)
    names = work(tmp_path / "trace.json")
    assert count(names, "replica 0 step", "step of all replicas") == 40 // rounds
    last = "round 39" if rounds == 1 else "rounds 36 to 39"
    assert {f"replica 0 step, {last}", f"step of all replicas, {last}"} & set(names)


@pytest.mark.slow
def test_a_resumed_run_is_not_traced_again(call: Call, tmp_path: Path) -> None:
    call(*QUICK, "--output", "run", "--trace", "trace.json")
    (tmp_path / "trace.json").unlink()
    ended = call("train", "--output", "run", "--resume", "auto", "--epochs", "2")
    assert ended.status == 0
    assert not (tmp_path / "trace.json").exists()
    ended = call(*QUICK, "--config", "run/config.yaml", "--output", "other")
    assert ended.status == 0
    assert not (tmp_path / "trace.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--trace", "nowhere/trace.json"),
            "--trace: cannot write 'nowhere/trace.json': No such file",
        ),
        (("--trace", ""), "--trace: expected a path"),
        (("--trace-rounds", "1:2"), "--trace-rounds: expected a trace to write them to"),
        (
            ("--trace", "t.json", "--trace-rounds", "2:1"),
            "--trace-rounds: expected two rounds A:B with",
        ),
        (
            ("--trace", "t.json", "--trace-rounds", "2"),
            "--trace-rounds: expected two rounds A:B with 0 <= A < B, as 10:60, got '2'",
        ),
    ],
)
def test_what_is_refused(call: Call, options: tuple[str, ...], message: str) -> None:
    assert message in call(*QUICK, *options).line


@pytest.mark.slow
def test_a_trace_takes_no_place_of_the_run_s_own(call: Call, tmp_path: Path) -> None:
    assert (
        "--trace: 'new' is where the run has its output folder"
        in call(*QUICK, "--trace", "new", "--output", "new").line
    )
    assert not (tmp_path / "new").exists()
    assert call(*QUICK, "--output", "run").status == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    (tmp_path / "link.json").symlink_to("run/metrics.jsonl")
    for trace in (
        "link.json",
        *(f"run/{path.name}" for path in before),
        "run/checkpoint-000000999.safetensors",
    ):
        line = call("train", "--resume", "auto", "--output", "run", "--epochs", "3", "--trace", trace).line
        assert f"--trace: '{trace}' is where the run has a file of its own; choose another path" in line
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.slow
def test_ctrl_c_ends_with_a_trace(program: Any, wait_for: Callable[..., None], tmp_path: Path) -> None:
    process = program.start(
        *("train", "logreg", "--dataset", "synthetic", "--epochs", "100000"),
        *("--output", "run", "--trace", "trace.json", "--trace-rounds", "0:20", "--steps-per-launch", "1"),
    )
    wait_for((tmp_path / "run" / "metrics.jsonl").exists, process)
    wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").read_text(), process)
    process.send_signal(signal.SIGINT)
    ended = program.end(process)
    assert ended.status == 130, ended
    names = work(tmp_path / "trace.json")  # of a process that chooses its backend by itself
    assert count(names, "replica 0 gradient", "replica 0 step", "step of all replicas") == 20
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []
