"""Static extents of results whose shape is computed in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb

CASES: dict[str, tuple[Callable[[Any, Any], Any], list[int | None]]] = {
    "reshape by a stack": (lambda x, n: tb.reshape(x, tb.stack([n, 6])), [None, 6]),
    "reshape by a list": (lambda x, n: tb.reshape(x, [n, 2, -1]), [None, 2, None]),
    "parts of a shape": (
        lambda x, n: tb.reshape(x, tb.concat([tb.shape(x)[:1], [6]], 0)),
        [None, 6],
    ),
    "an extent": (
        lambda x, n: tb.reshape(x, [n, tb.shape(x)[2] * 1, tb.shape(x)[1]]),
        [None, None, 3],
    ),
    "reshape by a cast": (lambda x, n: tb.reshape(x, tb.cast(tb.stack([n, 6]), tb.int64)), [None, 6]),
    "reshape by a shape": (lambda x, n: tb.reshape(tb.reshape(x, [n, 6]), tb.shape(x)), [None, 3, 2]),
    "reshape backwards": (lambda x, n: tb.reshape(x, tb.shape(x)[::-1]), [2, 3, None]),
    "tile": (lambda x, n: tb.tile(tb.zeros([1, 4]), [n, 1]), [None, 4]),
    "tile by a stack": (lambda x, n: tb.tile(tb.zeros([2, 4]), tb.stack([3, n])), [6, None]),
    "zeros": (lambda x, n: tb.zeros([n, 4]), [None, 4]),
    "zeros by a vector": (lambda x, n: tb.zeros(tb.stack([n, 4])), [None, 4]),
    "normal": (lambda x, n: tb.random_normal([n, 4]), [None, 4]),
    "normal with a mean": (lambda x, n: tb.random_normal([n, 4], mean=tb.zeros([4])), [None, 4]),
    "uniform": (lambda x, n: tb.random_uniform(tb.stack([n, 4]), 2.0, 3.0), [None, 4]),
    "a slice without an end": (lambda x, n: tb.reshape(x, tb.concat([tb.shape(x)[:-2], [6]], 0)), [None, 6]),
}


@pytest.mark.parametrize("name", CASES)
def test_known_extents_are_those_of_the_step(name: str) -> None:
    make, expected = CASES[name]
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float32, [None, 3, 2])
        result = make(x, tb.shape(x)[0])
        assert result.shape.as_list() == expected
        found = session.run(result, {x: np.zeros((5, 3, 2), np.float32)}).shape
    assert all(known in (None, extent) for known, extent in zip(expected, found, strict=True))
