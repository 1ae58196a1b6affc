"""The loss of a classifier in one launch, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.kernels.gpu.fusion.loss_heads import MOST_ROWS
from tests.gpu_rig.runtimes import needs_compiler
from tests.gpu_rig.session_steps import launched_as_on_cpu

pytestmark = needs_compiler


def drawn(*shape: int, dtype: tb.DType = tb.float32) -> tb.Tensor:
    """A variable's value, which is not folded as a constant would be."""
    values = np.random.default_rng(shape).standard_normal(shape).astype(dtype.as_numpy_dtype)
    return tb.Variable(values).value()


def labels_of(rows: int, classes: int, dtype: tb.DType = tb.int64) -> tb.Tensor:
    values = np.random.default_rng(rows).integers(0, classes, rows).astype(dtype.as_numpy_dtype)
    return tb.Variable(values, trainable=False).value()


def losses_of(logits: tb.Tensor, labels: tb.Tensor) -> tb.Tensor:
    return tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def right_of(logits: tb.Tensor, labels: tb.Tensor) -> tb.Tensor:
    predictions = tb.argmax(logits, 1, output_type=labels.dtype)
    return tb.reduce_sum(tb.cast(tb.equal(predictions, labels), tb.float32))


@pytest.mark.parametrize("dtype", [tb.float32, tb.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("kind", [tb.int32, tb.int64], ids=["int32", "int64"])
@pytest.mark.parametrize(("rows", "classes"), [(16, 10), (70, 3), (5, 100), (1, 1)])
@pytest.mark.slow
def test_the_whole_head_is_one_launch(rows: int, classes: int, kind: tb.DType, dtype: tb.DType) -> None:
    def build() -> list[Any]:
        x, w, b = drawn(rows, 4, dtype=dtype), drawn(4, classes, dtype=dtype), drawn(classes, dtype=dtype)
        labels = labels_of(rows, classes, kind)
        logits = tb.nn.bias_add(tb.matmul(x, w), b)
        loss = tb.reduce_mean(losses_of(logits, labels))
        return [loss, right_of(logits, labels), *tb.gradients(loss, [w, b])]

    names = launched_as_on_cpu(build)
    assert names["loss_head"] == 1
    assert names.keys() <= {"loss_head", "gemm", "copies", "copy", "fill"}


@pytest.mark.slow
def test_only_what_is_there_and_alone() -> None:
    def build() -> list[Any]:
        logits, labels = drawn(6, 5), labels_of(6, 5)
        losses = losses_of(logits, labels)
        weights = tb.constant(np.linspace(0, 2, 6), tb.float32)
        predictions = tb.argmax(logits, 1)
        loss = tb.reduce_sum(losses * weights)
        return [losses, loss, predictions, right_of(logits, labels), *tb.gradients(loss, [logits])]

    launched_as_on_cpu(build)


@pytest.mark.slow
def test_a_sum_of_losses_and_a_mean_of_what_is_right() -> None:
    def build() -> list[Any]:
        logits, labels = drawn(6, 5) * 2.0, labels_of(6, 5)
        right = tb.reduce_mean(tb.cast(tb.equal(tb.argmax(logits, 1), labels), tb.float32))
        loss = tb.reduce_sum(losses_of(logits, labels))
        return [loss, right, logits, *tb.gradients(loss, [logits])]

    assert launched_as_on_cpu(build)["loss_head"] == 1


@pytest.mark.slow
def test_logits_with_infinities_and_ties() -> None:
    def build() -> list[Any]:
        values = np.zeros((4, 3), np.float32)
        values[1, 2], values[2, 0] = -np.inf, 80
        logits, labels = tb.Variable(values).value(), labels_of(4, 3)
        loss = tb.reduce_mean(losses_of(logits, labels))
        return [loss, right_of(logits, labels), *tb.gradients(loss, [logits])]

    assert launched_as_on_cpu(build)["loss_head"] == 1


@pytest.mark.slow
def test_the_logits_may_be_views() -> None:
    def build() -> list[Any]:
        logits, labels = drawn(2, 3, 5), labels_of(6, 5)
        flat = tb.reshape(logits * 1.5, [6, 5])
        loss = tb.reduce_mean(losses_of(flat, labels))
        return [loss, right_of(flat, labels), *tb.gradients(loss, [logits])]

    assert launched_as_on_cpu(build)["loss_head"] == 1


@pytest.mark.slow
def test_two_losses_of_one_step() -> None:
    def build() -> list[Any]:
        x, labels = drawn(6, 5), labels_of(6, 5)
        losses = [tb.reduce_mean(losses_of(tb.tanh(x * n), labels)) for n in (1.0, 2.0)]
        return [*losses, *tb.gradients(losses[0] * losses[1], [x])]

    launched_as_on_cpu(build)


@pytest.mark.slow
def test_many_examples_take_more_blocks() -> None:
    def build() -> list[Any]:
        logits, labels = drawn(MOST_ROWS + 1, 3), labels_of(MOST_ROWS + 1, 3)
        return [tb.reduce_mean(losses_of(logits, labels)), right_of(logits, labels)]

    names = launched_as_on_cpu(build)
    assert (names["loss_head"], names["sparse_cross_entropy"]) == (0, 1)
