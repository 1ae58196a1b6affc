"""Experiments with `--devices`, on the emulated GPU, and the thesis's figures beside theirs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_rig.runtimes import SWITCH, needs_compiler

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
TINY = ("logreg", 4)  # model and batch size
pytestmark = pytest.mark.usefixtures("emulated")


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only GPU is the emulated one."""
    monkeypatch.setenv(SWITCH, "emulated")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets the emulated GPU afterwards, which the option --devices shows to the process."""
    from tensorbow.devices import close_devices, gpu_discovery

    monkeypatch.setattr(gpu_discovery, "_status", None)
    yield
    close_devices(drain=False)


def test_devices_are_names_of_cpus_or_of_gpus_that_are_there(gpu: None, tmp_path: Path) -> None:
    from harness import CPU, by_the_thesis, on_gpus, output_path, parser
    from results_page import RESULTS

    made = parser("Something.", "fig_5_13")
    usual = made.parse_args([])
    assert (usual.devices, on_gpus(usual), by_the_thesis(usual)) == (CPU, False, False)
    assert made.parse_args(["--devices", "cpu:0,cpu:1"]).devices == ("/cpu:0", "/cpu:1")
    options = made.parse_args(["--devices", "GPU:0"])
    assert options.devices == ("/gpu:0",)
    assert on_gpus(options)
    assert by_the_thesis(options)
    assert output_path(made.parse_args(["--thesis", "--output", str(tmp_path)]), "x") == tmp_path / "x"
    for words, folder in ((["--devices", "gpu:0"], "gpu"), (["--thesis"], "thesis")):
        options = made.parse_args(words)
        options.output = None
        assert output_path(options, "x").parent == RESULTS / folder
    assert (
        output_path(parser("Something.", "gpu_replicas").parse_args(["--small"]), "x")
        == RESULTS / "small" / "x"
    )


@pytest.mark.parametrize(
    ("experiment", "devices", "says"),
    [
        ("fig_5_13", "tpu:0", "expected names such as gpu:0,gpu:1 or cpu:0, got 'tpu:0'"),
        ("fig_5_13", "cpu:0,cpu:0", "expected different devices of one kind"),
        ("fig_5_13", "cpu:0,gpu:0", "expected different devices of one kind"),
        ("fig_5_13", "gpu", "expected names such as"),
        ("fig_5_13", "gpu:1", "there are 1 GPU devices, from gpu:0 on"),
        ("tau", "cpu:0,cpu:1", "tau uses at most 1, got 2"),
        ("ablation", "gpu:0", "ablation measures CPU devices only (its mechanisms are those of native code)"),
    ],
)
def test_wrong_devices(
    gpu: None, experiment: str, devices: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness import parser

    with pytest.raises(SystemExit) as ended:
        parser("Something.", experiment).parse_args(["--devices", devices])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_every_script_that_measures_takes_devices() -> None:
    library = ("run_all", "results_page", "redraw")
    for path in FOLDER.glob("*.py"):
        text = path.read_text()
        if "argparse.ArgumentParser(" in text and path.stem not in (*library, "gpu_first_hour", "harness"):
            assert "add_devices(" in text, path.stem


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("device", [pytest.param("cpu:0", marks=pytest.mark.slow), "gpu:0"])
def test_a_model_spread_over_streams_has_the_bits_of_one_on_one_stream(gpu: None, device: str) -> None:
    from harness import devices_named, require_gpus
    from spread_model import SpreadModel

    if device == "cpu:0":
        pytest.importorskip("llvmlite")
    names = devices_named(device)
    require_gpus(names)
    found = []
    for streams in (1, 3):
        with SpreadModel("lenet", 2, streams, names[0]) as model:  # all calls of logreg are in one row
            assert len(set(model.placed)) > 1 if streams > 1 else model.placed == [0] * len(model.placed)
            model.run_steps(2)
            found.append(model.values())
    one, spread = found
    assert one.keys() == spread.keys()
    assert all(one[name].tobytes() == spread[name].tobytes() for name in one)


def test_calls_follow_what_they_depend_on_and_take_the_next_stream_where_that_is_followed() -> None:
    from spread_model import placement

    after = [[], [0], [0], [1, 2], []]
    assert placement(after, 3) == [0, 0, 1, 1, 2]
    assert placement(after, 2) == [0, 0, 1, 1, 0]
    assert placement(after, 1) == [0] * 5


Main = Callable[..., dict[str, Any]]


@pytest.fixture
def result_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Main:
    """Runs a script's `main` with a small size on the emulated GPU; its result."""
    pytest.importorskip("matplotlib")

    def run(script: Any, *words: str) -> dict[str, Any]:
        arguments = ["--devices", "gpu:0", "--small", "--output", str(tmp_path), *words]
        monkeypatch.setattr(sys, "argv", [script.__file__, *arguments])
        script.main()
        (path,) = tmp_path.glob("*.json")
        assert path.with_suffix(".png").stat().st_size > 10_000
        found: dict[str, Any] = json.loads(path.read_text())
        assert found["machine"]["gpus"] == ["Emulated GPU"]
        assert found["versions"]["GPU precision"] == "fp32"
        assert all(len(row) == len(found["columns"]) for row in found["rows"])
        return found

    return run


