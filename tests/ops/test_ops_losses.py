"""Cross-entropy as users call it: shapes, second outputs, extreme logits, wrong labels."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.errors import InvalidArgumentError
from tensorbow.gradients import gradients
from tensorbow.graph import Graph
from tensorbow.ops.control import placeholder
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.losses import (
    SoftmaxCrossEntropyWithLogits,
    SparseSoftmaxCrossEntropyWithLogits,
    softmax_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
    sparse_softmax_cross_entropy_with_logits,
)
from tensorbow.ops.nn import bias_add, log_softmax, softmax
from tensorbow.specs import float32, float64, int32
from tests.ops_contract.interpreter import run_graph


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_label_out_of_range_is_named(bad, dtype):
    labels = np.array([0, 4, bad, 1], dtype)
    with pytest.raises(InvalidArgumentError, match=rf"label {bad} of example 2 .* 5 classes .* 0 to 4"):
        run_reference_kernel(SparseSoftmaxCrossEntropyWithLogits, [np.zeros((4, 5), np.float32), labels])


def test_extreme_logits_stay_finite():
    logits = np.array([[1e4, 0, -1e4], [-1e38, 1e38, 0]], np.float32)
    loss, backprop = run_reference_kernel(
        SparseSoftmaxCrossEntropyWithLogits, [logits, np.array([0, 1], np.int32)]
    )
    assert loss.tolist() == [0, 0]
    assert np.array_equal(backprop, np.zeros_like(logits))
    with np.errstate(over="ignore"):
        loss, _ = run_reference_kernel(
            SoftmaxCrossEntropyWithLogits, [logits, np.eye(3, dtype=np.float32)[:2]]
        )
    assert loss.tolist() == [0, 0]


def test_nan_passes():
    logits = np.array([[np.nan, 0, 1], [0, 1, 2]], np.float32)
    with np.errstate(invalid="ignore"):
        loss, backprop = run_reference_kernel(
            SparseSoftmaxCrossEntropyWithLogits, [logits, np.array([1, 1], np.int32)]
        )
    assert np.isnan(loss).tolist() == [True, False]
    assert np.isnan(backprop).all(1).tolist() == [True, False]


def test_any_rank():
    logits = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    labels = np.array([[0, 4, 2], [1, 1, 3]], np.int32)
    dense = np.eye(5, dtype=np.float32)[labels]
    with Graph().as_default():
        x, y, z = placeholder(float32, [None, 3, 5]), placeholder(int32, [None, 3]), placeholder(float32)
        sparse = sparse_softmax_cross_entropy_with_logits(labels=y, logits=x)
        full = softmax_cross_entropy_with_logits(labels=z, logits=x)
        first, second = run_graph([sparse, full], {x: logits, y: labels, z: dense})
        single = sparse_softmax_cross_entropy_with_logits(labels=2, logits=np.float32([1, 2, 3]))
        alone = run_graph([single], {})[0]
    expected = -np.log((np.exp(logits) * dense).sum(-1) / np.exp(logits).sum(-1))
    np.testing.assert_allclose(first, expected, rtol=1e-5)
    np.testing.assert_allclose(second, expected, rtol=1e-5)
    np.testing.assert_allclose(alone, np.log(np.exp([-2, -1, 0]).sum()), rtol=1e-6)


def test_only_version_two_differentiates_labels():
    with Graph().as_default():
        logits, labels = placeholder(float64, [3, 4]), placeholder(float64, [3, 4])
        one = softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        two = softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits)
        assert gradients(one, [labels])[0] is None
        assert gradients(one, [logits])[0] is not None
        assert gradients(two, [labels])[0] is not None


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda x: sparse_softmax_cross_entropy_with_logits(x, x), "by name"),
        (lambda x: sparse_softmax_cross_entropy_with_logits(logits=x), "by name"),
        (lambda x: sparse_softmax_cross_entropy_with_logits(labels=[1, 2], logits=x), r"\[batch, classes\]"),
        (
            lambda x: sparse_softmax_cross_entropy_with_logits(labels=[[1], [2], [0]], logits=x),
            r"expected \[batch\] and \[batch, classes\]; give labels\[:, 0\]",
        ),
        (
            lambda x: sparse_softmax_cross_entropy_with_logits(labels=[1.0, 0.0, 1.0], logits=x),
            "labels has dtype float32",
        ),
        (
            lambda x: sparse_softmax_cross_entropy_with_logits(labels=x, logits=x),
            r"got float32\[3, 4\], like the logits; one-hot labels are for softmax_cross_entropy_with_logits",
        ),
        (
            lambda x: sparse_softmax_cross_entropy_with_logits(labels=x, logits=[1, 0, 1]),
            r"logits int32\[3\]; give each in the place of the other",
        ),
        (lambda x: softmax_cross_entropy_with_logits(labels=np.zeros((3, 5)), logits=x), "one shape"),
        (
            lambda x: softmax_cross_entropy_with_logits(labels=x, logits=x, dim=2),
            r"axis 2 is not in \[-2, 2\)",
        ),
        (lambda x: softmax(x, 2), r"softmax: axis 2 is not in \[-2, 2\)"),
        (lambda x: log_softmax(placeholder(float32), 0), "rank is not known: expected -1"),
        (lambda x: softmax(1.0), "scalar"),
        (lambda x: bias_add(x, [1.0, 2.0]), "4 channels"),
        (lambda x: bias_add(x, x), "rank 1"),
        (lambda x: bias_add([1.0], [1.0]), "rank 2 or more"),
    ],
)
def test_refusals(build, words):
    with Graph().as_default(), pytest.raises(InvalidArgumentError, match=words):
        build(placeholder(float32, [3, 4]))
