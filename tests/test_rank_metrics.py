"""Metrics of the highest scored classes of examples with several labels, against sets of Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

BATCHES, ROWS, CLASSES, K = 3, 4, 6, 3
RNG = np.random.default_rng(11)
LABELS = RNG.integers(0, CLASSES, (BATCHES, ROWS, 2))  # some rows have one label twice
LABELS[0, 0] = 5
SCORES = RNG.uniform(size=(BATCHES, ROWS, CLASSES)).astype(np.float32)
WEIGHTS = RNG.uniform(size=(BATCHES, ROWS)).astype(np.float32)
CHOSEN = np.argsort(-SCORES, -1)[..., :K]


def sets(values: Any, class_id: int | None) -> list[set[int]]:
    rows = [set(row) for row in np.reshape(values, [BATCHES * ROWS, -1]).tolist()]
    return rows if class_id is None else [row & {class_id} for row in rows]


def expected(which: str, labels: Any, class_id: int | None, weights: Any) -> float:
    wanted, chosen = sets(labels, class_id), sets(CHOSEN, class_id)
    hits = np.array([len(a & b) for a, b in zip(wanted, chosen, strict=True)])
    every = np.array([len(row) for row in (wanted if which == "recall" else chosen)])
    w = np.ravel(weights)
    return float((hits * w).sum() / (every * w).sum())


def run(make: Any, *columns: Any) -> tuple[Any, list[Any]]:
    """The value after all batches, and the updates."""
    with tb.Graph().as_default(), tb.Session() as session:
        fed = [tb.placeholder(tb.as_dtype(each.dtype), [None, *each.shape[2:]]) for each in columns]
        value, update = make(*fed)
        session.run(tb.local_variables_initializer())
        assert session.run(value) == 0
        updates = [
            session.run(update, dict(zip(fed, rows, strict=True))) for rows in zip(*columns, strict=True)
        ]
        return session.run(value), updates


@pytest.mark.parametrize("class_id", [None, 2])
@pytest.mark.parametrize("which", ["recall", "precision"])
def test_of_scores_and_of_chosen_classes(which: str, class_id: int | None) -> None:
    at_k, at_top_k = (getattr(tb.metrics, f"{which}_at_{end}") for end in ("k", "top_k"))
    value, updates = run(lambda y, p: at_k(y, p, K, class_id), LABELS, SCORES)
    assert value == pytest.approx(expected(which, LABELS, class_id, np.ones((BATCHES, ROWS))), rel=1e-5)
    assert updates[-1] == pytest.approx(value, rel=1e-6)
    value, _ = run(lambda y, p, w: at_top_k(y, p, K, class_id, w), LABELS, CHOSEN, WEIGHTS)
    assert value == pytest.approx(expected(which, LABELS, class_id, WEIGHTS), rel=1e-5)


def test_one_label_of_each_example() -> None:
    value, _ = run(lambda y, p: tb.metrics.recall_at_k(y, p, K), LABELS[..., 0], SCORES)
    assert value == pytest.approx(np.mean((LABELS[..., :1] == CHOSEN).any(-1)), rel=1e-5)


def test_classes_that_are_chosen_twice_count_once() -> None:
    with tb.Graph().as_default(), tb.Session() as session:
        _, recall = tb.metrics.recall_at_top_k([[1, 2]], [[1, 1, 3]])
        _, precision = tb.metrics.precision_at_top_k([[1, 2]], [[1, 1, 3]])
        session.run(tb.local_variables_initializer())
        assert session.run([recall, precision]) == [0.5, 0.5]


def test_sparse_labels() -> None:
    labels = tb.SparseTensorValue([[0, 0], [2, 0], [2, 1]], np.array([0, 0, 4]), [3, 3])
    scores = np.array([[0.9, 0.1, 0, 0, 0.5], [0.9, 0, 0, 0.1, 0.5], [0, 0.9, 0, 0.1, 0.5]], np.float32)
    with tb.Graph().as_default(), tb.Session() as session:
        sparse = tb.sparse_placeholder(tb.int64, [None, 3])
        recall = tb.metrics.recall_at_k(sparse, scores, 2)
        precision = tb.metrics.precision_at_k(sparse, scores, 2)
        average = tb.metrics.average_precision_at_k(sparse, scores, 2)
        session.run(tb.local_variables_initializer())
        session.run([recall[1], precision[1], average[1]], {sparse: labels})
        found = session.run([recall[0], precision[0], average[0]])
    assert found == pytest.approx([2 / 3, 2 / 6, (1 + 0 + 0.25) / 3])


@pytest.mark.parametrize("weighted", [False, True])
def test_average_precision(weighted: bool) -> None:
    each = []
    for wanted, chosen in zip(sets(LABELS, None), CHOSEN.reshape(-1, K).tolist(), strict=True):
        hits = [c in wanted for c in chosen]
        precisions = [sum(hits[: i + 1]) / (i + 1) for i in range(K) if hits[i]]
        each.append(sum(precisions) / min(len(wanted), K))
    more = (WEIGHTS,) if weighted else ()
    make = tb.metrics.average_precision_at_k
    value, updates = run(lambda y, p, *w: make(y, p, K, *w), LABELS, SCORES, *more)
    assert value == pytest.approx(np.average(each, weights=WEIGHTS.ravel() if weighted else None), rel=1e-5)
    assert updates[-1] == pytest.approx(value, rel=1e-6)


def test_labels_of_a_rank_that_does_not_fit() -> None:
    refused = pytest.raises(InvalidArgumentError, match=r"recall_at_k: labels are .*, of 3 axes, .* have 2")
    with tb.Graph().as_default(), refused:
        tb.metrics.recall_at_k(tb.zeros([2, 3, 1], tb.int64), tb.zeros([2, 3]), 1)