def short(monkeypatch: pytest.MonkeyPatch, script: Any) -> None:
    """Shortens the windows of a script, whose emulated steps are long as they are."""
    import sweep

    usual = sweep.measure

    def measure(settings: Any, seconds: float, windows: int, *rest: Any, **options: Any) -> Any:
        return usual(settings, 0.02, 1, *rest, **options)

    monkeypatch.setattr(script, "measure", measure, raising=False)
    monkeypatch.setattr(sweep, "measure", measure)


@needs_compiler
@pytest.mark.slow
def test_figures_5_6_to_5_9_by_the_thesis(
    gpu: None, result_of: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fig_5_6_to_5_9 as script
    import thesis_throughput

    short(monkeypatch, thesis_throughput)
    monkeypatch.setattr(thesis_throughput, "CASES", dict.fromkeys(thesis_throughput.CASES, TINY))
    monkeypatch.setattr(thesis_throughput, "SMALL_COUNTS", (1,))
    found = result_of(script)
    rows = found["details"]["rows"]
    assert {row["figure"] for row in rows} == {"5.6", "5.7", "5.8", "5.9"}
    spread = [row["stream_groups"] for row in rows if row["method"] == thesis_throughput.SPREAD]
    assert spread == [1]
    boxes = [row for row in rows if row["figure"] == "5.8"]
    assert [len(row["images_per_second"]["samples"]) for row in boxes] == [thesis_throughput.SMALL_RUNS]
    assert any("Figure 5.8, 1 replica: thesis 13,000 images/s, here " in line for line in found["remarks"])


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("name", "cases", "says"),
    [
        ("fig_5_10", {"THESIS_MODEL": "logreg", "THESIS_SMALL_SIZES": (4,)}, "b=4"),
        ("fig_5_11_and_5_12", {"THESIS_CASES": dict.fromkeys(("5.11", "5.12"), TINY)}, "5.12"),
        ("fig_5_13", {"THESIS_CASE": TINY}, "1"),
    ],
)
def test_figures_5_10_to_5_13_by_the_thesis(
    gpu: None, result_of: Main, monkeypatch: pytest.MonkeyPatch, name: str, cases: dict[str, Any], says: str
) -> None:
    import importlib

    import sweep

    script = importlib.import_module(name)
    short(monkeypatch, script)
    for constant, value in cases.items():
        monkeypatch.setattr(script, constant, value)
    fused: list[bool] = []
    usual = sweep.training_window

    def window(*arguments: Any, **options: Any) -> Any:
        opened = usual(*arguments, **options)
        fused.append(opened.engine.options.fused)
        return opened

    monkeypatch.setattr(sweep, "training_window", window)
    found = result_of(script, "--replica-mode", "fused")
    assert fused
    assert all(fused)
    assert found["details"]["settings"]["replica_mode"] == "fused"
    rows = found["details"]["rows"]
    assert {(row["replicas"], row["devices"]) for row in rows} == {(1, 1), (2, 1)}
    assert any(says in str(cell) for row in found["rows"] for cell in row)


def test_facts_of_the_thesis_are_compared_with_rows(capsys: pytest.CaptureFixture[str]) -> None:
    from thesis import Fact, beside, rate, ratio

    rows = [
        {"replicas": count, "sync": sync, "images_per_second": {"median": value}}
        for count, sync, value in ((1, "none", 100.0), (2, "none", 150.0), (2, "sma", 120.0))
    ]
    facts = (
        Fact("5.8", "one", 13000, "images/s", lambda rows: rate(rows, replicas=1)),
        Fact("5.8", "second", 1.5, "times", lambda r: ratio(r, {"replicas": 1}, replicas=2, sync="none")),
        Fact("5.8", "averaged", 0.9, "times", lambda r: ratio(r, {"sync": "none"}, replicas=2, sync="sma")),
        Fact("5.8", "three", 1.1, "times", lambda r: ratio(r, {"replicas": 2}, replicas=3, sync="none")),
    )
    assert beside(facts, rows) == [
        "Figure 5.8, one: thesis 13,000 images/s, here 100.",
        "Figure 5.8, second: thesis 1.5 times, here 1.5.",
        "Figure 5.8, averaged: thesis 0.9 times, here 0.8.",
    ]
    assert "three" in capsys.readouterr().out


