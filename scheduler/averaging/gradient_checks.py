"""Before a replica writes anything: are its gradients finite? And what a task reports of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from scheduler.averaging.flat_groups import group
from tensorbow.ops.averaging import GradientCheck
from tensorbow.program import Backend, Executable, Group, Ref, Region
from tensorbow.specs import int64

RING_SLOT_NBYTES = 64  # of one fetched scalar


def with_checks(executable: Executable, backend: Backend, segments: Iterable[int]) -> Executable:
    """Adds to update segments a check of the gradients, and to the fetches the sticky status.

    A gradient or (by the compiler's guard) a loss that is not finite sets the status; while it is set no
    variable is written.
    """
    chosen = set(segments)
    gradient, update = executable.segments[:2]
    gradients = [*_joined(_gradients(update.groups)), *_rows(gradient.groups, update.groups)]
    status = executable.state["status"]
    checks = tuple(
        group(
            GradientCheck,
            backend,
            (ref,),
            state=(("status", status),),
            writes=(status,),
            note="sets the status when a gradient is not finite",
        )
        for ref in gradients
    )
    checked = tuple(
        replace(segment, groups=(*checks, *map(_predicated, segment.groups))) if place in chosen else segment
        for place, segment in enumerate(executable.segments)
    )
    fetched = Ref(Region.RING, executable.ring_nbytes, (), int64)
    ring_nbytes = executable.ring_nbytes + RING_SLOT_NBYTES
    return replace(
        executable,
        segments=checked,
        fetch_sources=(*executable.fetch_sources, status),
        fetches=(*executable.fetches, fetched),
        ring_nbytes=ring_nbytes,
        region_nbytes={**executable.region_nbytes, Region.RING: ring_nbytes},
    )


def _predicated(entry: Group) -> Group:
    """Predicates an update's writes on the checks, also without a loss that guards it."""
    return replace(entry, predicated=True) if entry.definition.writes else entry


def _gradients(groups: Iterable[Group]) -> Iterator[Ref]:
    """The gradients that updates read, as flat vectors, each once, by place; empty ones share theirs."""
    found: dict[tuple[Region, int], Ref] = {}
    for entry in groups:
        if entry.definition.update is None:
            continue
        ref = entry.inputs[entry.definition.update[1]]
        if ref.nbytes and ref.dtype.is_floating and ref.region is not Region.CONSTANT:
            found[ref.region, ref.offset] = replace(ref, shape=(math.prod(ref.shape),))
    return iter([found[key] for key in sorted(found)])


def _rows(gradient: Iterable[Group], update: Iterable[Group]) -> Iterator[Ref]:
    """Rows of sparse gradients: read by other writes of weights, made by the gradient segment."""
    made = {(ref.region, ref.offset) for entry in gradient for ref in entry.outputs if ref.nbytes}
    for entry in update:
        written = entry.definition.writes
        if entry.definition.update is None and any(entry.inputs[i].region is Region.WEIGHTS for i in written):
            for index, ref in enumerate(entry.inputs):
                key = (ref.region, ref.offset)
                if index not in written and ref.nbytes and ref.dtype.is_floating and key in made:
                    made.discard(key)  # once
                    yield replace(ref, shape=(math.prod(ref.shape),))
        made.difference_update((ref.region, ref.offset) for ref in entry.outputs)


def _joined(refs: Iterator[Ref]) -> Iterator[Ref]:
    """Neighbours in memory as one vector."""
    last: Ref | None = None
    for ref in refs:
        if last is not None and (ref.region, ref.dtype, ref.offset) == (
            last.region,
            last.dtype,
            last.offset + last.nbytes,
        ):
            last = replace(last, shape=(last.shape[0] + ref.shape[0],))
            continue
        if last is not None:
            yield last
        last = ref
    if last is not None:
        yield last
