"""Backends: what a plan becomes on a kind of device, and the border they share with the compiler."""

from tensorbow.kernels.backends import backend_for, register_backend
from tensorbow.kernels.joint import JointAveraging, JointInputs, JointLaunch, JointSteps, MadeBatches
from tensorbow.kernels.null import NullBackend
from tensorbow.kernels.plan import (
    Backend,
    BoundPlan,
    Executable,
    Group,
    PlannedLaunch,
    Ref,
    Region,
    Segment,
)
from tensorbow.kernels.reference import ReferenceBackend

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
    "NullBackend",
    "PlannedLaunch",
    "Ref",
    "ReferenceBackend",
    "Region",
    "Segment",
    "backend_for",
    "register_backend",
]
