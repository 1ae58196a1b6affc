"""Jacobians by `tb.gradients` and by central differences, to be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.gradients import gradients
from tensorbow.graph import Tensor, require_session
from tensorbow.kinds import AsShape, Mapped, PositiveNumber, checked, instance, refuse
from tensorbow.ops.broadcasting import zeros_like
from tensorbow.ops.control import placeholder
from tensorbow.specs import Array, TensorShape

AsTensor: TypeAlias = Annotated[Tensor, instance(Tensor, expected="a tensor")]


@checked
def compute_gradient(
    x: Any,
    x_shape: Any,
    y: AsTensor,
    y_shape: AsShape,
    x_init_value: Any = None,
    delta: PositiveNumber = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: Mapped | None = None,
) -> Any:
    """The Jacobian of `y` by `x`, by `tb.gradients` and by central differences.

    Two arrays [size of x, size of y].
    x: a tensor, or a list of them with lists of shapes and values, for a list of pairs; of a floating dtype.
    y: of a floating dtype. x_init_value: where it is computed; by default random numbers. delta: half the
    difference. init_targets: operations to run before, as initializers. extra_feed_dict: further feeds.

    Runs in the default session. Raises InvalidArgumentError for other dtypes and shapes.
    """
    session = require_session(None, "compute_gradient")
    if init_targets is not None:
        session.run(init_targets)
    feeds = dict(extra_feed_dict or {})
    if not isinstance(x, (list, tuple)):
        return _jacobians(session, x, x_shape, y, y_shape, x_init_value, delta, feeds)
    starts = [None] * len(x) if x_init_value is None else list(x_init_value)
    if not len(x) == len(x_shape) == len(starts):
        raise refuse("compute_gradient", "x_shape", f"{len(x)} shapes, as many as tensors", x_shape)
    values = [_start(*each) for each in zip(x, x_shape, starts, strict=True)]
    feeds |= dict(zip(x, values, strict=True))
    rows = zip(x, x_shape, values, strict=True)
    return [_jacobians(session, each, shape, y, y_shape, start, delta, feeds) for each, shape, start in rows]


@checked
def compute_gradient_error(
    x: Any,
    x_shape: Any,
    y: AsTensor,
    y_shape: AsShape,
    x_init_value: Any = None,
    delta: PositiveNumber = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: Mapped | None = None,
) -> float:
    """The greatest difference of the two Jacobians of `compute_gradient`, which has these arguments."""
    found = compute_gradient(x, x_shape, y, y_shape, x_init_value, delta, init_targets, extra_feed_dict)
    pairs: Sequence[Any] = found if isinstance(x, (list, tuple)) else [found]
    return float(max(np.abs(one - other).max(initial=0) for one, other in pairs))


def _start(x: Any, shape: Any, value: Any) -> Array:
    """The value at which a Jacobian is computed."""
    if not isinstance(x, Tensor) or not x.dtype.is_floating:
        raise refuse("compute_gradient", "x", "a tensor of a floating dtype", x)
    extents = _extents(shape, "x_shape")
    made = np.random.default_rng(0).uniform(size=extents) if value is None else np.asarray(value)
    if made.shape != tuple(extents):
        raise refuse("compute_gradient", "x_init_value", f"an array of shape {extents}", value)
    return made.astype(x.dtype.as_numpy_dtype)


def _extents(shape: Any, argument: str) -> list[int]:
    """The extents of a shape. Raises InvalidArgumentError where one is unknown."""
    known = TensorShape(shape).as_list()
    extents = [each for each in known if each is not None]
    if extents != known:
        raise refuse("compute_gradient", argument, "a shape of known extents", shape)
    return extents


def _jacobians(
    session: Any,
    x: Any,
    x_shape: Any,
    y: Tensor,
    y_shape: Any,
    start: Any,
    delta: float,
    feeds: Mapping[Any, Any],
) -> tuple[Array, Array]:
    value = _start(x, x_shape, start)
    if not y.dtype.is_floating:
        raise refuse("compute_gradient", "y", "a tensor of a floating dtype", y)
    extents = _extents(y_shape, "y_shape")
    with y.graph.as_default():
        seed = placeholder(y.dtype, extents)
        (by_rules,) = gradients(y, x, seed)
        by_rules = zeros_like(x) if by_rules is None else by_rules
    seeds = np.zeros(extents, y.dtype.as_numpy_dtype)
    theoretical = np.zeros((value.size, seeds.size), value.dtype)
    for column in range(seeds.size):
        seeds.reshape(-1)[column] = 1
        theoretical[:, column] = np.ravel(session.run(by_rules, {**feeds, x: value, seed: seeds}))
        seeds.reshape(-1)[column] = 0
    numeric = np.zeros_like(theoretical)
    for row in range(value.size):
        sides = []
        for sign in (1, -1):
            moved = value.copy()
            moved.reshape(-1)[row] += sign * delta
            sides.append(np.ravel(session.run(y, {**feeds, x: moved})).astype(np.float64))
        numeric[row] = (sides[0] - sides[1]) / (2 * delta)
    return theoretical, numeric
