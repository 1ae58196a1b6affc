"""Kinds of ops' arguments: shapes, windows, paddings, scalars. The general kinds are in `tensorbow.kinds`."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.array_likes import ArrayLike, as_array
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import as_tensor
from tensorbow.kinds import (
    AXES,
    AXIS,
    TEXT,
    Kind,
    RefusedError,
    is_tensor,
    number,
    one_of,
    optional,
    or_known,
    or_tensor,
    sequence,
    whole,
)
from tensorbow.specs import Dims, TensorShape, UnknownDimension, as_dims

INT32 = 1 << 31
EXTENT = whole(-INT32, INT32 - 1)  # negative extents have a meaning in some ops; the others refuse them


def _read_shape(value: Any) -> Any:
    """Reads a shape: an integer tensor or array, or a list of whole numbers and scalar tensors."""
    if is_tensor(value):
        return value
    if isinstance(value, TensorShape):
        if value.dims is None:
            raise RefusedError("its rank is unknown: use tb.shape, or set_shape before")
        value = value.dims
    if isinstance(value, (list, tuple, range)):
        try:
            return [_read_extent(item) for item in value]
        except RefusedError:
            if any(type(item) is int and not -INT32 <= item < INT32 for item in value):
                raise RefusedError(f"each is at most {INT32 - 1}, or comes in a tensor of int64") from None
            raise
    if isinstance(value, ArrayLike) and not isinstance(value, bytes):
        array = as_array(value)
        if array.dtype.kind in "iu" and array.ndim == 1:
            return array
    raise RefusedError


def _read_extent(item: Any) -> Any:
    if is_tensor(item):
        return item
    return -1 if item is None or isinstance(item, UnknownDimension) else EXTENT.read(item)


def _read_static_shape(value: Any) -> Dims | None:
    try:
        return as_dims(value)
    except InvalidArgumentError as error:
        remedy = str(error).partition(": ")[2]
        raise RefusedError("" if remedy.startswith("expected") else remedy) from None


def _read_scalar(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    return whole().read(value)


def _read_pair(value: Any) -> tuple[int, int]:
    pair = _INDICES.read(value)
    if len(pair) != 2:
        raise RefusedError
    return pair[0], pair[1]


def _or_axes(kind: Kind, highest: int) -> Kind:
    """The kind of axes, or a tensor of such numbers, of this rank at most; a list that has tensors is one."""

    def read(value: Any) -> Any:
        if not is_tensor(value) and not (isinstance(value, (list, tuple)) and any(map(is_tensor, value))):
            return kind.read(value)
        try:
            return kind.read(value)  # known while the graph is built
        except RefusedError:
            tensor = as_tensor(value if is_tensor(value) else list(value))
        ndims = tensor.shape.ndims
        if not tensor.dtype.is_integer or (ndims is not None and ndims > highest):
            raise RefusedError
        return tensor

    return Kind(kind.expected, read, kind.exact)


_INDICES = sequence(whole(0), "indices, counted from 0")
PAIR = Kind("a pair of whole numbers of at least 0", _read_pair)
PAIRS = sequence(PAIR, "a list of pairs [before, after]")
BLOCK = sequence(whole(1), "a list of whole numbers of at least 1", lone=True)
WINDOW = sequence(
    whole(1), "a whole number of at least 1, [height, width] or [1, height, width, 1] of such", lone=True
)

Texts: TypeAlias = Annotated[Any, sequence(TEXT, "a list of strings")]  # reads a tuple
Extents: TypeAlias = Annotated[Any, Kind("a list of whole numbers, or a vector of them", _read_shape)]
StaticShape: TypeAlias = Annotated[Any, Kind("a list of whole numbers and None", _read_static_shape)]
AnyNumber: TypeAlias = Annotated[Any, Kind("a number, True or False", _read_scalar)]
BlockShape: TypeAlias = Annotated[Any, or_known(BLOCK)]  # reads a tuple of ints
PairList: TypeAlias = Annotated[Any, or_known(PAIRS)]  # reads a tuple of pairs of ints
WindowSize: TypeAlias = Annotated[Any, WINDOW]  # reads a tuple of ints
Padding: TypeAlias = Annotated[
    str, one_of("SAME", "VALID", remedy="pad by tb.pad and use 'VALID' for another", any_case=True)
]
DataFormat: TypeAlias = Annotated["str | None", optional(one_of("NHWC", "NCHW", any_case=True))]
_SECTIONS = whole(1) | sequence(whole(-1), "a list of extents")


def _read_sections(value: Any) -> Any:
    """A number, a tuple of extents, or a vector that is no constant."""
    if isinstance(value, (list, tuple)) and any(map(is_tensor, value)):
        value = as_tensor(list(value))
    if not is_tensor(value):
        return _SECTIONS.read(value)
    tensor = as_tensor(value)
    if tensor.spec.value is not None:
        return _SECTIONS.read(tensor.spec.value)
    if not tensor.dtype.is_integer or tensor.shape.ndims not in (1, None):
        raise RefusedError
    return tensor


Sections: TypeAlias = Annotated[Any, Kind(f"{_SECTIONS.expected}, or a vector of them", _read_sections)]
Counts: TypeAlias = Annotated[Any, sequence(whole(0), "a list of whole numbers of at least 0")]
AxisOrTensor: TypeAlias = Annotated[Any, _or_axes(AXIS, 0)]
AxesOrTensor: TypeAlias = Annotated[Any, optional(_or_axes(AXES, 1))]  # a tuple of ints, a tensor, or None
AxisList: TypeAlias = Annotated[Any, _or_axes(AXES, 1)]
CountOrTensor: TypeAlias = Annotated[Any, or_tensor(whole(0))]
PositiveCountOrTensor: TypeAlias = Annotated[Any, or_tensor(whole(1))]
Rate: TypeAlias = Annotated[Any, or_tensor(number())]


def numbers_of(*values: Any) -> list[Any]:
    """Scalars of a `...OrTensor` kind: whole numbers where they are known, else the tensors.

    Raises InvalidArgumentError for tensors of other dtypes than of integers.
    """
    found = []
    for value in values:
        tensor = as_tensor(value) if is_tensor(value) else None
        if tensor is not None and not tensor.dtype.is_integer:
            raise InvalidArgumentError(
                f"{tensor.name} is {tensor.spec}, expected a whole number; use tb.cast"
            )
        known = value if tensor is None else tensor.spec.value
        found.append(tensor if known is None else int(known))
    return found
