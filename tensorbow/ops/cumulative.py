"""Running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.graph import Attrs, Kernel, KernelCall, OpDef, Operation, Tensor
from tensorbow.graph.definition import GradientRule
from tensorbow.ops.broadcasting import checked_axis
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import divide, multiply
from tensorbow.specs import NUMERIC, TensorSpec

__all__ = ["cumprod", "cumsum"]


def _running(name: str, operator: np.ufunc, neutral: int, gradient: GradientRule) -> OpDef:
    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        (x,) = inputs
        require_dtype(name, x, NUMERIC)
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
    return [Cumsum(g, **_backwards(op)) if g.dtype.is_floating else None]


def _cumprod_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """Is NaN where x is 0, as in TensorFlow."""
    if not g.dtype.is_floating:
        return [None]
    total: Tensor = Cumsum(multiply(op.outputs[0], g), **_backwards(op))
    return [divide(total, op.inputs[0])]


Cumsum = _running("Cumsum", np.add, 0, _cumsum_gradient)
Cumprod = _running("Cumprod", np.multiply, 1, _cumprod_gradient)


def cumsum(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """The sums of the elements up to each one along `axis`: [a, b, c] gives [a, a + b, a + b + c].

    `exclusive` leaves the element itself out; `reverse` sums from the end.
    """
    result: Tensor = Cumsum(x, axis=int(axis), exclusive=bool(exclusive), reverse=bool(reverse), name=name)
    return result


def cumprod(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """The products of the elements up to each one along `axis`, see `cumsum`.

    The gradient is NaN where an element is 0, as in TensorFlow.
    """
    result: Tensor = Cumprod(x, axis=int(axis), exclusive=bool(exclusive), reverse=bool(reverse), name=name)
    return result


def others(x: Tensor, axis: int) -> Tensor:
    """For each element the product of all others along `axis`: of those before it and of those behind."""
    return multiply(cumprod(x, axis, exclusive=True), cumprod(x, axis, exclusive=True, reverse=True))
