"""The short programs in examples/ run, learn what they say, and fit a screen."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

import tensorbow as tb

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# What the last line with these words must say: a number above (or below) a bound, or a word.
LEARNT = {
    "autoencoder": ("ratio: ", "<", 0.8),
    "change_the_session": ("accuracy of four averaged replicas: ", ">", 0.9),
    "character_model": ("loss: ", "<", 0.8),
    "contrastive": ("found among 64: ", ">", 0.5),
    "ensemble": ("accuracy of the ensemble: ", ">", 0.94),
    "model_in_two_parts": ("mean error of the sum ", "<", 0.6),
    "one_to_eight_devices": ("loss of eight devices with two replicas each: ", "<", 0.4),
    "resume": ("the same bits: ", "=", "True"),
    "saved_model": ("accuracy of the saved model: ", ">", 0.9),
    "sweep": ("the same bits alone: ", "=", "True"),
    "tabular_regression": ("share of variance explained: ", ">", 0.2),
}


def test_all_programs_are_tested_and_listed():
    programs = {path.stem for path in EXAMPLES.glob("*.py")}
    assert programs == LEARNT.keys()
    listed = re.findall(r"\]\((\w+)\.py\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(programs)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNT)
def test_program(name, capsys, monkeypatch, tmp_path):
    pytest.importorskip("sklearn", reason="the handwritten digits are scikit-learn's")
    monkeypatch.setattr(sys, "argv", [f"{name}.py", str(tmp_path)])
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 80
    with tb.Graph().as_default():
        runpy.run_path(str(path), run_name="__main__")
    words, comparison, bound = LEARNT[name]
    said = capsys.readouterr().out.rpartition(words)[2].split("\n")[0]
    assert said == bound if comparison == "=" else (float(said) > bound) == (comparison == ">"), said
