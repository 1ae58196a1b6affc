"""Progress of a replica that z still lacks, of DiLoCo with staleness: a slot of each weight."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.averaging.synchronisation import Synchronisation
from tensorbow.compiler import VariableLayout
from tensorbow.graph import Graph, Operation, Tensor
from tensorbow.ops.state import VariableReference
from tensorbow.program.plan import Ref, Region

PROGRESS = "outer_progress"  # name of the slot


def replica_layout(variables: Iterable[Operation], options: Synchronisation) -> VariableLayout:
    """The layout of a replica's variables, and of what these options add to them."""
    own = [*variables]
    if not (options.outer_steps and options.staleness):
        return VariableLayout(own)
    with Graph().as_default():
        slots = [
            _slot_of(op) for op in own if op.attrs["role"] == "weights" and op.attrs["dtype"].is_floating
        ]
    return VariableLayout([*own, *slots])


def _slot_of(variable: Operation) -> Operation:
    slot: Tensor = VariableReference(
        shape=variable.attrs["shape"],
        dtype=variable.attrs["dtype"],
        role="slots",
        combine="first",
        slot_of=variable.name,
        slot_name=PROGRESS,
        name=progress_of(variable.name),
    )
    return slot.op


def progress_of(variable: str) -> str:
    """Name of the slot of a weight."""
    return f"{variable}/{PROGRESS}"


def progress_ref(layout: VariableLayout, flat: Ref) -> Ref:
    """The slots of all weights in a flat vector of `replica_layout`: a flat vector as well."""
    slots = (layout.ref(op.name) for op in layout.variables if op.attrs["slot_name"] == PROGRESS)
    first = min(ref.offset for ref in slots if ref.dtype == flat.dtype)
    return Ref(Region.SLOTS, first, flat.shape, flat.dtype)
