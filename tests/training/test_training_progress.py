from __future__ import annotations

import contextlib
import io
import itertools
import os

import pytest
from rich.console import Console

from tensorbow.training import TrainingProgress


def work(progress: TrainingProgress) -> None:
    progress.start(epochs=2, rounds_per_epoch=10, first_round=0)
    progress.resume_clock()
    for round in range(20):
        progress.tasks([0.25, float("nan")], {"accuracy": [0.5, 0.0]}, 16)
        progress.rounds(round + 1)
    progress.line("model.py:two: epoch 1 [bold]as it is[/bold] \x1b[31m\n")
    progress.stop()


def test_plain_lines_elsewhere_than_in_a_terminal() -> None:
    out = io.StringIO()
    work(TrainingProgress(Console(file=out)))
    assert out.getvalue() == "model.py:two: epoch 1 [bold]as it is[/bold] \\x1b[31m\\n\n"


def test_a_long_line_is_not_broken() -> None:
    out = io.StringIO()
    TrainingProgress(Console(file=out, width=20)).line("word " * 30)
    assert out.getvalue().count("\n") == 1


def test_a_live_bar_in_a_terminal() -> None:
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=True, width=120, _environ={"TERM": "xterm"}, legacy_windows=False
    )
    work(TrainingProgress(console))
    shown = out.getvalue()
    for part in ("loss 0.2500", "examples/s", "/20", "epoch 1"):
        assert part in shown


def test_a_dumb_terminal_gets_plain_lines() -> None:
    out = io.StringIO()
    work(TrainingProgress(Console(file=out, force_terminal=True, width=200, _environ={"TERM": "dumb"})))
    assert out.getvalue() == "model.py:two: epoch 1 [bold]as it is[/bold] \\x1b[31m\\n\n"


def test_long_epochs_are_told_by_lines_where_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(0.0, 4.0)  # at each look
    monkeypatch.setattr("time.perf_counter", lambda: next(seconds))
    out = io.StringIO()
    progress = TrainingProgress(Console(file=out))
    progress.start(epochs=2, rounds_per_epoch=1000, first_round=0)
    progress.resume_clock()
    for round in range(6):
        progress.tasks([0.25], {"accuracy": [0.5]}, 16)
        progress.rounds(round + 1)
    lines = out.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["round 2/2,000", "round 5/2,000"]
    assert "loss 0.2500  accuracy 50.00%" in lines[0]
    assert lines[0].endswith(" examples/s")
    progress.evaluating(1234)
    progress.resume_clock()
    progress.evaluating(1234)  # after so short a training it is not worth a line
    assert out.getvalue().splitlines()[2:] == ["evaluating on 1,234 examples"]


@pytest.mark.parametrize("width", [80, 120])
def test_the_bar_leaves_room_for_its_figures(width: int) -> None:
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=True, width=width, color_system=None, _environ={"TERM": "xterm"}
    )
    progress = TrainingProgress(console)
    progress.start(epochs=15, rounds_per_epoch=1875, first_round=312)
    progress.resume_clock()
    progress.tasks([0.25], {"accuracy": [0.5]}, 1)
    progress.set(0.0125, 16)
    progress.rounds(312)
    progress.stop()
    shown = out.getvalue()
    assert "312/28125 " in shown
    assert "accuracy 50.00%" in shown
    assert ("rate 0.0125  16 replicas" in shown) == (width == 120)
    assert "…" not in shown
    progress.start(epochs=15, rounds_per_epoch=1875, first_round=312)
    progress.evaluating(10_000)
    progress.stop()
    assert "evaluating on 10,000 examples" in out.getvalue()


def test_without_a_console_nothing_is_shown() -> None:
    work(TrainingProgress())


@pytest.mark.parametrize("target", ["closed pipe", "full disk"])
def test_output_that_cannot_be_written_is_remembered_not_raised(target: str) -> None:
    if target == "full disk":
        file = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", buffering=1)
    else:
        reading, writing = os.pipe()
        os.close(reading)
        file = os.fdopen(writing, "w", buffering=1)
        file.fileno = lambda: os.open(os.devnull, os.O_WRONLY)  # type: ignore[method-assign]  # rich closes over it
    progress = TrainingProgress(Console(file=file))
    progress.line("one")
    progress.line("two")
    assert isinstance(progress.failure, OSError)
    with contextlib.suppress(OSError):
        file.close()
