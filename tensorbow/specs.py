"""Dtypes, static shapes and tensor specs: the static knowledge about a tensor."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np

from tensorbow.errors import InvalidArgumentError

_INT64 = 1 << 63
Dims: TypeAlias = tuple[int | None, ...]
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class DType:
    """An element type. Compares and hashes by name. Use `as_dtype(x)` to make one, not the constructor.

    Strings are `bytes` of any length, in NumPy's arrays of objects; `size` is that of a reference.
    """

    __slots__ = (
        *("_hash", "as_numpy_dtype", "is_complex", "is_differentiable", "is_floating", "is_integer"),
        *("is_string", "name", "size"),
    )

    def __init__(self, name: str):
        numpy_dtype = np.dtype(object if name == "string" else name)
        self.name = name
        self.as_numpy_dtype: np.dtype[Any] = numpy_dtype
        self.size: int = numpy_dtype.itemsize  # bytes
        self.is_floating = numpy_dtype.kind == "f" or numpy_dtype == ml_dtypes.bfloat16
        self.is_integer = numpy_dtype.kind in "iu"
        self.is_complex = numpy_dtype.kind == "c"
        self.is_string = name == "string"
        self.is_differentiable = self.is_floating or self.is_complex  # gradients flow through it
        self._hash = hash(numpy_dtype)  # equal objects hash alike

    @property
    def is_unsigned(self) -> bool:
        """True for integers without a sign."""
        return self.as_numpy_dtype.kind == "u"

    @property
    def real_dtype(self) -> DType:
        """The dtype of the real part of complex numbers; the dtype itself for others."""
        if not self.is_complex:
            return self
        return float32 if self.size == 8 else float64

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest finite number. Raises InvalidArgumentError for complex numbers."""
        if self.is_integer:
            whole = np.iinfo(self.as_numpy_dtype)
            return int(whole.min), int(whole.max)
        if self.is_floating:
            real: Any = ml_dtypes.finfo(self.as_numpy_dtype)  # type: ignore[no-untyped-call]
            return float(real.min), float(real.max)
        if self.name == "bool":
            return False, True
        remedy = "" if self.is_string else "; use its real_dtype"
        raise InvalidArgumentError(f"dtype {self.name} has no order of numbers, so no limits{remedy}")

    @property
    def min(self) -> float:
        """The smallest finite number, see `limits`."""
        return self.limits[0]

    @property
    def max(self) -> float:
        """The largest finite number, see `limits`."""
        return self.limits[1]

    def __repr__(self) -> str:
        return f"tb.{self.name}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self.name == other.name
        if other is None:  # NumPy takes None as float64
            return False
        try:
            return bool(self.as_numpy_dtype == np.dtype(other))  # type: ignore[call-overload]
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)


float32 = DType("float32")
float64 = DType("float64")
int32 = DType("int32")
int64 = DType("int64")
uint8 = DType("uint8")
bool_ = DType("bool")
int8 = DType("int8")
int16 = DType("int16")
uint16 = DType("uint16")
uint32 = DType("uint32")
uint64 = DType("uint64")
float16 = DType("float16")
bfloat16 = DType("bfloat16")
complex64 = DType("complex64")
complex128 = DType("complex128")
string = DType("string")

FLOATING = (float32, float64)
COMPILED = (*FLOATING, int32, int64, uint8, bool_)  # those of generated native code and GPU kernels
HALVES = (float16, bfloat16)
FLOATS = (*FLOATING, *HALVES)
INTEGERS = (int32, int64, uint8, int8, int16, uint16, uint32, uint64)
NUMERIC = (*FLOATS, *INTEGERS)  # ordered numbers
COMPLEX = (complex64, complex128)
ANALYTIC = (*FLOATS, *COMPLEX)  # those of functions that have derivatives
NUMBERS = (*NUMERIC, *COMPLEX)

DTYPES: dict[str, DType] = {d.name: d for d in (*COMPILED, *NUMBERS)}  # those of numbers
_OF_NUMPY = {d.as_numpy_dtype: d for d in (*DTYPES.values(), string)}


def uncompiled(dtypes: Iterable[DType]) -> DType | None:
    """The first dtype that generated native code and GPU kernels lack, or None."""
    return next((dtype for dtype in dtypes if dtype not in COMPILED), None)


