"""Which calls of a segment become one CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.kernels.gpu.merging import merge_updates
from tensorbow.kernels.plan import Group, Launch


def launches_of(groups: Sequence[Group]) -> list[Launch]:
    """A segment's calls, neighbouring updates merged, cut around those that cannot be captured."""
    launches: list[Launch] = []
    together: list[Group] = []
    for group in merge_updates(groups):
        if group.kernel.capturable:
            together.append(group)
            continue
        if together:
            launches.append(Launch(tuple(together)))
            together = []
        why = group.kernel.why_alone or "its kernel cannot be captured"
        launches.append(Launch((group,), f"{group.definition.name} {group.name}: {why}"))
    if together:
        launches.append(Launch(tuple(together)))
    return launches
