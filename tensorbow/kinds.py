"""Kinds of arguments (a flag, a count, an axis, a name), checked in one way by all public calls.

A public function annotates its parameters with kinds and is decorated:

    @checked
    def one_hot(indices: Any, depth: Count, ..., name: Name = None) -> Tensor:

A kind converts equivalent values (`np.int64(3)` as a count) to Python's own type and refuses others, so
that the function gets what its annotations say. Parameters without a kind are passed unchanged.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
import reprlib
import types
import typing
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from tensorbow.call_errors import (
    RefusedArgumentError,
    by_newer_names,
    name_function,
    of_call,
    remedy_of_unknown,
)
from tensorbow.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError, TensorBowError
from tensorbow.specs import DType, TensorShape, UnknownRankError, as_dtype

P = ParamSpec("P")
R = TypeVar("R")

INT64 = 1 << 63
_JOINS = ("ConcatV2", "ExpandDims", "Reshape")  # what `stack` makes
_ORDERED = (list, tuple, range, Iterator, KeysView, ValuesView)  # no sets: their order is arbitrary
_LONGEST = 1 << 20  # items of a list of numbers: more than a tensor has axes, extents or sections


class RefusedError(Exception):
    """Raised by the `read` of a kind for an invalid value; the message may add a remedy."""


@dataclass(frozen=True)
class Kind:
    """A kind of argument.

    Args:
        expected: valid values, in words that follow "expected".
        read: returns the value as Python's own type, or raises `RefusedError`.
        exact: a type whose values are all valid and need no conversion, as a fast path.
    """

    expected: str
    read: Callable[[Any], Any]
    exact: type | None = None

    def __or__(self, other: Kind) -> Kind:
        """Union of two kinds; the first that accepts a value reads it."""

        def read(value: Any) -> Any:
            try:
                return self.read(value)
            except RefusedError:
                return other.read(value)

        return Kind(f"{self.expected} or {other.expected}", read)


def shown(value: Any) -> str:
    """Type and value in at most about 80 characters, for error messages."""
    name = type(value).__name__
    if value is None:
        return name
    try:
        text = " ".join((repr(value) if is_tensor(value) else reprlib.repr(value)).split())
    except Exception:  # repr of a user's type, or of an integer with too many digits
        return name
    return f"{name} {text if len(text) <= 80 else text[:77] + '...'}"


def refuse(op: str, argument: str, expected: str, value: Any, remedy: object = "") -> InvalidArgumentError:
    """The error for an invalid argument: op, argument, expected, got and, if given, the remedy."""
    ending = f"; {remedy}" if str(remedy) else ""
    return RefusedArgumentError(op, argument, expected, value, f"{shown(value)}{ending}")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Converts each argument by the kind in its annotation before `function` is called.

    The annotations are evaluated on the first call. A call raises InvalidArgumentError for an argument
    not of its kind; defaults are not checked. Errors of inner calls get the names of the outermost checked
    call and its argument, by `call_errors.of_call`. A call by one of `OLDER_NAMES` is one by the newer name.
    """
    own = function.__qualname__.removesuffix(".__call__")
    makes = function.__name__ == "__init__"  # a constructor: errors name its class
    is_function = "." not in own and function.__module__.startswith("tensorbow.")  # makes ops, has no options
    positional: list[tuple[int, str, Kind, Any]] = []
    by_name: dict[str, tuple[Kind, Any]] = {}
    known: frozenset[str] = frozenset()
    no_tensors: frozenset[str] = frozenset()  # arguments with a kind, or of type str
    resolved = False

    def resolve() -> None:
        nonlocal known, no_tensors, resolved
        found = []
        parameters = inspect.signature(function).parameters
        for index, (name, parameter) in enumerate(parameters.items()):
            kind = _kind_in(_evaluated(parameter.annotation, function))
            if kind is None:
                continue
            by_name[name] = kind, parameter.default
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                found.append((index, name, kind, parameter.default))
        positional[:] = found  # in one step: another thread may be calling
        known = frozenset(parameters)
        texts = [name for name, each in parameters.items() if each.annotation in ("str", "str | None")]
        no_tensors = frozenset([*by_name, *texts])
        resolved = True

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not resolved:
            resolve()
        label = type(args[0]).__name__ if makes else own
        if kwargs and not known.issuperset(kwargs):
            kwargs = by_newer_names(label, kwargs, known)  # type: ignore[assignment]
        count, given = len(args), None
        for index, name, kind, default in positional:
            if index >= count:
                break
            value = args[index]
            if value is default or type(value) is kind.exact:
                continue
            read = read_as(kind, value, label, name)
            if read is not value:
                given = list(args) if given is None else given
                given[index] = read
        for name, value in kwargs.items():
            if name in by_name:
                kind, default = by_name[name]
                if value is not default and type(value) is not kind.exact:
                    kwargs[name] = read_as(kind, value, label, name)
        try:
            return function(*(args if given is None else given), **kwargs)
        except (InvalidArgumentError, NotFoundError) as error:
            bound = inspect.signature(function).bind_partial(*(given or args), **kwargs).arguments
            named = of_call(error, label, bound, no_tensors)
            try:
                if named is not error:
                    raise named from None
                if is_function:
                    name_function(error, label)
                raise
            finally:
                del named  # or the error and this frame would keep each other, and what the frames hold
        except UnknownRankError:
            bound = inspect.signature(function).bind_partial(*(given or args), **kwargs).arguments
            raise InvalidArgumentError(f"{label}: {_without_rank(bound)}") from None
        except (MemoryError, ValueError) as error:
            is_too_big = isinstance(error, MemoryError) or str(error).startswith("array is too big")
            if isinstance(error, TensorBowError) or not is_too_big:
                raise
            raise ResourceExhaustedError(
                f"{label}: {error or 'out of memory'}; give smaller sizes"
            ) from error
        except TypeError as error:
            remedy = remedy_of_unknown(error, kwargs, inspect.signature(function).parameters)
            if remedy is None:
                raise
            raise TypeError(f"{str(error).partition('. Did')[0]}; {remedy}") from None

    return call


