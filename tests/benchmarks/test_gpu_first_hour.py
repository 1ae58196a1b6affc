"""The first hour on a GPU, on the emulated one: every stage measures, and survives what goes wrong in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_rig.emulated_nccl import EmulatedNccl
from tests.gpu_rig.runtimes import SWITCH, needs_compiler

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks"
pytestmark = [needs_compiler, pytest.mark.usefixtures("siblings")]

BAD_PARTS = """
import os, time

class Lost(Exception):
    sticky = True

def fail(error):
    raise error

def part(recorder, then):
    recorder.check("first", lambda: {"value": 1})
    if then == "crash":
        recorder.check("bad", os.abort)
    elif then == "hang":
        recorder.check("bad", lambda: time.sleep(60), most_s=0.3)
    elif then == "hang outside":
        time.sleep(60)
    elif then == "sticky":
        recorder.check("bad", lambda: fail(Lost("no kernel runs any more")))
    elif then == "raise":
        recorder.check("bad", lambda: fail(ValueError("first line" + chr(10) + "second line")))
    elif then == "raise outside":
        raise ValueError("outside")
    recorder.check("last", lambda: {"value": 2})
"""
BAD_TESTS = """
import os, time
import pytest

class Lost(Exception):
    sticky = True

def test_good():
    pass

def test_wrong():
    assert 1 + 1 == 3, "arithmetic"

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass

def test_hangs():
    time.sleep(60)

def test_crashes():
    os.abort()

def test_sticky():
    raise Lost("illegal address")

@pytest.mark.parametrize("number", range(4))
def test_good_again(number):
    pass
"""
BAD_SIDE = """
import json, os, sys, time

settings = json.loads(sys.argv[1])
for line in sys.stdin:
    asked = json.loads(line)
    name = asked.get("name")
    if asked["do"] == "list":
        answer = {"names": ["good", "cannot open", "crashes", "hangs", "fails later"]}
    elif asked["do"] == "facts":
        answer = {"host_us_per_task": 3.0}
    elif asked["do"] == "open":
        answer = {"error": "no memory"} if name == "cannot open" else {"name": name, "replicas": 2, "way": ""}
    elif name == "crashes":
        os._exit(3)
    elif name == "hangs":
        time.sleep(60)
    else:
        answer = {"error": "broke"} if name == "fails later" else {"rate": 10.0}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def siblings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Scripts import one another by plain name; processes find them and this test's modules, and no GPU."""
    for folder in (FOLDER, tmp_path):
        monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path)]))
    monkeypatch.setenv(SWITCH, "emulated")
    show = EmulatedNccl.show
    monkeypatch.setattr(EmulatedNccl, "show", lambda nccl: show(nccl, monkeypatch))


