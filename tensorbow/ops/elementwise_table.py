"""Table of element-wise ops: name, NumPy function with `out=`, dtypes and gradient.

Inputs broadcast by NumPy's rule; the gradient of a broadcast input is summed (`sum_to`).
A result may overwrite an input of the same shape and dtype. Other backends read
`ELEMENTWISE` and mirror its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, Kernel, KernelCall, NodeSpec, OpDef, Operation, Tensor
from tensorbow.ops.broadcasting import sum_to
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.erf import erf
from tensorbow.ops.selection import cast, select
from tensorbow.specs import (
    ANALYTIC,
    COMPILED,
    COMPLEX,
    DTYPES,
    FLOATING,
    FLOATS,
    INTEGERS,
    NUMBERS,
    NUMERIC,
    Array,
    DType,
    TensorSpec,
    bool_,
    broadcast_dims,
    float64,
    int64,
    string,
)

Gradients: TypeAlias = "Callable[..., tuple[Tensor | None, ...]]"
ANY = (*DTYPES.values(), string)


@dataclass(frozen=True)
class Elementwise:
    """A row: `compute(*inputs, *temporaries, out=)` reads each element before it writes it.

    gradient(g, z, *inputs): the gradient of each input, before `sum_to`; z is the result. For complex
    numbers the rule gets the conjugate of g, and its results are conjugated: g times the conjugates of the
    derivatives, as TensorFlow has it. None: not differentiable.
    """

    name: str
    inputs: tuple[str, ...]
    compute: Callable[..., Any]
    dtypes: tuple[DType, ...]
    gradient: Gradients | None
    result: DType | None = None  # None: the dtype of the inputs
    temporaries: tuple[DType | None, ...] = ()  # arrays of the result's shape; None: of its dtype

    def spec(self, inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        """The broadcast shape; all inputs must have one dtype, of `dtypes`."""
        dtype = require_same_dtype(self.name, inputs)
        require_dtype(self.name, inputs[0], self.dtypes)
        known = [s.shape for s in inputs if s.shape is not None]
        shape = reduce(broadcast_dims, known) if len(known) == len(inputs) else None
        return TensorSpec(shape, self.result or dtype)

    def run(self, call: KernelCall) -> None:
        """The reference kernel."""
        self.compute(*call.inputs, *call.scratch, out=call.outputs[0])

    def scratch(self, node: NodeSpec) -> list[TensorSpec]:
        """The temporaries."""
        output = node.outputs[0]
        return [TensorSpec(output.shape, dtype or output.dtype) for dtype in self.temporaries]

    def differentiate(self, op: Operation, g: Tensor) -> list[Tensor | None]:
        """The gradient rule of the op."""
        if self.gradient is None or not op.inputs[0].dtype.is_differentiable:
            return [None] * len(op.inputs)
        parts = self.gradient(conjugate(g), op.outputs[0], *op.inputs)
        return [None if p is None else sum_to(conjugate(p), x) for p, x in zip(parts, op.inputs, strict=True)]


ELEMENTWISE: dict[str, Elementwise] = {}  # by op name


def conjugate(x: Tensor) -> Tensor:
    """The conjugate of a complex tensor; any other tensor itself."""
    if not x.dtype.is_complex:
        return x
    if x.op.definition is Conj:
        return x.op.inputs[0]
    return Conj.tensor(x)


def _define(row: Elementwise) -> OpDef:
    ELEMENTWISE[row.name] = row
    aliases = tuple((0, i) for i in range(len(row.inputs))) if row.result is None else ()
    return define_op(
        row.name,
        spec=row.spec,
        gradient=NOT_DIFFERENTIABLE if row.gradient is None else row.differentiate,
        kernel=Kernel(run=row.run, scratch=row.scratch if row.temporaries else None, inplace=aliases),
        inputs=row.inputs,
        uniform_dtype=True,
        strings=string in row.dtypes,
        why_cpu="" if set(COMPILED) & set(row.dtypes) else "NumPy computes with complex numbers",
    )


def _unary(
    name: str, compute: Any, dtypes: Sequence[DType], gradient: Gradients | None, **more: Any
) -> OpDef:
    return _define(Elementwise(name, ("x",), compute, tuple(dtypes), gradient, **more))


def _binary(
    name: str, compute: Any, dtypes: Sequence[DType], gradient: Gradients | None, **more: Any
) -> OpDef:
    return _define(Elementwise(name, ("x", "y"), compute, tuple(dtypes), gradient, **more))


def _comparison(name: str, compute: Any, dtypes: Sequence[DType]) -> OpDef:
    return _binary(name, compute, dtypes, None, result=bool_)


# Functions that NumPy lacks -------------------------------------------------------------------------


def _integer_safe(name: str, function: Any) -> Any:
    def compute(x: Array, y: Array, out: Array) -> None:
        if y.dtype.kind in "iu" and not y.all():
            raise InvalidArgumentError(f"{name}: integer division by zero; mask the zeros, or cast to float")
        function(x, y, out=out)

    return compute


def _sign(x: Array, out: Array) -> None:
    """Sign; of complex numbers x / |x|, and 0 of 0, as in TensorFlow. NumPy 1 defines another."""
    if x.dtype.kind != "c":
        np.sign(x, out=out)
        return
    for part, result in zip(_parts(x), _parts(out), strict=True):
        size = np.abs(part)
        np.divide(part, np.where(size == 0, 1, size), out=result)


def _reciprocal(x: Array, out: Array) -> None:
    np.divide(1, x, out=out)


def _reciprocal_sqrt(x: Array, out: Array) -> None:
    np.sqrt(x, out=out)
    np.divide(1, out, out=out)


def _relu(x: Array, out: Array) -> None:
    np.maximum(x, 0, out=out)


def _relu_grad(gradients: Array, features: Array, mask: Array, out: Array) -> None:
    np.greater(features, 0, out=mask)
    np.logical_not(mask, out=mask)
    np.copyto(out, gradients)
    np.copyto(out, 0, where=mask)  # multiplication by 0 would turn infinity into NaN


def _sigmoid(x: Array, denominator: Array, out: Array) -> None:
    """exp(min(x, 0)) / (1 + exp(-|x|)): no overflow, and small results stay accurate."""
    if x.dtype.kind == "c":
        np.multiply(x, 0.5, out=out)
        np.tanh(out, out=out)
        np.multiply(out, 0.5, out=out)
        np.add(out, 0.5, out=out)
        return
    np.abs(x, out=denominator)
    np.negative(denominator, out=denominator)
    np.exp(denominator, out=denominator)
    np.add(denominator, 1, out=denominator)
    np.minimum(x, 0, out=out)
    np.exp(out, out=out)
    np.divide(out, denominator, out=out)


def _sigmoid_grad(y: Array, dy: Array, product: Array, out: Array) -> None:
    np.multiply(dy, y, out=product)
    np.subtract(1, y, out=out)
    np.multiply(out, product, out=out)


def _tanh_grad(y: Array, dy: Array, slope: Array, out: Array) -> None:
    np.multiply(y, y, out=slope)
    np.subtract(1, slope, out=slope)
    np.multiply(slope, dy, out=out)


def _softplus(x: Array, out: Array) -> None:
    np.logaddexp(x, 0, out=out)


def _elu(x: Array, low: Array, mask: Array, out: Array) -> None:
    np.minimum(x, 0, out=low)
    np.expm1(low, out=low)
    np.greater(x, 0, out=mask)
    np.copyto(low, x, where=mask)
    np.copyto(out, low)


def _elu_grad(gradients: Array, outputs: Array, low: Array, mask: Array, out: Array) -> None:
    np.add(outputs, 1, out=low)
    np.multiply(low, gradients, out=low)
    np.greater(outputs, 0, out=mask)
    np.copyto(low, gradients, where=mask)
    np.copyto(out, low)


def _parts(x: Array) -> Iterator[Array]:
    """Rows of the array, cut to some thousand elements."""
    for index in np.ndindex(*x.shape[:-1]):
        row = x[index]
        yield from (row[i : i + 4096] for i in range(0, row.size, 4096)) if row.ndim else (x,)


def _one_by_one(function: Callable[[float], float]) -> Any:
    """Computes a function of Python's for one element after the other, some thousand at a time."""
    vectorised = np.vectorize(function, otypes=[np.float64])

    def compute(x: Array, out: Array) -> None:
        for part, result in zip(_parts(x), _parts(out), strict=True):
            result[...] = vectorised(part)

    return compute


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # a pole, or a result that is too large
        return math.inf


