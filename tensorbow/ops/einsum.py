"""Einstein summation of tensors, by transposes, reshapes and one matrix product per pair.

The axes that "..." covers get labels that are no letters; a label that occurs twice in one tensor
becomes one axis, the diagonal. For a pair, each axis is one of: *batch* (in both and kept), *free* of
the left or the right (in one and kept), *contracted* (in both and summed). Axes in only one tensor that are
not kept are summed first. Then the left becomes [batch..., free, contracted], the right
[batch..., contracted, free], and a (batched) matrix product contracts them. Without contracted axes it is an
element-wise product. Only axes of "..." broadcast, as batch axes of the product.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from string import ascii_letters
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import Name, Text, checked, refuse
from tensorbow.ops.arrays import concat, reshape, squeeze, transpose
from tensorbow.ops.broadcasting import checked_axis, shape
from tensorbow.ops.diagonals import MatrixDiagPart
from tensorbow.ops.elementwise import multiply, pair
from tensorbow.ops.matmul import matmul
from tensorbow.ops.reductions import reduce_prod, reduce_sum
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import DType

__all__ = ["einsum", "tensordot"]

ELLIPSIS = "..."
MAXIMUM_AXES = 32  # that "..." stands for
BROADCAST = "".join(chr(0x2460 + axis) for axis in range(MAXIMUM_AXES))  # their labels, last axis first


@checked
def einsum(equation: Text, *inputs: Any, name: Name = None) -> Tensor:
    """The sum of products given by `equation`, as in "bij,bjk->bik"; the syntax of `numpy.einsum`.

    Each letter names an axis; letters missing in the result are summed over. A letter twice in one tensor
    selects the diagonal ("ii->i", "ii->"). "..." stands for all axes of a tensor that no letter names; those
    of several tensors are aligned at the end and broadcast ("...ij,jk->...ik"). Without "->", the result has
    the axes of "..." and then the letters that occur once, in alphabetical order. Several tensors are
    contracted from left to right. Products need float32, float64, int32 or int64.

    Raises InvalidArgumentError for an equation that does not fit the tensors, for a result without the "..."
    that tensors have, and for a tensor of unknown rank with "...".
    """
    typed = [v.dtype for v in inputs if isinstance(getattr(v, "dtype", None), DType)]
    with graph_of(inputs).as_default(), name_scope(name or "einsum"):
        tensors = [as_tensor(v, typed[0] if typed else None) for v in inputs]
        terms, kept = _parse(equation, tensors)
        operands = [_Operand(t, labels) for t, labels in zip(tensors, terms, strict=True)]
        extents = _extents(equation, operands)
        operands = [o.without_repeats().without_stretched(extents) for o in operands]
        total = operands[0]
        for index, operand in enumerate(operands[1:], start=1):
            later = "".join([kept, *(other.labels for other in operands[index + 1 :])])
            left, right = total.sum_all_but(operand.labels + later), operand.sum_all_but(total.labels + later)
            total = _product(left, right, later)
        return total.sum_all_but(kept).arrange(kept).tensor


@checked
def tensordot(a: Any, b: Any, axes: Any, name: Name = None) -> Tensor:
    """The sum of products of `a` and `b` over `axes`: a number of axes, the last of `a` and the first of `b`,
    or two lists of axes, of `a` and of `b`. The ranks must be known.

    Returns the other axes of `a`, then those of `b`. Raises InvalidArgumentError for axes that do not fit.
    """
    left, right = pair(a, b)
    known = getattr(axes, "known_value", None)
    axes = axes if known is None else known.tolist()
    rank, other_rank = left.shape.ndims, right.shape.ndims
    if rank is None or other_rank is None or rank + other_rank > len(ascii_letters):
        raise InvalidArgumentError(f"tensordot: expected known ranks, got {left.spec} and {right.spec}")
    first = ascii_letters[:rank]
    second = [*ascii_letters[rank : rank + other_rank]]
    most = min(rank, other_rank)
    try:
        if isinstance(axes, (int, np.integer)) and not isinstance(axes, bool):
            if not 0 <= axes <= most:
                raise ValueError
            pairs = [(rank - axes + number, number) for number in range(axes)]
        else:
            ours, theirs = ([*np.atleast_1d(np.asarray(each))] for each in axes)
            pairs = [(index(one), index(other)) for one, other in zip(ours, theirs, strict=True)]
    except (TypeError, ValueError):
        expected = f"0 to {most} axes, or a list of axes for each tensor"
        raise refuse("tensordot", "axes", expected, axes) from None
    for one, other in pairs:
        label = first[checked_axis("tensordot", one, rank)]
        second[checked_axis("tensordot", other, other_rank)] = label
    kept = "".join(label for label in (*first, *second) if (*first, *second).count(label) == 1)
    result: Tensor = einsum(f"{first},{''.join(second)}->{kept}", left, right, name=name)
    return result


def _parse(equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """Parses an equation into the labels of each tensor's axes and of the result's."""
    compact = equation.replace(" ", "")
    term = r"[a-zA-Z]*(?:\.\.\.)?[a-zA-Z]*"
    match = re.fullmatch(rf"({term}(?:,{term})*)(?:->({term}))?", compact)
    if match is None:
        raise InvalidArgumentError(
            f"einsum: equation {equation[:80]!r}: expected letters and commas, as in 'ij,jk->ik', and '...' "
            "once in a term"
        )
    written = match.group(1).split(",")
    if len(written) != len(tensors) or not tensors:
        raise InvalidArgumentError(
            f"einsum {equation!r} describes {len(written)} tensors, got {len(tensors)}"
        )
    added = [_broadcast_axes(equation, t, tensor) for t, tensor in zip(written, tensors, strict=True)]
    broadcast = BROADCAST[: max(added)][::-1]
    terms = [t.replace(ELLIPSIS, BROADCAST[:count][::-1]) for t, count in zip(written, added, strict=True)]
    counts = Counter("".join(terms))
    result = match.group(2)
    if result is None:
        once = sorted(label for label, number in counts.items() if number == 1 and label not in BROADCAST)
        return terms, broadcast + "".join(once)
    if broadcast and ELLIPSIS not in result:
        raise InvalidArgumentError(
            f"einsum {equation!r}: '...' stands for {len(broadcast)} axes, which the result lacks; "
            "add '...' to it, and sum over them by tb.reduce_sum"
        )
    kept = result.replace(ELLIPSIS, broadcast)
    if len(set(kept)) != len(kept) or not set(kept) <= set(counts):
        raise InvalidArgumentError(
            f"einsum {equation!r}: the result's letters must be different and stand on the left"
        )
    return terms, kept


def _broadcast_axes(equation: str, term: str, tensor: Tensor) -> int:
    """Number of axes of a tensor that "..." stands for."""
    if ELLIPSIS not in term:
        return 0
    rank, letters = tensor.shape.ndims, len(term) - len(ELLIPSIS)
    if rank is None:
        raise InvalidArgumentError(
            f"einsum {equation!r}: the rank of {tensor.name} is unknown, so that {term!r} may stand for any "
            "number of axes; use set_shape"
        )
    if not letters <= rank <= letters + MAXIMUM_AXES:
        raise InvalidArgumentError(
            f"einsum {equation!r}: {tensor.name} is {tensor.spec}, but {term!r} has {letters} letters beside "
            f"'...', which stands for at most {MAXIMUM_AXES} axes"
        )
    return rank - letters


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

    def without_repeats(self) -> _Operand:
        """The operand with each repeated label replaced by one axis, the diagonal."""
        operand = self
        for label, number in Counter(self.labels).items():
            for _ in range(number - 1):
                first = operand.labels.index(label)
                twins = [first, operand.labels.index(label, first + 1)]
                rest = [axis for axis in range(len(operand.labels)) if axis not in twins]
                diagonal = MatrixDiagPart(transpose(operand.tensor, rest + twins))
                operand = _Operand(diagonal, "".join(operand.labels[axis] for axis in rest) + label)
        return operand

    def without_stretched(self, extents: dict[str, int | None]) -> _Operand:
        """The operand without the axes of extent 1 that broadcast to another tensor's."""
        axes = [
            axis for axis, label in enumerate(self.labels) if self.dims[label] == 1 and extents[label] != 1
        ]
        if not axes:
            return self
        rest = "".join(label for axis, label in enumerate(self.labels) if axis not in axes)
        return _Operand(squeeze(self.tensor, axes), rest)

    def sum_all_but(self, labels: str) -> _Operand:
        """The operand summed over the axes that are not among `labels`."""
        axes = [axis for axis, label in enumerate(self.labels) if label not in labels]
        if not axes:
            return self
        rest = "".join(label for label in self.labels if label in labels)
        return _Operand(reduce_sum(self.tensor, axes), rest)

    def arrange(self, labels: str) -> _Operand:
        """The operand with its axes in the order of `labels`."""
        if labels == self.labels:
            return self
        return _Operand(transpose(self.tensor, [self.labels.index(label) for label in labels]), labels)

    def extents(self, labels: str) -> Tensor:
        """Extents of neighbouring axes, as a vector."""
        start = self.labels.index(labels[0]) if labels else 0
        return strided_slice(shape(self.tensor), slice(start, start + len(labels)))


