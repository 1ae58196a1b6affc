"""Building plan groups on flat vectors by hand: what averaging and gradient sums are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensorbow.compiler import VariableLayout
from tensorbow.graph import OpDef
from tensorbow.ops.averaging import SmaClear
from tensorbow.ops.definition import kernel_for
from tensorbow.ops.state import Assign
from tensorbow.program import Backend, Group, Ref, Region


def floating(layout: VariableLayout) -> Iterator[Ref]:
    """The flat vectors of the trainable variables, one per dtype."""
    return (ref for ref in layout.flat(Region.WEIGHTS) if ref.dtype.is_floating)


def clear_slots(layout: VariableLayout, backend: Backend) -> Iterator[Group]:
    """Sets each of the optimiser's floating variables to what it starts from."""
    for variable in layout.variables:
        ref = layout.ref(variable.name)
        if ref.region is Region.SLOTS and ref.dtype.is_floating:
            flat = replace(ref, shape=(ref.nbytes // ref.dtype.size,))
            start = variable.attrs["slot_value"]
            cleared = group(SmaClear, backend, (flat,), writes=(flat,), note=f"{variable.name} = {start:g}")
            yield replace(cleared, attrs={"value": start})


def moved(ref: Ref, region: Region, shift: int) -> Ref:
    """The same place in another region, `shift` bytes on."""
    return replace(ref, region=region, offset=ref.offset + shift)


def assign(backend: Backend, target: Ref, source: Ref, note: str) -> Group:
    """A copy between places."""
    kernel = kernel_for(Assign, backend.kernel_kind)
    return Group(
        "Assign", Assign, kernel, {}, (target, source), (), reads=(source,), writes=(target,), note=note
    )


def group(
    definition: OpDef,
    backend: Backend,
    inputs: Sequence[Ref],
    *,
    outputs: tuple[Ref, ...] = (),
    writes: tuple[Ref, ...] = (),
    state: tuple[tuple[str, Ref], ...] = (),
    note: str = "",
) -> Group:
    """One kernel call on flat vectors; it reads its inputs and state, and writes outputs and `writes`."""
    ignored = {inputs[index] for index in definition.ignores}
    return Group(
        name=definition.name,
        definition=definition,
        kernel=kernel_for(definition, backend.kernel_kind),
        attrs=dict(definition.attrs),
        inputs=tuple(inputs),
        outputs=outputs,
        state=state,
        reads=(*(ref for ref in inputs if ref not in ignored), *(ref for _, ref in state)),
        writes=(*outputs, *writes),
        note=note,
    )