def _shift(function: Any) -> Callable[[Array, Array, Array, Array], None]:
    """A shift by at least 0 and less than all bits, as TensorFlow limits it."""

    def compute(x: Array, y: Array, bits: Array, out: Array) -> None:
        np.clip(y, 0, 8 * y.itemsize - 1, out=bits)
        function(x, bits, out=out)

    return compute


# Gradients longer than a line -------------------------------------------------------------------------


def _greater_half(choose: OpDef) -> Gradients:
    """Gradients of Maximum and Minimum: g goes to x where they are equal, as in TensorFlow."""

    def gradient(g: Tensor, z: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        mask = choose(x, y)
        return select(mask, g, 0), select(mask, 0, g)

    return gradient


def _pow_gradient(g: Tensor, z: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    positive = NotEqual(x, 0) if x.dtype.is_complex else Greater(x, 0)
    log_x = select(positive, Log(select(positive, x, 1)), 0)
    below = Sub(y, 1)
    if y.spec.value is None or not y.spec.value.all():  # the slope of 0^0 is 0, not 0 times infinity
        below = select(LogicalAnd(Equal(x, 0), Equal(y, 0)), 0, below)
    return Mul(g, Mul(y, Pow(x, below))), Mul(g, Mul(z, log_x))


def _tanh_grad_gradient(g: Tensor, z: Tensor, y: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    return Mul(Mul(g, dy), Mul(y, -2)), TanhGrad(y, g)


def _sigmoid_grad_gradient(g: Tensor, z: Tensor, y: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    return Mul(Mul(g, dy), Sub(1, Mul(y, 2))), SigmoidGrad(y, g)


def _elu_grad_gradient(g: Tensor, z: Tensor, dy: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return EluGrad(g, y), select(Less(y, 0), Mul(g, dy), 0)


def _erf_gradient(g: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor]:
    return (Mul(g, Mul(Exp(Neg(Square(x))), 2 / math.sqrt(math.pi))),)


def _atan2_gradient(g: Tensor, z: Tensor, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    scaled = RealDiv(g, Add(Square(x), Square(y)))
    return Mul(scaled, x), Neg(Mul(scaled, y))


def digamma(x: Tensor, name: str | None = None) -> Tensor:
    """The derivative of Lgamma, computed in float64: minus infinity at 0, -1, -2, ...

    Asymptotic series from 8 on, below it the recurrence psi(z) = psi(z + 8) - sum of 1 / (z + i); below 1/2
    reflection.
    """
    wide = cast(x, float64)
    is_low = Less(wide, 0.5)
    z = select(is_low, Sub(1, wide), wide)
    is_small = Less(z, 8)
    base = select(is_small, z, 1)
    below = reduce(Add, (Reciprocal(Add(base, i)) for i in range(8)))
    shifted = select(is_small, Add(z, 8), z)
    inverse = Reciprocal(shifted)
    square = Square(inverse)
    series = square
    for coefficient in (-1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12):  # B(2k) / 2k, Bernoulli's numbers
        series = Mul(square, coefficient) if series is square else Mul(square, Add(series, coefficient))
    value = Add(Sub(Log(shifted), Mul(inverse, 0.5)), Sub(series, select(is_small, below, 0)))
    turned = select(is_low, Mul(Sub(wide, Round(wide)), math.pi), 1)
    cotangent = RealDiv(Cos(turned), Sin(turned))  # 1 / tan has no second derivative near a half
    reflected = Sub(value, select(is_low, Mul(cotangent, math.pi), 0))
    return cast(reflected, x.dtype, name)


# The table ----------------------------------------------------------------------------------------------
# fmt: off

# Rows used by gradients of other rows.
EluGrad: OpDef
Exp: OpDef
Mul: OpDef
Neg: OpDef
RealDiv: OpDef
ReluGrad: OpDef
Sign: OpDef
SigmoidGrad: OpDef
Square: OpDef
TanhGrad: OpDef

Less         = _comparison("Less", np.less, NUMERIC)
LessEqual    = _comparison("LessEqual", np.less_equal, NUMERIC)
Greater      = _comparison("Greater", np.greater, NUMERIC)
GreaterEqual = _comparison("GreaterEqual", np.greater_equal, NUMERIC)
Equal        = _comparison("Equal", np.equal, ANY)
NotEqual     = _comparison("NotEqual", np.not_equal, ANY)

LogicalAnd = _binary("LogicalAnd", np.logical_and, (bool_,), None)
LogicalOr  = _binary("LogicalOr", np.logical_or, (bool_,), None)
LogicalNot = _unary("LogicalNot", np.logical_not, (bool_,), None)
IsFinite   = _unary("IsFinite", np.isfinite, FLOATS, None, result=bool_)
IsNan      = _unary("IsNan", np.isnan, FLOATS, None, result=bool_)

Add      = _binary("Add", np.add, NUMBERS, lambda g, z, x, y: (g, g))
Sub      = _binary("Sub", np.subtract, NUMBERS, lambda g, z, x, y: (g, Neg(g)))
Mul      = _binary("Mul", np.multiply, NUMBERS, lambda g, z, x, y: (Mul(g, y), Mul(g, x)))
RealDiv  = _binary("RealDiv", np.divide, ANALYTIC,
                   lambda g, z, x, y: (RealDiv(g, y), Neg(RealDiv(Mul(g, z), y))))
FloorDiv = _binary("FloorDiv", _integer_safe("FloorDiv", np.floor_divide), NUMERIC, None)
FloorMod = _binary("FloorMod", _integer_safe("FloorMod", np.remainder), NUMERIC,
                   lambda g, z, x, y: (g, Neg(Mul(g, FloorDiv(x, y)))))
Pow      = _binary("Pow", np.power, ANALYTIC, _pow_gradient)
Maximum  = _binary("Maximum", np.maximum, NUMERIC, _greater_half(GreaterEqual))
Minimum  = _binary("Minimum", np.minimum, NUMERIC, _greater_half(LessEqual))

BitwiseAnd = _binary("BitwiseAnd", np.bitwise_and, INTEGERS, None)
BitwiseOr  = _binary("BitwiseOr", np.bitwise_or, INTEGERS, None)
BitwiseXor = _binary("BitwiseXor", np.bitwise_xor, INTEGERS, None)
Invert     = _unary("Invert", np.invert, INTEGERS, None)
LeftShift  = _binary("LeftShift", _shift(np.left_shift), INTEGERS, None, temporaries=(None,))
RightShift = _binary("RightShift", _shift(np.right_shift), INTEGERS, None, temporaries=(None,))

Conj: OpDef = _unary("Conj", np.conjugate, COMPLEX, lambda g, z, x: (conjugate(g),))
Neg    = _unary("Neg", np.negative, NUMBERS, lambda g, z, x: (Neg(g),))
Abs    = _unary("Abs", np.absolute, NUMERIC, lambda g, z, x: (Mul(g, Sign(x)),))
Sign   = _unary("Sign", _sign, NUMBERS, None)
Floor  = _unary("Floor", np.floor, FLOATS, None)
Ceil   = _unary("Ceil", np.ceil, FLOATS, None)
Round  = _unary("Round", np.rint, FLOATS, None)
Square = _unary("Square", np.square, NUMBERS, lambda g, z, x: (Mul(g, Mul(x, 2)),))
Sqrt   = _unary("Sqrt", np.sqrt, ANALYTIC, lambda g, z, x: (RealDiv(Mul(g, 0.5), z),))
Rsqrt  = _unary("Rsqrt", _reciprocal_sqrt, ANALYTIC, lambda g, z, x: (Mul(Mul(g, -0.5), RealDiv(z, x)),))
Reciprocal = _unary("Reciprocal", _reciprocal, ANALYTIC, lambda g, z, x: (Neg(Mul(g, Square(z))),))
Exp    = _unary("Exp", np.exp, ANALYTIC, lambda g, z, x: (Mul(g, z),))
Log    = _unary("Log", np.log, ANALYTIC, lambda g, z, x: (RealDiv(g, x),))
Expm1  = _unary("Expm1", np.expm1, ANALYTIC, lambda g, z, x: (Mul(g, Add(z, 1)),))
Log1p  = _unary("Log1p", np.log1p, ANALYTIC, lambda g, z, x: (RealDiv(g, Add(x, 1)),))

Sin: OpDef = _unary("Sin", np.sin, ANALYTIC, lambda g, z, x: (Mul(g, Cos(x)),))
Cos: OpDef = _unary("Cos", np.cos, ANALYTIC, lambda g, z, x: (Neg(Mul(g, Sin(x))),))

Tan: OpDef = _unary("Tan", np.tan, ANALYTIC, lambda g, z, x: (Mul(g, Add(Square(z), 1)),))
Asin   = _unary("Asin", np.arcsin, ANALYTIC, lambda g, z, x: (Mul(g, Rsqrt(Sub(1, Square(x)))),))
Acos   = _unary("Acos", np.arccos, ANALYTIC, lambda g, z, x: (Neg(Mul(g, Rsqrt(Sub(1, Square(x))))),))
Atan   = _unary("Atan", np.arctan, ANALYTIC, lambda g, z, x: (RealDiv(g, Add(Square(x), 1)),))
Atan2  = _define(Elementwise("Atan2", ("y", "x"), np.arctan2, FLOATS, _atan2_gradient))
Sinh: OpDef = _unary("Sinh", np.sinh, ANALYTIC, lambda g, z, x: (Mul(g, Cosh(x)),))
Cosh: OpDef = _unary("Cosh", np.cosh, ANALYTIC, lambda g, z, x: (Mul(g, Sinh(x)),))
Asinh  = _unary("Asinh", np.arcsinh, ANALYTIC, lambda g, z, x: (RealDiv(g, Cosh(z)),))
Acosh  = _unary("Acosh", np.arccosh, ANALYTIC, lambda g, z, x: (RealDiv(g, Sinh(z)),))
Atanh  = _unary("Atanh", np.arctanh, ANALYTIC, lambda g, z, x: (RealDiv(g, Sub(1, Square(x))),))

Erf    = _unary("Erf", erf, FLOATING, _erf_gradient, temporaries=(None, None, int64))
Erfc   = _unary("Erfc", _one_by_one(math.erfc), FLOATS, lambda g, z, x: (Neg(_erf_gradient(g, z, x)[0]),))
Lgamma = _unary("Lgamma", _one_by_one(_lgamma), FLOATS, lambda g, z, x: (Mul(g, digamma(x)),))

Relu    = _unary("Relu", _relu, NUMERIC, lambda g, z, x: (ReluGrad(g, z),))
Sigmoid = _unary("Sigmoid", _sigmoid, ANALYTIC, lambda g, z, x: (SigmoidGrad(z, g),), temporaries=(None,))
Tanh    = _unary("Tanh", np.tanh, ANALYTIC, lambda g, z, x: (TanhGrad(z, g),))
Elu     = _unary("Elu", _elu, FLOATS, lambda g, z, x: (EluGrad(g, z),), temporaries=(None, bool_))
Softplus = _unary("Softplus", _softplus, FLOATS, lambda g, z, x: (Mul(g, Sigmoid(x)),))

# Slopes of the functions above in one pass. ReluGrad(gradients, features) and EluGrad(gradients, outputs);
# the others take the result y and its gradient.
ReluGrad    = _binary("ReluGrad", _relu_grad, NUMERIC,
                      lambda g, z, x, y: (ReluGrad(g, y), None), temporaries=(bool_,))
EluGrad     = _binary("EluGrad", _elu_grad, FLOATS, _elu_grad_gradient, temporaries=(None, bool_))
SigmoidGrad = _binary("SigmoidGrad", _sigmoid_grad, ANALYTIC, _sigmoid_grad_gradient, temporaries=(None,))
TanhGrad    = _binary("TanhGrad", _tanh_grad, ANALYTIC, _tanh_grad_gradient, temporaries=(None,))
# fmt: on
