"""Element-wise ops that batch normalisation, bias gradients and pooling compute, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tests.gpu_rig.runtimes import needs_compiler
from tests.gpu_rig.session_steps import launched_as_on_cpu

pytestmark = needs_compiler

SHAPES = {"one launch": (3, 5, 4, 6), "two launches": (2, 24, 23, 6)}


def drawn(shape: tuple[int, ...], seed: int, dtype: tb.DType = tb.float32) -> tb.Tensor:
    """A variable's value, which is not folded as a constant would be."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(dtype.as_numpy_dtype)
    return tb.Variable(values).value()


def normalized(x: tb.Tensor, training: bool = True) -> tuple[tb.Tensor, list[tb.Tensor]]:
    """Batch normalisation of images, and what it has gradients of."""
    channels = (x.shape.as_list()[-1],)
    scale, offset = drawn(channels, 1, x.dtype) + 2.0, drawn(channels, 2, x.dtype)
    mean, variance = drawn(channels, 3, x.dtype), tb.square(drawn(channels, 4, x.dtype)) + 0.5
    given = {} if training else {"mean": mean, "variance": variance}
    y = tb.nn.fused_batch_norm(x, scale, offset, **given, is_training=training)[0]
    return y, [x, scale, offset]


def with_gradients(y: tb.Tensor, sources: list[tb.Tensor]) -> list[Any]:
    flow = drawn(tuple(y.shape.as_list()), 5, y.dtype)
    return [y, *tb.gradients(tb.reduce_sum(y * flow), sources)]


@pytest.mark.parametrize("dtype", [tb.float32, tb.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.slow
def test_relu_behind_batch_normalisation(shape: str, training: bool, dtype: tb.DType) -> None:
    def build() -> list[Any]:
        y, sources = normalized(drawn(SHAPES[shape], 0, dtype), training)
        return with_gradients(tb.nn.relu(y), sources)

    names = launched_as_on_cpu(build)
    launches = {"one launch": 1, "two launches": 2}[shape]
    assert sum(names[name] for name in names if name.startswith("normalize")) == 1
    assert sum(names[name] for name in names if name.startswith("differentiate")) == 1
    assert names["sums"] == launches - 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.slow
def test_a_residual_block_keeps_the_gradient_that_both_branches_read(shape: str) -> None:
    def build() -> list[Any]:
        x = drawn(SHAPES[shape], 0)
        first, sources = normalized(x)
        second, more = normalized(tb.square(x))
        y = tb.nn.relu(first + second)
        return with_gradients(y, [*sources, *more[1:]])

    names = launched_as_on_cpu(build, rtol=2e-5)
    assert names["tb_map"] <= 4  # the square and its gradient, the scales: no sum, no ReLU


@pytest.mark.slow
def test_what_others_read_or_fetch_stays() -> None:
    def build() -> list[Any]:
        y, sources = normalized(drawn(SHAPES["one launch"], 0))
        z = tb.nn.relu(y)
        return [y, *with_gradients(z + 0.1 * tb.square(y), sources)]

    launched_as_on_cpu(build)


@pytest.mark.slow
def test_expressions_of_rows_and_channels() -> None:
    def build() -> list[Any]:
        shape = SHAPES["two launches"]
        y, sources = normalized(drawn(shape, 0))
        row, channel = drawn((*shape[:-1], 1), 6), drawn(shape[-1:], 7)
        return with_gradients(tb.tanh(y * row + channel), sources)

    launched_as_on_cpu(build)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(16, 33), (2, 30, 31, 5), (7, 1), (1, 40)], ids=str)
def test_the_gradients_of_relu_and_bias(shape: tuple[int, ...]) -> None:
    def build() -> list[Any]:
        x, bias = drawn(shape, 0), drawn(shape[-1:], 1)
        return with_gradients(tb.nn.relu(tb.nn.bias_add(x, bias)), [x, bias])

    names = launched_as_on_cpu(build)
    assert names["column_sums"] + names["column_sum_parts"] == 1
    assert names["columns"] + names["rows"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("extent", [8, 30], ids=["one launch", "two launches"])
def test_bias_relu_and_pooling_with_their_gradients(extent: int) -> None:
    def build() -> list[Any]:
        x, bias = drawn((2, extent, extent + 2, 5), 0), drawn((5,), 1)
        y = tb.nn.max_pool2d(tb.nn.relu(tb.nn.bias_add(x, bias)), ksize=2, strides=2, padding="VALID")
        return with_gradients(y, [x, bias])

    names = launched_as_on_cpu(build)
    assert names["max_pool_of"] == 1
    assert names["max_pool"] == names["max_pool_grad"] == 0
    assert names["tb_map"] == 1  # the gradient of the sum


@pytest.mark.parametrize(
    ("ksize", "strides", "padding", "extent"),
    [(3, 2, "VALID", 9), (2, 2, "SAME", 7), (2, 2, "VALID", 7), (2, 3, "VALID", 8)],
    ids=str,
)
@pytest.mark.slow
def test_windows_that_overlap_or_leave_elements_out(
    ksize: int, strides: int, padding: str, extent: int
) -> None:
    def build() -> list[Any]:
        x, bias = drawn((2, extent, extent, 5), 0), drawn((5,), 1)
        hidden = tb.nn.relu(tb.nn.bias_add(x, bias))
        y = tb.nn.max_pool2d(hidden, ksize=ksize, strides=strides, padding=padding)
        return with_gradients(y, [x, bias])

    names = launched_as_on_cpu(build)
    assert names["max_pool"] == 1
    assert names["max_pool_of"] == 0
