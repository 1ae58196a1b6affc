"""Complex numbers: their parts, absolute value and angle.

Gradients with respect to complex numbers are those of TensorFlow: of a real result L, dL/d(real part) +
i dL/d(imaginary part), so that subtracting a small multiple of it lowers L. There are no GPU kernels of
complex numbers: they are computed on a CPU beside a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.graph import (
    Attrs,
    Kernel,
    KernelCall,
    OpDef,
    Operation,
    Tensor,
    as_numbers,
    name_scope,
)
from tensorbow.graph.definition import GradientRule
from tensorbow.kinds import Name, checked
from tensorbow.ops.broadcasting import sum_to, zeros_like
from tensorbow.ops.constant import constant
from tensorbow.ops.control import identity
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.elementwise_table import Less, Mul, RealDiv, conjugate
from tensorbow.ops.elementwise_table import Sign as SignOp
from tensorbow.ops.selection import cast, select
from tensorbow.specs import (
    COMPLEX,
    FLOATING,
    NUMERIC,
    Array,
    TensorSpec,
    broadcast_dims,
    complex64,
    complex128,
    float32,
)

__all__ = ["angle", "complex", "conj", "imag", "real"]

WHY_CPU = "NumPy computes with complex numbers"


def _complex_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    dtype = require_same_dtype("Complex", inputs)
    require_dtype("Complex", inputs[0], FLOATING, "the real part")
    first, second = (x.shape for x in inputs)
    shape = None if first is None or second is None else broadcast_dims(first, second)
    return TensorSpec(shape, complex64 if dtype == float32 else complex128)


def _complex_kernel(call: KernelCall) -> None:
    out = call.outputs[0]
    np.copyto(out.real, call.inputs[0])
    np.copyto(out.imag, call.inputs[1])


def _complex_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [sum_to(Real(g), op.inputs[0]), sum_to(Imag(g), op.inputs[1])]


Complex = define_op(
    "Complex",
    spec=_complex_spec,
    gradient=_complex_gradient,
    kernel=_complex_kernel,
    inputs=("real", "imag"),
    uniform_dtype=True,
    why_cpu=WHY_CPU,
)


def _part(name: str, compute: Callable[[Array, Array], Any], gradient: GradientRule) -> OpDef:
    """Defines a function of complex numbers with real results; `compute(x, out)` is its kernel."""

    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        require_dtype(name, inputs[0], COMPLEX)
        return TensorSpec(inputs[0].shape, inputs[0].dtype.real_dtype)

    def run(call: KernelCall) -> None:
        compute(call.inputs[0], call.outputs[0])

    return define_op(
        name, spec=spec, gradient=gradient, kernel=Kernel(run=run), inputs=("input",), why_cpu=WHY_CPU
    )


def _angle(x: Array, out: Array) -> None:
    np.arctan2(x.imag, x.real, out=out)


def _absolute_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [Mul(cast(g, op.inputs[0].dtype), SignOp(op.inputs[0]))]


def _angle_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """i g x / |x|^2 = i g / conj(x)."""
    x = op.inputs[0]
    return [RealDiv(Complex(zeros_like(g), g), conjugate(x))]


Real = _part("Real", lambda x, out: np.copyto(out, x.real), lambda op, g: [cast(g, op.inputs[0].dtype)])
Imag = _part("Imag", lambda x, out: np.copyto(out, x.imag), lambda op, g: [Complex(zeros_like(g), g)])
ComplexAbs = _part("ComplexAbs", lambda x, out: np.absolute(x, out=out), _absolute_gradient)
Angle = _part("Angle", _angle, _angle_gradient)


@checked
def complex(real: Any, imag: Any, name: Name = None) -> Tensor:
    """Complex numbers of their real and imaginary parts, which broadcast: float32 gives complex64,
    float64 complex128."""
    return Complex.tensor(real, imag, name=name)


@checked
def real(input: Any, name: Name = None) -> Tensor:
    """The real part of complex numbers; numbers of another dtype as they are."""
    x = as_numbers(input)
    if not x.dtype.is_complex:
        return identity(x, name)
    return Real.tensor(x, name=name)


@checked
def imag(input: Any, name: Name = None) -> Tensor:
    """The imaginary part of complex numbers; zeros for numbers of another dtype."""
    x = as_numbers(input)
    if not x.dtype.is_complex:
        return zeros_like(x, name=name)
    return Imag.tensor(x, name=name)


@checked
def conj(x: Any, name: Name = None) -> Tensor:
    """The conjugates of complex numbers; numbers of another dtype as they are."""
    tensor = as_numbers(x)
    if not tensor.dtype.is_complex:
        return identity(tensor, name)
    return identity(conjugate(tensor), name) if name else conjugate(tensor)


@checked
def angle(input: Any, name: Name = None) -> Tensor:
    """The angle of complex numbers in [-pi, pi]; for other numbers 0, and pi where they are negative.

    The gradient at 0 is NaN.
    """
    x = as_numbers(input)
    if x.dtype.is_complex:
        return Angle.tensor(x, name=name)
    require_dtype("angle", x.spec, NUMERIC)
    with x.graph.as_default(), name_scope(name or "Angle"):
        kind = x.dtype if x.dtype.is_floating else float32
        return select(Less(x, 0), constant(np.pi, kind), constant(0, kind))
