"""Summary of a compiled step in a few lines of text: replicas, synchronisation, memory, calls, exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.averaging.synchronisation import Synchronisation
from scheduler.averaging.synchronisers import Synchroniser
from scheduler.replicas.central import CentralModel
from scheduler.replicas.dynamic.divided_parts import DividedParts
from scheduler.replicas.dynamic.divided_step import DividedExecutable
from scheduler.replicas.learners import Learners
from scheduler.replicas.memory import planned_nbytes
from scheduler.replicas.parted_learners import AnyLearners, PartedLearners
from scheduler.replicas.replica import Replica
from scheduler.replicas.round_launcher import why_not_fused
from tensorbow.compiler import PartedExecutable
from tensorbow.devices import Device
from tensorbow.kernels import backend_for
from tensorbow.program import Executable, SegmentKind
from tensorbow.runtime import Explanation
from tensorbow.runtime.explain import DynamicExplanation

DYNAMIC_PART = "the dynamic part of a replica:"


@dataclass(frozen=True)
class LearningExplanation:
    """Summary of a step of all replicas, and the plans of a replica and of a device. `str()` gives the text.

    averaging: None where replicas never meet. dynamic: of a step that is not all planned, what each replica's
    executor runs before its plan.
    """

    summary: Sequence[str]
    replica: Explanation
    averaging: Explanation | None
    dynamic: DynamicExplanation | None = None

    @property
    def peak_nbytes(self) -> int:
        """Bytes of a replica's slab: intermediate tensors and scratch."""
        return self.replica.peak_nbytes

    @property
    def lower_bound_nbytes(self) -> int:
        """Lower bound of a replica's slab."""
        return self.replica.lower_bound_nbytes

    def __str__(self) -> str:
        lines = [*self.summary]
        if self.dynamic is not None:
            lines += ["", DYNAMIC_PART, str(self.dynamic)]
        lines += ["", "the part of a replica:", str(self.replica)]
        if self.averaging is not None:
            lines += ["", "the part of a device:", str(self.averaging)]
        return "\n".join(lines)


def explained(learners: AnyLearners, number: int, results: int) -> str:
    """Summary of a step of all replicas, then the plans of a replica and of a device as `Session.explain`.

    number: of the step. results: so many of each replica are kept.
    """
    replica = learners.replicas[0]
    whole, executables = replica.step_of(number), replica.executables_of(number)
    parts = learners.parts if isinstance(learners, PartedLearners) else [learners]
    options, device = learners.options, learners.devices[0]
    lines = replicas_on(learners.devices, learners.per_device, options)
    if not isinstance(learners, PartedLearners):
        lines += mode_of(executables[0], device, options, learners.count)
    lines += execution_of(whole)
    plans: list[str] = []
    if (dynamic := dynamic_part_of(whole, device)) is not None:
        plans += ["", DYNAMIC_PART, str(dynamic)]
    for part, step in zip(parts, executables, strict=True):
        device = part.devices[0]
        lines += [*memory_of(step, part, results), *calls_of(step, device)]
        plans += ["", "the part of a replica:", str(Explanation.of_device(step.for_replica, device))]
        if step.shares_memory:
            shared = step.for_device(0, part.per_device[0])
            plans += ["", "the part of a device:", str(Explanation.of_device(shared, device))]
    return "\n".join(lines + plans)


