"""Constants, and the conversion of Python values to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.array_likes import ArrayLike, as_array, holds_strings, string_array
from tensorbow.call_errors import UnfitError
from tensorbow.devices.host_memory import available_memory_nbytes, require_memory
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    Attrs,
    Tensor,
    get_default_graph,
    register_tensor_conversion,
)
from tensorbow.kinds import AsDType, Name, checked
from tensorbow.ops.argument_kinds import StaticShape
from tensorbow.ops.control import identity
from tensorbow.ops.definition import define_op
from tensorbow.specs import (
    DTYPES,
    Array,
    Dims,
    DType,
    TensorSpec,
    as_dtype,
    bool_,
    complex64,
    float32,
    int32,
    int64,
    render_dims,
)

__all__ = ["constant"]

_SMALL_NBYTES = 1 << 26  # arrays up to this size are made without checking the free memory


def _const_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    value: Array = attrs["value"]
    return TensorSpec(value.shape, as_dtype(value.dtype), value)


Const = define_op(
    "Const", spec=_const_spec, gradient=NOT_DIFFERENTIABLE, attrs={"value": REQUIRED}, strings=True
)


@checked
def constant(
    value: Any, dtype: AsDType | None = None, shape: StaticShape = None, name: Name = "Const"
) -> Tensor:
    """A tensor with a fixed value.

    Without `dtype`, Python floats become float32, ints int32 (int64 if they do not fit); arrays keep
    their dtype: NumPy's, and those of any library with `__array__`, DLPack or a buffer. Texts, in UTF-8, and
    bytes become tensors of tb.string. `shape` fills or reshapes, as in TensorFlow. The value is copied.

    Raises InvalidArgumentError if the value does not fit the dtype or the shape.
    """
    graph = get_default_graph()
    if graph.context is None or not graph.current_controls:
        return make_constant(value, dtype, shape, name)
    # A constant is in no branch or loop, where its control inputs are: what waits for them is its copy.
    return identity(make_constant(value, dtype, shape), name=name)


def make_constant(
    value: Any, dtype: DType | None = None, shape: Dims | None = None, name: str | None = None
) -> Tensor:
    """`constant` for the library's own calls."""
    array = checked_array(value, dtype)
    if shape is not None:
        if None in shape:
            raise InvalidArgumentError(f"constant: shape {render_dims(shape)} must be fully known")
        extents = tuple(d for d in shape if d is not None)
        if array.size not in (1, math.prod(extents)):
            raise InvalidArgumentError(
                f"constant: {array.size} values do not fill shape {list(extents)}; "
                "give one, or as many as it holds"
            )
        array = filled(extents, array.reshape(())) if array.size == 1 else array.reshape(extents)
    _require_room(array.shape, array.itemsize)
    array = np.array(array, order="C")
    array.flags.writeable = False
    return Const.tensor(value=array, name=name)


def filled(shape: Sequence[int], value: Array) -> Array:
    """An array of one repeated value. Raises ResourceExhaustedError if it does not fit in memory."""
    _require_room(shape, value.itemsize)
    return np.full(shape, value)


def _require_room(shape: Sequence[int], itemsize: int) -> None:
    """Raises ResourceExhaustedError for an array larger than the free memory, before it is allocated."""
    nbytes = math.prod(shape) * itemsize
    available = available_memory_nbytes() if nbytes > _SMALL_NBYTES else None
    if available is not None and nbytes > available:
        raise ResourceExhaustedError(
            f"constant: {nbytes:,} bytes for shape {list(shape)} do not fit into memory; "
            "use smaller extents, or tb.fill, which makes them in a step"
        )


def checked_array(value: Any, dtype: DType | None) -> Array:
    """`to_array` of a caller's value. Raises UnfitError, from which the checked call names the argument."""
    try:
        return to_array(value, dtype)
    except InvalidArgumentError as error:
        raise UnfitError(str(error), value) from None


def require_scalar(op: str, argument: str, value: float, dtype: DType) -> None:
    """Raises InvalidArgumentError unless the dtype can represent a number; bool takes 0 and 1."""
    if dtype == bool_ and value in (0, 1):
        return
    try:
        to_array(value, dtype)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{op}: {argument} {value}: {error}") from None


def to_array(value: Any, dtype: DType | None) -> Array:
    """A NumPy array, of a supported dtype, from an array of any library, a number or a nested list.

    Strings become arrays of objects, see `string_array`. Raises InvalidArgumentError if it is ragged, of an
    unsupported dtype, or would lose information (a float to an integer dtype, an integer out of range, a
    finite float64 beyond float32).
    """
    if type(value) is np.ndarray and dtype is not None and value.dtype == dtype.as_numpy_dtype:
        return string_array(value) if dtype.is_string else value
    if holds_strings(value) or (dtype is not None and dtype.is_string):
        if dtype is not None and not dtype.is_string:
            raise InvalidArgumentError(
                f"a value of strings cannot become {dtype.name}; give numbers, or use tb.string_to_number"
            )
        return string_array(value)
    array = as_array(value)
    if array.dtype.kind in "SUTO" and isinstance(value, ArrayLike):
        return to_array(array, dtype)
    if array.dtype.kind not in "biufc" and array.dtype.name not in DTYPES:
        raise InvalidArgumentError(
            f"cannot make a tensor of {type(value).__name__} with elements of type {array.dtype}: "
            "expected numbers, booleans or strings"
        )
    is_python = not isinstance(value, ArrayLike)
    nbytes = array.size * (array.itemsize if dtype is None else dtype.size)
    if nbytes > _SMALL_NBYTES:
        require_memory(
            nbytes, f"a value of type {array.dtype}{render_dims(array.shape)}", "give fewer elements"
        )
    if dtype is None:
        if is_python and array.dtype.kind == "f":
            dtype = float32
        elif is_python and array.dtype.kind == "c":
            dtype = complex64
        elif is_python and array.dtype.kind in "iu":
            small = array.size == 0 or (array.min() >= -(2**31) and array.max() < 2**31)
            dtype = int32 if small else int64
        else:
            dtype = as_dtype(array.dtype)
    if array.size == 0 and is_python:
        return array.astype(dtype.as_numpy_dtype)
    if not _convertible(array, dtype):
        remedy = "give integers" if array.dtype.kind == "f" else "convert it, for example by astype"
        raise InvalidArgumentError(
            f"a value of type {array.dtype} cannot become {dtype.name} without loss; {remedy}"
        )
    try:
        with np.errstate(over="raise"):
            return array.astype(dtype.as_numpy_dtype, copy=False)
    except FloatingPointError:
        largest = float(np.abs(array[np.isfinite(array)]).max())
        raise InvalidArgumentError(
            f"the finite value {largest:g} overflows {dtype.name}, whose largest is "
            f"{dtype.real_dtype.max:g}; scale it, use float64, or give inf itself"
        ) from None


def _convertible(array: Array, dtype: DType) -> bool:
    kind = array.dtype.kind
    if dtype == bool_ or kind == "b":
        return dtype == bool_ and kind == "b"
    if dtype.is_complex:
        return True
    if kind not in "iu":
        return dtype.is_floating and kind != "c"
    low, high = dtype.limits
    return dtype.is_floating or array.size == 0 or (int(array.min()) >= low and int(array.max()) <= high)


def _convert(value: Any, dtype: DType | None, name: str | None) -> Tensor:
    return make_constant(value, dtype, name=name)


register_tensor_conversion((bool, int, float, complex, str, bytes, ArrayLike), _convert)
