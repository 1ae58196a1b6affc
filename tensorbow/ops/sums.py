"""Sums of lists of tensors of one shape."""

from __future__ import annotations

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, graph_of
from tensorbow.kinds import AsDType, Items, Name, checked
from tensorbow.ops.argument_kinds import StaticShape
from tensorbow.ops.control import identity
from tensorbow.ops.elementwise import add
from tensorbow.specs import compatible, render_dims

__all__ = ["accumulate_n", "add_n"]


@checked
def add_n(inputs: Items, name: Name = None) -> Tensor:
    """The sum of tensors of one shape, from the first to the last.

    Raises InvalidArgumentError for an empty list, and for shapes that differ (tensors do not broadcast here).
    """
    if not inputs:
        raise InvalidArgumentError("add_n: expected at least one tensor, got an empty list")
    with graph_of(inputs).as_default():
        total = as_tensor(inputs[0])
        terms = [as_tensor(term, total.dtype) for term in inputs[1:]]
    for i, term in enumerate(terms, start=2):
        if not compatible(total.spec.shape, term.spec.shape):
            raise InvalidArgumentError(
                f"add_n: term {i} is {term.spec}, those before it {total.spec}; expected one shape, "
                "or tb.add, which broadcasts"
            )
        total = add(total, term, name if i == len(inputs) else None)
    return total


@checked
def accumulate_n(
    inputs: Items, shape: StaticShape | None = None, tensor_dtype: AsDType | None = None, name: Name = None
) -> Tensor:
    """`add_n`: the compiler adds each term as soon as it is there, and frees it.

    shape, tensor_dtype: what all terms have to be, by default those of the first. Raises InvalidArgumentError
    for an empty list, and for terms of another shape or dtype.
    """
    if not inputs:
        raise InvalidArgumentError("accumulate_n: expected at least one tensor, got an empty list")
    with graph_of(inputs).as_default():
        terms = [as_tensor(term, tensor_dtype) for term in inputs]
    for number, term in enumerate(terms):
        if shape is not None and not compatible(term.spec.shape, shape):
            raise InvalidArgumentError(
                f"accumulate_n: term {number} is {term.spec}, expected shape {render_dims(shape)}"
            )
    total = add_n(terms, name=name)
    if shape is not None:
        total = identity(total) if total is terms[0] else total
        total.set_shape(shape)
    return total
