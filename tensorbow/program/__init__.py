"""The IR between the compiler and the backends: regions, references, groups, segments, bound plans.

Imports ops, the graph and devices; no backend.
"""

from tensorbow.program.backend import Backend
from tensorbow.program.plan import (
    BoundPlan,
    Executable,
    Group,
    PlannedLaunch,
    Ref,
    Region,
    Segment,
)
from tensorbow.program.rounds import (
    Averaging,
    Exchange,
    Exchanges,
    GradientAveraging,
    LaunchInputs,
    MadeBatches,
    RoundLaunch,
    RoundProgram,
)

__all__ = [
    "Averaging",
    "Backend",
    "BoundPlan",
    "Exchange",
    "Exchanges",
    "Executable",
    "GradientAveraging",
    "Group",
    "LaunchInputs",
    "MadeBatches",
    "PlannedLaunch",
    "Ref",
    "Region",
    "RoundLaunch",
    "RoundProgram",
    "Segment",
]
