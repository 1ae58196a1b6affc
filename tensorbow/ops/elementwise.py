"""Element-wise functions.

All broadcast by NumPy's rule. Numbers and nested lists take the other tensor's dtype; two
tensors must have one dtype (`tb.cast`), else InvalidArgumentError is raised. `abs`, `erf`, `negative`,
`round`, `sign`, `sqrt`, `square` and `tanh` of a `tb.SparseTensor` give one. The table behind these
functions is in `elementwise_table.py`.
"""

from __future__ import annotations

from typing import Any

from tensorbow.array_likes import holds_strings
from tensorbow.call_errors import UnfitError
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import Name, checked
from tensorbow.ops import elementwise_table as table
from tensorbow.ops.complex_numbers import ComplexAbs
from tensorbow.ops.control import identity
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.integer_power import IntegerPow
from tensorbow.ops.mapped_values import maps_values
from tensorbow.ops.selection import cast, select, through_float32
from tensorbow.specs import FLOATS, DType, float32, float64

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "clip_by_value",
    "cos",
    "cosh",
    "digamma",
    "div",
    "div_no_nan",
    "divide",
    "equal",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "floor_div",
    "floordiv",
    "floormod",
    "greater",
    "greater_equal",
    "is_finite",
    "is_inf",
    "is_nan",
    "less",
    "less_equal",
    "lgamma",
    "log",
    "log1p",
    "log_sigmoid",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "neg",
    "negative",
    "not_equal",
    "pow",
    "realdiv",
    "reciprocal",
    "relu",
    "rint",
    "round",
    "rsqrt",
    "scalar_mul",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "squared_difference",
    "subtract",
    "tan",
    "tanh",
    "truediv",
    "truncatediv",
    "truncatemod",
]

# Two inputs -----------------------------------------------------------------------------------------


@checked
def add(x: Any, y: Any, name: Name = None) -> Tensor:
    """x + y."""
    return table.Add.tensor(x, y, name=name)


@checked
def subtract(x: Any, y: Any, name: Name = None) -> Tensor:
    """x - y."""
    return table.Sub.tensor(x, y, name=name)


@checked
def multiply(x: Any, y: Any, name: Name = None) -> Tensor:
    """x * y."""
    return table.Mul.tensor(x, y, name=name)


@checked
def squared_difference(x: Any, y: Any, name: Name = None) -> Tensor:
    """(x - y) * (x - y); of complex numbers (x - y) * conj(x - y)."""
    difference = subtract(x, y)
    if difference.dtype.is_complex:
        return multiply(difference, table.conjugate(difference), name)
    return square(difference, name)


@checked
def floordiv(x: Any, y: Any, name: Name = None) -> Tensor:
    """x / y rounded down. Raises InvalidArgumentError for an integer y of 0."""
    return table.FloorDiv.tensor(x, y, name=name)


@checked
def mod(x: Any, y: Any, name: Name = None) -> Tensor:
    """x - y * floordiv(x, y), with the sign of y. Raises InvalidArgumentError for an integer y of 0."""
    return table.FloorMod.tensor(x, y, name=name)


@checked
def pow(x: Any, y: Any, name: Name = None) -> Tensor:
    """x to the power of y. Raises InvalidArgumentError for negative integer powers.

    0 to the power of 0 is 1, with a gradient of 0.
    """
    a, b = pair(x, y)
    return (IntegerPow if a.dtype.is_integer else table.Pow).tensor(a, b, name=name)


@checked
def maximum(x: Any, y: Any, name: Name = None) -> Tensor:
    """The greater of x and y; if they are equal the gradient goes to x."""
    return table.Maximum.tensor(x, y, name=name)


@checked
def minimum(x: Any, y: Any, name: Name = None) -> Tensor:
    """The smaller of x and y; if they are equal the gradient goes to x."""
    return table.Minimum.tensor(x, y, name=name)


@checked
def equal(x: Any, y: Any, name: Name = None) -> Tensor:
    """True where x == y (the operator `==` compares tensors by identity)."""
    return table.Equal.tensor(x, y, name=name)


