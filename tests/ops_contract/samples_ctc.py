"""Samples of the CTC loss, against sums over all paths."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tensorbow.ops.ctc import CTCLoss
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, normal


def labels_of_path(path: tuple[int, ...], blank: int, merges: bool = True) -> tuple[int, ...]:
    kept = [c for i, c in enumerate(path) if not (merges and i and path[i - 1] == c)]
    return tuple(c for c in kept if c != blank)


def probabilities(scores: Array, merges: bool = True) -> dict[tuple[int, ...], float]:
    """The probability of each sequence of labels, by all paths of scores [time, classes]."""
    p = np.exp(scores.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    blank = scores.shape[1] - 1
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(blank + 1), repeat=len(scores)):
        labels = labels_of_path(path, blank, merges)
        found[labels] = found.get(labels, 0.0) + float(np.prod(p[np.arange(len(path)), list(path)]))
    return found


def _expected(merges: bool, collapses: bool, ignores: bool) -> Any:
    def expected(scores: Array, indices: Array, values: Array, lengths: Array) -> tuple[Array, None]:
        losses = []
        for b, steps in enumerate(lengths.tolist()):
            labels = tuple(values[indices[:, 0] == b].tolist())
            if collapses:
                labels = tuple(k for k, _ in itertools.groupby(labels))
            if not steps or (ignores and len(labels) > steps):
                losses.append(0.0)
                continue
            losses.append(-np.log(probabilities(scores[:steps, b], merges).get(labels, 0.0)))
        return np.array(losses), None

    return expected


INDICES = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [2, 0]])
VALUES = np.array([2, 2, 0, 1, 0, 1], np.int32)


def _sample(lengths: Any, label: str, values: Array = VALUES, classes: int = 4, **attrs: Any) -> Sample:
    expected = _expected(
        attrs.get("ctc_merge_repeated", True),
        attrs.get("preprocess_collapse_repeated", False),
        attrs.get("ignore_longer_outputs_than_inputs", False),
    )
    return Sample(
        CTCLoss,
        (2 * normal(5, 3, classes), INDICES, values, np.array(lengths, np.int32)),
        expected,
        attrs,
        label=label,
        through=(0,),
        rtol=1e-4,
        exact_layout=False,
    )


SAMPLES = [
    _sample([5, 4, 5], "plain"),
    _sample([5, 5, 3], "unmerged", ctc_merge_repeated=False),
    _sample([4, 5, 4], "collapsed", preprocess_collapse_repeated=True),
    _sample([1, 5, 1], "longer", ignore_longer_outputs_than_inputs=True),
    Sample(
        CTCLoss,
        (normal(4, 2, 3), np.zeros((0, 2), np.int64), np.zeros(0, np.int32), np.array([4, 2], np.int32)),
        _expected(True, False, False),
        label="empty",
        through=(0,),
        rtol=1e-4,
    ),
    Sample(
        CTCLoss,
        (normal(20, 64, 300), INDICES, VALUES, np.full(64, 20, np.int32)),
        None,
        label="large",
        through=(0,),
    ),
]
