"""Conversions of dtype beside `cast`: of the bits as they are, and with limits instead of wrapping around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, KernelCall, Tensor, as_tensor, name_scope
from tensorbow.kinds import AsDType, Name, checked
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import maximum, minimum
from tensorbow.ops.selection import cast
from tensorbow.specs import NUMBERS, NUMERIC, DType, TensorSpec

__all__ = ["bitcast", "saturate_cast"]


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (x,), dtype = inputs, attrs["type"]
    require_dtype("Bitcast", x, NUMBERS)
    require_dtype("Bitcast", TensorSpec((), dtype), NUMBERS, "type")
    if x.dtype.size == dtype.size:
        return TensorSpec(x.shape, dtype)
    if x.dtype.size > dtype.size:
        return TensorSpec((*x.dims, x.dtype.size // dtype.size), dtype)
    parts = dtype.size // x.dtype.size
    if x.rank == 0 or x.dims[-1] not in (None, parts):
        raise InvalidArgumentError(
            f"Bitcast: the input is {x}, expected a last axis of {parts} elements for one {dtype.name}; "
            "use tb.reshape"
        )
    return TensorSpec(x.dims[:-1], dtype)


def _kernel(call: KernelCall) -> None:
    """Copies the bytes, in the machine's order."""
    (x,), (out,) = call.inputs, call.outputs
    if x.dtype.itemsize == out.dtype.itemsize:
        np.copyto(out.view(x.dtype), x)
    elif x.dtype.itemsize > out.dtype.itemsize:
        np.copyto(out.view(x.dtype)[..., 0], x)
    else:
        np.copyto(out[..., None].view(x.dtype), x)


Bitcast = define_op(
    "Bitcast",
    spec=_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=_kernel,
    inputs=("input",),
    attrs={"type": REQUIRED},
    unknown_dtypes=lambda inputs, attrs: (attrs["type"],),
    why_cpu="NumPy copies the bits",
)


@checked
def bitcast(input: Any, type: AsDType, name: Name = None) -> Tensor:
    """The same bits as another dtype of numbers, on a CPU.

    A smaller dtype adds a last axis, of the parts of an element, lowest first on little-endian machines; a
    larger one takes the last axis away. Raises InvalidArgumentError for a last axis of another extent.
    """
    return Bitcast.tensor(input, type=type, name=name)


@checked
def saturate_cast(value: Any, dtype: AsDType, name: Name = None) -> Tensor:
    """`value` in another dtype, limited to its range first: 300 becomes 255 as uint8; see `cast`."""
    x = as_tensor(value)
    require_dtype("saturate_cast", x.spec, NUMERIC, "value")
    with x.graph.as_default(), name_scope(name or "saturate_cast"):
        low, high = _limits(x.dtype, dtype)
        x = x if low is None else maximum(x, constant(low, x.dtype))
        x = x if high is None else minimum(x, constant(high, x.dtype))
        return cast(x, dtype)


def _limits(source: DType, target: DType) -> tuple[Any, Any]:
    """Limits in the source's dtype that the target holds, or None where all numbers fit."""
    if target.is_floating or not (target.is_integer or target.name == "bool"):
        fits = not source.is_floating or target.max >= source.max
        return (None, None) if fits else (-target.max, target.max)
    kind = source.as_numpy_dtype.type
    low: Any = None if source.min >= target.min else target.min
    high: Any = None if source.max <= target.max else target.max
    if high is not None and source.is_floating and int(kind(high)) > target.max:
        high = float(np.nextafter(kind(high), kind(0)))  # rounding to the source's dtype went beyond
    return low, high
