"""Definition of ops that map strings element by element, as host functions of the dynamic mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from tensorbow.array_likes import text_of
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, HostCall, OpDef, Tensor, as_tensor
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, Dims, DType, TensorSpec, broadcast_dims, string

Map: TypeAlias = "Callable[[bytes], Any]"


def require_strings(op: str, spec: TensorSpec, what: str = "input") -> None:
    """Raises InvalidArgumentError for a spec of numbers."""
    if not spec.dtype.is_string:
        raise InvalidArgumentError(
            f"{op}: {what} is {spec}, expected strings; tb.as_string makes them of numbers"
        )


def as_strings(value: Any) -> Tensor:
    """A tensor of strings. Raises UnfitError for one of numbers."""
    return as_tensor(value, string)


def mapped(array: Array, function: Callable[[Any], Any], dtype: DType) -> Array:
    """The function's results for all elements, of the array's shape."""
    results: Array = np.empty(array.size, dtype.as_numpy_dtype)
    for index, element in enumerate(array.ravel().tolist()):
        results[index] = function(element)
    shaped: Array = results.reshape(array.shape)
    return shaped


def define_map(
    name: str,
    function: Callable[[Attrs], Map],
    *,
    result: DType | str = string,
    attrs: dict[str, Any] | None = None,
    doc: str = "",
) -> OpDef:
    """Defines an op with one input of strings and one output of its shape.

    function: of the attributes, gives the function of an element. result: the dtype, or the attribute that
    is the dtype.
    """

    def dtype_of(attrs: Attrs) -> DType:
        dtype: DType = attrs[result] if isinstance(result, str) else result
        return dtype

    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        require_strings(name, inputs[0])
        return TensorSpec(inputs[0].shape, dtype_of(attrs))

    def host(call: HostCall) -> Array:
        return mapped(call.inputs[0], function(call.attrs), dtype_of(call.attrs))

    return define_op(
        name,
        spec=spec,
        gradient=NOT_DIFFERENTIABLE,
        inputs=("input",),
        attrs=attrs or {},
        host=host,
        strings=True,
        doc=doc,
    )


def joint_dims(inputs: Sequence[TensorSpec]) -> Dims | None:
    """The broadcast shape; None if a rank is unknown."""
    known = [spec.shape for spec in inputs if spec.shape is not None]
    return reduce(broadcast_dims, known) if len(known) == len(inputs) else None


def scalar_of(op: str, what: str, array: Array) -> Any:
    """The element of an array that must be a scalar. Raises InvalidArgumentError."""
    if array.shape != ():
        raise InvalidArgumentError(f"{op}: {what} has shape {list(array.shape)}, expected a scalar")
    return array[()]


def shown_text(value: bytes) -> str:
    """An element for error messages, in at most about 60 characters."""
    return f"'{text_of(value[:60])}{'...' if len(value) > 60 else ''}'"
