"""The IR between the compiler and the backends: regions, references, groups, segments, bound plans.

Imports ops, the graph and devices; no backend.
"""

from tensorbow.program.joint import JointAveraging, JointInputs, JointLaunch, JointSteps, MadeBatches
from tensorbow.program.plan import (
    Backend,
    BoundPlan,
    Executable,
    Group,
    PlannedLaunch,
    Ref,
    Region,
    Segment,
)

__all__ = [
    "Backend",
    "BoundPlan",
    "Executable",
    "Group",
    "JointAveraging",
    "JointInputs",
    "JointLaunch",
    "JointSteps",
    "MadeBatches",
    "PlannedLaunch",
    "Ref",
    "Region",
    "Segment",
]