@checked
def not_equal(x: Any, y: Any, name: Name = None) -> Tensor:
    """True where x != y (the operator `!=` compares tensors by identity)."""
    return table.NotEqual.tensor(x, y, name=name)


@checked
def less(x: Any, y: Any, name: Name = None) -> Tensor:
    """True where x < y."""
    return table.Less.tensor(x, y, name=name)


@checked
def less_equal(x: Any, y: Any, name: Name = None) -> Tensor:
    """True where x <= y."""
    return table.LessEqual.tensor(x, y, name=name)


@checked
def greater(x: Any, y: Any, name: Name = None) -> Tensor:
    """True where x > y."""
    return table.Greater.tensor(x, y, name=name)


@checked
def greater_equal(x: Any, y: Any, name: Name = None) -> Tensor:
    """True where x >= y."""
    return table.GreaterEqual.tensor(x, y, name=name)


@checked
def logical_and(x: Any, y: Any, name: Name = None) -> Tensor:
    """x and y (bool)."""
    return table.LogicalAnd.tensor(x, y, name=name)


@checked
def logical_or(x: Any, y: Any, name: Name = None) -> Tensor:
    """x or y (bool)."""
    return table.LogicalOr.tensor(x, y, name=name)


@checked
def logical_xor(x: Any, y: Any, name: Name = None) -> Tensor:
    """Either x or y, not both (bool)."""
    with graph_of([x, y]).as_default(), name_scope(name or "LogicalXor"):
        return logical_and(logical_or(x, y), logical_not(logical_and(x, y)))


@checked
def divide(x: Any, y: Any, name: Name = None) -> Tensor:
    """x / y. Integers are cast first, as in TensorFlow: of 8 and 16 bits to float32, others to float64."""
    a, b = (_floating(v) for v in pair(x, y))
    return table.RealDiv.tensor(a, b, name=name)


@checked
def div(x: Any, y: Any, name: Name = None) -> Tensor:
    """x / y for floating inputs, floordiv for integers (TensorFlow's older division)."""
    a, b = pair(x, y)
    return floordiv(a, b, name) if a.dtype.is_integer else divide(a, b, name)


@checked
def div_no_nan(x: Any, y: Any, name: Name = None) -> Tensor:
    """x / y of floating inputs, and 0 where y is 0, also in the gradients."""
    with graph_of([x, y]).as_default(), name_scope(name or "div_no_nan"):
        a, b = pair(x, y)
        is_zero = equal(b, 0)
        quotient = divide(a, select(is_zero, 1, b))
        return select(is_zero, 0, quotient)


