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
    CALL_ARGUMENTS,
    FAILED_WORKER,
    OTHERS_FAILED,
    STICKY,
    LaunchFeeds,
    NativeCall,
    RoundLaunch,
    RoundProgram,
    RoundProgramSpec,
    WorkerExchange,
)

__all__ = [
    "CALL_ARGUMENTS",
    "DATA",
    "FAILED_WORKER",
    "OTHERS_FAILED",
    "STICKY",
    "Backend",
    "BoundPlan",
    "Executable",
    "Group",
    "LaunchFeeds",
    "NativeCall",
    "PlannedLaunch",
    "Ref",
    "Region",
    "RoundLaunch",
    "RoundProgram",
    "RoundProgramSpec",
    "Segment",
    "SegmentKind",
    "WorkerExchange",
]