def checks_of(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Checks of a stage's file, by part and name."""
    return {(check["part"], check["name"]): check for check in json.loads(path.read_text())["checks"]}


@pytest.mark.slow
def test_parts_that_crash_hang_or_lose_the_gpu_do_not_keep_the_others_from_running(tmp_path: Path) -> None:
    from first_hour.report import write_report
    from first_hour.stages import Part, Stage, StageRun

    (tmp_path / "bad_parts.py").write_text(BAD_PARTS)
    kinds = ("crash", "hang", "hang outside", "sticky", "raise", "raise outside", "nothing")
    parts = [
        Part(kind, "bad_parts:part", {"then": kind}, 4.0 if kind == "hang outside" else 60) for kind in kinds
    ]
    parts.append(Part("no such", "bad_parts:nobody"))
    out = tmp_path / "out"
    assert not StageRun(Stage(1, "bad parts", lambda: parts, "stage_1"), out, 60, "tiny").run()
    found = checks_of(out / "stage_1.json")
    assert json.loads((out / "stage_1.json").read_text())["finished"] is True
    for kind in kinds:
        assert found[kind, "first"]["findings"] == {"value": 1}
        went_on = kind not in ("hang outside", "raise outside")
        assert ((kind, "last") in found) == went_on, f"{kind}: it must go on behind the check that was bad"
    bad = {kind: found[kind, "bad"] for kind in ("crash", "hang", "sticky", "raise")}
    assert {kind: check["status"] for kind, check in bad.items()} == {
        "crash": "crashed",
        "hang": "timed out",
        "sticky": "failed",
        "raise": "failed",
    }
    assert "SIGABRT" in bad["crash"]["error"]
    assert bad["sticky"]["error"] == "Lost: no kernel runs any more"
    assert bad["raise"]["error"] == "ValueError: first line"
    assert found["hang outside", "process"]["status"] == "timed out"
    assert found["raise outside", "process"]["status"] == "crashed"
    assert ("nothing", "process") not in found
    log = (out / "stage_1.log").read_text()
    assert "second line" in log
    assert "ValueError: outside" in log
    assert log.count("time.sleep(60)") + log.count("bad_parts.py") > 2, "stacks of what hangs are missing"
    text = write_report(out).read_text()
    for line in (
        "- crash, bad crashed: its process was ended by SIGABRT; see the log",
        "- raise, bad: ValueError: first line",
        "- no such, process crashed: its process ended with status 1; see the log",
        "7 failed or did not end",
    ):
        assert line in text
    assert not list(out.glob("*.jsonl"))
    assert not list(out.glob("*.partial"))


def test_a_stage_without_time_ends_with_what_it_has(tmp_path: Path) -> None:
    from first_hour.report import report
    from first_hour.stages import Part, Stage, StageRun

    def launch(call: Any, environment: Mapping[str, str], log: Path, seconds: float) -> int:
        raise AssertionError("no part may begin")

    stage = Stage(3, "late", lambda: [Part("one", "nothing:nothing")], "stage_3")
    assert StageRun(stage, tmp_path, 0.5, "tiny", launch).run()
    written = json.loads((tmp_path / "stage_3.json").read_text())
    assert [check["status"] for check in written["checks"]] == ["no time"]
    assert "No time left:\n\n- one, process" in report([written])


def test_checks_after_the_deadline_are_said_to_have_no_time(tmp_path: Path) -> None:
    from first_hour.records import Recorder, checks_of

    recorder = Recorder(tmp_path / "records", 0.0)
    recorder.check("late", lambda: {})
    (check,) = checks_of("part", tmp_path / "records", 0.0)
    assert (check.status, check.findings) == ("no time", {})


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_tests_that_crash_hang_or_lose_the_gpu_are_named_and_the_others_run(
    tmp_path: Path, workers: int
) -> None:
    pytest.importorskip("xdist")
    from first_hour.records import Recorder, checks_of
    from first_hour.suites import suite

    path = tmp_path / "test_bad.py"
    path.write_text(BAD_TESTS)
    records = tmp_path / "records"
    suite(Recorder(records, 60.0), [str(path)], workers=workers, test_s=2.0)
    found = {check.name.rpartition("::")[2]: check for check in checks_of("part", records, 0.0)}
    assert {name: check.status for name, check in found.items()} == {
        "test_wrong": "failed",
        "test_hangs": "timed out",
        "test_crashes": "crashed",
        "test_sticky": "failed",
        "tests": "failed",
    }
    assert found["test_sticky"].error == "Lost: illegal address"
    assert "arithmetic" in found["test_wrong"].error
    counts = "{'passed': 5, 'failed': 2, 'not there': 1, 'timed out': 1, 'crashed': 1"
    assert all(part in found["tests"].error for part in counts.strip("{").split(", "))
    assert "not today" in found["tests"].error


@pytest.mark.slow
def test_a_library_that_crashes_or_hangs_loses_only_the_contestant_that_did_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from first_hour import contest

    (tmp_path / "bad_side.py").write_text(BAD_SIDE)
    monkeypatch.setattr(contest.Side, "module", "bad_side")
    monkeypatch.setattr(contest, "WINDOW_S", 1.5)
    monkeypatch.setattr(contest, "GRACE_S", 0.2)
    side = contest.Side({})
    kept: list[Any] = []
    here = contest.Contest({"ours": side}, lambda rows, absent: kept.append((rows, absent)))
    try:
        here.open_all(lambda: 60.0)
        for counts in (False, True, True):
            assert here.turn(0.01, lambda: 60.0, counts)
        here.facts(lambda: 60.0)
    finally:
        side.end()
    (row,) = here.rows()
    assert row == {
        "name": "good",
        "replicas": 2,
        "way": "",
        "host_us_per_task": 3.0,
        "images_per_second": 10.0,
        "windows": [10.0, 10.0],
    }
    assert here.absent == [
        "cannot open: no memory",
        "crashes: its process ended: 3",
        "hangs: no answer in 2 s",
        "fails later: broke",
    ]
    assert len(kept) == 3
    assert not here.turn(0.01, lambda: 0.0, counts=True)


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[tuple[str, str], Any]]:
    """Runs the parts of a stage of tiny size in this process; its checks."""
    from first_hour.plan import stage_of
    from first_hour.stages import StageRun, child

    def launch(call: Any, environment: Mapping[str, str], log: Path, seconds: float) -> int:
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            child(call)
        return 0

    def run(number: int, only: str | None = None) -> dict[tuple[str, str], Any]:
        stage = stage_of(number, "tiny", tmp_path, None, only)
        assert StageRun(stage, tmp_path, 300.0, "tiny", launch).run(), (
            tmp_path / f"{stage.name}.json"
        ).read_text()
        return checks_of(tmp_path / f"{stage.name}.json")

    return run


