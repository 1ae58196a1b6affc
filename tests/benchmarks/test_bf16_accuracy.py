"""Accuracies in bf16 beside fp32: the rule that says what noise is, the table, and the picture."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.picture_faults import faults

FP32 = [0.98, 0.99, 0.985, 0.982, 0.988]


def details_of(bf16: list[float]) -> dict[str, Any]:
    from bf16_accuracy import compared

    accuracies = {"fp32": FP32, "bf16": bf16}
    cells = [
        {"setting": {"dataset": "mnist", "compute": name}, "seed": seed, "test_accuracy": value}
        for name, values in accuracies.items()
        for seed, value in enumerate(values)
    ]
    goal = {"epochs": {"mnist": 2}}
    return {"goal": goal, "cells": cells, "summary": [compared("mnist", accuracies)], "seeds": len(bf16)}


@pytest.mark.parametrize(("lower", "met"), [(0.0, True), (0.005, True), (0.0053, False), (-0.0053, False)])
def test_the_means_may_differ_by_two_standard_errors(lower: float, met: bool) -> None:
    """The standard deviation of either side is 0.00412, so the standard error is 0.00261."""
    from bf16_accuracy import is_within_noise, table

    details = details_of([value - lower for value in FP32])
    (row,) = details["summary"]
    assert row["difference"] == pytest.approx(-lower)
    assert row["standard_error"] == pytest.approx(0.00261, abs=1e-5)
    assert is_within_noise(row) is met
    shown = table(details)
    assert shown.rows == [
        ["MNIST", 2, "98.50% (0.41%)", f"{0.985 - lower:.2%} (0.41%)", f"{0 - lower:+.2%} (0.26%)"]
    ]
    assert shown.remarks[1].endswith("reached." if met else "missed.")


def test_the_picture_has_a_dot_for_each_seed() -> None:
    pytest.importorskip("matplotlib")
    from bf16_accuracy import draw

    from tensorbow.pictures import styled_figure

    with styled_figure(8.0, 4.5) as figure:
        draw(figure, {"details": details_of([0.97, 0.975, 0.98, 0.985, 0.99])})
        assert faults(figure) == []
        (axes,) = figure.axes
        dots = [[round(float(y), 6) for y in line.get_ydata()] for line in axes.lines]
        assert dots == [[2, 1, 1.5, 1.8, 1.2], [3, 2.5, 2, 1.5, 1]]


def test_one_seed_has_no_noise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import bf16_accuracy

    monkeypatch.setattr(sys, "argv", ["bf16_accuracy.py", "--seeds", "1"])
    with pytest.raises(SystemExit):
        bf16_accuracy.main()
    assert "--seeds: expected at least 2" in capsys.readouterr().err
