"""Files that are none, as the command line meets them: FIFOs, folders, links, names at the system's limit.

Nothing waits for a FIFO: a test that did would not end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Call = Callable[..., Any]
QUICK = ("train", "logreg", "--dataset", "synthetic", "--epochs", "1")
TUNE = ("tune", "logreg", "--dataset", "synthetic", "--max-replicas", "1", "--windows", "1")
LONGEST = 255  # bytes of a name, on the file systems that tests run on


@pytest.fixture
def folder(call: Call, tmp_path: Path) -> Path:
    """One with a FIFO of each name, and pictures; `call` works there."""
    for name in ("fifo", "fifo.npy", "fifo.png", "fifo.npz", "fifo.safetensors"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "linked.npy").symlink_to("fifo.npy")
    np.save(tmp_path / "pictures.npy", np.zeros((2, 28, 28, 1), np.uint8))
    return tmp_path


@pytest.fixture
def run(call: Call, folder: Path) -> Path:
    assert call(*QUICK, "--output", "run").status == 0
    return folder / "run"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*QUICK, "--resume", "fifo"), "'fifo': expected a regular file, got a FIFO"),
        ((*QUICK, "--output", "fifo"), "fifo: a file is in the way"),
        ((*QUICK, "--trace", "fifo"), "'fifo': expected a regular file, got a FIFO"),
        (("train", "lenet", "--dataset", "mnist", "--data-dir", "fifo"), "'fifo' (from --data-dir) is not a"),
        ((*TUNE, "--picture", "fifo.png"), "--picture: cannot write 'fifo.png': expected a regular file"),
        (("predict", "fifo.safetensors", "pictures.npy"), "expected a regular file, got a FIFO"),
        (("evaluate", "fifo"), "expected a regular file, got a FIFO"),
        (("export", "fifo"), "expected a regular file, got a FIFO"),
    ],
)
def test_a_fifo_is_refused(call: Call, folder: Path, words: tuple[str, ...], said: str) -> None:
    assert said in call(*words).line


@pytest.mark.slow
def test_a_fifo_beside_a_model_is_refused(call: Call, run: Path) -> None:
    for name in ("fifo", "fifo.npy", "fifo.npz", "fifo.png", "linked.npy"):
        assert "is not a regular file" in call("predict", run, name).line, name
    for name in ("fifo.npy", "linked.npy"):
        line = call("predict", run, "pictures.npy", "--output", name).line
        assert f"--output: cannot write '{name}': expected a regular file, got a FIFO" in line
    (run / "export").mkdir()
    os.mkfifo(run / "export" / "graph.json")
    assert "graph.json': expected a regular file, got a FIFO" in call("export", run).line


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_run_s_files_are_regular_ones(call: Call, folder: Path, name: str, linked: bool) -> None:
    place = folder / "new" / name
    place.parent.mkdir()
    if linked:
        place.symlink_to("../fifo")
    else:
        os.mkfifo(place)
    line = call(*QUICK, "--output", "new").line
    assert f"'new/{name}': expected a regular file, got a FIFO" in line
    assert place.is_fifo()


@pytest.mark.slow
def test_metrics_to_go_on_with_are_a_regular_file(call: Call, run: Path) -> None:
    """A link to a device that never ends, read only."""
    for target in ("/dev/zero", "../fifo"):
        (run / "metrics.jsonl").unlink()
        (run / "metrics.jsonl").symlink_to(target)
        line = call(*QUICK, "--epochs", 2, "--output", "run", "--resume", "auto").line
        kind = "a character device" if target == "/dev/zero" else "a FIFO"
        assert f"'run/metrics.jsonl': expected a regular file, got {kind}" in line


@pytest.mark.slow
def test_names_as_long_as_the_system_has_them(call: Call, folder: Path) -> None:
    output, trace = "o" * LONGEST, "t" * LONGEST
    assert call(*QUICK, "--output", output, "--trace", trace).status == 0
    assert (folder / trace).is_file()
    probabilities = "p" * (LONGEST - 4) + ".npy"
    assert call("predict", output, "pictures.npy", "--output", probabilities).status == 0
    assert np.load(folder / probabilities).shape == (2, 10)
    exported = "e" * LONGEST
    assert call("export", output, "--output", exported).status == 0
    assert call("predict", exported, "pictures.npy").status == 0
    for words in (
        (*QUICK, "--output", output + "o"),
        (*QUICK, "--trace", trace + "t"),
        ("predict", output, "pictures.npy", "--output", "p" + probabilities),
        ("predict", output, "p" + probabilities),
        ("export", output, "--output", exported + "e"),
    ):
        assert "File name too long: " in call(*words).line
