"""The IR between the compiler and the backends: regions, references, groups, segments, bound plans.

Imports ops, the graph and devices; no backend.
"""

from tensorbow.program.backend import Backend
from tensorbow.program.plan import (
    DATA,
    BoundPlan,
    Executable,
    Group,
    PlannedLaunch,
    Ref,
    Region,
    Segment,
    SegmentKind,
)
from tensorbow.program.rounds import (
    STICKY,
    LaunchFeeds,
    RoundLaunch,
    RoundProgram,
    RoundProgramSpec,
)

__all__ = [
    "DATA",
    "STICKY",
    "Backend",
    "BoundPlan",
    "Executable",
    "Group",
    "LaunchFeeds",
    "PlannedLaunch",
    "Ref",
    "Region",
    "RoundLaunch",
    "RoundProgram",
    "RoundProgramSpec",
    "Segment",
    "SegmentKind",
]
