"""Samples of the cross-entropies."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.losses import SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, integers, normal, uniform


def dense(logits: Any, labels: Any) -> tuple[Array, Array]:
    """Loss and its derivative, row by row."""
    loss, backprop = np.zeros(len(logits), logits.dtype), np.zeros_like(logits)
    for i, (row, label) in enumerate(zip(logits, labels, strict=True)):
        probabilities = np.exp(row) / np.exp(row).sum()
        loss[i], backprop[i] = -(label * np.log(probabilities)).sum(), probabilities - label
    return loss, backprop


def sparse(logits: Any, labels: Any) -> tuple[Array, Array]:
    return dense(logits, np.eye(logits.shape[1], dtype=logits.dtype)[labels])


def distributions(batch: int, classes: int) -> Array:
    """Labels whose rows sum to 1."""
    values = uniform(batch, classes)
    return values / values.sum(1, keepdims=True)


SPARSE, DENSE = SparseSoftmaxCrossEntropyWithLogits, SoftmaxCrossEntropyWithLogits
CHECKED = {"rtol": 1e-4, "atol": 1e-6, "exact_layout": False}

SAMPLES = [
    Sample(SPARSE, (normal(4, 5), integers(4, high=5)), expected=sparse, second_order=True, **CHECKED),
    Sample(
        SPARSE,
        (normal(4, 6), integers(4, high=6, dtype=np.int64)),
        expected=sparse,
        label="int64, loss only",
        through=(0,),
        second_order=True,
        **CHECKED,
    ),
    Sample(
        SPARSE,
        (normal(4, 6), integers(4, high=6)),
        expected=sparse,
        label="derivative only",
        through=(1,),
        **CHECKED,
    ),
    Sample(SPARSE, (normal(3, 1), integers(3, high=1)), expected=sparse, label="one class", **CHECKED),
    Sample(SPARSE, (normal(0, 5), integers(0, high=5)), expected=sparse, label="empty"),
    Sample(SPARSE, (normal(512, 513), integers(512, high=513)), expected=sparse, label="large", **CHECKED),
    Sample(
        DENSE, (normal(4, 5), distributions(4, 5)), expected=dense, wrt=(0,), second_order=True, **CHECKED
    ),
    Sample(
        DENSE,
        (normal(4, 6), uniform(4, 6)),
        expected=dense,
        label="labels",
        wrt=(1,),
        second_order=True,
        **CHECKED,
    ),
    Sample(DENSE, (normal(0, 5), normal(0, 5)), expected=dense, label="empty"),
    Sample(DENSE, (normal(512, 513), distributions(512, 513)), expected=dense, label="large", **CHECKED),
]
