"""`tuple`: tensors of which none is there before all are."""

from __future__ import annotations

from typing import Any

from tensorbow.graph import Operation, as_tensor, control_dependencies, graph_of, name_scope
from tensorbow.kinds import Items, Name, checked, is_tensor, refuse
from tensorbow.ops.control import group, identity
from tensorbow.ops.indexed_slices import IndexedSlices


@checked
def tuple_(*tensors: Any, name: Name = None, control_inputs: Items = ()) -> list[Any]:
    """The same tensors, none of which is there before all of them and `control_inputs` are.

    tensors: one list of tensors, IndexedSlices and None, or several of them; None stays None.
    """
    if not all(isinstance(each, Operation) or is_tensor(each) for each in control_inputs):
        raise refuse("tuple", "control_inputs", "a list of tensors and operations", control_inputs)
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    waited = [_rows(each) for each in given if each is not None]
    with graph_of(waited).as_default(), name_scope(name or "tuple"):
        gate = group(*waited, *control_inputs)
        with control_dependencies([gate]):
            copies = iter([identity(each) for each in waited])
    return [
        None
        if each is None
        else each.with_values(next(copies))
        if isinstance(each, IndexedSlices)
        else next(copies)
        for each in given
    ]


def _rows(value: Any) -> Any:
    """The tensor to wait for; of IndexedSlices their values."""
    return value.values if isinstance(value, IndexedSlices) else as_tensor(value)