def _extents(equation: str, operands: Sequence[_Operand]) -> dict[str, int | None]:
    """The extent of each label, after broadcasting; None if it is unknown.

    Raises InvalidArgumentError if tensors disagree.
    """
    known: dict[str, int | None] = {}
    for operand in operands:
        dims = operand.tensor.spec.shape
        if dims is not None and len(dims) != len(operand.labels):
            raise InvalidArgumentError(
                f"einsum {equation!r}: {operand.tensor.name} is {operand.tensor.spec}, but "
                f"{operand.labels!r} has {len(operand.labels)} letters"
            )
        extents = (None,) * len(operand.labels) if dims is None else dims
        for label, extent in zip(operand.labels, extents, strict=True):
            broadcasts = label in BROADCAST
            before = known.get(label, 1 if broadcasts else extent)
            if (
                None not in (extent, before)
                and extent != before
                and not (broadcasts and 1 in (extent, before))
            ):
                axis = f"axis {-1 - BROADCAST.index(label)} of '...'" if broadcasts else repr(label)
                raise InvalidArgumentError(
                    f"einsum {equation!r}: {axis} is an axis of {before} elements and of {extent}"
                )
            if broadcasts:
                known[label] = _joined(before, extent)
            else:
                known[label] = extent if before is None else before
    return known


