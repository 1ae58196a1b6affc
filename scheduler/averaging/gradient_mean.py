"""Synchronous SGD as plan segments: one step on the mean of all replicas' gradients.

All replicas of a device write their gradients into one block of z's owner; its sync stream sums them in
replica order, the all-reduce sums over devices, and the mean lies behind z's slots in CENTRAL, where
every replica's update reads it in place of its own gradient. So equal weights stay equal, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scheduler.averaging.flat_groups import clear_slots, floating, group, moved
from tensorbow.compiler import VariableLayout
from tensorbow.errors import InvalidArgumentError
from tensorbow.ops.averaging import GradientCheck, GradientMean, GradientSpoil, SmaSum
from tensorbow.program import Backend, Executable, Group, Ref, Region, Segment


def update_segment(executable: Executable) -> int:
    """Place of the update on the mean gradient, the last but one."""
    return len(executable.segments) - 2


def clear_segment(executable: Executable) -> int:
    """Place of the segment that sets the optimiser's slots to what they start from, the last."""
    return len(executable.segments) - 1


def mean_groups(central: Executable) -> tuple[Group, ...]:
    """The calls of z's work that divide the sum of gradients, of the last segment."""
    return central.segments[-1].groups


def with_gradient_mean(
    executable: Executable, layout: VariableLayout, backend: Backend, z_slots: int
) -> Executable:
    """Adds to a step the update on the mean gradient, and the clearing of slots.

    Raises InvalidArgumentError for a variable whose gradient has no place of its own to be summed.
    """
    update = executable.segments[1]
    shift = z_slots * layout.region_nbytes[Region.WEIGHTS]
    status = ("status", executable.state["status"])
    checks = [
        group(
            GradientCheck,
            backend,
            (moved(weights, Region.CENTRAL, shift),),
            state=(status,),
            writes=(executable.state["status"],),
            note="sets the status when a mean gradient is not finite",
        )
        for weights in floating(layout)
    ]
    groups = tuple(_on_mean(entry, shift) for entry in update.groups)
    spoiled = tuple(
        group(
            GradientSpoil,
            backend,
            (replace(ref, shape=(1,)),),
            state=(status,),
            writes=(replace(ref, shape=(1,)),),
            note="a status that is set, by the loss, becomes that of all replicas",
        )
        for ref in _first_gradient(update.groups)
    )
    gradient = replace(executable.segments[0], groups=(*executable.segments[0].groups, *spoiled))
    cleared = tuple(clear_slots(layout, backend))
    segments = (
        gradient,
        *executable.segments[1:],
        Segment("update, mean gradient", (*checks, *groups)),
        Segment("clear slots", cleared, fetches=False),
    )
    stride = layout.region_nbytes[Region.WEIGHTS]
    nbytes = {**executable.region_nbytes, Region.CENTRAL: shift + stride}
    read = executable.read_elsewhere | {Region.GRADIENTS}
    return replace(executable, segments=segments, region_nbytes=nbytes, read_elsewhere=read)


def _first_gradient(groups: Sequence[Group]) -> list[Ref]:
    """One gradient that every step writes to its place among all; none where all are constants."""
    updates = [entry for entry in groups if entry.definition.update is not None]
    gradients = [entry.inputs[entry.definition.update[1]] for entry in updates if entry.definition.update]
    return [ref for ref in gradients if ref.region is Region.GRADIENTS and ref.nbytes][:1]


def _on_mean(entry: Group, shift: int) -> Group:
    """The same group, reading gradients where their mean is; what it writes waits for the checks."""
    update = entry.definition.update
    regions = (Region.GRADIENTS, Region.CONSTANT)  # a constant gradient is its own mean
    has_gradient = update is not None and entry.inputs[update[1]].region in regions
    written = [entry.inputs[index] for index in entry.definition.writes]
    if not has_gradient and any(ref.region is Region.WEIGHTS for ref in written):
        raise InvalidArgumentError(
            f"ssgd: {entry.definition.name} {entry.name} writes a trainable variable without a dense "
            "gradient of its own, which cannot be averaged; use sma (or, for rows of a variable, gather "
            f"from tb.identity(variable), whose gradient is dense) (made at {entry.source})"
        )

    def there(ref: Ref) -> Ref:
        return moved(ref, Region.CENTRAL, shift) if ref.region is Region.GRADIENTS else ref

    return replace(
        entry,
        inputs=tuple(there(r) for r in entry.inputs),
        reads=tuple(there(r) for r in entry.reads),
        predicated=bool(written),
    )


def with_gradient_sum(
    executable: Executable, layout: VariableLayout, backend: Backend, replicas: int, total: int
) -> Executable:
    """Adds to a sync stream's work the sum of `replicas` gradients, and the mean over `total`.

    GRADIENTS is [replicas, size]; the sum stands in SLAB, as that of the corrections.
    """
    stride = layout.region_nbytes[Region.WEIGHTS]
    shift = executable.region_nbytes[Region.CENTRAL]
    sums, means = [], []
    for weights in floating(layout):
        summed = moved(weights, Region.SLAB, 0)
        parts = [moved(weights, Region.GRADIENTS, replica * stride) for replica in range(replicas)]
        sums.append(group(SmaSum, backend, parts, outputs=(summed,), note="in replica order"))
        mean = moved(weights, Region.CENTRAL, shift)
        scaled = group(GradientMean, backend, (summed,), outputs=(mean,), note=f"divided by {total}")
        means.append(replace(scaled, attrs={"replicas": total}))
    segments = (
        *executable.segments,
        Segment("sum gradients", tuple(sums), fetches=False),
        Segment("mean gradient", tuple(means), fetches=False),
    )
    nbytes = {
        **executable.region_nbytes,
        Region.CENTRAL: shift + stride,
        Region.GRADIENTS: stride * replicas,
    }
    return replace(executable, segments=segments, region_nbytes=nbytes)
