"""Division of a segment's calls into CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.kernels.averaged_updates import merge_averaging
from tensorbow.kernels.gpu.fusion.maps import averaged_kernel
from tensorbow.kernels.merging import merge_updates
from tensorbow.program.plan import Group, PlannedLaunch


def launches_of(groups: Sequence[Group]) -> list[PlannedLaunch]:
    """A segment's calls as launches: neighbours that can be captured together form one.

    Neighbouring updates, and the averaging around them, are merged first.
    """
    launches: list[PlannedLaunch] = []
    together: list[Group] = []
    for group in merge_averaging(merge_updates(groups), averaged_kernel):
        if group.kernel.capturable:
            together.append(group)
            continue
        if together:
            launches.append(PlannedLaunch(tuple(together)))
            together = []
        why = group.kernel.why_alone or "its kernel cannot be captured"
        launches.append(PlannedLaunch((group,), f"{group.definition.name} {group.name}: {why}"))
    if together:
        launches.append(PlannedLaunch(tuple(together)))
    return launches
