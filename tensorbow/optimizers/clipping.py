"""Clipping of gradients by their norms, together (Pascanu et al., 2012) or each by itself."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import AxisNumbers, Items, Name, checked, number, or_tensor, refuse
from tensorbow.ops.elementwise import add, divide, maximum, multiply, sqrt, square, subtract
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.ops.nn import l2_loss
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast
from tensorbow.ops.sparse_updates import sum_equal_rows

Gradient: TypeAlias = Tensor | IndexedSlices
Norm: TypeAlias = Annotated[Any, or_tensor(number(0, above=True))]


@checked
def global_norm(t_list: Items, name: Name = None) -> Tensor:
    """The 2-norm of all tensors as one vector: a scalar. None entries are ignored.

    Raises InvalidArgumentError if all are None.
    """
    tensors = [_entries(t) for t in t_list if t is not None]
    if not tensors:
        raise InvalidArgumentError("global_norm: no tensor given")
    with name_scope(name, "global_norm"):
        total = l2_loss(tensors[0])
        for tensor in tensors[1:]:
            total = add(total, _as(l2_loss(tensor), total))
        return sqrt(multiply(total, 2.0))


@checked
def clip_by_global_norm(
    t_list: Items, clip_norm: Norm, use_norm: Norm | None = None, name: Name = None
) -> tuple[list[Gradient | None], Tensor]:
    """Scales all tensors by clip_norm / max(global norm, clip_norm); returns them and the norm.

    None entries stay None. A NaN or infinite norm makes the results NaN, as in TensorFlow.
    """
    norm = global_norm(t_list) if use_norm is None else convert_to_tensor(use_norm)
    with name_scope(name, "clip_by_global_norm"):
        limit = convert_to_tensor(clip_norm, norm.dtype)
        scale = divide(limit, maximum(norm, limit))
        scale = add(scale, subtract(norm, norm))  # adds 0, or NaN if the norm is infinite or NaN
        return [None if t is None else _scaled(t, scale) for t in t_list], norm


@checked
def clip_by_norm(t: Any, clip_norm: Norm, axes: AxisNumbers = None, name: Name = None) -> Tensor:
    """`t` times clip_norm / max(norm, clip_norm), with one norm of t, or with norms over `axes` (floating).

    A tensor of zeros stays as it is, with a gradient.
    """
    tensor = convert_to_tensor(t)
    if not tensor.dtype.is_floating:
        raise refuse("clip_by_norm", "t", "a tensor of floats", tensor, "use tb.cast")
    with tensor.graph.as_default(), name_scope(name, "clip_by_norm"):
        limit = convert_to_tensor(clip_norm, tensor.dtype)
        squares = reduce_sum(square(tensor), axes, keepdims=True)
        return divide(multiply(tensor, limit), sqrt(maximum(square(limit), squares)))


def _entries(gradient: Gradient) -> Tensor:
    """Entries of a gradient for the norm; rows with equal indices are summed first."""
    if isinstance(gradient, IndexedSlices):
        return sum_equal_rows(gradient).values
    tensor = convert_to_tensor(gradient)
    if not tensor.dtype.is_floating:
        raise InvalidArgumentError(
            f"global_norm: expected t_list to be tensors of floats, got {tensor.name} of "
            f"{tensor.dtype.name}; use tb.cast"
        )
    return tensor


def _scaled(gradient: Gradient, scale: Tensor) -> Gradient:
    if isinstance(gradient, IndexedSlices):
        return gradient.with_values(multiply(gradient.values, _as(scale, gradient.values)))
    return multiply(gradient, _as(scale, gradient))


def _as(scalar: Tensor, like: Tensor) -> Tensor:
    return scalar if scalar.dtype == like.dtype else cast(scalar, like.dtype)
