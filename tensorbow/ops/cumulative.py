"""Cumulative sums and products along an axis, and the recurrence for cumprod's gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, Kernel, KernelCall, OpDef, Operation, Tensor
from tensorbow.graph.definition import GradientRule
from tensorbow.kinds import Flag, Name, checked, is_tensor
from tensorbow.ops.argument_kinds import AxisOrTensor
from tensorbow.ops.axis_order import MovedAxes
from tensorbow.ops.broadcasting import checked_axis
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.elementwise import add, multiply
from tensorbow.ops.elementwise_table import conjugate
from tensorbow.specs import ANALYTIC, NUMBERS, TensorSpec, compatible

__all__ = ["cumprod", "cumsum"]


def _running(name: str, operator: np.ufunc, neutral: int, gradient: GradientRule) -> OpDef:
    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        (x,) = inputs
        require_dtype(name, x, NUMBERS)
        checked_axis(name, attrs["axis"], x.rank)
        return TensorSpec(x.shape, x.dtype)

    def prepare(call: KernelCall) -> Callable[[], None]:
        axis = call.attrs["axis"]
        x, out = np.moveaxis(call.inputs[0], axis, 0), np.moveaxis(call.outputs[0], axis, 0)
        if call.attrs["reverse"]:
            x, out = x[::-1], out[::-1]
        start = 1 if call.attrs["exclusive"] else 0
        source, target = x[: len(x) - start], out[start:]
        first = out[:start]

        def run() -> None:
            np.copyto(first, neutral)
            operator.accumulate(source, axis=0, dtype=out.dtype, out=target)

        return run if call.outputs[0].size else lambda: None

    return define_op(
        name,
        spec=spec,
        gradient=gradient,
        kernel=Kernel(prepare=prepare),
        inputs=("x",),
        attrs={"axis": 0, "exclusive": False, "reverse": False},
    )


def _backwards(op: Operation) -> dict[str, Any]:
    return {**op.attrs, "reverse": not op.attrs["reverse"]}


def _cumsum_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [Cumsum(g, **_backwards(op)) if g.dtype.is_differentiable else None]


def _cumprod_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """Gradient of cumprod without division, so that zeros are allowed.

    With `exclusive`, dx_k = (product before x_k) * s_k, where s_k = g_{k+1} + x_{k+1} s_{k+1}. Otherwise
    dx_k = (product before x_k) * (g_k + s_k), where s_k = x_{k+1} (g_{k+1} + s_{k+1}).
    """
    x = conjugate(op.inputs[0])
    if not g.dtype.is_differentiable:
        return [None]
    if op.attrs["exclusive"]:
        return [multiply(conjugate(op.outputs[0]), Recurrence(x, g, **_turned(op)))]
    before: Tensor = Cumprod(x, **{**op.attrs, "exclusive": True})
    behind: Tensor = Recurrence(x, multiply(x, g), **_turned(op))
    return [multiply(before, add(g, behind))]


Cumsum = _running("Cumsum", np.add, 0, _cumsum_gradient)
Cumprod = _running("Cumprod", np.multiply, 1, _cumprod_gradient)


# The recurrence s_0 = 0, s_k = terms_{k-1} + x_{k-1} s_{k-1} ---------------------------------------------


def _turned(op: Operation) -> dict[str, Any]:
    """Attributes of the same sums in the opposite direction."""
    return {"axis": op.attrs["axis"], "reverse": not op.attrs["reverse"]}


def _recurrence_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    x, terms = inputs
    require_dtype("Recurrence", x, ANALYTIC)
    require_same_dtype("Recurrence", inputs)
    checked_axis("Recurrence", attrs["axis"], x.rank)
    if not compatible(x.shape, terms.shape):
        raise InvalidArgumentError(f"Recurrence: x is {x}, the terms are {terms}; expected one shape")
    return TensorSpec(x.shape, x.dtype)


def _prepare_recurrence(call: KernelCall) -> Callable[[], None]:
    arrays = [np.moveaxis(a, call.attrs["axis"], 0)[..., None] for a in (*call.inputs, *call.outputs)]
    x, terms, out = (a[::-1] for a in arrays) if call.attrs["reverse"] else arrays

    def run() -> None:
        out[:1] = 0
        for x_before, term, before, at in zip(x, terms, out, out[1:], strict=False):
            np.multiply(x_before, before, out=at)
            np.add(at, term, out=at)

    return run


def _recurrence_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """r_k = g_{k+1} + x_{k+1} r_{k+1} for the terms, and s_k r_k for x."""
    behind: Tensor = Recurrence(conjugate(op.inputs[0]), g, **_turned(op))
    return [multiply(behind, conjugate(op.outputs[0])), behind]


Recurrence = define_op(
    "Recurrence",
    spec=_recurrence_spec,
    gradient=_recurrence_gradient,
    kernel=Kernel(prepare=_prepare_recurrence),
    inputs=("x", "terms"),
    attrs={"axis": 0, "reverse": False},
    doc="s_0 = 0, s_k = terms_{k-1} + x_{k-1} s_{k-1} along an axis, from its end if `reverse`.",
)


@checked
def cumsum(
    x: Any, axis: AxisOrTensor = 0, exclusive: Flag = False, reverse: Flag = False, name: Name = None
) -> Tensor:
    """Cumulative sums along `axis`: [a, b, c] gives [a, a + b, a + b + c].

    `exclusive` leaves the element itself out; `reverse` sums from the end.
    """
    if is_tensor(axis):
        moved = MovedAxes(x, axis)
        return moved.back(cumsum(moved.last, -1, exclusive, reverse), name)
    return Cumsum.tensor(x, axis=axis, exclusive=exclusive, reverse=reverse, name=name)


@checked
def cumprod(
    x: Any, axis: AxisOrTensor = 0, exclusive: Flag = False, reverse: Flag = False, name: Name = None
) -> Tensor:
    """Cumulative products along `axis`, see `cumsum`.

    The gradient is also correct at zeros (TensorFlow's is NaN there).
    """
    if is_tensor(axis):
        moved = MovedAxes(x, axis)
        return moved.back(cumprod(moved.last, -1, exclusive, reverse), name)
    return Cumprod.tensor(x, axis=axis, exclusive=exclusive, reverse=reverse, name=name)


def others(x: Tensor, axis: int) -> Tensor:
    """Product of all other elements along `axis`, for each element."""
    return multiply(cumprod(x, axis, exclusive=True), cumprod(x, axis, exclusive=True, reverse=True))
