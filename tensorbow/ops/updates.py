"""The optimisers' local updates of a variable, as ops that write it in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tensorbow.errors import InternalError, InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, Kernel, KernelCall, NodeSpec
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.specs import FLOATING, Array, TensorSpec, compatible

CHUNK = 1 << 15  # elements worked on at a time, so that temporaries stay in the cache


def update_spec(tensors: int) -> Callable[[Sequence[TensorSpec], Attrs], TensorSpec]:
    """A spec rule for ops of `tensors` arrays shaped like the variable, followed by scalars."""

    def rule(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        variable = inputs[0]
        require_dtype("update", variable, FLOATING, "the variable")
        require_same_dtype("update", inputs)
        for other in inputs[1:tensors]:
            if not compatible(variable.shape, other.shape):
                raise InvalidArgumentError(
                    f"update: the variable is {variable}, got {other}; they must agree"
                )
        for scalar in inputs[tensors:]:
            if scalar.shape not in ((), None):
                raise InvalidArgumentError(f"update: expected a scalar of the step, got {scalar}")
        return TensorSpec(variable.shape, variable.dtype)

    return rule


def chunk_spec(node: NodeSpec) -> TensorSpec:
    """Spec of a flat piece of the variable."""
    variable = node.inputs[0]
    return TensorSpec((min(variable.size, CHUNK),), variable.dtype)


def _scratch(node: NodeSpec) -> list[TensorSpec]:
    return [chunk_spec(node)]


def two_chunks(node: NodeSpec) -> list[TensorSpec]:
    """Scratch for the decayed gradient or its square, and for a step."""
    return [chunk_spec(node)] * 2


def chunks(scratch: Array, *arrays: Array) -> Iterator[tuple[Array, ...]]:
    """The scratch and flat views of the arrays, piece by piece.

    Variables and gradients are contiguous by layout: a copy made here would lose the update.
    """
    if not all(array.flags.c_contiguous for array in arrays):
        raise InternalError("update: variable, slot and gradient must be contiguous in memory")
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, CHUNK):
        stop = min(start + CHUNK, flat[0].size)
        yield (scratch[: stop - start], *(array[start:stop] for array in flat))


def decayed_gradient(weight_decay: float, scratch: Array, variable: Array, gradient: Array) -> Array:
    """gradient + weight_decay * variable, in `scratch`; the gradient itself without decay."""
    if not weight_decay:
        return gradient
    np.multiply(variable, variable.dtype.type(weight_decay), out=scratch)
    return np.add(scratch, gradient, out=scratch)


def _prepare_descent(call: KernelCall) -> Callable[[], None]:
    variable, gradient, rate = call.inputs
    decay = float(call.attrs["weight_decay"])
    pieces = list(chunks(call.scratch[0], variable, gradient))

    def step() -> None:
        for delta, w, g in pieces:
            np.multiply(decayed_gradient(decay, delta, w, g), rate, out=delta)
            np.subtract(w, delta, out=w)

    return step


def _prepare_momentum(call: KernelCall) -> Callable[[], None]:
    variable, velocity, gradient, rate, momentum = call.inputs
    decay = float(call.attrs["weight_decay"])
    nesterov = bool(call.attrs["use_nesterov"])
    first, second = call.scratch
    pieces = list(chunks(first, variable, velocity, gradient))

    def step() -> None:
        for scratch, w, v, g in pieces:
            g, delta = decayed_gradient(decay, scratch, w, g), second[: w.size]
            np.multiply(v, momentum, out=v)
            np.add(v, g, out=v)
            if nesterov:
                np.multiply(v, momentum, out=delta)
                np.add(delta, g, out=delta)
                np.multiply(delta, rate, out=delta)
            else:
                np.multiply(v, rate, out=delta)
            np.subtract(w, delta, out=w)

    return step


ApplyGradientDescent = define_op(
    "ApplyGradientDescent",
    spec=update_spec(2),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("var", "gradient", "learning_rate"),
    attrs={"weight_decay": 0.0},
    kernel=Kernel(prepare=_prepare_descent, scratch=_scratch, pointwise=True),
    alias=((0, 0),),
    writes=(0,),
    update=(0, 1),
    uniform_dtype=True,
    doc="w -= rate * (g + weight_decay * w)",
)
ApplyMomentum = define_op(
    "ApplyMomentum",
    spec=update_spec(3),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("var", "velocity", "gradient", "learning_rate", "momentum"),
    attrs={"weight_decay": 0.0, "use_nesterov": False},
    kernel=Kernel(prepare=_prepare_momentum, scratch=two_chunks, pointwise=True),
    alias=((0, 0),),
    writes=(0, 1),
    update=(0, 2),
    uniform_dtype=True,
    doc="g += weight_decay * w; v = momentum * v + g; w -= rate * v (Nesterov: rate * (momentum * v + g))",
)
