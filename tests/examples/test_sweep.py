"""The example `sweep`: members trained together have the bits of each run alone, and its command works."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import tensorbow as tb
from examples.sweep import sweep

pytest.importorskip("sklearn", reason="the handwritten digits are scikit-learn's")

MEMBERS = [sweep.Member(rate, seed) for rate in (0.003, 0.05) for seed in (0, 7)]


@pytest.mark.usefixtures("kernels")
def test_a_member_has_the_bits_of_its_run_alone():
    digits, _ = tb.data.load("digits")
    data = replace(digits, images=digits.images[:100], labels=digits.labels[:100])
    together, losses = sweep.train(MEMBERS, data, 8)  # 6 batches are an epoch
    assert losses.shape == (8, 4)
    for number, member in enumerate(MEMBERS):
        (alone,), own = sweep.train([member], data, 8)
        np.testing.assert_array_equal(own[:, 0], losses[:, number])
        assert alone.keys() == together[number].keys() >= {"hidden/kernel", "logits/bias"}
        for name, value in alone.items():
            np.testing.assert_array_equal(value, together[number][name])
    kernels = [values["hidden/kernel"] for values in together]
    assert all((one != other).any() for one, other in pairwise(kernels))


def test_command_trains_evaluates_and_exports(tmp_path, capsys):
    command = ["--epochs", "1", "--learning-rates", "0.003", "0.02", "--seeds", "2", "--at-once", "3"]
    sweep.main([*command, "--output", str(tmp_path)])
    results = json.loads((tmp_path / "sweep.json").read_text())
    assert [row["learning_rate"] for row in results["by_rate"]] == [0.003, 0.02]
    each = [figure for row in results["by_rate"] for figure in (*row["accuracies"], row["ensemble"])]
    assert len(each) == 6
    assert min(each) > 0.7
    assert "average of all members" in capsys.readouterr().out
    _, test = tb.data.load("digits")
    images, labels = test.batch()
    with tb.train.SavedModel(tmp_path / "best") as model:
        (probabilities,) = model.run(["probabilities"], images=images)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert sweep.accuracy(probabilities, labels) == pytest.approx(results["best"]["accuracy"])


def test_help_names_all_options_and_nonsense_is_refused(capsys):
    for arguments, status, said in (["--help"], 0, "--at-once"), (["--seeds", "0"], 2, "above 0"):
        with pytest.raises(SystemExit) as ended:
            sweep.main(arguments)
        assert ended.value.code == status
        shown = capsys.readouterr()
        assert said in shown.out + shown.err