def _without_rank(arguments: Mapping[str, Any]) -> str:
    """The end of an error message for arguments of which one is a tensor of unknown rank."""
    names = [name for name, value in arguments.items() if is_tensor(value) and value.shape.ndims is None]
    which = f"{names[0]} is of unknown rank, expected" if len(names) == 1 else "expected tensors of"
    return (
        f"{which} a rank that is known while the graph is built; give the placeholder a shape, or set_shape"
    )


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """The object that an annotation names; None for one that only type checkers can evaluate."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, inspect.unwrap(function).__globals__)  # same as typing does
    except (NameError, TypeError):
        return None


def read_as(kind: Kind, value: Any, op: str, argument: str) -> Any:
    """The value of an argument, read by its kind. Raises InvalidArgumentError."""
    try:
        return kind.read(value)
    except RefusedError as refused:
        raise refuse(op, argument, kind.expected, value, refused) from None


def check_fields(record: Any) -> None:
    """Reads the fields of a dataclass instance by the kinds in their annotations; for `__post_init__`."""
    cls: Any = type(record)
    for name, kind in _kinds_of_fields(cls):
        value = getattr(record, name)
        read = read_as(kind, value, cls.__name__, name)
        if read is not value:
            object.__setattr__(record, name, read)


@functools.cache
def _kinds_of_fields(cls: Any) -> list[tuple[str, Kind]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    kinds = [(field.name, _kind_in(hints[field.name])) for field in dataclasses.fields(cls)]
    return [(name, kind) for name, kind in kinds if kind is not None]


def _kind_in(hint: Any) -> Kind | None:
    """The kind in an annotation; `| None` makes it accept None."""
    for item in getattr(hint, "__metadata__", ()):
        if isinstance(item, Kind):
            return item
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = typing.get_args(hint)
        kinds = [kind for kind in map(_kind_in, members) if kind is not None]
        if kinds:
            kind = functools.reduce(Kind.__or__, kinds)
            return optional(kind) if type(None) in members else kind
    return None


# Construction of kinds ----------------------------------------------------------------------------


def optional(kind: Kind) -> Kind:
    """A kind that also accepts None."""
    return Kind(
        f"{kind.expected} or None", lambda value: None if value is None else kind.read(value), kind.exact
    )


def with_remedy(kind: Kind, remedy: str) -> Kind:
    """The kind with a remedy in its error messages."""

    def read(value: Any) -> Any:
        try:
            return kind.read(value)
        except RefusedError:
            raise RefusedError(remedy) from None

    return Kind(kind.expected, read, kind.exact)


def whole(low: int = -INT64, high: int = INT64 - 1) -> Kind:
    """Whole numbers from `low` to `high`: ints and NumPy's, no bools, floats or strings."""

    def read(value: Any) -> int:
        value = _out_of_array(value)
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, (int, np.integer))):
            raise RefusedError(_remedy_of_tensor(value))
        if not low <= value <= high:
            raise RefusedError
        return int(value)

    return Kind(_range("a whole number", low, high, -INT64, INT64 - 1), read)


