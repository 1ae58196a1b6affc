"""`tensorbow tune`: its table, JSON and picture, its mistakes, and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler import Decision, Measurement, ReplicaTuner, ThroughputTuning, TrainingConfig, TuningResult
from tensorbow.cli.tune_picture import ThroughputPicture
from tests.scheduler_rig.ticking_clock import TickingClock

Call = Callable[..., Any]
QUICK = ("tune", "logreg", "--max-replicas", 2, "--windows", 1, "--window-seconds", 0.02, "--threshold", 0.9)
KEYS = (
    "model dataset devices batch_size sync dispatch tau threshold replicas_per_device images_per_second "
    "reason complete doubts interrupted max_replicas max_replicas_reason seconds command measurements"
)
OPTIONS = (
    "--dataset --data-dir --batch-size --devices --sync --dispatch --tau --seed --config --max-replicas "
    "--threshold --windows --window-seconds --max-seconds --picture --json --debug"
)


def test_help_has_every_option_with_its_default(call: Call) -> None:
    text = " ".join(call("tune", "--help").out.split())
    entries = re.split(r" (?=--[a-z])", text.partition("Measurement:")[2])
    for option in OPTIONS.split():
        assert any(re.match(rf"{option}[ ,]", entry) and "[default:" in entry for entry in entries), option
    assert "tune" in call("--help").out


def test_a_table_the_choice_and_why_and_the_command(call: Call) -> None:
    ended = call(*QUICK, "--devices", "cpu:0,cpu:1", "--tau", 2, "--batch-size", 8, "--json")
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "logreg on digits, batch 8 per replica, sma, on cpu:0, cpu:1"
    assert lines[1].split() == ["replicas", "per", "device", "images/s", "spread", "gain", "windows"]
    rows = [line.split() for line in lines[2:4]]
    assert [row[0] for row in rows] == ["1", "2"]
    assert sum(row[-1] == "chosen" for row in rows) == 1
    result = json.loads(lines[-1])
    chosen = result["replicas_per_device"]
    assert rows[chosen - 1][-1] == "chosen"
    lines = [line for line in lines if not line.startswith("warning: ")]
    assert re.match(rf"{chosen} replicas? per device: .", lines[4])
    assert lines[5] == (
        f"tensorbow train logreg --replicas-per-gpu {chosen} --devices cpu:0,cpu:1 --tau 2 --batch-size 8"
    )
    assert lines[5] == result["command"]


@pytest.mark.slow
def test_the_command_it_gives_is_understood(call: Call, tmp_path: Path) -> None:
    (tmp_path / "my options.yaml").write_text(
        "model: logreg\ndataset: synthetic\nlearning_rate_drops: '3:0.1'\n"
    )
    words = ("--config", "my options.yaml", "--seed", 5, *QUICK[2:])
    result = json.loads(call("tune", *words, "--json").out.splitlines()[-1])
    assert (result["dataset"], result["max_replicas"]) == ("synthetic", 2)
    command = result["command"]
    assert command.endswith("--config 'my options.yaml' --seed 5")
    ended = call(*command.replace("'my options.yaml'", "my_options").split()[1:], "--epochs", 1)
    assert "--config: there is no file 'my_options'" in ended.line
    (tmp_path / "my options.yaml").rename(tmp_path / "my_options")
    ended = call(*command.replace("'my options.yaml'", "my_options").split()[1:], "--epochs", 4)
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.slow
def test_json_says_what_was_measured(call: Call) -> None:
    result = json.loads(call(*QUICK, "--windows", 3, "--json").out.splitlines()[-1])
    assert list(result) == KEYS.split()
    assert (result["model"], result["devices"], result["complete"]) == ("logreg", ["cpu:0"], True)
    assert (result["max_replicas"], result["max_replicas_reason"]) == (2, "--max-replicas")
    rows = {row["replicas_per_device"]: row for row in result["measurements"]}
    assert sorted(rows) == [1, 2]
    for row in rows.values():
        assert list(row) == ["replicas_per_device", "images_per_second", "spread", "gain", "windows"]
        assert len(row["windows"]) >= 3  # more where they disagree
        assert min(row["windows"]) <= row["images_per_second"] <= max(row["windows"])
    first, second = rows[1]["images_per_second"], rows[2]["images_per_second"]
    assert rows[1]["gain"] is None
    assert rows[2]["gain"] == pytest.approx(second / first - 1, abs=1e-3)
    assert result["images_per_second"] == rows[result["replicas_per_device"]]["images_per_second"]


BAD = [
    (("tune",), "MODEL is missing: give it, or a --config file", 2),
    (("tune", "vgg"), "MODEL: expected one of logreg, linear, lenet", 2),
    ((*QUICK, "--max-replicas", 0), "--max-replicas: expected a whole number from 1 to 4096, got 0", 2),
    ((*QUICK, "--windows", 0), "--windows: expected a whole number from 1 to 1000000, got 0", 2),
    ((*QUICK, "--threshold", 1), "--threshold: expected a fraction in (0, 1), as 0.05, got 1", 2),
    ((*QUICK, "--threshold", 0), "--threshold: expected a fraction in (0, 1), as 0.05, got 0", 2),
    ((*QUICK, "--threshold", "nan"), "--threshold: expected a fraction in (0, 1), as 0.05, got nan", 2),
    (
        (*QUICK, "--window-seconds", -1),
        "--window-seconds: expected a positive number, from 1.2e-38 to 3.4e+38, got -1",
        2,
    ),
    (
        (*QUICK, "--max-seconds", 0),
        "--max-seconds: expected a positive number, from 1.2e-38 to 3.4e+38, got 0",
        2,
    ),
    ((*QUICK, "--max-seconds", 1e-4), "--max-seconds 0.0001 are over; give more --max-seconds", 1),
    ((*QUICK, "--tau", 0), "--tau: expected a whole number of at least 1, got 0", 2),
    ((*QUICK, "--batch-size", 5000), "do not fill one batch of 5000; use a smaller --batch-size", 1),
    ((*QUICK, "--devices", "null:0"), "--devices: expected names such as cpu:0,cpu:1; got 'null:0'", 2),
    ((*QUICK, "--config", "nowhere"), "--config: there is no file 'nowhere'", 1),
    ((*QUICK, "--picture", "x.gif"), "--picture: expected a file that ends in one of .png, .svg, .pdf", 2),
    ((*QUICK, "--picture", "nowhere/x.png"), "--picture: cannot write 'nowhere/x.png': No such file", 2),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("words", "said", "status"), BAD, ids=[" ".join(map(str, w)) for w, _, _ in BAD])
def test_bad_input_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], said: str, status: int
) -> None:
    with_matplotlib(monkeypatch)
    ended = call(*words)
    assert said in ended.line
    assert (ended.status, ended.out) == (status, "")


def with_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the import of matplotlib succeed, whether it is installed or not; nothing is drawn."""
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))