def pair(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Both values as tensors; a Python value takes the dtype of the tensor beside it."""
    if type(x) is type(y) is Tensor and x.dtype is y.dtype:
        return x, y
    dtypes = [v.dtype if isinstance(getattr(v, "dtype", None), DType) else None for v in (x, y)]
    with graph_of([x, y]).as_default():
        a = as_tensor(x, dtypes[0] or dtypes[1])
        if a.dtype.is_string and dtypes[1] is None and not holds_strings(y):
            raise UnfitError(f"it is {a.spec}, beside numbers; tb.string_to_number makes numbers of it", x)
        return a, as_tensor(y, dtypes[1] or a.dtype)


def _floating(x: Tensor) -> Tensor:
    if not x.dtype.is_integer:
        return x
    return cast(x, float32 if x.dtype.size <= 2 else float64)


realdiv = divide
truediv = divide
floor_div = floordiv
floormod = mod


@checked
def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: Name = None) -> Tensor:
    """`t` limited to [clip_value_min, clip_value_max]."""
    return maximum(minimum(t, clip_value_max), clip_value_min, name)


@checked
def truncatediv(x: Any, y: Any, name: Name = None) -> Tensor:
    """x / y rounded towards zero. Raises InvalidArgumentError for an integer y of 0."""
    a, b = pair(x, y)
    with a.graph.as_default(), name_scope(name or "truncatediv"):
        down = floordiv(abs(a), abs(b))
        return multiply(multiply(sign(a), sign(b)), down)


@checked
def truncatemod(x: Any, y: Any, name: Name = None) -> Tensor:
    """x - y * truncatediv(x, y), with the sign of x. Raises InvalidArgumentError for an integer y of 0."""
    a, b = pair(x, y)
    with a.graph.as_default(), name_scope(name or "truncatemod"):
        return multiply(sign(a), mod(abs(a), abs(b)))


@checked
def scalar_mul(scalar: Any, x: Any, name: Name = None) -> Tensor:
    """`scalar`, a number or a scalar tensor, times `x`."""
    factor, tensor = pair(scalar, x)
    if factor.shape.ndims not in (None, 0):
        raise InvalidArgumentError(f"scalar_mul: expected a scalar, got {factor.spec}; use tb.multiply")
    return multiply(factor, tensor, name)


@checked
def atan2(y: Any, x: Any, name: Name = None) -> Tensor:
    """The angle of the points (x, y) (floating), in [-pi, pi]."""
    return table.Atan2.tensor(y, x, name=name)


# One input ------------------------------------------------------------------------------------------


@checked
@maps_values
def negative(x: Any, name: Name = None) -> Tensor:
    """-x."""
    return table.Neg.tensor(x, name=name)


@checked
@maps_values
def abs(x: Any, name: Name = None) -> Tensor:
    """The absolute value; of complex numbers a real one."""
    tensor = as_tensor(x)
    return (ComplexAbs if tensor.dtype.is_complex else table.Abs).tensor(tensor, name=name)


@checked
@maps_values
def sign(x: Any, name: Name = None) -> Tensor:
    """-1, 0 or 1; of complex numbers x / |x|, or 0. Has no gradient."""
    return table.Sign.tensor(x, name=name)


@checked
def floor(x: Any, name: Name = None) -> Tensor:
    """Rounded towards minus infinity. Has no gradient."""
    return table.Floor.tensor(x, name=name)


@checked
def ceil(x: Any, name: Name = None) -> Tensor:
    """Rounded towards infinity. Has no gradient."""
    return table.Ceil.tensor(x, name=name)


@checked
@maps_values
def round(x: Any, name: Name = None) -> Tensor:
    """Rounded to the nearest whole number, halves to the even one. Has no gradient."""
    tensor = as_tensor(x)
    result: Tensor = identity(tensor, name) if tensor.dtype.is_integer else table.Round(tensor, name=name)
    return result


@checked
def sin(x: Any, name: Name = None) -> Tensor:
    """The sine (floating)."""
    return table.Sin.tensor(x, name=name)


@checked
def cos(x: Any, name: Name = None) -> Tensor:
    """The cosine (floating)."""
    return table.Cos.tensor(x, name=name)


@checked
def tan(x: Any, name: Name = None) -> Tensor:
    """The tangent (floating)."""
    return table.Tan.tensor(x, name=name)


@checked
def asin(x: Any, name: Name = None) -> Tensor:
    """The inverse of the sine (floating), in [-pi/2, pi/2]; NaN outside of [-1, 1]."""
    return table.Asin.tensor(x, name=name)


@checked
def acos(x: Any, name: Name = None) -> Tensor:
    """The inverse of the cosine (floating), in [0, pi]; NaN outside of [-1, 1]."""
    return table.Acos.tensor(x, name=name)


@checked
def atan(x: Any, name: Name = None) -> Tensor:
    """The inverse of the tangent (floating), in [-pi/2, pi/2]."""
    return table.Atan.tensor(x, name=name)


@checked
def sinh(x: Any, name: Name = None) -> Tensor:
    """The hyperbolic sine (floating)."""
    return table.Sinh.tensor(x, name=name)


@checked
def cosh(x: Any, name: Name = None) -> Tensor:
    """The hyperbolic cosine (floating)."""
    return table.Cosh.tensor(x, name=name)


@checked
def asinh(x: Any, name: Name = None) -> Tensor:
    """The inverse of the hyperbolic sine (floating)."""
    return table.Asinh.tensor(x, name=name)


@checked
def acosh(x: Any, name: Name = None) -> Tensor:
    """The inverse of the hyperbolic cosine (floating), at least 0; NaN below 1."""
    return table.Acosh.tensor(x, name=name)


@checked
def atanh(x: Any, name: Name = None) -> Tensor:
    """The inverse of the hyperbolic tangent (floating); NaN outside of [-1, 1]."""
    return table.Atanh.tensor(x, name=name)


@checked
@maps_values
def square(x: Any, name: Name = None) -> Tensor:
    """x * x."""
    return table.Square.tensor(x, name=name)


@checked
@maps_values
def sqrt(x: Any, name: Name = None) -> Tensor:
    """The square root (floating)."""
    return table.Sqrt.tensor(x, name=name)


@checked
def rsqrt(x: Any, name: Name = None) -> Tensor:
    """1 / sqrt(x) (floating)."""
    return table.Rsqrt.tensor(x, name=name)


@checked
def reciprocal(x: Any, name: Name = None) -> Tensor:
    """1 / x (floating)."""
    return table.Reciprocal.tensor(x, name=name)


@checked
def exp(x: Any, name: Name = None) -> Tensor:
    """e to the power of x (floating)."""
    return table.Exp.tensor(x, name=name)


@checked
def log(x: Any, name: Name = None) -> Tensor:
    """The natural logarithm (floating)."""
    return table.Log.tensor(x, name=name)


@checked
def expm1(x: Any, name: Name = None) -> Tensor:
    """exp(x) - 1 (floating), accurate near 0."""
    return table.Expm1.tensor(x, name=name)


@checked
def log1p(x: Any, name: Name = None) -> Tensor:
    """log(1 + x) (floating), accurate near 0."""
    return table.Log1p.tensor(x, name=name)


@checked
def log_sigmoid(x: Any, name: Name = None) -> Tensor:
    """log(sigmoid(x)) (floating), without overflow."""
    return negative(table.Softplus(negative(x)), name)


@checked
@maps_values
def erf(x: Any, name: Name = None) -> Tensor:
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x (floating).

    Halves are computed as float32.
    """
    return through_float32(lambda x, name: table.Erf.tensor(x, name=name), x, name)


@checked
def erfc(x: Any, name: Name = None) -> Tensor:
    """1 - erf(x) (floating), accurate also where erf is near 1."""
    return table.Erfc.tensor(x, name=name)


@checked
def lgamma(x: Any, name: Name = None) -> Tensor:
    """The logarithm of the absolute value of the gamma function (floating)."""
    return table.Lgamma.tensor(x, name=name)


@checked
def digamma(x: Any, name: Name = None) -> Tensor:
    """The derivative of `lgamma` (floating)."""
    tensor = as_tensor(x)
    require_dtype("digamma", tensor.spec, FLOATS)
    with tensor.graph.as_default(), name_scope(name or "digamma"):
        return table.digamma(tensor)


@checked
def sigmoid(x: Any, name: Name = None) -> Tensor:
    """1 / (1 + exp(-x)) (floating), without overflow for any x."""
    return table.Sigmoid.tensor(x, name=name)


@checked
@maps_values
def tanh(x: Any, name: Name = None) -> Tensor:
    """The hyperbolic tangent (floating)."""
    return table.Tanh.tensor(x, name=name)


@checked
def relu(x: Any, name: Name = None) -> Tensor:
    """max(x, 0); the gradient at 0 is 0."""
    return table.Relu.tensor(x, name=name)


@checked
def logical_not(x: Any, name: Name = None) -> Tensor:
    """not x (bool)."""
    return table.LogicalNot.tensor(x, name=name)


@checked
def is_finite(x: Any, name: Name = None) -> Tensor:
    """True where x is neither infinite nor NaN (floating)."""
    return table.IsFinite.tensor(x, name=name)


@checked
def is_inf(x: Any, name: Name = None) -> Tensor:
    """True where x is infinity or minus infinity (floating)."""
    return logical_not(logical_or(is_finite(x), is_nan(x)), name)


@checked
def is_nan(x: Any, name: Name = None) -> Tensor:
    """True where x is NaN (floating)."""
    return table.IsNan.tensor(x, name=name)


neg = negative
rint = round