def number(
    low: float = -math.inf, high: float = math.inf, *, above: bool = False, below: bool = False
) -> Kind:
    """Finite numbers from `low` to `high`, as floats; `above` and `below` exclude the ends.

    Accepts ints, floats and NumPy's numbers, no bools or strings.
    """

    def read(value: Any) -> float:
        value = _out_of_array(value)
        if isinstance(value, (bool, np.bool_)) or not isinstance(
            value, (int, float, np.integer, np.floating)
        ):
            raise RefusedError(_remedy_of_tensor(value))
        try:
            result = float(value)
        except OverflowError:
            raise RefusedError from None
        inside = math.isfinite(result) and low <= result <= high
        if not inside or (above and result == low) or (below and result == high):
            raise RefusedError
        return result

    ends = [f"{'above' if above else 'of at least'} {low:g}"] if low > -math.inf else []
    ends += [f"{'below' if below else 'of at most'} {high:g}"] if high < math.inf else []
    return Kind(" ".join(["a finite number", " and ".join(ends)]).strip(), read)


def sequence(kind: Kind, expected: str, *, lone: bool = False) -> Kind:
    """Lists, tuples, ranges and 1-d arrays, read as tuples of `kind`; lone: also accepts a single item."""

    def read(value: Any) -> tuple[Any, ...]:
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = value.tolist() if value.dtype.kind in "iufbU" else value
        if isinstance(value, (list, tuple, range)) and len(value) <= _LONGEST:
            return tuple(kind.read(item) for item in value)
        if not lone:
            raise RefusedError(_remedy_of_tensor(value))
        return (kind.read(value),)

    return Kind(expected, read)


def one_of(*values: str, remedy: str = "", any_case: bool = False) -> Kind:
    """One of several strings; with `any_case` in any case, read as the listed spelling."""

    def read(value: Any) -> str:
        if isinstance(value, str):
            if value in values:
                return str(value)
            for known in values:
                if value.upper() == known.upper():
                    if any_case:
                        return known
                    raise RefusedError(remedy or f"write {known!r}")
        raise RefusedError(remedy)

    return Kind(" or ".join(map(repr, values)), read)


def instance(*classes: type, expected: str) -> Kind:
    """Instances of some classes, unchanged."""

    def read(value: Any) -> Any:
        if isinstance(value, classes):
            return value
        raise RefusedError

    return Kind(expected, read)


def or_tensor(kind: Kind) -> Kind:
    """The kind, or a scalar tensor or variable."""

    def read(value: Any) -> Any:
        if not is_tensor(value):
            return kind.read(value)
        if value.shape.ndims not in (None, 0):
            raise RefusedError
        require_constants(kind, value)
        return value

    return Kind(f"{kind.expected}, or a scalar tensor", read)


def or_known(kind: Kind) -> Kind:
    """The kind, also of tensors whose values are known while the graph is built."""

    def read(value: Any) -> Any:
        known = getattr(value, "known_value", None) if is_tensor(value) else None
        return kind.read(value if known is None else known.tolist())

    return Kind(kind.expected, read, kind.exact)


def require_constants(kind: Kind, tensor: Any) -> None:
    """Raises RefusedError if a scalar tensor is a constant, or picks one of several, as `tb.per_replica`
    does, and any of them is not of the kind."""
    for constant in _constants_of(tensor):
        try:
            kind.read(constant)
        except RefusedError:
            raise RefusedError(f"it has the value {constant:g}") from None


def _constants_of(tensor: Any) -> list[float]:
    value = getattr(getattr(tensor, "spec", None), "value", None)
    if value is not None:
        return [int(each) if value.dtype.kind in "iu" else float(each) for each in np.ravel(value)]
    op = tensor.op
    if op.type == "GatherV2":
        return _constants_of(op.inputs[0])
    return [each for part in op.inputs for each in _constants_of(part)] if op.type in _JOINS else []


def _range(words: str, low: int, high: int, lowest: int, highest: int) -> str:
    if low > lowest and high != highest:
        return f"{words} from {low} to {high}"
    return (
        f"{words} of at least {low}"
        if low > lowest
        else f"{words} of at most {high}"
        if high != highest
        else words
    )


def is_tensor(value: Any) -> bool:
    """True for a tensor or variable of a graph."""
    return isinstance(getattr(value, "dtype", None), DType) and hasattr(value, "graph")


def _out_of_array(value: Any) -> Any:
    """The element of a 0-d array, which NumPy functions return instead of a number."""
    return value[()] if type(value) is np.ndarray and value.ndim == 0 else value


