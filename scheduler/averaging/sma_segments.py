"""Synchronous model averaging as plan segments: the replica's side and z's side (Crossbow, section 3).

z and the corrections have `slots` = staleness + 1 flat copies each. The n-th averaging reads z from
slot n mod slots (that is z of averaging n - slots), leaves corrections in that slot, and writes the
new z over it when all its readers are done.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.averaging.flat_groups import assign, clear_slots, floating, group, moved
from tensorbow.compiler import VariableLayout
from tensorbow.ops.averaging import SmaClear, SmaCorrect, SmaDifference, SmaMove, SmaSum
from tensorbow.program import Backend, Executable, Ref, Region, Segment
from tensorbow.specs import float64, int64

# Segments of a replica's executable; slot j's averaging update and restart follow at these places.
SEGMENT_GRADIENT, SEGMENT_UPDATE = 0, 1
FIRST_AVERAGING = 2


def averaging_segment(slot: int) -> int:
    """Place of the update segment that averages through a slot."""
    return FIRST_AVERAGING + 2 * slot


def restart_segment(slot: int) -> int:
    """Place of the segment that sets w = z from a slot."""
    return FIRST_AVERAGING + 2 * slot + 1


def with_averaging(
    executable: Executable,
    layout: VariableLayout,
    backend: Backend,
    slots: int,
    clear_velocity: bool,
    apart: bool = False,
) -> Executable:
    """Adds to a step, per slot, an update segment with averaging and a restart segment.

    apart: the averaging comes without the update, as a segment of its own after it.
    """
    if not slots:
        return executable
    gradient, update = executable.segments
    stride = layout.region_nbytes[Region.WEIGHTS]
    state = dict(executable.state)
    state_nbytes = executable.region_nbytes[Region.STATE]
    state["alpha"] = Ref(Region.STATE, state_nbytes, (), float64)
    scalars = (("alpha", state["alpha"]), ("status", state["status"]))
    segments = [gradient, update]
    for slot in range(slots):
        before, after, again = [], [], []
        for weights in floating(layout):
            central = moved(weights, Region.CENTRAL, slot * stride)
            correction = moved(weights, Region.CORRECTIONS, slot * stride)
            before.append(
                group(
                    SmaDifference,
                    backend,
                    (weights, central),
                    outputs=(correction,),
                    state=scalars,
                    note=f"c = alpha * (w - z){'' if apart else ', with w from before the update'}",
                )
            )
            after.append(group(SmaCorrect, backend, (weights, correction), writes=(weights,), note="w -= c"))
            again.append(assign(backend, weights, central, "w = z"))
        if clear_velocity:
            again.extend(clear_slots(layout, backend))
        if apart:
            segments.append(Segment(f"averaging {slot}", (*before, *after), fetches=False))
        else:
            segments.append(Segment(f"update, averaging {slot}", (*before, *update.groups, *after)))
        segments.append(Segment(f"restart {slot}", tuple(again), fetches=False))
    nbytes = {
        **executable.region_nbytes,
        Region.STATE: state_nbytes + 8,
        Region.CENTRAL: stride * slots,
        Region.CORRECTIONS: stride * slots,
    }
    return replace(executable, segments=tuple(segments), region_nbytes=nbytes, state=state)


# Segments of z's executable, three per slot.
REDUCE, MOVE, RESTART = 0, 1, 2


def central_segment(slot: int, kind: int) -> int:
    """Place of a slot's REDUCE, MOVE or RESTART segment."""
    return 3 * slot + kind


def central_executable(
    layout: VariableLayout, backend: Backend, replicas: int, slots: int, has_momentum: bool
) -> Executable:
    """The work of one device's sync stream: a = sum of c_i; z' = z + (u = mu u + G); u = 0.

    has_momentum: whether mu is not 0; without, z' = z + G, and u is not touched.
    CORRECTIONS is [replicas, slots, size]; the device's sum and then the sum over devices stand in
    SLAB; u stands in SLOTS.
    """
    stride = layout.region_nbytes[Region.WEIGHTS]
    mu = Ref(Region.STATE, 0, (), float64)
    segments = []
    for slot in range(slots):
        reduce, move, again = [], [], []
        previous = (slot - 1) % slots
        for weights in floating(layout):
            total, velocity = moved(weights, Region.SLAB, 0), moved(weights, Region.SLOTS, 0)
            before = moved(weights, Region.CENTRAL, previous * stride)
            after = moved(weights, Region.CENTRAL, slot * stride)
            corrections = tuple(
                moved(weights, Region.CORRECTIONS, (replica * slots + slot) * stride)
                for replica in range(replicas)
            )
            reduce.append(group(SmaSum, backend, corrections, outputs=(total,), note="in replica order"))
            if has_momentum:
                moved_z = group(
                    SmaMove,
                    backend,
                    (before, total, velocity),
                    outputs=(after,),
                    writes=(velocity,),
                    state=(("mu", mu),),
                )
            else:
                moved_z = group(SmaSum, backend, (before, total), outputs=(after,), note="mu is 0")
            move.append(moved_z)
            again.append(group(SmaClear, backend, (velocity,), writes=(velocity,), note="u = 0"))
            for other in range(slots):
                if other != slot:
                    target = moved(weights, Region.CENTRAL, other * stride)
                    again.append(assign(backend, target, after, "no older z is read after a restart"))
        for name, groups in (("reduce", reduce), ("move", move), ("restart", again)):
            segments.append(Segment(f"{name} {slot}", tuple(groups), fetches=False))
    return Executable(
        segments=tuple(segments),
        region_nbytes={
            Region.CENTRAL: stride * slots,
            Region.CORRECTIONS: stride * slots * replicas,
            Region.SLOTS: stride,
            Region.SLAB: stride,
            Region.STATE: 16,
        },
        inputs={},
        fetch_sources=(),
        fetches=(),
        ring_nbytes=0,
        state={"mu": mu, "status": Ref(Region.STATE, 8, (), int64)},
        scalars={},
        counters=(),
        constants=b"",
        reads_first=frozenset(),
        writes=frozenset(),
        peak_nbytes=stride,
        lower_bound_nbytes=stride,
    )
