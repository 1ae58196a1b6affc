"""Static extents of shapes that are computed: what is known of a vector while the graph is built.

Of `tb.stack([n, 6])` the second extent is 6, and of `tb.shape(x)[1:]` those of x, so that layers on the
result know the sizes of their weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorbow.graph import Tensor
from tensorbow.kinds import is_tensor

DEEPEST = 32  # operations between a shape and what is known of it
_UNCHANGED = ("Cast", "Identity")
Extent = int | None


def with_known_extents(result: Tensor, shape: Any) -> Tensor:
    """`result` with the static extents that are known of its shape, a list of numbers and tensors, or a
    vector."""
    known = known_extents_of(shape)
    if known is not None:
        result.set_shape(known)
    return result


def known_extents_of(shape: Any) -> list[Extent] | None:
    """Extents of a shape, each None where it is not known, and -1; None if there is no tensor, or no rank."""
    if is_tensor(shape):
        return None if shape.spec.value is not None else _opened(_vector(shape, DEEPEST))
    if isinstance(shape, list) and any(map(is_tensor, shape)):
        return _opened([_scalar(each, DEEPEST) if is_tensor(each) else each for each in shape])
    return None


def _opened(extents: Sequence[Extent] | None) -> list[Extent] | None:
    return None if extents is None else [None if each is None or each < 0 else each for each in extents]


def _vector(tensor: Tensor, left: int) -> list[Extent] | None:
    """Entries of a vector; None if their number is unknown."""
    spec, op = tensor.spec, tensor.op
    if spec.value is not None:
        return [int(entry) for entry in spec.value.reshape(-1)]
    found: list[Extent] | None = None
    if left and op.type == "ConcatV2":
        parts = [_vector(part, left - 1) for part in op.inputs]
        if all(part is not None for part in parts):
            found = [entry for part in parts for entry in part or ()]
    elif left and op.type in ("ExpandDims", "Reshape") and op.inputs[0].spec.shape == ():
        found = [_scalar(op.inputs[0], left - 1)]
    elif op.type == "Shape":
        dims = op.inputs[0].spec.shape
        found = None if dims is None else [*dims]
    elif left and op.type == "StridedSlice" and (part := _index_of(tensor)) is not None:
        entries = _vector(op.inputs[0], left - 1)
        found = None if entries is None or not isinstance(part, slice) else entries[part]
    elif left and op.type in _UNCHANGED:
        found = _vector(op.inputs[0], left - 1)
    length = spec.shape[0] if spec.shape is not None and len(spec.shape) == 1 else None
    if found is None or (length is not None and len(found) != length):
        return None if length is None else [None] * length
    return found


def _scalar(tensor: Tensor, left: int) -> Extent:
    """A scalar's number, or None."""
    op = tensor.op
    if tensor.spec.value is not None:
        return int(tensor.spec.value)
    if left and op.type in _UNCHANGED:
        return _scalar(op.inputs[0], left - 1)
    if left and op.type == "StridedSlice" and isinstance(part := _index_of(tensor), int):
        entries = _vector(op.inputs[0], left - 1)
        if entries is not None and -len(entries) <= part < len(entries):
            return entries[part]
    return None


def _index_of(tensor: Tensor) -> int | slice | None:
    """The one index of a strided slice of a vector by constants."""
    index = tensor.op.attrs.get("index")
    if len(tensor.op.inputs) != 1 or not isinstance(index, tuple) or len(index) != 1:
        return None
    (part,) = index
    if isinstance(part, tuple) and len(part) == 3:
        return slice(*part)
    return part if isinstance(part, int) and not isinstance(part, bool) else None