@pytest.mark.slow
def test_stage_1_probes(run_here: Any) -> None:
    found = run_here(1, "probe")
    assert len(found) == 11
    assert all(check["status"] == "passed" for check in found.values())
    assert run_here(1, "lost context")["lost context", "is reported as sticky"]["findings"] == {
        "status": "cudaErrorIllegalAddress"
    }
    assert run_here(1, "NCCL")["NCCL alone", "all-reduce of one rank"]["status"] == "passed"


@pytest.mark.slow
def test_stage_2_times_every_call_of_a_step(run_here: Any) -> None:
    found = run_here(2)
    (step,) = [check["findings"] for (part, _), check in found.items() if part.startswith("kernels")]
    assert step["kernels"] >= sum(call["times"] for call in step["calls"]) > 3
    assert {"MatMul 784x10 4x784", "ApplyMomentum 7850 7850"} <= {call["call"] for call in step["calls"]}
    assert found["facts", "machine"]["findings"]["device"] == "Emulated GPU"


@pytest.mark.slow
def test_stage_2_names_the_convolutions_that_cudnn_does() -> None:
    from first_hour.engines import training
    from first_hour.gpus import opened
    from first_hour.steps import convolutions_of
    from replica_modes import TASKS, Ways

    with opened() as (device,):

        def build() -> None:
            with training("lenet:2", [device], 1, Ways(TASKS), "none") as trained:
                trained.run_rounds(1)

        rows, refused = convolutions_of(device.runtime, build)
    assert not refused
    assert {row["call"] for row in rows} == {"Forward", "BackwardData", "BackwardFilter"}
    assert all(row["operands"][0][2:] == [2, 32, 12, 12] for row in rows if row["call"] == "Forward")


@pytest.mark.slow
def test_stages_3_and_4_measure_replicas_side_by_side_and_the_host(run_here: Any) -> None:
    overlap = [check["findings"] for (part, _), check in run_here(3).items() if part != "facts"]
    assert len(overlap) == 2
    assert all(found["tasks_per_second"] > 0 for found in overlap)
    found = run_here(4)
    rounds = [check["findings"] for check in found.values() if "us_per_round" in check.get("findings", {})]
    assert {row["replicas"] for row in rounds} == {1, 2}
    assert all(sum(row["calls_per_round"].values()) > 0 for row in rounds)
    assert found["calls of CUDA", "launch a kernel"]["findings"]["us"] > 0


@pytest.mark.slow
def test_stage_6_compares_bits(run_here: Any, tmp_path: Path) -> None:
    from first_hour.report import write_report

    bits = run_here(6, "bits")
    assert {check["findings"]["done"] for (part, _), check in bits.items() if part != "facts"} == {2}
    text = write_report(tmp_path).read_text()
    assert "Nothing failed." in text
    assert "emulated GPU: no figure here" in text
    assert "- 2 engines, logreg:4 x 4, sma, fused: 2 done, the same bits" in text


@pytest.mark.slow
def test_stage_7_with_two_gpus_sums_waits_and_trains(run_here: Any) -> None:
    found = run_here(7)
    assert any(part == "virtual GPUs" and c["status"] == "passed" for (part, _), c in found.items())
    for name in ("all-reduce of 1 float32", "all-reduce of 1,000 float32"):
        assert found["NCCL", name]["findings"]["ranks"] == 2
    assert found["waits across GPUs", "a stream waits for another GPU's event"]["status"] == "passed"
    measured = [
        check["findings"] for check in found.values() if "tasks_per_second" in check.get("findings", {})
    ]
    assert [row["gpus"] for row in measured] == [1, 2, 1, 2]
    assert (
        found["rates, sma", "logreg:4, 2 replicas on each of 4 GPUs, sma, captured"]["status"] == "not there"
    )


@pytest.mark.slow
def test_stage_8_swaps_and_computes_again(run_here: Any) -> None:
    found = {name: check["findings"] for (part, name), check in run_here(8).items() if part != "facts"}
    plain, swapped, again = (
        found[f"resnet8:2, swap {swap}, recompute {recompute}"]
        for swap, recompute in (("never", "never"), ("smallest", "never"), ("never", "cheap"))
    )
    assert plain["swapped_values"] == 0 < swapped["swapped_values"]
    assert swapped["host_nbytes"] <= swapped["swapped_nbytes_each_way"]
    assert max(swapped["slab_nbytes"], again["slab_nbytes"]) < plain["slab_nbytes"]
    assert all(row["examples_per_second"] > 0 for row in found.values())
    assert len(found) == 5


