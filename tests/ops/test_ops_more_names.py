"""Writes of slices, casts, histograms, positions: values, gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.sample import normal

pytestmark = pytest.mark.usefixtures("session")

X = normal(3, 4, 5)


def test_writes_to_variables(session: tb.Session) -> None:
    v = tb.Variable(tb.constant([[8.0, 9.0], [2.0, 4.0], [1.0, 1.0]]))
    session.run(tb.global_variables_initializer())
    for write, expected in (
        (lambda: tb.scatter_mul(v, [0, 0], [[2.0, 1.0], [3.0, 1.0]]), [48, 9]),
        (lambda: tb.scatter_div(v, [0], [[4.0, 3.0]]), [12, 3]),
        (lambda: tb.scatter_max(v, [0], 5.0), [12, 5]),
        (lambda: tb.scatter_min(v, [0, 0], [[7.0, 9.0], [6.0, 9.0]]), [6, 5]),
        (lambda: tb.scatter_nd_add(v, [[0, 1], [0, 1]], [1.0, 2.0]), [6, 8]),
        (lambda: tb.scatter_nd_sub(v, [[0]], [[1.0, 1.0]]), [5, 7]),
        (lambda: tb.scatter_nd_update(v, [[0, 0], [0, 0]], [1.0, 3.0]), [3, 7]),
    ):
        assert session.run(write())[0].tolist() == expected
    integers = tb.Variable(tb.constant([[-7, 7]]), trainable=False)
    session.run(tb.global_variables_initializer())
    assert session.run(tb.scatter_div(integers, [0], [[2, -2]])).tolist() == [[-3, -3]]
    with pytest.raises(
        InvalidArgumentError, match=r"position \[0, 2\] is not in \[3, 2\]; correct the indices"
    ):
        session.run(tb.scatter_nd_add(v, [[0, 2]], [1.0]))
    with pytest.raises(InvalidArgumentError, match="integer division by zero"):
        session.run(tb.scatter_div(integers, [0], [[0, 1]]))


def test_copies_of_tensors_with_slices_written(session: tb.Session) -> None:
    indices = np.array([[0, 1], [2, 3], [0, 1]])
    updates = normal(3, 5, seed=1)
    added, replaced = X.copy(), X.copy()
    for at, row in zip(indices, updates, strict=True):
        added[tuple(at)] += row
        replaced[tuple(at)] = row
    got = session.run(
        [
            tb.tensor_scatter_add(X, indices, updates),
            tb.tensor_scatter_sub(X, indices, -updates),
            tb.tensor_scatter_update(X, indices, updates),
            tb.tensor_scatter_update(X, np.zeros((0, 2), np.int32), np.zeros((0, 5), np.float32)),
        ]
    )
    for value, expected in zip(got, (added, added, replaced, X), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    check_gradients(lambda x, u: [tb.tensor_scatter_update(x, indices, u)], [X, updates])
    for beyond in ([[0, 4]], [[-1, 0]]):
        for write in (tb.tensor_scatter_add, tb.tensor_scatter_update):
            with pytest.raises(InvalidArgumentError, match=r"indices\[0\] = -1 is not in \[0, 12\)"):
                session.run(write(X, beyond, updates[:1]))


def test_casts(session: tb.Session) -> None:
    x = tb.constant([-300.0, -1.0, 1.5, 1e30])
    assert session.run(tb.saturate_cast(x, tb.uint8)).tolist() == [0, 0, 1, 255]
    assert session.run(tb.saturate_cast(x, tb.int32)).tolist()[3] == 2147483520  # the float below 2^31
    assert session.run(tb.saturate_cast(tb.constant([300, -5]), tb.int8)).tolist() == [127, -5]
    assert session.run(tb.saturate_cast(tb.constant([1e300], tb.float64), tb.float32))[0] == np.float32(
        3.4028235e38
    )
    assert session.run(tb.saturate_cast(tb.constant([7], tb.uint8), tb.int64)).tolist() == [7]
    bits = tb.bitcast(tb.constant([1.0, -2.0]), tb.uint32)
    assert session.run(bits).tolist() == [0x3F800000, 0xC0000000]
    assert session.run(tb.bitcast(tb.bitcast(bits, tb.uint8), tb.float32)).tolist() == [1, -2]
    with pytest.raises(InvalidArgumentError, match="expected a last axis of 4 elements for one float32"):
        tb.bitcast(tb.constant([1, 2, 3], tb.uint8), tb.float32)


def test_positions_and_histograms(session: tb.Session) -> None:
    shift = tb.placeholder(tb.int32, [])
    cases: list[tuple[Any, Any]] = [
        (tb.roll(X, 2, 1), np.roll(X, 2, 1)),
        (tb.roll(X, [1, -7], [0, 2]), np.roll(X, [1, -7], [0, 2])),
        (tb.roll(X, shift, -1), np.roll(X, 3, -1)),
        (tb.unravel_index([5, 13], [3, 7]), np.stack(np.unravel_index([5, 13], [3, 7]))),
        (tb.searchsorted([1.0, 2.0, 2.0, 3.0], [2.0, 9.0], "right"), [3, 4]),
        (tb.histogram_fixed_width_bins([-1.0, 0.1, 4.9, 9.0], [0.0, 5.0], 5), [0, 0, 4, 4]),
        (tb.reduce_euclidean_norm(X, 1), np.linalg.norm(X, axis=1)),
        (tb.norm(X, "fro"), np.linalg.norm(X)),
        (tb.cross(X[..., :3], X[..., 2:]), np.cross(X[..., :3], X[..., 2:])),
        (tb.lbeta([[2.0, 3.0], [0.5, 0.5]]), [np.log(1 / 12), np.log(np.pi)]),
    ]
    got = session.run([tensor for tensor, _ in cases], {shift: 3})
    for value, (tensor, expected) in zip(got, cases, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6, err_msg=tensor.name)
    check_gradients(lambda x, y: [tb.cross(x, y)], [X[..., :3], X[..., 2:]])
    check_gradients(lambda x: [tb.roll(x, 2, 1), tb.reduce_euclidean_norm(x, 1)], [X])
    with pytest.raises(InvalidArgumentError, match=r"cross: expected vectors \[..., 3\]"):
        tb.cross(X, X)
    with pytest.raises(InvalidArgumentError, match="roll: shift is int32"):
        tb.roll(X, [1, 2], 0)
