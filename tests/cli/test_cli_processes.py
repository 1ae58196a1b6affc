"""The program as a process: signals, kills, pipes, limits, terminals."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensorbow.training import RollingCheckpoints, load_arrays

LONG = ("train", "logreg", "--dataset", "synthetic", "--epochs", 100_000, "--output", "run")
QUICK = ("train", "logreg", "--dataset", "synthetic", "--epochs", 2, "--output", "run")
LENET = ("train", "lenet", "--epochs", 100_000, "--checkpoint-rounds", 10, "--output", "run")
ROOT = Path(__file__).resolve().parents[2]
Program = Any
WaitFor = Callable[..., None]


def rounds(folder: Path) -> list[int]:
    return [round for round, _ in RollingCheckpoints(folder).paths()]


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if "second" not in k} for line in lines]


@pytest.mark.parametrize(
    ("words", "number"),
    [
        pytest.param(LONG, signal.SIGTERM, id="logreg, TERM"),
        pytest.param(LONG, signal.SIGINT, id="logreg, INT", marks=pytest.mark.slow),
        pytest.param(LENET, signal.SIGINT, id="lenet, INT", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_the_run_with_a_checkpoint(
    program: Program, tmp_path: Path, wait_for: WaitFor, words: tuple[object, ...], number: int
) -> None:
    process = program.start(*words, "--json")
    wait_for(lambda: rounds(tmp_path / "run"), process)
    time.sleep(random.Random(number).uniform(0.0, 0.3))
    process.send_signal(number)
    time.sleep(0.02)
    process.send_signal(number)
    ended = program.end(process)
    assert (ended.status, ended.err) == (128 + number, "")
    result = json.loads(ended.out.splitlines()[-1])
    assert rounds(tmp_path / "run")[-1] == result["steps"]
    assert load_arrays(tmp_path / "run" / "model.safetensors")[1]["round"] == result["steps"]
    assert not list((tmp_path / "run").glob(".*"))
    assert "go on with --resume auto --output run" in ended.out


@pytest.mark.slow
def test_a_signal_while_starting_is_one_line(program: Program, tmp_path: Path, wait_for: WaitFor) -> None:
    """Held up in importing what reads its data, the program has nothing to save yet."""
    pipe, package = tmp_path / "pipe", tmp_path / "packages" / "sklearn"
    package.mkdir(parents=True)
    os.mkfifo(pipe)
    (package / "__init__.py").write_text(f"open({str(pipe)!r}).read()\n")
    process = program.start(*LENET, env={"PYTHONPATH": f"{package.parent}{os.pathsep}{ROOT}"})
    writing = os.open(pipe, os.O_WRONLY)  # waits until the program opens it
    time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    ended = program.end(process)
    os.close(writing)
    assert ended.line == "tensorbow: interrupted\n"
    assert ended.status == 143
    assert not (tmp_path / "run").exists()


def test_kills_and_resumes_give_the_bits_of_the_uninterrupted_run(
    program: Program, tmp_path: Path, wait_for: WaitFor
) -> None:
    words = (*LONG[:5], 15, "--devices", "cpu:0,cpu:1", "--tau", 2, "--staleness", 1, "--alpha", 0.1)
    words = (*words, "--learning-rate-drops", "3:0.5,9:0.1")
    assert program.run(*words, "--output", "whole").status == 0
    rng = random.Random(0)
    resuming = (*words, "--output", "run", "--resume", "auto", "--checkpoint-rounds", 23)
    for _ in range(2):
        reached = max(rounds(tmp_path / "run"), default=0)
        process = program.start(*resuming)
        wait_for(lambda reached=reached: max(rounds(tmp_path / "run"), default=0) > reached, process)
        time.sleep(rng.uniform(0.0, 0.05))
        process.kill()
        program.end(process)
    ended = program.run(*resuming)
    assert ended.status == 0, ended.err
    assert "resumed from run/checkpoint-" in ended.out
    files = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("whole", "run")]
    assert files[0] == files[1]
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


@pytest.mark.slow
def test_lenet_is_killed_often_and_ends_with_the_same_bits(program: Program, tmp_path: Path) -> None:
    words = ("train", "lenet", "--epochs", 3, "--devices", "cpu:0,cpu:1", "--tau", 2, "--staleness", 1)
    assert program.run(*words, "--output", "whole").status == 0
    rng = random.Random(1)
    for _ in range(6):
        process = program.start(*words, "--output", "run", "--resume", "auto", "--checkpoint-rounds", 5)
        try:
            process.wait(rng.uniform(2, 7))
        except subprocess.TimeoutExpired:
            process.kill()
        program.end(process)
    assert program.run(*words, "--output", "run", "--resume", "auto").status == 0
    files = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("whole", "run")]
    assert files[0] == files[1]
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


@pytest.mark.slow
def test_a_reader_that_goes_away_stops_the_run_with_a_checkpoint(program: Program, tmp_path: Path) -> None:
    process = program.start(*LONG)
    assert process.stdout.readline().startswith("logreg: ")
    assert process.stdout.readline().startswith("epoch")
    process.stdout.close()
    process.stdout = None
    ended = program.end(process)
    assert "cannot write to standard output" in ended.line
    assert "with a checkpoint; go on with --resume auto --output run" in ended.line
    assert rounds(tmp_path / "run")


@pytest.mark.slow
def test_a_full_disk_under_standard_output(program: Program, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = program.run(*QUICK, "--json", stdout=full)
        assert "No space left on device" in ended.line
        assert rounds(tmp_path / "run")
        ended = program.run(*LONG, "--output", "lines", "--json-lines", stdout=full)
        assert "No space left on device; stopped at step " in ended.err.splitlines()[-1]
        assert len(rounds(tmp_path / "lines")) == 1
        line = program.run("explain", "logreg", stdout=full).line
        assert line == "tensorbow: cannot write to standard output: No space left on device\n"


@pytest.mark.slow
def test_standard_output_may_be_closed(program: Program, tmp_path: Path) -> None:
    ended = program.run("devices", shell="exec >&-")
    assert (ended.status, ended.err) == (0, "")
    ended = program.run(*QUICK, "--json", shell="exec >&-")
    assert (ended.status, ended.err) == (0, "")
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_first_checkpoint(program: Program, tmp_path: Path) -> None:
    """Simulated by a limit on the size of files, in blocks of 512 bytes."""
    ended = program.run(*QUICK, shell="ulimit -f 20")
    assert "cannot write 'run/model-best.safetensors'" in ended.line
    assert "free space or choose another path" in ended.line
    assert not list((tmp_path / "run").glob(".*"))
    assert program.run(*QUICK).status == 0


@pytest.mark.slow
def test_a_second_run_before_the_first_checkpoint(
    program: Program, tmp_path: Path, wait_for: WaitFor
) -> None:
    words = ("train", "lenet", "--epochs", 100, "--output", "run", "--resume", "auto")
    first = program.start(*words)
    wait_for((tmp_path / "run" / "config.yaml").exists, first)
    ended = program.run(*words)
    assert "another run is writing there" in ended.line
    assert "resumed" not in ended.out
    first.send_signal(signal.SIGINT)
    assert program.end(first).status == 130


@pytest.mark.slow
def test_runs_that_name_no_folder_have_one_each(program: Program, tmp_path: Path) -> None:
    started = [program.start(*QUICK[:-2]) for _ in range(5)]
    assert [program.end(process).status for process in started] == [0] * 5
    numbers = ("", "-2", "-3", "-4", "-5")
    assert all((tmp_path / f"runs/logreg-synthetic{n}" / "model.safetensors").exists() for n in numbers)


@pytest.mark.slow
def test_a_second_run_in_the_same_folder(program: Program, tmp_path: Path, wait_for: WaitFor) -> None:
    first = program.start(*LONG)
    wait_for(lambda: rounds(tmp_path / "run"), first)
    ended = program.run(*LONG, "--resume", "auto")
    assert "another run is writing there" in ended.line
    assert ended.out == ""
    first.send_signal(signal.SIGINT)
    assert program.end(first).status == 130


@pytest.mark.slow
def test_a_live_bar_in_a_terminal(program: Program, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    process = program.start(
        *QUICK[:5], 6, "--output", "run", stdout=slave, stderr=slave, env={"TERM": "xterm", "COLUMNS": "120"}
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    assert program.end(process).status == 0
    text = shown.decode()
    for part in ("\x1b[", "loss ", "images/s", "/768", "epoch   6/6", "test accuracy"):
        assert part in text
