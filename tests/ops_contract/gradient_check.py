"""Gradients against central differences, by random projection.

A function f of arrays is projected to a number L = sum(p * f(x)); along a random direction d the
derivative is (L(x + h d) - L(x - h d)) / 2h, which must equal sum(gradient of L * d). The parts of complex
numbers count as numbers of their own. All arithmetic is in float64 and complex128, so that a correct gradient
agrees to about nine digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorbow.gradients import gradients
from tensorbow.graph import Graph, Tensor
from tensorbow.ops.constant import constant
from tensorbow.ops.control import placeholder
from tensorbow.specs import Array
from tests.ops_contract.interpreter import run_graph

WIDE = {"f": np.float64, "c": np.complex128}
STEP = 1e-5
DIRECTIONS = 3

Function = Callable[..., "Sequence[Tensor]"]  # of tensors, one for each array


def check_gradients(
    function: Function,
    arrays: Sequence[Array],
    wrt: Sequence[int] | None = None,
    *,
    constants: Sequence[int] = (),
    rtol: float = 1e-5,
    second_order: bool = False,
    known: str = "shapes",
    state: dict[str, float] | None = None,
) -> None:
    """Raises AssertionError when a gradient of `function` at `arrays` is wrong.

    wrt: positions of the arrays to differentiate by (default: all floating ones). `constants`: positions of
    arrays given as constants, not as placeholders. `known`: static shape information of the placeholders,
    "shapes", "ranks" or "nothing".
    """
    values = [a.astype(WIDE[a.dtype.kind]) if a.dtype.kind in WIDE else a for a in arrays]
    targets = [i for i, a in enumerate(values) if a.dtype.kind in WIDE] if wrt is None else list(wrt)
    rng = np.random.default_rng(len(values))
    shapes = {"shapes": np.shape, "ranks": lambda a: [None] * a.ndim, "nothing": lambda a: None}
    with Graph().as_default():
        inputs = [
            constant(a) if i in constants else placeholder(a.dtype, shapes[known](a))
            for i, a in enumerate(values)
        ]
        feeds = {t: a for i, (t, a) in enumerate(zip(inputs, values, strict=True)) if i not in constants}
        xs = [inputs[i] for i in targets]
        ys = list(function(*inputs))
        if second_order:
            ys = [g for g in _gradients(ys, xs, feeds, rng, state)[0] if g is not None]
            assert ys, "no input has a gradient, so there is none of the second order"
        grads, weights = _gradients(ys, xs, feeds, rng, state)
        known = dict(zip([g for g in grads if g is not None], _run(grads, feeds, state), strict=True))
        for _ in range(DIRECTIONS):
            along = {x: _normal(rng, feeds[x]) for x in xs}
            analytic = sum(
                _projected(along[x], known[g]) for x, g in zip(xs, grads, strict=True) if g is not None
            )
            ends = []
            for sign in (1, -1):
                moved = {**feeds, **{x: feeds[x] + sign * STEP * along[x] for x in xs}}
                ends.append(run_graph(ys, moved, state))
            changes = [after - before for after, before in zip(*ends, strict=True)]
            numeric = sum(_projected(w, y) for w, y in zip(weights, changes, strict=True)) / (2 * STEP)
            np.testing.assert_allclose(
                analytic,
                numeric,
                rtol=rtol,
                atol=rtol * 1e-2,
                err_msg="gradient (actual) against differences",
            )


def _normal(rng: np.random.Generator, like: Array) -> Array:
    """Normally distributed numbers, complex ones for a complex array."""
    values = np.asarray(rng.standard_normal(like.shape))
    return values + 1j * rng.standard_normal(like.shape) if like.dtype.kind == "c" else values


def _projected(p: Array, y: Array) -> float:
    """The sum of p * y, of complex numbers of both parts: the real part of conj(p) * y."""
    return float(np.sum((np.conj(p) * y).real))


def _gradients(
    ys: Sequence[Tensor],
    xs: Sequence[Tensor],
    feeds: dict[Tensor, Array],
    rng: np.random.Generator,
    state: dict[str, float] | None,
) -> tuple[list[Tensor | None], list[Array]]:
    """Gradients of the weighted sum of `ys`, and the random weights."""
    weights = [_normal(rng, y) for y in run_graph(ys, feeds, state)]
    return gradients(list(ys), list(xs), [constant(w) for w in weights]), weights


def _run(
    grads: Sequence[Tensor | None], feeds: dict[Tensor, Array], state: dict[str, float] | None
) -> list[Array]:
    return run_graph([g for g in grads if g is not None], feeds, state)