def _joined(a: int | None, b: int | None) -> int | None:
    """The broadcast of two extents; unknown extents may be 1 or the other extent."""
    if a == 1:
        return b
    return a if b in (1, None) else b


def _product(left: _Operand, right: _Operand, later: str) -> _Operand:
    """The product of two tensors; sums over common axes that are not in `later`."""
    common = [label for label in left.labels if label in right.labels]
    batch = "".join(label for label in common if label in later)
    contracted = "".join(label for label in common if label not in later)
    free_left = "".join(label for label in left.labels if label not in common)
    free_right = "".join(label for label in right.labels if label not in common)
    result = batch + free_left + free_right
    if not contracted:
        expanded = _reshaped(left.arrange(batch + free_left), [*batch, *free_left, *([""] * len(free_right))])
        other = _reshaped(right.arrange(batch + free_right), [*batch, *([""] * len(free_left)), *free_right])
        return _Operand(multiply(expanded, other), result)
    turned = left.labels == batch + contracted + free_left
    x = left if turned else left.arrange(batch + free_left + contracted)
    flipped = right.labels == batch + free_right + contracted
    y = right if flipped else right.arrange(batch + contracted + free_right)
    product = matmul(  # batch axes broadcast
        _reshaped(x, [*batch, contracted, free_left] if turned else [*batch, free_left, contracted]),
        _reshaped(y, [*batch, free_right, contracted] if flipped else [*batch, contracted, free_right]),
        transpose_a=turned,
        transpose_b=flipped,
    )
    return _Operand(_split(product, x, y, batch, free_left, free_right), result)


def _reshaped(operand: _Operand, groups: Sequence[str]) -> Tensor:
    """The tensor with one axis per group of neighbouring axes; an empty group gives an axis of extent 1."""
    if all(len(group) == 1 for group in groups):
        return operand.tensor
    known = [_known(operand.dims, group) for group in groups]
    return _reshape_to(operand.tensor, known, [reshape(reduce_prod(operand.extents(g)), [1]) for g in groups])


def _split(
    product: Tensor, left: _Operand, right: _Operand, batch: str, free_left: str, free_right: str
) -> Tensor:
    """Reshapes the product [batch..., free left, free right] to one axis per label."""
    if len(free_left) == 1 and len(free_right) == 1:
        return product
    free = {**left.dims, **right.dims}
    lead = (None,) * len(batch) if product.spec.shape is None else product.spec.shape[: len(batch)]
    known = [*lead, *(free[label] for label in free_left + free_right)]
    batches = strided_slice(shape(product), slice(0, len(batch)))
    return _reshape_to(product, known, [batches, left.extents(free_left), right.extents(free_right)])


def _known(dims: dict[str, int | None], group: str) -> int | None:
    total = 1
    for label in group:
        extent = dims[label]
        if extent is None:
            return None
        total *= extent
    return total


def _reshape_to(tensor: Tensor, known: Sequence[int | None], extents: Sequence[Tensor]) -> Tensor:
    """Reshapes to the known extents; uses `extents` at run time if -1 would be ambiguous."""
    if None not in known or (known.count(None) == 1 and 0 not in known):
        return reshape(tensor, [-1 if extent is None else extent for extent in known])
    result = reshape(tensor, concat(extents, 0))
    result.set_shape(known)
    return result
