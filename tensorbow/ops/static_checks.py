"""Checks of ranks and dtypes while a graph is built, and of whether vectors are in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, as_tensor, name_scope
from tensorbow.kinds import AsDType, Count, Items, Name, checked, is_tensor, refuse, sequence, whole
from tensorbow.ops.arrays import reshape
from tensorbow.ops.control import identity, no_op
from tensorbow.ops.elementwise import less, less_equal
from tensorbow.ops.reductions import reduce_all
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import DType, bool_, float32

__all__ = [
    "assert_integer",
    "assert_proper_iterable",
    "assert_rank",
    "assert_rank_at_least",
    "assert_rank_in",
    "assert_same_float_dtype",
    "assert_scalar",
    "assert_type",
    "is_non_decreasing",
    "is_numeric_tensor",
    "is_strictly_increasing",
]

Ranks: TypeAlias = Annotated[Any, sequence(whole(0), "a list of ranks")]


def _static(name: str, holds: bool, expected: str, x: Tensor, message: str | None) -> Operation:
    if not holds:
        text = f"{message}: " if message else ""
        raise InvalidArgumentError(f"{name}: {text}expected {expected}, got {x.spec} ({x.name})")
    with x.graph.as_default():
        return no_op(name=f"{name}_static")


def _rank_of(name: str, x: Tensor, message: str | None) -> int:
    rank = x.shape.ndims
    if rank is None:
        text = f"{message}: " if message else ""
        raise InvalidArgumentError(f"{name}: {text}the rank of {x.name} is unknown; give it a static shape")
    return rank


@checked
def assert_rank(x: Any, rank: Count, message: Name = None, name: Name = None) -> Operation:
    """Checks the static rank of a tensor; returns an operation that does nothing.

    Raises InvalidArgumentError if it differs or is unknown.
    """
    tensor = as_tensor(x)
    found = _rank_of("assert_rank", tensor, message)
    return _static("assert_rank", found == rank, f"rank {rank}", tensor, message)


@checked
def assert_rank_at_least(x: Any, rank: Count, message: Name = None, name: Name = None) -> Operation:
    """Checks that the static rank of a tensor is at least `rank`: see `assert_rank`."""
    tensor = as_tensor(x)
    found = _rank_of("assert_rank_at_least", tensor, message)
    return _static("assert_rank_at_least", found >= rank, f"rank {rank} or more", tensor, message)


@checked
def assert_rank_in(x: Any, ranks: Ranks, message: Name = None, name: Name = None) -> Operation:
    """Checks that the static rank of a tensor is one of a list: see `assert_rank`."""
    tensor = as_tensor(x)
    found = _rank_of("assert_rank_in", tensor, message)
    expected = f"a rank of {', '.join(map(str, ranks))}"
    return _static("assert_rank_in", found in ranks, expected, tensor, message)


@checked
def assert_type(tensor: Any, tf_type: AsDType, message: Name = None, name: Name = None) -> Operation:
    """Checks the dtype of a tensor: see `assert_rank`."""
    x = as_tensor(tensor)
    return _static("assert_type", x.dtype == tf_type, f"dtype {tf_type.name}", x, message)


@checked
def assert_integer(x: Any, message: Name = None, name: Name = None) -> Operation:
    """Checks that the dtype of a tensor is of integers: see `assert_rank`."""
    tensor = as_tensor(x)
    return _static("assert_integer", tensor.dtype.is_integer, "a dtype of integers", tensor, message)


@checked
def assert_scalar(tensor: Any, name: Name = None) -> Tensor:
    """`tensor`, whose static rank must be 0. Raises InvalidArgumentError if it is another or unknown."""
    x = as_tensor(tensor)
    _static("assert_scalar", _rank_of("assert_scalar", x, None) == 0, "a scalar", x, None)
    return identity(x, name=name)


@checked
def assert_same_float_dtype(tensors: Items | None = None, dtype: AsDType | None = None) -> DType:
    """The floating dtype that all tensors have, float32 for none of them.

    tensors: a list of them, or None. dtype: the expected one, if it is given. Raises InvalidArgumentError for
    another dtype, and for one that is not floating.
    """
    given = [as_tensor(each) for each in tensors or []]
    expected = dtype if dtype is not None else given[0].dtype if given else float32
    for tensor in given:
        if tensor.dtype != expected:
            raise InvalidArgumentError(
                f"assert_same_float_dtype: expected {expected.name}, got {tensor.spec} ({tensor.name})"
            )
    if not expected.is_floating:
        raise InvalidArgumentError(
            f"assert_same_float_dtype: expected a floating dtype, got {expected.name}; use tb.cast"
        )
    return expected


@checked
def assert_proper_iterable(values: Any) -> None:
    """Raises InvalidArgumentError for a tensor, an array, a text, and what cannot be iterated over."""
    if is_tensor(values) or isinstance(values, (str, bytes, np.ndarray)) or not isinstance(values, Iterable):
        raise refuse("assert_proper_iterable", "values", "a list or another iterable of values", values)


@checked
def is_numeric_tensor(tensor: Any) -> bool:
    """True for a tensor or variable of numbers, also complex ones; False for anything else."""
    return is_tensor(tensor) and tensor.dtype != bool_ and not tensor.dtype.is_string


# Order ------------------------------------------------------------------------------------------------


@checked
def is_non_decreasing(x: Any, name: Name = None) -> Tensor:
    """True if no element of `x`, in row-major order, is less than the one before: a scalar bool."""
    return _in_order(less_equal, x, name or "is_non_decreasing")


@checked
def is_strictly_increasing(x: Any, name: Name = None) -> Tensor:
    """True if each element of `x`, in row-major order, is greater than the one before: a scalar bool."""
    return _in_order(less, x, name or "is_strictly_increasing")


def _in_order(compare: Callable[[Tensor, Tensor], Tensor], x: Any, name: str) -> Tensor:
    tensor = as_tensor(x)
    with tensor.graph.as_default(), name_scope(name):
        flat = reshape(tensor, [-1])
        before, after = strided_slice(flat, slice(None, -1)), strided_slice(flat, slice(1, None))
        return reduce_all(compare(before, after))
