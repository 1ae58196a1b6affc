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
    assert run(lambda a, b: tb.metrics.mean_iou(a, b, 5, 0.5), labels, said)[1][-1].sum() == 18


def test_shapes_must_agree_and_collections_get_both() -> None:
    with tb.Graph().as_default():
        with pytest.raises(InvalidArgumentError, match=r"metrics.recall: labels are .* the same shape"):
            tb.metrics.recall([1, 0], [1])
        with pytest.raises(InvalidArgumentError, match=r"recall_at_thresholds: .*at least one number"):
            tb.metrics.recall_at_thresholds([1], [1], [])
        value, update = tb.metrics.precision([1], [1], None, "now", ["then"])
        assert (tb.get_collection("now"), tb.get_collection("then")) == ([value], [update])


THRESHOLDS = [0.1, 0.4, 0.8]


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_and_shares_for_each_threshold(weighted: bool) -> None:
    w = WEIGHTS if weighted else np.ones_like(WEIGHTS)
    expected: dict[str, list[float]] = {}
    for threshold in THRESHOLDS:
        truth, said = LABELS == 1, threshold < SCORES
        tp, fp, fn, tn = (
            float(((a & b) * w).sum())
            for a, b in ((truth, said), (~truth, said), (truth, ~said), (~truth, ~said))
        )
        figures = {"true_positives": tp, "false_positives": fp, "false_negatives": fn, "true_negatives": tn}
        figures |= {"precision": tp / (tp + fp), "recall": tp / (tp + fn)}
        for name, figure in figures.items():
            expected.setdefault(name, []).append(figure)
    for name, figures_of_all in expected.items():
        make = getattr(tb.metrics, f"{name}_at_thresholds")
        columns = (LABELS, SCORES, WEIGHTS) if weighted else (LABELS, SCORES)
        value, updates = run(lambda a, b, *more, make=make: make(a, b, THRESHOLDS, *more), *columns)
        np.testing.assert_allclose(value, figures_of_all, rtol=1e-5)
        np.testing.assert_allclose(updates[-1], value, rtol=1e-6)


@pytest.mark.parametrize("at", [0.3, 0.75])
def test_sensitivity_and_specificity_at_each_other(at: float) -> None:
    limits = np.arange(-1, 199) / 199 + 1 / 199
    limits[0], limits[-1] = -1, 2
    truth, said = LABELS.ravel() == 1, SCORES.ravel() > limits[:, None]
    sensitivity = (said & truth).sum(1) / truth.sum()
    specificity = (~said & ~truth).sum(1) / (~truth).sum()
    value, updates = run(lambda a, b: tb.metrics.sensitivity_at_specificity(a, b, at), LABELS, SCORES)
    assert value == pytest.approx(sensitivity[abs(specificity - at).argmin()], rel=1e-5)
    assert updates[-1] == pytest.approx(value, rel=1e-6)
    value, updates = run(lambda a, b: tb.metrics.specificity_at_sensitivity(a, b, at), LABELS, SCORES)
    far = abs(sensitivity - at)
    assert value == pytest.approx(specificity[far == far.min()].max(), rel=1e-5)
    assert updates[-1] == pytest.approx(value, rel=1e-6)


def test_means_of_errors_shares_and_tensors() -> None:
    y = RNG.normal(size=(4, 9)).astype(np.float32)
    scale = np.where(WEIGHTS < 0.3, 0, WEIGHTS)
    relative = np.where(scale > 0, abs(SCORES - y) / np.where(scale > 0, scale, 1), 0)
    value, updates = run(tb.metrics.mean_relative_error, y, SCORES, scale)
    assert value == pytest.approx(relative.mean(), rel=1e-5)
    assert updates[-1] == pytest.approx(value, rel=1e-6)
    value, _ = run(lambda v, w: tb.metrics.percentage_below(v, 0.4, w), SCORES, WEIGHTS)
    assert value == pytest.approx(((SCORES < 0.4) * WEIGHTS).sum() / WEIGHTS.sum(), rel=1e-5)


def test_mean_of_each_element() -> None:
    weights = np.where(WEIGHTS < 0.4, 0, WEIGHTS)
    weights[:, 4] = 0

    def of_matrices(values: Any, *more: Any) -> Any:
        return tb.metrics.mean_tensor(*(tb.reshape(each, [3, 3]) for each in (values, *more)))

    value, updates = run(of_matrices, SCORES, weights)
    total = weights.sum(0)
    expected = np.where(total > 0, (SCORES * weights).sum(0) / np.where(total > 0, total, 1), 0)
    np.testing.assert_allclose(value, expected.reshape(3, 3), rtol=1e-5)
    np.testing.assert_allclose(updates[-1], value, rtol=1e-6)
    np.testing.assert_allclose(run(of_matrices, SCORES)[0], SCORES.mean(0).reshape(3, 3), rtol=1e-5)
    with (
        tb.Graph().as_default(),
        pytest.raises(InvalidArgumentError, match=r"mean_tensor: .*shape that is known"),
    ):
        tb.metrics.mean_tensor(tb.placeholder(tb.float32, [None]))


def test_cosine_distance() -> None:
    a, b = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (SCORES, WEIGHTS))
    value, updates = run(lambda a, b: tb.metrics.mean_cosine_distance(a, b, 0), a, b)
    assert value == pytest.approx(1 - (a * b).sum(1).mean(), rel=1e-4)
    assert updates[0] == pytest.approx(1 - (a[0] * b[0]).sum(), rel=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_mean_accuracy_of_the_classes(weighted: bool) -> None:
    labels, said = RNG.integers(0, 3, (4, 9)), RNG.integers(0, 3, (4, 9))
    w = WEIGHTS if weighted else np.ones_like(WEIGHTS)
    more = (WEIGHTS,) if weighted else ()
    value, updates = run(
        lambda a, b, *w: tb.metrics.mean_per_class_accuracy(a, b, 4, *w), labels, said, *more
    )
    shares = [(w * (labels == c) * (said == c)).sum() / (w * (labels == c)).sum() for c in range(3)]
    np.testing.assert_allclose(updates[-1], [*shares, 0], rtol=1e-5)
    assert value == pytest.approx(np.mean([*shares, 0]), rel=1e-5)
