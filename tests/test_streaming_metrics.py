"""`tb.metrics` beyond mean and accuracy: over several batches, against direct formulas and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

RNG = np.random.default_rng(7)
LABELS, SCORES = RNG.integers(0, 2, (4, 9)), RNG.uniform(size=(4, 9)).astype(np.float32)
WEIGHTS = RNG.uniform(size=(4, 9)).astype(np.float32)


def run(make: Callable[..., Any], *columns: Any, **options: Any) -> tuple[Any, list[Any]]:
    """The value after all batches (rows of the columns), and the updates."""
    with tb.Graph().as_default(), tb.Session() as session:
        fed = [tb.placeholder(tb.convert_to_tensor(each).dtype, [None]) for each in columns]
        value, update = make(*fed, **options)
        session.run(tb.local_variables_initializer())
        batches = [dict(zip(fed, rows, strict=True)) for rows in zip(*columns, strict=True)]
        updates = [session.run(update, batch) for batch in batches]
        return session.run(value), updates


def binary(which: str, w: Any) -> float:
    truth, said = LABELS == 1, SCORES > 0.5
    pairs = ((truth, said), (~truth, said), (truth, ~said), (~truth, ~said))
    tp, fp, fn, tn = ((a & b) * w for a, b in pairs)
    return {
        "true_positives": tp.sum(),
        "false_positives": fp.sum(),
        "false_negatives": fn.sum(),
        "true_negatives": tn.sum(),
        "precision": tp.sum() / (tp + fp).sum(),
        "recall": tp.sum() / (tp + fn).sum(),
    }[which]


@pytest.mark.parametrize(
    "which",
    ["true_positives", "false_positives", "false_negatives", "true_negatives", "precision", "recall"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_counts_of_truths(which: str, weighted: bool) -> None:
    make = getattr(tb.metrics, which)
    said = (SCORES > 0.5).astype(np.int64)
    if weighted:
        value, updates = run(lambda a, b, w: make(a, b, weights=w), LABELS, said, WEIGHTS)
    else:
        value, updates = run(make, LABELS, said)
    assert value == pytest.approx(binary(which, WEIGHTS if weighted else 1.0), rel=1e-5)
    assert updates[-1] == pytest.approx(value, rel=1e-6)
    assert run(make, LABELS * 0, said * 0)[0] == (36 if which == "true_negatives" else 0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("curve", ["ROC", "PR"])
def test_area_under_a_curve(curve: str, weighted: bool) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    weights = WEIGHTS.ravel() if weighted else None
    make = lambda *columns: tb.metrics.auc(*columns, num_thresholds=2000, curve=curve)  # noqa: E731
    value, updates = run(make, LABELS, SCORES, *([WEIGHTS] if weighted else []))
    truth, scores = LABELS.ravel(), SCORES.ravel()
    if curve == "ROC":
        expected = metrics.roc_auc_score(truth, scores, sample_weight=weights)
    else:
        precision, recall, _ = metrics.precision_recall_curve(truth, scores, sample_weight=weights)
        expected = metrics.auc(recall, precision)
    assert value == pytest.approx(expected, abs=0.01)
    assert updates[-1] == pytest.approx(value, rel=1e-5)


def test_errors_of_numbers() -> None:
    y = RNG.normal(size=(4, 9)).astype(np.float32)
    errors = SCORES - y
    for make, expected in (
        (tb.metrics.mean_squared_error, (errors**2).mean()),
        (tb.metrics.mean_absolute_error, abs(errors).mean()),
        (tb.metrics.root_mean_squared_error, (errors**2).mean() ** 0.5),
    ):
        value, updates = run(make, y, SCORES)
        assert value == pytest.approx(expected, rel=1e-5)
        assert updates[-1] == pytest.approx(value, rel=1e-6)


def test_intersection_over_union_of_the_classes_that_occur() -> None:
    labels, said = RNG.integers(0, 3, (4, 9)), RNG.integers(0, 3, (4, 9))
    value, updates = run(lambda a, b: tb.metrics.mean_iou(a, b, 5), labels, said)
    shares = [((labels == c) & (said == c)).sum() / ((labels == c) | (said == c)).sum() for c in range(3)]
    assert value == pytest.approx(np.mean(shares), rel=1e-5)
    assert updates[-1].shape == (5, 5)
    assert updates[-1].sum() == 36


def test_shapes_must_agree_and_collections_get_both() -> None:
    with tb.Graph().as_default():
        with pytest.raises(InvalidArgumentError, match=r"metrics.recall: labels are .* the same shape"):
            tb.metrics.recall([1, 0], [1])
        value, update = tb.metrics.precision([1], [1], None, "now", ["then"])
        assert (tb.get_collection("now"), tb.get_collection("then")) == ([value], [update])