def replicas_on(devices: Sequence[Device], per_device: Sequence[int], options: Synchronisation) -> list[str]:
    """Lines on the replicas of each device, or group of devices, and what keeps them together."""
    names = [device.name.short for device in devices]
    size = len(names) // len(per_device)
    groups = [" and ".join(names[first : first + size]) for first in range(0, len(names), size)]
    counts = [f"{count} on {group}" for count, group in zip(per_device, groups, strict=True)]
    replicas = sum(per_device)
    lines = [f"replicas: {replicas} ({', '.join(counts)})"]
    if options.averages(replicas):
        alpha = options.alpha_for(replicas)
        every = "every round" if options.tau == 1 else f"every {options.tau} rounds"
        how = f"averaging {every}, alpha {alpha:.4g}, mu {options.mu:g}"
        if options.outer_steps:
            rate, momentum = options.outer_learning_rate, options.outer_momentum
            how = f"an outer step {every}, learning rate {rate:g}, Nesterov momentum {momentum:g}"
        lines.append(f"synchroniser: {options.sync}, {how}")
    elif options.averages_gradients(replicas):
        which = f"the first {replicas - options.backup} gradients" if options.backup else "the mean gradient"
        lines.append(f"synchroniser: ssgd, every round on {which}")
    else:
        lines.append("synchroniser: none, replicas are independent" if replicas > 1 else "synchroniser: none")
    return lines


def execution_of(step: Executable | PartedExecutable) -> list[str]:
    """Lines on what runs a step: a plan, or the dynamic executor and then a plan, and why."""
    if not isinstance(step, (DividedExecutable, DividedParts)):
        return ["mode: planned"]
    part = step.part
    lines = [
        "mode: dynamic: the forward and backward pass by each replica's executor; exchanges, updates and "
        "averaging planned",
        f"why: {part.reason}",
    ]
    if part.ordered_by is not None:
        op = part.ordered_by
        lines.append(
            f"order: one replica after the other, as {op.type} {op.name} has effects (made at {op.source})"
        )
    return lines


def dynamic_part_of(step: Executable | PartedExecutable, device: Device) -> DynamicExplanation | None:
    """Explanation of the part of a step that the dynamic executor runs; None if it runs none."""
    if not isinstance(step, (DividedExecutable, DividedParts)):
        return None
    return DynamicExplanation(step.part.plan, str(device.name))


def mode_of(step: Executable, device: Device, options: Synchronisation, replicas: int) -> list[str]:
    """Line on the way in which the replicas of a GPU share it; none for other devices.

    replicas: on all devices.
    """
    if device.kind != "gpu":
        return []
    if options.first_come:
        return ["replica mode: each replica takes the next batch when it is free, and launches alone"]
    why = why_not_fused(step, device, options, replicas)
    refused = f"cannot be fused: {why}" if why else ""
    if options.fused and not why:
        return ["replica mode: fused, all replicas of a GPU in each kernel"]
    return [f"replica mode: captured, side by side; {refused or 'can be fused'}"]


def memory_of(executable: Executable, learners: Learners, results: int) -> list[str]:
    """Lines on the planned memory of a step, on the first device of its replicas. results: kept of each."""
    device, on_device = learners.devices[0], learners.per_device[0]
    workspaces = backend_for(device).workspaces(device)
    replica = planned_nbytes([*Replica.blocks(executable, learners.layout, results), *workspaces])
    beside = ""
    if executable.shares_memory:
        synchroniser = Synchroniser.of(learners.options, learners.count)
        blocks = CentralModel.blocks(executable, learners.layout, synchroniser, on_device)
        beside = f"; z and what replicas share {planned_nbytes([*blocks, *workspaces]):,} bytes beside them"
    return [f"memory on {device.name.short}: {replica:,} bytes of each replica{beside}"]


def calls_of(executable: Executable, device: Device) -> list[str]:
    """Lines on a step's kernel calls, by segment, and on its exchanges, with the bytes of each replica."""
    lines, exchanges, backend = [], [], backend_for(device)
    for segment in executable.segments:
        where = "of each replica" if segment.kind is SegmentKind.REPLICA else "of each device"
        calls = sum(len(launch.groups) for launch in backend.launches(segment)) or len(segment.groups)
        lines.append(f"segment {segment.name}: {calls} kernel call{'s' if calls != 1 else ''} {where}")
        for group in segment.groups:
            if group.definition.exchange:
                value = group.inputs[0]
                spec = f"{value.dtype.name}{list(value.shape)}, {value.nbytes:,} bytes of each replica"
                exchanges.append(f"exchange {group.definition.name} in {segment.name}: {spec}")
    return lines + (exchanges or ["exchanges: none"])
