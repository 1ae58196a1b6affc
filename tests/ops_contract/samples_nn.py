"""Samples of bias, softmax and L2 loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.nn import BiasAdd, BiasAddGrad, L2Loss, LogSoftmax, Softmax
from tests.ops_contract.sample import Sample, integers, normal


def add(x: Any, b: Any) -> Any:
    return x + b


def sum_leading(g: Any) -> Any:
    return g.astype(np.float64).reshape(-1, g.shape[-1]).sum(0)


def softmax(x: Any) -> Any:
    return np.stack([np.exp(row) / np.exp(row).sum() for row in x.reshape(-1, x.shape[-1])]).reshape(x.shape)


def log_softmax(x: Any) -> Any:
    return np.log(softmax(x.astype(np.float64)))


def half_square(x: Any) -> Any:
    return 0.5 * float((x.astype(np.float64) ** 2).sum())


def same(x: Any) -> Any:
    return x


SAMPLES = [
    Sample(BiasAdd, (normal(3, 4), normal(4)), expected=add, second_order=True),
    Sample(BiasAdd, (normal(2, 3, 4, 5), normal(5)), expected=add, second_order=True),
    Sample(BiasAdd, (integers(3, 4), integers(4)), expected=add, label="int32"),
    Sample(BiasAdd, (normal(0, 5), normal(5)), expected=add, label="empty"),
    Sample(BiasAdd, (normal(512, 513), normal(513)), expected=add, label="large"),
    Sample(BiasAddGrad, (normal(3, 4),), expected=sum_leading, second_order=True, exact_layout=False),
    Sample(BiasAddGrad, (normal(2, 3, 4, 5),), expected=sum_leading, second_order=True, exact_layout=False),
    Sample(BiasAddGrad, (normal(0, 5),), expected=sum_leading, label="empty"),
    Sample(BiasAddGrad, (normal(16, 24, 23, 32),), expected=sum_leading, label="large", rtol=1e-4, atol=1e-3),
    Sample(Softmax, (normal(3, 5),), expected=softmax, second_order=True, exact_layout=False),
    Sample(Softmax, (normal(2, 3, 5),), expected=softmax, second_order=True, exact_layout=False),
    Sample(Softmax, (normal(7),), expected=softmax, label="vector", exact_layout=False),
    Sample(Softmax, (normal(0, 5),), expected=same, label="empty"),
    Sample(Softmax, (normal(3, 0),), expected=same, label="no classes"),
    Sample(Softmax, (normal(512, 513),), expected=softmax, label="large"),
    Sample(LogSoftmax, (normal(3, 5),), expected=log_softmax, second_order=True, exact_layout=False),
    Sample(LogSoftmax, (normal(2, 3, 5),), expected=log_softmax, second_order=True, exact_layout=False),
    Sample(LogSoftmax, (normal(0, 5),), expected=same, label="empty"),
    Sample(LogSoftmax, (normal(3, 0),), expected=same, label="no classes"),
    Sample(LogSoftmax, (normal(512, 513),), expected=log_softmax, label="large"),
    Sample(L2Loss, (normal(3, 5),), expected=half_square, second_order=True, exact_layout=False),
    Sample(L2Loss, (normal(2, 3, 5),), expected=half_square, second_order=True, exact_layout=False),
    Sample(L2Loss, (normal(),), expected=half_square, label="scalar"),
    Sample(L2Loss, (normal(0, 5),), expected=half_square, label="empty"),
    Sample(L2Loss, (normal(512, 513),), expected=half_square, label="large"),
]