def test_the_report_has_the_ratios_and_names_a_damaged_file(tmp_path: Path) -> None:
    from first_hour.report import write_report

    rows = [
        {"name": "TensorBow sma", "way": "fused, K=16", "replicas": 4, "images_per_second": 300.0},
        {"name": "PyTorch graph", "way": "", "replicas": 1, "images_per_second": 100.0},
    ]
    summary = {"best_count": 4, "ratio": 3.0, "best_peer": "PyTorch graph x 1", "ratio_goal": 2.0}
    findings = {"rows": rows, "absent": ["JAX vmap x 4: no memory"], "summary": summary}
    check = {"part": "contest", "name": "contest", "status": "passed", "findings": findings}
    machine = {"device": "a GPU", "gpus": 1, "driver": "600.1", "packages": {"torch": "3"}}
    stage = {
        "stage": 5,
        "title": "lenet:16",
        "date": "2026-11-30T10:00:00",
        "facts": machine,
        "checks": [check],
    }
    (tmp_path / "stage_5_lenet_16.json").write_text(json.dumps({**stage, "seconds": 1.0, "finished": False}))
    (tmp_path / "stage_2.json").write_text("{")
    text = write_report(tmp_path).read_text()
    for part in (
        "Stage 5, 2026-11-30: 1 x a GPU; driver 600.1; torch 3.",
        "| TensorBow sma, fused, K=16 | 4 | 300 | 3 |",
        "Best count, averaged: 4, 3.00 times PyTorch graph x 1 (goal 2).",
        "- JAX vmap x 4: no memory",
        "It was cut off.",
        "- stage_2.json, file: cannot be read",
        "1 failed or did not end",
    ):
        assert part in text


def test_a_machine_without_a_gpu_fails(run_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from first_hour import gpus
    from first_hour.records import NotThereError

    def none() -> list[Any]:
        raise NotThereError("no GPU support installed")

    monkeypatch.setattr(gpus, "runtimes", none)
    with pytest.raises(AssertionError, match="NotFoundError: no GPU support installed"):
        run_here(2, "cuDNN")


@pytest.mark.parametrize("size", ["full", "tiny"])
def test_every_part_of_every_stage_is_a_function_that_takes_its_arguments(size: str, tmp_path: Path) -> None:
    import importlib
    import inspect

    from first_hour.plan import STAGES, stage_of

    for number in STAGES:
        parts = stage_of(number, size, tmp_path, None, None).parts()
        names = [part.name for part in parts]
        assert len(set(names)) == len(names)
        assert names[0] == "facts"
        for part in parts:
            module, _, function = part.target.partition(":")
            called = getattr(importlib.import_module(module), function)
            inspect.signature(called).bind(None, **json.loads(json.dumps(part.arguments)))
            for path in part.arguments.get("paths", ()):
                assert (ROOT / path).is_file()


def test_stage_5_takes_the_next_case_that_has_no_file(tmp_path: Path) -> None:
    from first_hour.plan import stage_of

    assert stage_of(5, "full", tmp_path, None, None).name == "stage_5_lenet_16"
    (tmp_path / "stage_5_lenet_16.json").touch()
    assert stage_of(5, "full", tmp_path, None, None).name == "stage_5_lenet_4"
    assert stage_of(5, "full", tmp_path, "resnet32:32", None).name == "stage_5_resnet32_32"
    only = stage_of(4, "full", tmp_path, None, "resnet32:32, sma")
    assert only.name == "stage_4_resnet32_32_sma"
    assert {part.name.split(",")[0] for part in only.parts()} == {"facts", "resnet32:32"}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["--stage", "9"], "invalid choice: '9'"),
        (["--stage", "1", "--case", "lenet:4"], "--case: belongs to --stage 5"),
        (["--stage", "1", "--budget", "0"], "--budget: expected seconds above 0"),
        ([], "--stage"),
    ],
)
def test_wrong_options(wrong: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    from gpu_first_hour import main

    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.slow
def test_all_stages_by_command_line(tmp_path: Path) -> None:
    for stage in (*"12345678", "report"):
        command = [sys.executable, str(FOLDER / "gpu_first_hour.py"), "--stage", stage, "--size", "tiny"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*command, "--out", str(tmp_path)], env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
    names = sorted(path.name for path in tmp_path.glob("*.json"))
    assert names == [f"stage_{n}.json" for n in "1234"] + [
        "stage_5_logreg_4.json",
        "stage_6.json",
        "stage_7.json",
        "stage_8.json",
    ]
    text = (tmp_path / "report.md").read_text()
    for part in (
        "Nothing failed.",
        "times the best peer",
        "host was the limit",
        "tests/gpu/test_gpu_is_there.py",
    ):
        assert part in text
