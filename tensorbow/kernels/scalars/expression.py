"""Scalar expressions: an element-wise kernel as a typed tree, independent of any target language.

Trees are built by calling the functions below on symbols. Printers translate them:
to C++ for CUDA (`c_form`), to LLVM IR (`native.llvm_form`). A shared node is computed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tensorbow.errors import InternalError
from tensorbow.specs import DType, bool_

INPUT, CONSTANT, CAST, SELECT = "input", "constant", "cast", "select"
FUNCTIONS = {  # of one floating operand, under NumPy's names: C's names
    **{name: name for name in ("exp", "expm1", "log", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "erf": "erf", "erfc": "erfc", "lgamma": "lgamma",
}  # fmt: skip
SAME_DTYPE = (  # operators whose result has the dtype of their operands
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum", "minimum",
    "negative", "absolute", "sign", "floor", "ceil", "rint", "sqrt",
    *FUNCTIONS, "arctan2", "truncate16",
    "bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift",
)  # fmt: skip
TRUTH = (  # operators whose result is bool
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal",
    "logical_and", "logical_or", "logical_not", "isfinite", "isnan",
)  # fmt: skip
FLOATING_ONLY = frozenset(
    ("divide", "floor", "ceil", "rint", "sqrt", *FUNCTIONS, "arctan2", "truncate16", "isfinite", "isnan")
)  # fmt: skip
INTEGER_ONLY = frozenset(("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"))
BOOLEAN_ONLY = frozenset(("logical_and", "logical_or", "logical_not"))
ANY_DTYPE = frozenset(("equal", "not_equal"))


@dataclass(frozen=True, eq=False)
class Scalar:
    """One node. `argument`: number of an input, or value of a constant."""

    operator: str
    operands: tuple[Scalar, ...]
    dtype: DType
    argument: int | float | bool = 0

    def __add__(self, other: Operand) -> Scalar:
        return _apply("add", self, other)

    def __radd__(self, other: Operand) -> Scalar:
        return _apply("add", other, self)

    def __sub__(self, other: Operand) -> Scalar:
        return _apply("subtract", self, other)

    def __rsub__(self, other: Operand) -> Scalar:
        return _apply("subtract", other, self)

    def __mul__(self, other: Operand) -> Scalar:
        return _apply("multiply", self, other)

    def __rmul__(self, other: Operand) -> Scalar:
        return _apply("multiply", other, self)

    def __truediv__(self, other: Operand) -> Scalar:
        return _apply("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Scalar:
        return _apply("divide", other, self)

    def __floordiv__(self, other: Operand) -> Scalar:
        return _apply("floor_divide", self, other)

    def __mod__(self, other: Operand) -> Scalar:
        return _apply("remainder", self, other)

    def __neg__(self) -> Scalar:
        return _apply("negative", self)

    def __abs__(self) -> Scalar:
        return _apply("absolute", self)

    def __lt__(self, other: Operand) -> Scalar:
        return _apply("less", self, other)

    def __le__(self, other: Operand) -> Scalar:
        return _apply("less_equal", self, other)

    def __gt__(self, other: Operand) -> Scalar:
        return _apply("greater", self, other)

    def __ge__(self, other: Operand) -> Scalar:
        return _apply("greater_equal", self, other)

    def __bool__(self) -> bool:
        raise InternalError("a scalar expression has no truth value: use select")


Operand: TypeAlias = "Scalar | int | float"


def symbol(number: int, dtype: DType) -> Scalar:
    """The element of input `number`."""
    return Scalar(INPUT, (), dtype, number)


def symbols(dtypes: Iterable[DType]) -> tuple[Scalar, ...]:
    """The elements of all inputs."""
    return tuple(symbol(number, dtype) for number, dtype in enumerate(dtypes))


def constant(value: float, dtype: DType) -> Scalar:
    """A number, rounded to the dtype."""
    return Scalar(CONSTANT, (), dtype, dtype.as_numpy_dtype.type(value).item())


def apply(operator: str, *operands: Operand) -> Scalar:
    """A node with an operator of SAME_DTYPE or TRUTH; numbers take the other operand's dtype.

    floor_divide and remainder have NumPy's signs, and give 0 for an integer divided by 0. maximum and
    minimum give NaN if an operand is NaN. Shifts are by at least 0 and less than all bits. Raises
    InternalError for dtypes that do not fit.
    """
    return _apply(operator, *operands)


def _apply(operator: str, *operands: Operand) -> Scalar:
    typed = next((x for x in operands if isinstance(x, Scalar)), None)
    if typed is None:
        raise InternalError(f"{operator}: at least one operand must be a scalar expression")
    dtype = typed.dtype
    nodes = tuple(x if isinstance(x, Scalar) else constant(x, dtype) for x in operands)
    wrong = (
        any(node.dtype != dtype for node in nodes)
        or (operator in FLOATING_ONLY and not dtype.is_floating)
        or (operator in INTEGER_ONLY and not dtype.is_integer)
        or (operator not in ANY_DTYPE and (operator in BOOLEAN_ONLY) != (dtype == bool_))
    )
    if wrong or operator not in SAME_DTYPE + TRUTH:
        raise InternalError(f"{operator} of {', '.join(node.dtype.name for node in nodes)}: no such operator")
    return Scalar(operator, nodes, bool_ if operator in TRUTH else dtype)


def equal(x: Scalar, y: Operand) -> Scalar:
    """x == y; False if either is NaN."""
    return _apply("equal", x, y)


def not_equal(x: Scalar, y: Operand) -> Scalar:
    """x != y; True if either is NaN."""
    return _apply("not_equal", x, y)


def maximum(x: Scalar, y: Operand) -> Scalar:
    """The greater operand; NaN if either is NaN."""
    return _apply("maximum", x, y)


def minimum(x: Scalar, y: Operand) -> Scalar:
    """The lesser operand; NaN if either is NaN."""
    return _apply("minimum", x, y)


def sqrt(x: Scalar) -> Scalar:
    """The square root, correctly rounded."""
    return _apply("sqrt", x)


def exp(x: Scalar) -> Scalar:
    """e to the power of x."""
    return _apply("exp", x)


def truncate16(x: Scalar) -> Scalar:
    """The upper 16 bits of x as float32, zeros below: a bfloat16, rounded towards zero."""
    return _apply("truncate16", x)


def select(condition: Scalar, x: Operand, y: Operand) -> Scalar:
    """x if the condition is true, else y. Raises InternalError for dtypes that do not fit."""
    typed = next((v for v in (x, y) if isinstance(v, Scalar)), None)
    if typed is None or condition.dtype != bool_:
        raise InternalError("select: expected a bool condition, and an expression on one side at least")
    first, second = (v if isinstance(v, Scalar) else constant(v, typed.dtype) for v in (x, y))
    if first.dtype != second.dtype:
        raise InternalError(f"select between {first.dtype.name} and {second.dtype.name}")
    return Scalar(SELECT, (condition, first, second), first.dtype)


def cast(x: Scalar, dtype: DType) -> Scalar:
    """x in another dtype: truncated towards zero for integers; nonzero becomes True for bool."""
    return x if x.dtype == dtype else Scalar(CAST, (x,), dtype)


def in_order(results: Sequence[Scalar]) -> Iterator[Scalar]:
    """Every node once, operands first, in an order determined by the tree alone."""
    seen: set[Scalar] = set()
    pending: list[tuple[Scalar, bool]] = [(node, False) for node in reversed(results)]
    while pending:
        node, ready = pending.pop()
        if node in seen:
            continue
        if ready or not node.operands:
            seen.add(node)
            yield node
        else:
            pending.append((node, True))
            pending.extend((operand, False) for operand in reversed(node.operands))


def inputs_of(results: Sequence[Scalar]) -> tuple[int, ...]:
    """Numbers of the inputs that the results depend on, ascending."""
    return tuple(sorted({int(node.argument) for node in in_order(results) if node.operator == INPUT}))


def structure(results: Sequence[Scalar]) -> tuple[Hashable, ...]:
    """A hashable form, equal for equal trees: their nodes by position, without identity."""
    numbers: dict[Scalar, int] = {}
    nodes: list[Hashable] = []
    for number, node in enumerate(in_order(results)):
        numbers[node] = number
        operands = tuple(numbers[operand] for operand in node.operands)
        nodes.append((node.operator, operands, node.dtype, repr(node.argument)))
    return (*nodes, tuple(numbers[result] for result in results))
