"""Metrics of classifiers against scikit-learn's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scheduler.training.measures.classification_metrics import METRICS, report_of
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import RefusedError

sklearn = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")


def scores(ties: bool, examples: int = 300, classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Scores that prefer the label; labels of 4 of the 5 classes."""
    random = np.random.default_rng(3)
    labels = random.integers(0, classes - 1, examples)
    made = random.normal(size=(examples, classes)) + 1.5 * np.eye(classes)[labels]
    made = np.round(made) if ties else made
    return made.astype(np.float32), labels.astype(np.int32)


@pytest.mark.parametrize("ties", [False, True])
def test_against_scikit_learn(ties: bool) -> None:
    given, labels = scores(ties)
    report, predicted = report_of(given, labels), given.argmax(1)
    np.testing.assert_array_equal(
        report.confusion, sklearn.confusion_matrix(labels, predicted, labels=range(5))
    )
    assert report.value("accuracy") == pytest.approx(sklearn.accuracy_score(labels, predicted))
    for name, reference in (
        ("precision", sklearn.precision_score),
        ("recall", sklearn.recall_score),
        ("f1", sklearn.f1_score),
    ):
        expected = reference(labels, predicted, average="macro", zero_division=0)
        assert report.value(name) == pytest.approx(expected), name
    powers = np.exp(given.astype(np.float64))
    np.testing.assert_allclose(report.probabilities, powers / powers.sum(1, keepdims=True), rtol=1e-12)
    for index in range(4):
        expected = sklearn.roc_auc_score(labels == index, report.probabilities[:, index])
        assert report.auc_by_class[index] == pytest.approx(expected)
    assert np.isnan(report.auc_by_class[4])
    assert report.value("auc") == pytest.approx(report.auc_by_class[:4].mean())
    tops = [report.top(k) for k in range(1, 6)]
    assert tops[0] == report.value("accuracy")
    assert tops == sorted(tops)
    assert tops[4] == 1.0
    if not ties:
        expected = sklearn.top_k_accuracy_score(labels, given, k=2, labels=range(5))
        assert report.value("top2") == pytest.approx(expected)


def test_logits_and_their_probabilities_have_one_area() -> None:
    """The area of two classes is that of the difference of their logits."""
    given, labels = scores(False)
    logits, two = given[:, :2], labels % 2
    report = report_of(logits, two)
    expected = sklearn.roc_auc_score(two, logits[:, 1] - logits[:, 0])
    assert report.auc_by_class == pytest.approx([expected] * 2)
    again = report_of(report.probabilities.astype(np.float32), two)
    assert again.value("auc") == pytest.approx(expected, abs=1e-3)


def test_degenerate_cases() -> None:
    one = report_of(np.array([[0.2, 0.8]], np.float32), np.array([1]))
    assert one.values(["f1", "confusion", "top1"]) == {"f1": 1.0, "top1": 1.0}
    assert np.isnan(one.value("auc"))
    assert "-" in one.table()[1]
    lost = report_of(np.full((3, 2), np.nan, np.float32), np.array([0, 1, 1]))
    assert np.isnan(lost.value("auc"))
    assert (lost.value("accuracy"), lost.top(2)) == (0.0, 0.0)
    partly = report_of(np.array([[np.nan, 2, 1], [0, np.nan, 1]], np.float32), np.array([1, 1]))
    assert [partly.top(k) for k in (1, 2, 9)] == [0.0, 0.5, 0.5]
    for odd in (
        (np.ones((2, 3)), np.array([0, 3])),
        (np.ones(2), np.array([0, 1])),
        (np.ones((0, 2)), np.ones(0)),
    ):
        with pytest.raises(InvalidArgumentError, match=r"^metrics: expected"):
            report_of(*odd)
    assert METRICS.read("top5,f1,top5") == METRICS.read(["top5", "f1"]) == ("top5", "f1")
    for name in ("top", "top0", "topx", "", "F1", "top9999999"):
        with pytest.raises(RefusedError):
            METRICS.read(name)


def test_table_and_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    report = report_of(*scores(False))
    lines = report.table()
    assert len(lines) == 6
    assert len({len(line) for line in lines}) == 1
    counts = [int(word) for word in lines[2].split()[1:6]]
    assert counts == report.confusion[1].tolist()
    report.draw(tmp_path / "confusion.svg", "five classes")
    drawn = (tmp_path / "confusion.svg").read_text()
    assert "share of the label" in drawn
