"""Padding by mirrored elements, beside NumPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")

WIDTHS = [[1, 2], [0, 0], [2, 1]]
NUMPY = {"REFLECT": "reflect", "SYMMETRIC": "symmetric"}


@pytest.mark.parametrize("mode", NUMPY)
@pytest.mark.parametrize("known", ["all", "widths", "rank", "only widths"])
def test_mirrored_elements_and_their_gradients(session, mode, known):
    draws = np.random.default_rng(2)
    values = draws.normal(size=(3, 2, 4))
    expected = np.pad(values, WIDTHS, mode=NUMPY[mode])
    x = tb.placeholder(tb.float64, {"all": [3, 2, 4], "only widths": None}.get(known, [None] * 3))
    widths = tb.placeholder(tb.int64, [3, 2]) if known == "rank" else tb.constant(WIDTHS)
    y = tb.pad(x, widths, mode.lower())
    assert y.shape.as_list() == ([6, 2, 7] if known == "all" else [None] * 3)
    weights = draws.normal(size=expected.shape)
    (slope,) = tb.gradients(y, [x], grad_ys=[tb.constant(weights)])
    found, g = session.run([y, slope], {x: values} | ({widths: WIDTHS} if known == "rank" else {}))
    np.testing.assert_array_equal(found, expected)
    assert math.isclose(np.vdot(g, values), np.vdot(weights, expected))  # as it is linear


@pytest.mark.parametrize(("mode", "most"), [("REFLECT", 2), ("SYMMETRIC", 3)])
@pytest.mark.parametrize("side", [0, 1])
def test_no_more_than_there_is_to_mirror(session, mode, most, side):
    x = tb.placeholder(tb.float32, [None])
    for width in (most, most + 1):
        y = tb.pad(x, [[width, 0] if side == 0 else [0, width]], mode)
        assert session.run(y, {x: [1, 2, 3, 4]}).shape == (4 + width,)
        if width == most:
            session.run(y, {x: [1, 2, 3]})
            continue
        with pytest.raises(InvalidArgumentError, match=r"MirrorPad.*is not in \[0, 3\)"):
            session.run(y, {x: [1, 2, 3]})
        with pytest.raises(InvalidArgumentError, match=rf"of axis 0 of float32\[3\].*what {mode} can mirror"):
            tb.pad(tb.zeros([3]), [[width, 0]], mode)


def test_texts_and_what_is_refused(session):
    assert session.run(tb.pad(["a", "b"], [[0, 2]], "SYMMETRIC")).tolist() == [b"a", b"b", b"b", b"a"]
    for arguments, words in (
        (([1], [[0, 1]], "EDGE"), "CONSTANT, REFLECT or SYMMETRIC, got 'EDGE'"),
        (([1], [[-1, 1]], "REFLECT"), "expected at least 0"),
        (
            ([1], [[0, 1], [0, 1]], "REFLECT"),
            r"paddings are int32\[2, 2\] for int32\[1\], expected \[rank, 2\]",
        ),
        (([1], [[0.5, 1.0]], "REFLECT"), "expected int32 or int64"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            tb.pad(*arguments)
    with pytest.raises(InvalidArgumentError, match=r"expected \[rank, 2\]"):
        tb.pad(tb.placeholder(tb.float32), tb.placeholder(tb.int32), "REFLECT")


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_fed_paddings_below_zero_are_refused(session, mode):
    paddings = tb.placeholder(tb.int32, [1, 2])
    padded = tb.pad(tb.constant([1.0, 2.0, 3.0, 4.0]), paddings, mode)
    with pytest.raises(InvalidArgumentError):
        session.run(padded, {paddings: [[-1, 0]]})
