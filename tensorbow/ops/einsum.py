"""Einstein's summation over tensors, made of transposes, reshapes and one matrix product per pair.

For a pair, an axis is one of four: *batch* (in both and kept), *free* of the left or of the right (in one and
kept), *contracted* (in both and summed). Axes in one tensor only and not kept are summed first. The left then
becomes [batch..., free, contracted], the right [batch..., contracted, free], and their (batched) product has
the rest. Without contracted axes it is an element-wise product.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensorbow.errors import InvalidArgumentError, UnimplementedError
from tensorbow.graph import Tensor, convert_to_tensor, graph_of, name_scope
from tensorbow.ops.arrays import concat, reshape, transpose
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.elementwise import multiply
from tensorbow.ops.matmul import matmul
from tensorbow.ops.reductions import reduce_prod, reduce_sum
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import DType

__all__ = ["einsum"]


def einsum(equation: str, *inputs: Any, name: str | None = None) -> Tensor:
    """The sum of products that `equation` speaks of, as in "bij,bjk->bik".

    Each letter names an axis; letters that the result lacks are summed over. Without "->", the result has
    the letters that occur once, in alphabetical order. Several tensors are joined from left to right.
    Products need float32, float64, int32 or int64.

    Raises InvalidArgumentError for an equation that does not fit the tensors, UnimplementedError for "..."
    and for a letter that one tensor has twice (diagonals).
    """
    terms, kept = _parse(equation, len(inputs))
    typed = [v.dtype for v in inputs if isinstance(getattr(v, "dtype", None), DType)]
    with graph_of(inputs).as_default(), name_scope(name or "einsum"):
        tensors = [convert_to_tensor(v, typed[0] if typed else None) for v in inputs]
        operands = [_Operand(t, labels) for t, labels in zip(tensors, terms, strict=True)]
        _check_extents(equation, operands)
        total = operands[0]
        for place, operand in enumerate(operands[1:], start=1):
            later = "".join([kept, *terms[place + 1 :]])
            left, right = total.sum_all_but(operand.labels + later), operand.sum_all_but(total.labels + later)
            total = _product(left, right, later)
        return total.sum_all_but(kept).arrange(kept).tensor


def _parse(equation: str, count: int) -> tuple[list[str], str]:
    """The labels of each tensor and of the result."""
    compact = equation.replace(" ", "")
    if "." in compact:
        raise UnimplementedError(f"einsum {equation!r}: '...' is not supported; name every axis")
    match = re.fullmatch(r"([a-zA-Z,]*)(?:->([a-zA-Z]*))?", compact)
    if match is None:
        raise InvalidArgumentError(f"einsum {equation!r}: expected letters and commas, as in 'ij,jk->ik'")
    terms = match.group(1).split(",")
    if len(terms) != count or not count:
        raise InvalidArgumentError(f"einsum {equation!r} speaks of {len(terms)} tensors, got {count}")
    for term in terms:
        if len(set(term)) != len(term):
            raise UnimplementedError(
                f"einsum {equation!r}: {term!r} has a letter twice, diagonals are not supported; "
                "multiply with an identity matrix"
            )
    counts = Counter("".join(terms))
    kept = match.group(2)
    if kept is None:
        kept = "".join(sorted(label for label, number in counts.items() if number == 1))
    if len(set(kept)) != len(kept) or not set(kept) <= set(counts):
        raise InvalidArgumentError(
            f"einsum {equation!r}: the result's letters must be different and stand on the left"
        )
    return terms, kept


@dataclass(frozen=True)
class _Operand:
    """A tensor and the label of each of its axes."""

    tensor: Tensor
    labels: str

    @property
    def dims(self) -> dict[str, int | None]:
        """The extent of each label, None where it is unknown."""
        dims = self.tensor.spec.shape
        return dict(zip(self.labels, (None,) * len(self.labels) if dims is None else dims, strict=True))

    def sum_all_but(self, labels: str) -> _Operand:
        """The sum over the axes that are not among `labels`."""
        axes = [axis for axis, label in enumerate(self.labels) if label not in labels]
        if not axes:
            return self
        rest = "".join(label for label in self.labels if label in labels)
        return _Operand(reduce_sum(self.tensor, axes), rest)

    def arrange(self, labels: str) -> _Operand:
        """The same with its axes in the order of `labels`."""
        if labels == self.labels:
            return self
        return _Operand(transpose(self.tensor, [self.labels.index(label) for label in labels]), labels)

    def extents(self, labels: str) -> Tensor:
        """The extents of some neighbouring axes, as a vector."""
        start = self.labels.index(labels[0]) if labels else 0
        return strided_slice(shape(self.tensor), slice(start, start + len(labels)))


def _check_extents(equation: str, operands: Sequence[_Operand]) -> None:
    known: dict[str, int] = {}
    for operand in operands:
        dims = operand.tensor.spec.shape
        if dims is not None and len(dims) != len(operand.labels):
            raise InvalidArgumentError(
                f"einsum {equation!r}: {operand.tensor.name} is {operand.tensor.spec}, but "
                f"{operand.labels!r} has {len(operand.labels)} letters"
            )
        for label, extent in operand.dims.items():
            if extent is not None and known.setdefault(label, extent) != extent:
                raise InvalidArgumentError(
                    f"einsum {equation!r}: {label!r} is an axis of {known[label]} elements and of {extent}"
                )


def _product(left: _Operand, right: _Operand, later: str) -> _Operand:
    """The product of two tensors, of whose common axes those that are not in `later` are summed."""
    common = [label for label in left.labels if label in right.labels]
    batch = "".join(label for label in common if label in later)
    contracted = "".join(label for label in common if label not in later)
    free_left = "".join(label for label in left.labels if label not in common)
    free_right = "".join(label for label in right.labels if label not in common)
    result = batch + free_left + free_right
    if not contracted:
        spread = _reshaped(left.arrange(batch + free_left), [*batch, *free_left, *([""] * len(free_right))])
        other = _reshaped(right.arrange(batch + free_right), [*batch, *([""] * len(free_left)), *free_right])
        return _Operand(multiply(spread, other), result)
    turned = left.labels == batch + contracted + free_left
    x = left if turned else left.arrange(batch + free_left + contracted)
    flipped = right.labels == batch + free_right + contracted
    y = right if flipped else right.arrange(batch + contracted + free_right)
    product = matmul(
        _reshaped(x, [*batch, contracted, free_left] if turned else [*batch, free_left, contracted]),
        _reshaped(y, [*batch, free_right, contracted] if flipped else [*batch, contracted, free_right]),
        transpose_a=turned,
        transpose_b=flipped,
    )
    return _Operand(_split(product, x, y, batch, free_left, free_right), result)


def _reshaped(operand: _Operand, groups: Sequence[str]) -> Tensor:
    """The tensor with one axis for each group of neighbouring axes, of extent 1 for an empty one."""
    if all(len(group) == 1 for group in groups):
        return operand.tensor
    known = [_known(operand.dims, group) for group in groups]
    return _reshape_to(operand.tensor, known, [reshape(reduce_prod(operand.extents(g)), [1]) for g in groups])


def _split(
    product: Tensor, left: _Operand, right: _Operand, batch: str, free_left: str, free_right: str
) -> Tensor:
    """The product [batch..., free left, free right] with an axis for each label again."""
    if len(free_left) == 1 and len(free_right) == 1:
        return product
    dims = {**left.dims, **right.dims}
    known = [dims[label] for label in batch + free_left + free_right]
    parts = [left.extents(batch), left.extents(free_left), right.extents(free_right)]
    return _reshape_to(product, known, parts)


def _known(dims: dict[str, int | None], group: str) -> int | None:
    total = 1
    for label in group:
        extent = dims[label]
        if extent is None:
            return None
        total *= extent
    return total


def _reshape_to(tensor: Tensor, known: Sequence[int | None], extents: Sequence[Tensor]) -> Tensor:
    """Reshapes to the known extents, where one is unknown and another 0 or unknown to `extents` joined."""
    if None not in known or (known.count(None) == 1 and 0 not in known):
        return reshape(tensor, [-1 if extent is None else extent for extent in known])
    result = reshape(tensor, concat(extents, 0))
    result.set_shape(known)
    return result