def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*arguments: object) -> None:
        raise AssertionError("it measured before it looked at the picture")

    monkeypatch.setattr("tensorbow.cli.tune.ThroughputTuning", measured)


def test_a_picture_needs_matplotlib_before_anything_is_measured(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_is_measured(monkeypatch)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ended = call(*QUICK, "--picture", "x.png")
    assert ended.line == (
        "tensorbow: --picture: drawing needs matplotlib; pip install 'tensorbow[plot]', or leave it out\n"
    )
    assert ended.status == 1


def test_a_picture_over_a_folder(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nothing_is_measured(monkeypatch)
    with_matplotlib(monkeypatch)
    (tmp_path / "x.png").mkdir()
    assert (
        "--picture: cannot write 'x.png': expected a regular file, got a folder"
        in call(*QUICK, "--picture", "x.png").line
    )
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF")])
def test_the_picture_is_drawn(tmp_path: Path, suffix: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    measurements = tuple(Measurement(n, (90.0 * n, 100.0 * n, 105.0 * n)) for n in (1, 2, 4))
    result = TuningResult(Decision(2, 200.0, "so", True), measurements, 16, "", 1.0, False)
    path = tmp_path / f"x.{suffix}"
    ThroughputPicture(path).draw(TrainingConfig(model="logreg"), result)
    assert path.read_bytes().startswith(begins)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("complete", "said"), [(True, "chosen: 2 with 200"), (False, "best so far, not sure: 2 with 200")]
)
def test_the_picture_says_whether_it_is_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complete: bool, said: str
) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes

    labels: list[str] = []
    plot = Axes.plot

    def noted(axes: Any, *given: Any, **how: Any) -> Any:
        labels.append(how.get("label", ""))
        return plot(axes, *given, **how)

    monkeypatch.setattr(Axes, "plot", noted)
    measurements = tuple(Measurement(n, (100.0 * n,)) for n in (1, 2))
    result = TuningResult(Decision(2, 200.0, "so", complete), measurements, 16, "", 1.0, False)
    ThroughputPicture(tmp_path / "x.svg").draw(TrainingConfig(model="logreg"), result)
    assert f"{said} images/s" in labels


def test_the_picture_has_a_line_for_each_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes

    lines: dict[str, Any] = {}
    errorbar, plot = Axes.errorbar, Axes.plot

    def noted(draw: Callable[..., Any], axes: Any, *given: Any, **how: Any) -> Any:
        lines[how.get("label", "")] = [[*map(float, values)] for values in given]
        return draw(axes, *given, **how)

    monkeypatch.setattr(Axes, "errorbar", lambda *given, **how: noted(errorbar, *given, **how))
    monkeypatch.setattr(Axes, "plot", lambda *given, **how: noted(plot, *given, **how))
    measurements = tuple(
        Measurement(count, (rate * count,), mode)
        for mode, rate in (("captured", 100.0), ("fused", 150.0))
        for count in (1, 2)
    )
    result = TuningResult(Decision(2, 300.0, "so", True, "fused"), measurements, 16, "", 1.0, False)
    ThroughputPicture(tmp_path / "x.svg").draw(TrainingConfig(model="logreg"), result)
    assert lines["captured: median and range of the windows"] == [[1, 2], [100, 200]]
    assert lines["fused: median and range of the windows"] == [[1, 2], [150, 300]]
    assert lines["chosen: 2 fused with 300 images/s"] == [[2], [300]]


def test_windows_that_disagree_are_told(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    measurements = (Measurement(1, (50.0, 100.0, 104.0)), Measurement(2, (103.0, 103.0, 104.0)))
    result = TuningResult(Decision(1, 100.0, "so", True), measurements, 16, "", 1.0, False)
    monkeypatch.setattr(ThroughputTuning, "run", lambda tuning: result)
    ended = call(*QUICK, "--json")
    (warning,) = [line for line in ended.out.splitlines() if line.startswith("warning: ")]
    assert warning.startswith(
        "warning: windows of 1 per device are up to 54% apart: the machine may have done other work"
    )
    assert json.loads(ended.out.splitlines()[-1])["doubts"] == [warning.removeprefix("warning: ")]


@pytest.mark.slow
def test_steps_of_a_launch_in_a_configuration_do_not_make_it_hang(program: Any) -> None:
    (program.folder / "k.yaml").write_text("model: logreg\ndataset: synthetic\nsteps_per_launch: 2\n")
    ended = program.run("tune", "--config", "k.yaml", *QUICK[2:])
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.slow
def test_the_time_that_is_over_ends_it_with_what_is_known(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.training.tuning.throughput_tuning.time", TickingClock(0.01))
    ended = call(*QUICK, "--windows", 100_000, "--max-seconds", 1, "--json")
    assert (ended.status, ended.err) == (0, "")
    result = json.loads(ended.out.splitlines()[-1])
    assert (result["complete"], result["interrupted"]) == (False, False)
    assert "--max-seconds 1 are over" in result["reason"]


def test_a_signal_ends_it_with_what_is_known(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    record = ReplicaTuner.record

    def interrupted(tuner: ReplicaTuner, replicas: int, rate: float) -> Measurement:
        os.kill(os.getpid(), signal.SIGINT)
        return record(tuner, replicas, rate)

    monkeypatch.setattr(ReplicaTuner, "record", interrupted)
    ended = call(*QUICK, "--windows", 1000, "--json")
    assert (ended.status, ended.err) == (130, "")
    result = json.loads(ended.out.splitlines()[-1])
    assert (result["interrupted"], result["complete"], result["replicas_per_device"]) == (True, False, 1)
    assert result["reason"].endswith("; interrupted")


def test_a_signal_before_the_first_window_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    original = ThroughputTuning.run

    def stopped_at_once(self: ThroughputTuning) -> TuningResult:
        self.request_stop()
        return original(self)

    monkeypatch.setattr(ThroughputTuning, "run", stopped_at_once)
    ended = call(*QUICK)
    assert ended.line == "tensorbow: interrupted\n"
    assert ended.status == 130