def test_a_target_is_reached_by_the_median_of_the_last_accuracies(
    gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time_to_accuracy
    from time_to_accuracy import Goal, course

    from scheduler.training.models.evaluation import Evaluation
    from tensorbow.data import make_synthetic

    accuracies = iter([0.4, 0.6, 0.4, 0.6, 0.6, 0.6])

    class Judge:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def evaluate(self, values: Any) -> Evaluation:
            return Evaluation(1.0, {"accuracy": next(accuracies)})

        def close(self) -> None:
            pass

    class Learner:
        setup_seconds = 0.0

        def train_until(self, epochs: float) -> tuple[float, float]:
            return epochs, 0.0

        def models(self) -> list[Any]:
            return [{}]

        def close(self) -> None:
            pass

    train, test = make_synthetic(32, 32, height=8, width=8, channels=1, classes=2)
    goal = Goal(train, test, 0.5, 6, 1, "resnet8", median_of=3)
    assert goal.weight_decay > 0
    assert goal.facts()["median_of"] == 3
    monkeypatch.setattr(time_to_accuracy, "Evaluator", Judge)
    found = course(Learner(), goal)
    assert found["epochs_to_target"] == 4
    assert len(found["checks"]) == 4


def test_times_to_an_accuracy_are_beside_the_thesis_s_where_model_data_and_target_are() -> None:
    import fig_5_1_to_5_3
    import fig_5_4_and_5_5
    from thesis import beside
    from time_to_accuracy import Goal

    from tensorbow.data import make_synthetic

    train, test = make_synthetic(8, 8, height=8, width=8, channels=1, classes=2)
    for model, data, target, same in (
        ("lenet", "mnist", 0.99, True),
        ("resnet32", "cifar10", 0.8, True),
        ("lenet", "digits", 0.99, False),
        ("lenet", "mnist", 0.97, False),
    ):
        goal = Goal(replace(train, name=f"{data}/train"), test, target, 1, 1, model)
        assert goal.is_of_the_thesis() == same
    rows = [
        {"label": name, "side": "TensorBow", "seconds": {"median": seconds}}
        for name, seconds in (("1 x b=16", 10.0), ("3 x b=4", 7.0))
    ]
    assert beside(fig_5_4_and_5_5.FACTS, rows) == [
        "Figure 5.4, 1 replica, b=16, to 99 %: thesis 536 s, here 10.",
        "Figure 5.4, 3 replicas, b=4, to 99 %: thesis 382 s, here 7.",
        "Figure 5.4, 3 x b=4: less time than 1 x b=16: thesis 30 %, here 30.",
    ]
    sizes = [
        {"batch_size": size, "seconds": {"median": seconds}, "rate": {"median": rate}}
        for size, seconds, rate in ((128, 20.0, 2000.0), (512, 22.0, 3100.0), (256, 19.0, 3000.0))
    ]
    assert beside(fig_5_1_to_5_3.RESNET_FACTS, sizes) == [
        "Figure 5.1, ResNet-32 b=512 over b=128: time to 80 %: thesis 1 times, here 1.1.",
        "Figure 5.2, ResNet-32 b=256: images/s: thesis 3,000 images/s, here 3,000.",
    ]


@pytest.mark.slow
@needs_compiler
def test_figure_4_2_on_a_gpu_has_both_panels(
    gpu: None, result_of: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fig_4_2 as script

    monkeypatch.setattr(script, "CASES", (("logreg", 16, 5),))
    found = result_of(script, "--epochs", "0.02")
    assert set(found["details"]["accuracies"]) == set(script.ON_GPU)
    assert script.same_for_both(found["details"]["accuracies"])
    assert found["details"]["on_gpu"][0]["step_factor"] > 0


@pytest.mark.slow
def test_figures_5_1_and_5_2_train_a_resnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("llvmlite")
    import fig_5_1_to_5_3 as script

    words = ["--model", "resnet8", "--small", "--epochs", "1", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [script.__file__, *words])
    script.main()
    found = json.loads((tmp_path / "fig_5_1_and_5_2.json").read_text())
    assert [row[0] for row in found["rows"]] == list(script.RESNET_SMALL_SIZES)
    assert found["details"]["goal"]["model"] == "resnet8"
    assert (tmp_path / "fig_5_1_and_5_2.png").stat().st_size > 10_000


def test_run_all_leaves_out_what_measures_cpus_only(
    gpu: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from experiments import EXPERIMENTS, named
    from run_all import main, names_of

    assert main(["--list", "--devices", "gpu:0", "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    listed = {line.split()[0] for line in shown.splitlines()}
    for experiment in EXPERIMENTS:
        if not experiment.alone:
            assert (experiment.name in listed) != bool(experiment.cpu_only), experiment.name
            assert not experiment.cpu_only or f"{experiment.name}: left out on GPUs" in shown
    devices = argparse.Namespace(devices=("/gpu:0", "/gpu:1"))
    assert names_of(named("fig_5_13"), devices) == "gpu:0,gpu:1"
    assert names_of(named("tau"), devices) == "gpu:0"