def called(function: Callable[..., Any], *arguments: Any, op: str, argument: str, expected: str) -> Any:
    """Result of a user's function. Raises InvalidArgumentError if it does not accept these arguments."""
    try:
        return function(*arguments)
    except TypeError:
        try:
            inspect.signature(function).bind(*arguments)
        except ValueError:  # its signature is unknown
            pass
        except TypeError:
            raise refuse(op, argument, expected, function) from None
        raise  # the function itself raised it


def _remedy_of_tensor(value: Any) -> str:
    return "its value is needed when the graph is built: give a Python number" if is_tensor(value) else ""


def _read_flag(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise RefusedError


def _read_text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    raise RefusedError


def _read_dtype(value: Any) -> DType:
    try:
        return as_dtype(value)
    except InvalidArgumentError as error:
        raise RefusedError(str(error).partition(": ")[2]) from None


def _read_path(value: Any) -> Any:
    text = os.fspath(value) if isinstance(value, os.PathLike) and not isinstance(value, type) else value
    if not isinstance(text, str) or "\0" in text:
        raise RefusedError
    return value


def _read_shape(value: Any) -> TensorShape:
    try:
        return TensorShape(value)
    except InvalidArgumentError as error:
        raise RefusedError(str(error).partition(": ")[2]) from None


def _read_sequence(value: Any) -> Any:
    if isinstance(value, _ORDERED) or (isinstance(value, np.ndarray) and value.ndim):
        return list(value)
    raise RefusedError


def _read_function(value: Any) -> Any:
    if callable(value):
        return value
    raise RefusedError


# Common kinds -------------------------------------------------------------------------------------

FLAG = Kind("True or False", _read_flag, bool)
TEXT = Kind("a string", _read_text, str)
DTYPE = Kind("a dtype, as tb.float32", _read_dtype, DType)

SHAPE = Kind("a shape, as [2, None]", _read_shape)
PATH = Kind("a path", _read_path)
ITEMS = Kind("a list or a tuple", _read_sequence)
WORD = whole(0, 2 * INT64 - 1)  # unsigned 64 bits
FUNCTION = Kind("a function", _read_function)
# For arguments that may be texts and are no tensors: errors are not taken to be about these.
ANYTHING = Kind("anything", lambda value: value)

Anything: TypeAlias = Annotated[Any, ANYTHING]
Flag: TypeAlias = Annotated[bool, FLAG]
Text: TypeAlias = Annotated[str, TEXT]
Name: TypeAlias = Annotated["str | None", optional(TEXT)]
AXIS = or_known(whole())
AXES = or_known(sequence(AXIS, "a whole number or several in a list", lone=True))
AxisNumber: TypeAlias = Annotated[int, AXIS]
AxisNumbers: TypeAlias = Annotated[Any, optional(AXES)]  # a tuple of ints, or None
Count: TypeAlias = Annotated[int, whole(0)]
Word: TypeAlias = Annotated[int, WORD]
Positive: TypeAlias = Annotated[int, whole(1)]
Seed: TypeAlias = Annotated["int | None", optional(whole(high=2 * INT64 - 1))]
Number: TypeAlias = Annotated[float, number()]
NumberOrTensor: TypeAlias = Annotated[
    Any, or_tensor(Kind("a finite number", (whole() | number()).read))
]  # ints stay ints
PositiveNumber: TypeAlias = Annotated[float, number(0, above=True)]
NonNegative: TypeAlias = Annotated[float, number(0)]
NonNegativeOrTensor: TypeAlias = Annotated[Any, or_tensor(number(0))]
Fraction: TypeAlias = Annotated[float, number(0, 1, below=True)]
FractionOrTensor: TypeAlias = Annotated[Any, or_tensor(number(0, 1, below=True))]
PositiveOrTensor: TypeAlias = Annotated[Any, or_tensor(number(0, above=True))]
AsDType: TypeAlias = Annotated[Any, DTYPE]  # reads a DType
AsPath: TypeAlias = Annotated[str | os.PathLike[str], PATH]
AsShape: TypeAlias = Annotated[Any, SHAPE]  # reads a TensorShape
Names: TypeAlias = Annotated[Sequence[str], sequence(TEXT, "a list of names")]
NameOrNames: TypeAlias = Annotated[Any, TEXT | sequence(TEXT, "a list of names")]
Items: TypeAlias = Annotated[Any, ITEMS]  # reads a list
Function: TypeAlias = Annotated[Callable[..., Any], FUNCTION]
Mapped: TypeAlias = Annotated[Mapping[Any, Any], instance(Mapping, expected="a dictionary")]