def as_dtype(value: Any) -> DType:
    """The DType of a DType, a NumPy dtype, a Python type or a name.

    Raises InvalidArgumentError for an unsupported type.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, np.dtype) and value in _OF_NUMPY:
        return _OF_NUMPY[value]
    if value is int:  # Python's int is int32 here, as in TensorFlow
        return int32
    if value is float or (isinstance(value, str) and value == "float"):  # NumPy takes the name as float64
        return float32
    if value is complex:
        return complex64
    if value is object or (isinstance(value, str) and value == "string"):
        return string
    try:
        known = np.dtype("V") if value is None else np.dtype(value)
        name = "None" if value is None else "string" if known.kind in "SUT" else known.name
    except Exception:  # NumPy inspects the value, which may raise anything
        name = shortened(value)
    if name not in DTYPES and name != "string":
        raise InvalidArgumentError(f"dtype {name} is not supported: use one of {', '.join(DTYPES)}, string")
    return string if name == "string" else DTYPES[name]


def shortened(value: Any) -> str:
    """A value in at most about 60 characters, for error messages."""
    try:
        return f"{' '.join(reprlib.repr(value).split()):.60}"
    except Exception:  # repr of a user's type, or of an integer with too many digits
        return type(value).__name__


class UnknownRankError(Exception):
    """Raised when a spec rule reads the dimensions of a tensor of unknown rank."""


class Dimension(int):
    """A known extent: an int that also has TensorFlow 1's `value`. An unknown extent is None, and in the
    shapes that `get_shape` gives an `UnknownDimension`.
    """

    __slots__ = ()

    @property
    def value(self) -> int:
        """The extent."""
        return int(self)


class UnknownDimension:
    """An unknown extent with TensorFlow 1's `value`, None: equal to None, false, and None where a shape has
    it.

    Sums, products and the like with it are unknown as well.
    """

    __slots__ = ()
    value = None

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, UnknownDimension)

    def __hash__(self) -> int:
        return hash(None)

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "None"

    def _unknown(self, other: Any) -> UnknownDimension:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _unknown
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _unknown


class TensorShape(Sequence["int | None"]):
    """A public static shape: a sequence of int or None; `dims` is None if the rank is unknown."""

    __slots__ = ("dims",)
    _unknown: Any = None  # what stands for an unknown extent

    def __init__(self, dims: Any):
        """dims: None, an int, a sequence of int, None or -1, or a TensorShape."""
        try:
            self.dims: Dims | None = as_dims(dims)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"TensorShape: dims {error}") from None

    @property
    def ndims(self) -> int | None:
        """The rank, or None."""
        return None if self.dims is None else len(self.dims)

    @property
    def rank(self) -> int | None:
        """The rank, or None."""
        return self.ndims

    def as_list(self) -> list[int | None]:
        """The dimensions as a list. Raises InvalidArgumentError if the rank is unknown."""
        return [*self._known()]

    def is_fully_defined(self) -> bool:
        """True if every dimension is known."""
        return self.dims is not None and None not in self.dims

    def num_elements(self) -> int | None:
        """The number of elements, or None if a dimension is unknown."""
        if self.dims is None or None in self.dims:
            return None
        return math.prod(d for d in self.dims if d is not None)

    def _known(self) -> Dims:
        if self.dims is None:
            raise InvalidArgumentError("the rank of this shape is unknown: give the placeholder a shape")
        return self.dims

    def __len__(self) -> int:
        return len(self._known())

    def __iter__(self) -> Iterator[int | None]:
        return iter([self._unknown if d is None else Dimension(d) for d in self._known()])

    def __getitem__(self, index: Any) -> Any:
        found = self._known()[index]
        if isinstance(found, tuple):
            return tuple([self._unknown if d is None else Dimension(d) for d in found])
        return self._unknown if found is None else Dimension(found)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TensorShape):
            return self.dims == other.dims
        if isinstance(other, (tuple, list)):
            return self.dims is not None and self.dims == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.dims)

    def __repr__(self) -> str:
        return "<unknown rank>" if self.dims is None else render_dims(self.dims)


class DimensionShape(TensorShape):
    """A shape as TensorFlow 1 has it: its unknown extents have a `value`, too. `shape[0] is None` is
    False."""

    __slots__ = ()
    _unknown = UnknownDimension()


@dataclass(frozen=True)
class TensorSpec:
    """Static shape and dtype, and the value if it is known while the graph is built or compiled.

    Users may give the shape as a list and the dtype by name: `tb.TensorSpec([None, 3], "float32")`.
    """

    shape: Dims | None  # None: unknown rank; an entry None: unknown extent
    dtype: DType
    value: Array | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.shape is not None and type(self.shape) is not tuple:
            object.__setattr__(self, "shape", as_dims(self.shape))
        if type(self.dtype) is not DType:
            object.__setattr__(self, "dtype", as_dtype(self.dtype))

    @property
    def dims(self) -> Dims:
        """The dimensions; raises UnknownRankError, from which inference makes a result of unknown rank."""
        if self.shape is None:
            raise UnknownRankError
        return self.shape

    @property
    def rank(self) -> int:
        """The rank; raises UnknownRankError if it is unknown."""
        return len(self.dims)

    @property
    def is_static(self) -> bool:
        """True if every dimension is known."""
        return self.shape is not None and None not in self.shape

    @property
    def extents(self) -> tuple[int, ...]:
        """The dimensions of a fully known shape (all shapes are, once a step is compiled).

        Raises InvalidArgumentError if one is unknown.
        """
        if self.shape is None or None in self.shape:
            raise InvalidArgumentError(f"shape {self} is not fully known")
        return cast("tuple[int, ...]", self.shape)

    @property
    def size(self) -> int:
        """The number of elements of a fully known shape."""
        return math.prod(self.extents)

    @property
    def nbytes(self) -> int:
        """Bytes of a fully known shape."""
        return self.size * self.dtype.size

    def __str__(self) -> str:
        shape = "<unknown rank>" if self.shape is None else render_dims(self.shape)
        return f"{self.dtype.name}{shape}"


@dataclass(frozen=True)
class SaveSliceInfo:
    """Place of a part in a variable that is cut into slices, by TensorFlow's names: extents and offsets."""

    full_name: str
    full_shape: tuple[int, ...]
    var_offset: tuple[int, ...]
    var_shape: tuple[int, ...]

    @property
    def index(self) -> tuple[slice, ...]:
        """The slice, as an index of the whole."""
        pairs = zip(self.var_offset, self.var_shape, strict=True)
        return tuple(slice(start, start + extent) for start, extent in pairs)


