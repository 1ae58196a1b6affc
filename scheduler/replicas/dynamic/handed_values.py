"""Values that lie where they are made: gradients for the update, and what one region leaves for another.

A region would copy its results, the executor hand them on, and their reader copy them once more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tensorbow.compiler import VariableLayout
from tensorbow.executor import DynamicPlan, StaticRegion
from tensorbow.executor.sequence import OpSequence, RegionPart
from tensorbow.graph import Operation, Tensor
from tensorbow.program import Ref, Region
from tensorbow.specs import TensorSpec

ALIGNMENT = 64  # bytes


def gradients_in_place(
    planned: Collection[Operation], crossing: Mapping[Tensor, TensorSpec], layout: VariableLayout
) -> dict[Tensor, Ref]:
    """Crossing tensors that update a weight, with their memory in GRADIENTS; at most one for each weight."""
    found: dict[Tensor, Ref] = {}
    taken = set[int]()
    for op in sorted(planned, key=lambda op: op.id):
        if op.definition.update is None:
            continue
        variable, gradient = (op.inputs[index] for index in op.definition.update)
        spec = crossing.get(gradient)
        if spec is None or gradient in found or variable.op.name not in layout.refs():
            continue
        home = layout.ref(variable.op.name)
        fits = home.region is Region.WEIGHTS and (home.shape, home.dtype) == (spec.shape, spec.dtype)
        if fits and home.offset not in taken:
            found[gradient] = Ref(Region.GRADIENTS, home.offset, home.shape, home.dtype)
            taken.add(home.offset)
    return found


def homes_of(
    plan: DynamicPlan,
    ops: frozenset[Operation],
    crossing: Collection[Tensor],
    gradients: Mapping[Tensor, Ref],
    known: Mapping[Tensor, TensorSpec],
) -> tuple[dict[Tensor, Ref], int]:
    """By value that lies in a home its memory, and the bytes of HANDED.

    A region makes it once in a step, and regions alone read it: what an op of the host reads, it may keep.
    """
    sequences = [node.sequence for node in plan.root.nodes if node.sequence is not None]
    everywhere = [node.sequence for frame in plan.frames for node in frame.nodes if node.sequence is not None]
    inside = {op for sequence in everywhere for region in sequence.regions for op in region.within}
    homes: dict[Tensor, Ref] = {}
    nbytes = 0
    for region in _once(sequences):
        for tensor in region.outputs:
            readers = {op for op in tensor.consumers() if op in ops and op not in region.within}
            if tensor in gradients and not readers:
                homes[tensor] = gradients[tensor]
                continue
            spec = known.get(tensor, tensor.spec)
            if not readers or not readers <= inside or not spec.is_static or tensor.dtype.is_string:
                continue
            homes[tensor] = Ref(Region.HANDED, nbytes, spec.extents, spec.dtype)
            nbytes += -(-max(homes[tensor].nbytes, 1) // ALIGNMENT) * ALIGNMENT
    return homes, nbytes


def _once(sequences: Collection[OpSequence]) -> list[StaticRegion]:
    """The regions of sequences that are in no loop and no branch."""
    parts = [part for sequence in sequences for part in sequence.parts]
    return [part.region for part in parts if isinstance(part, RegionPart)]
