"""Windows and counts beyond all images and memories: no work or memory is proportional to what is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError, TensorBowError
from tensorbow.ops.sliding_windows import Windows
from tests.memory_rig.peak import growing_by_less_than

MB = 1 << 20
LARGEST = (1 << 31) - 1


def on_image(extent: int, window: int, stride: int) -> list[tuple[int, int]]:
    """First element inside the image and the end, for each window of SAME padding."""
    count = -(-extent // stride)
    before = max(0, (count - 1) * stride + window - extent) // 2
    starts = [number * stride - before for number in range(count)]
    return [(max(0, start), min(extent, start + window)) for start in starts]


@pytest.mark.parametrize("extent", range(1, 8))
def test_windows_wider_than_the_image_are_the_same_windows(extent: int) -> None:
    for window in range(1, 5 * extent + 3):
        for stride in (*range(1, extent + 4), 1 << 40):
            attrs = {"ksize": (1, window, 1, 1), "strides": (1, stride, 1, 1), "padding": "SAME"}
            axis = Windows.of_pool((1, extent, 1, 1), attrs).rows
            starts = [number * axis.stride - axis.before for number in range(axis.count)]
            found = [(max(0, start), min(extent, start + axis.window)) for start in starts]
            assert found == on_image(extent, window, stride)
            assert axis.window <= 2 * extent + 1
            assert axis.stride <= extent


def pooled(kind: Callable[..., Any], window: int, stride: int, unknown: bool) -> list[Any]:
    """A pooling of 3 x 5 images, and its derivatives."""
    images = np.arange(30, dtype=np.float32).reshape(1, 3, 5, 2) % 7
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float32, [None] * 4 if unknown else images.shape)
        y = kind(x, [1, window, window, 1], [1, stride, stride, 1], "SAME")
        (dx,) = tb.gradients(tb.reduce_sum(y * y), x)
        (ddx,) = tb.gradients(tb.reduce_sum(dx * dx), x)
        results: list[Any] = session.run([y, dx, ddx], {x: images})
        return results


@pytest.mark.slow
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("kind", [tb.nn.max_pool, tb.nn.avg_pool])
def test_pooling_with_windows_and_strides_of_billions(kind: Callable[..., Any], unknown: bool) -> None:
    for window, stride in ((LARGEST, 1), (1 << 31, 1 << 31), (1 << 40, 2), (2, 1 << 40)):
        like = 11 if window > 11 else window, 9 if stride > 9 else stride
        with growing_by_less_than(64 * MB):
            found = pooled(kind, window, stride, unknown)
        for a, b in zip(found, pooled(kind, *like, unknown), strict=True):
            np.testing.assert_array_equal(a, b)


def huge(make: Callable[[Any, Any], Any], feed: Any) -> Callable[[], None]:
    def run() -> None:
        with tb.Graph().as_default(), tb.Session() as session:
            x = tb.placeholder(tb.float32, [None])
            i = tb.placeholder(tb.int32, [None])
            result = make(x, i)
            if isinstance(result, tb.Variable):
                session.run(result.initializer)
            session.run(result, feed if feed is None else {x: feed, i: [0]})

    return run


CUBE = [65536] * 3
BEYOND: dict[str, Callable[[Any, Any], Any]] = {
    "zeros": lambda x, i: tb.zeros(CUBE),
    "ones": lambda x, i: tb.ones(CUBE),
    "fill": lambda x, i: tb.fill(CUBE, 1.0),
    "constant": lambda x, i: tb.constant(1.0, shape=CUBE),
    "constant of a view": lambda x, i: tb.constant(np.broadcast_to(np.float32(1), CUBE)),
    "variable of a view": lambda x, i: tb.Variable(np.broadcast_to(np.float32(1), CUBE)),
    "variable": lambda x, i: tb.Variable(tb.zeros(CUBE)),
    "get_variable": lambda x, i: tb.get_variable("v", CUBE),
    "random_normal": lambda x, i: tb.random_normal(CUBE),
    "random_shuffle": lambda x, i: tb.random_shuffle(tb.zeros(CUBE)),
    "broadcast_to": lambda x, i: tb.broadcast_to(x, CUBE),
    "tile": lambda x, i: tb.tile(tb.reshape(x, [1, 1]), [1 << 20, LARGEST]),
    "one_hot": lambda x, i: tb.one_hot(i, 1 << 50),
    "pad": lambda x, i: tb.pad(x, [[1 << 50, 1]]),
    "range": lambda x, i: tb.range(1 << 50),
    "range of tiny steps": lambda x, i: tb.range(0.0, 1.0, 1e-30),
    "einsum": lambda x, i: tb.einsum("i,j,k->ijk", *[tb.pad(x, [[0, 65535]])] * 3),
    "concat": lambda x, i: tb.concat([tb.pad(x, [[0, 1 << 45]])] * 64, 0),
    "stack": lambda x, i: tb.stack([tb.pad(x, [[0, 1 << 45]])] * 64),
    "split": lambda x, i: tb.split(tb.placeholder(tb.float32, [10**9]), 10**9),
    "unstack": lambda x, i: tb.unstack(tb.placeholder(tb.float32, [10**9])),
    "convolution": lambda x, i: tb.nn.conv2d(
        tb.reshape(x, [1, 1, 1, 1]),
        tb.ones([3, 3, 1, 1]),
        [1, 1, 1, 1],
        "SAME",
        dilations=[1, LARGEST, LARGEST, 1],
    ),
    "rank": lambda x, i: tb.zeros([1] * 1000),
    "reshape": lambda x, i: tb.reshape(x, CUBE),
}


@pytest.mark.parametrize("name", BEYOND)
def test_tensors_beyond_memory_are_a_line(name: str) -> None:
    """Bytes are counted before they are asked for: by shape, whatever the system would lend."""
    with (
        growing_by_less_than(64 * MB),
        pytest.raises((ResourceExhaustedError, InvalidArgumentError)) as refused,
    ):
        huge(BEYOND[name], [1.0])()
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, TensorBowError)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, bool])
def test_feeds_beyond_memory_are_a_line(dtype: Any) -> None:
    view = np.broadcast_to(dtype(1), CUBE)
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float32)
        with growing_by_less_than(64 * MB), pytest.raises(ResourceExhaustedError) as refused:
            session.run(x + 1, {x: view})
    assert "\n" not in str(refused.value)