def render_dims(dims: Sequence[int | None]) -> str:
    """Text of a shape: `[2, ?, 3]`."""
    return "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"


def as_dims(value: Any) -> Dims | None:
    """A shape from None, an int, a sequence of int, None or -1, or a TensorShape."""
    if value is None:
        return None
    if isinstance(value, TensorShape):
        return value.dims
    if isinstance(value, (int, np.integer)):
        value = (value,)
    try:
        if isinstance(value, (str, bytes, Mapping, Set)):
            raise TypeError
        dims = tuple(map(_dim, value))
    except TypeError:
        raise InvalidArgumentError(
            f"shape {shortened(value)}: expected a list of whole numbers and None"
        ) from None
    if any(d is not None and not 0 <= d < _INT64 for d in dims):
        raise InvalidArgumentError(f"shape {shortened(dims)}: a dimension must be at least 0, or None")
    return dims


def _dim(value: Any) -> int | None:
    if value is None or isinstance(value, UnknownDimension):
        return None
    if isinstance(value, bool):
        raise TypeError
    dim = operator.index(value)
    return None if dim == -1 else dim


def compatible(known: Dims | None, other: Dims | None) -> bool:
    """True if two static shapes can belong to one tensor."""
    if known is None or other is None or known == other:
        return True
    return len(known) == len(other) and all(
        a is None or b is None or a == b for a, b in zip(known, other, strict=True)
    )


def broadcast_dims(a: Dims, b: Dims) -> Dims:
    """The broadcast shape, by NumPy's rule. Raises InvalidArgumentError."""
    result: list[int | None] = []
    width = max(len(a), len(b))
    for x, y in zip((1,) * (width - len(a)) + a, (1,) * (width - len(b)) + b, strict=True):
        if x == 1 or x == y:
            result.append(y)
        elif y == 1:
            result.append(x)
        elif x is None or y is None:
            result.append(y if x is None else x)
        else:
            raise InvalidArgumentError(
                f"shapes {render_dims(a)} and {render_dims(b)} do not broadcast: "
                f"{x} against {y}; dimensions must be equal or 1"
            )
    return tuple(result)
